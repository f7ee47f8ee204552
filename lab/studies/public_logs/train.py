"""Trains a model of the public logs, as `design.py` says, with our model, loss, optimiser and checkpoints.

    python -m lab.studies.public_logs.train --log=A --seed=0 --corpus=FOLDER --workdir=runs/public_logs/A-0

FOLDER has {train,valid,test2016}.{de,en}, plain or .gz. The same command resumes a run from its last epoch. At the end
the run's record, a line of JSON, is WORKDIR/record.json. With --epochs=N it ends after so many epochs; there is no
verdict on such a run, and the same command without this flag goes on with it.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags
from jax.sharding import SingleDeviceSharding
from jaxtyping import PRNGKeyArray
from ml_collections import ConfigDict

from lab.studies.public_logs import parts, text
from lab.studies.public_logs.design import LOGS, PAIRS, Log, get_config
from vaswani.command import run
from vaswani.data.batching import Batch
from vaswani.data.sources import open_corpus
from vaswani.errors import UserError
from vaswani.files import write_text
from vaswani.infer.scores.bleu import bleu_as_is
from vaswani.run.averaging import load_choice
from vaswani.run.checkpoint import Checkpoints
from vaswani.run.folder import as_json, open_folder, record_launch
from vaswani.run.parameters import count_parameters
from vaswani.run.records import read_launches
from vaswani.search.options import Decoding
from vaswani.search.searches import run_search
from vaswani.tasks.config import model_config
from vaswani.tasks.loss import Loss
from vaswani.tasks.task import Objective
from vaswani.tasks.translation import make_example
from vaswani.train.optim import optimizer
from vaswani.train.step import init_state, make_eval_step, make_train_step

SPLITS = ("train", "valid", "test")


class Corpus(NamedTuple):
    """The vocabularies of the training text, and the splits."""

    tokenizer: Any
    train: text.Split
    valid: text.Split
    test: text.Split


def read_corpus(cfg: ConfigDict) -> Corpus:
    """Reads the corpus of a config, lower-cased if it says so."""
    texts = [text.read_texts(cfg.data[split], cfg.data.lowercase) for split in SPLITS]
    tokenizer = text.vocabularies(texts[0], cfg.data)
    return Corpus(tokenizer, *(text.encode(of_split, tokenizer, cfg.data.pack_length) for of_split in texts))


def manifests(cfg: ConfigDict) -> dict[str, dict]:
    """Returns what a launch records of the data."""
    return {split: {"sha256": {"corpus": open_corpus(cfg.data[split]).fingerprint}} for split in SPLITS}


@dataclass(frozen=True)
class PublishedObjective(Objective):
    """The published model, which begins with its own initial values, and its loss."""

    log: Log = field(kw_only=True)

    def init(self, key: PRNGKeyArray) -> dict:
        """Returns new parameters."""
        return parts.init_params(self.log, self.model.config, key)


def objective_of(log: Log, cfg: ConfigDict, corpus: Corpus) -> Objective:
    """Returns the published model with its initial values, and its loss."""
    tokenizer = corpus.tokenizer
    config = model_config(cfg, tokenizer.vocab_size, tokenizer.source_vocab_size)
    model = parts.model_of(log, config)
    return PublishedObjective(model, make_example, cfg.loss.eps_ls, cfg.loss.chunk, log=log)


def batch_means(losses: Sequence[Loss]) -> float:
    """Returns the mean of the batches' mean losses, in nats a token: what the published code prints."""
    return float(np.mean([float(loss.loss_sum) / float(loss.tokens) for loss in jax.device_get(list(losses))]))


def held_out(log: Log, split: text.Split, length: int) -> list[Batch]:
    """Returns the batches of validation or test."""
    words_nk = split.words_nk
    order_n = np.arange(len(words_nk)) if log.order == "file" else text.by_length(words_nk)
    return list(text.batches(split, text.cut(order_n), length))


def train(log: Log, cfg: ConfigDict, workdir: Path, epochs: int) -> dict[str, Any]:
    """Trains until so many epochs are done; returns curves, test and cost.

    Raises:
      UserError: the corpus or the folder is at fault.
    """
    corpus = read_corpus(cfg)
    objective = objective_of(log, cfg, corpus)
    tx = optimizer(cfg.optim, cfg.model.d_model, cfg.steps)
    init_key, dropout_key = jax.random.split(jax.random.key(cfg.seed))
    init = partial(init_state, objective.init, tx)
    train_step = make_train_step(objective, tx, accumulate=1)
    eval_step = make_eval_step(objective)
    length = cfg.data.pack_length

    def loss_on(params: dict, split: text.Split) -> float:
        return batch_means([eval_step(params, batch) for batch in held_out(log, split, length)])

    with open_folder(cfg, workdir):
        # The last epoch's state, if there is one; else a new one.
        checkpoints = Checkpoints(workdir / "checkpoints", cfg.checkpoint)
        done: dict[str, Any] = {"order": log.order, "train": [], "valid": [], "seconds": 0.0}
        device = SingleDeviceSharding(jax.devices()[0])
        if checkpoints.latest() is None:
            state = jax.jit(init)(init_key)
        else:
            shapes = jax.eval_shape(init, init_key)
            placed = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=device), shapes)
            state, done = checkpoints.restore(placed)
            if done["order"] != log.order:
                raise UserError(f"--workdir={workdir}: its run has the order {done['order']}; use another folder")
        record_launch(workdir, manifests(cfg), int(state.step))
        parameters = count_parameters(state.params)
        print(f"{parameters:,} parameters, {len(corpus.train.records):,} pairs", flush=True)

        for epoch in range(len(done["train"]), epochs):
            started = time.monotonic()
            # As the published code: batches of an order that is new in every epoch, and the loss with dropout.
            rng = np.random.default_rng([cfg.seed, epoch])
            members = text.order(log.order, corpus.train.words_nk, rng)
            losses: list[Loss] = []
            for batch in text.batches(corpus.train, members, length):
                state, sums = train_step(state, batch, dropout_key)
                losses.append(sums.loss)
            done["train"].append(batch_means(losses))
            done["valid"].append(loss_on(state.params, corpus.valid))
            done["seconds"] += time.monotonic() - started
            valid = done["valid"][-1]
            print(f"epoch {epoch + 1}: train {done['train'][-1]:.3f}, valid {valid:.3f}", flush=True)
            metrics = {"loss": valid, "nll": valid, "perplexity": float(np.exp(valid))}
            checkpoints.save(int(state.step), state, done, metrics, as_json(cfg))
        checkpoints.close()

        # The parameters of the best validation are tested.
        (best,), params = load_choice(workdir, cfg.decode.checkpoint)
        test = {"test": loss_on(params, corpus.test), "bleu": bleu(objective, params, corpus)}
    return {"parameters": parameters, "best_step": best, **done, **test}


def bleu(objective: Objective, params: dict, corpus: Corpus) -> float:
    """Returns BLEU of the greedy translations of the test sentences, as they are, with unknown words as <unk>."""
    search = jax.jit(partial(run_search, objective.model, Decoding(beam=1, alpha=0.0, extra_length=0)))
    sources = [source for source, _ in corpus.test.records]
    width = max(map(len, sources))
    hypotheses: list[str] = []
    for members_i in text.cut(np.arange(len(sources))):
        source_bs = np.zeros((PAIRS, width), np.int32)
        for row, number in enumerate(members_i):
            source_bs[row, : len(sources[number])] = sources[number]
        found = jax.device_get(search(params, source_bs))
        for row in range(len(members_i)):
            ids = found.ids_bmt[row, 0, : found.lengths_bm[row, 0] - 1].tolist()  # without EOS
            hypotheses.append(" ".join(corpus.tokenizer.target.pieces(ids)))
    return bleu_as_is(hypotheses, [target for _, target in corpus.test.texts]).value


def train_seed(name: str, log: Log, cfg: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Trains a seed of a log to its end; returns its record, which WORKDIR/record.json has then, too."""
    done = train(log, cfg, workdir, log.epochs)
    launches = read_launches(workdir)
    record = {
        "study": "public_logs",
        "log": name,
        "seed": cfg.seed,
        **done,
        "git": [launch["git"] for launch in launches],
        "device": launches[-1]["device"],
        "versions": launches[-1]["versions"],
        "hours": done["seconds"] / 3600,
    }
    write_text(workdir / "record.json", f"{json.dumps(record)}\n")
    return record


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    if not options.workdir:
        raise UserError("--workdir=DIR: the folder of the run is missing")
    cfg = get_config(f"{options.log}:{options.corpus}")
    cfg.seed = options.seed
    log = LOGS[options.log]
    log = log._replace(order=options.order or log.order, epochs=min(options.epochs or log.epochs, log.epochs))
    train_seed(options.log, log, cfg, Path(options.workdir))


if __name__ == "__main__":
    flags.DEFINE_enum("log", "A", list(LOGS), "which published run")
    flags.DEFINE_integer("seed", 0, "of parameters, order and dropout")
    flags.DEFINE_string("corpus", "", "folder of the corpus; by default multi30k_spacy beside the downloaded ones")
    flags.DEFINE_enum("order", None, ["random", "pools", "file"], "another order of pairs; such a run has no verdict")
    flags.DEFINE_integer("epochs", None, "end after so many epochs, if the log has more", lower_bound=1)
    flags.DEFINE_string("workdir", "", "folder of the run")
    run(main, hint="the log is given as --log=A")

"""Measures the loss of the reference under forced prefixes and under the model's own, by position, in nats.

    python -m infer --workdir=RUN --split=test
    python -m lab.studies.forcing.measure --workdir=RUN

The result is added to the newest evaluation of the test split, so that a record of the run has both.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from lab.evaluation import evaluation_file
from lab.studies.forcing.design import POSITIONS
from vaswani.data.sources import open_corpus
from vaswani.files import write_json
from vaswani.ids import BOS, EOS, PAD
from vaswani.infer.api import LoadedRun
from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import Run, open_run
from vaswani.model.transformer import Transformer
from vaswani.read_json import read_json
from vaswani.tokens import Tokens


def main(options: Any) -> None:
    """Measures each run, prints both losses of each position, and adds the result to its evaluation."""
    for workdir in options.workdir:
        run = open_run(workdir, options.checkpoint, "translation")
        path = evaluation_file(run)
        measured = forced_and_own(run, [*open_corpus(run.config.data.test).pairs()])
        for t, (forced, own) in enumerate(zip(measured["forced"], measured["own"], strict=True), 1):
            print(f"{workdir} position {t}: {forced:.3f} forced, {own:.3f} own", flush=True)
        write_json(path, {**read_json(path, dict), "own_prefixes": measured})


def forced_and_own(run: Run, pairs: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Returns the mean losses by position, the share of prefixes that have left the reference, and the loss of these.

    The loss of these is over all positions after the first; it is None if no prefix has left.
    """
    sources = [source for source, _ in pairs]
    source_bs = padded([[*run.tokenizer.encode(source), EOS] for source in sources])
    target_bt = padded([[*run.tokenizer.target.encode(target), EOS] for _, target in pairs])
    written = LoadedRun(run).hypotheses(sources, beam=1)
    own_bt = padded([best.tokens for (best,) in written])
    labels_bt = target_bt[:, :POSITIONS]
    # Shifted right: the prefix of position t ends with token t - 1.
    forced_prefix_bt = np.insert(labels_bt, 0, BOS, axis=1)[:, :POSITIONS]
    own_prefix_bt = np.insert(own_bt[:, :POSITIONS], 0, BOS, axis=1)[:, :POSITIONS]
    forced_bt = losses(run, source_bs, forced_prefix_bt, labels_bt)
    own_loss_bt = losses(run, source_bs, own_prefix_bt, labels_bt)
    there_bt = (labels_bt != PAD) & (own_bt[:, :POSITIONS] != PAD)
    left_bt = there_bt & np.logical_or.accumulate(forced_prefix_bt != own_prefix_bt, axis=1)
    counts_t = there_bt.sum(0)
    return {
        "forced": ((forced_bt * there_bt).sum(0) / counts_t).tolist(),
        "own": ((own_loss_bt * there_bt).sum(0) / counts_t).tolist(),
        "left": (left_bt.sum(0) / counts_t).tolist(),
        "own_of_left": float(own_loss_bt[left_bt].mean()) if left_bt.any() else None,
    }


def padded(rows: Sequence[Sequence[int]]) -> Int[np.ndarray, "b t"]:
    """Returns ids in rows of at least `POSITIONS`, with padding behind."""
    ids_bt = np.full((len(rows), max(POSITIONS, *map(len, rows))), PAD, np.int32)
    for ids_t, row in zip(ids_bt, rows, strict=True):
        ids_t[: len(row)] = row
    return ids_bt


def losses(
    run: Run,
    source_bs: Int[np.ndarray, "b s"],
    prefix_bt: Int[np.ndarray, "b t"],
    labels_bt: Int[np.ndarray, "b t"],
) -> Float[np.ndarray, "b t"]:
    """Returns -log p(y_t | prefix) of the labels; of padding it says nothing."""
    apply = jax.jit(Transformer(run.model_config).apply)
    logits_btv = apply({"params": run.params}, Tokens.of(jnp.array(source_bs)), Tokens.of(jnp.array(prefix_bt)))
    log_probs_btv = np.asarray(jax.nn.log_softmax(logits_btv))
    return -np.take_along_axis(log_probs_btv, labels_bt[:, :, None], axis=-1)[:, :, 0]


if __name__ == "__main__":
    define_run_flags(several=True)
    start(main, hint="the run is given as --workdir=DIR")

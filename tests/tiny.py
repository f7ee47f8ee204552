"""Small texts, models, configs, batches and runs: a test that needs one finds it here.

A model is `TINY`, or `TINY` with some of its fields changed, with the parameters of `perturbed`. A training has
`training_config`; a run that commands read, without being trained, is written by `write_run`.
"""

import atexit
import io
import json
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import sentencepiece
from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.data.batching import Batch
from vaswani.data.grammar import sentences as grammar
from vaswani.data.tokenizer import Tokenizer
from vaswani.ids import EOS
from vaswani.infer.runs import Run
from vaswani.model.config import ModelConfig
from vaswani.model.noise import Noise
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.run.checkpoint import Checkpoints
from vaswani.tasks.config import model_config
from vaswani.tasks.loss import Loss
from vaswani.tasks.task import Objective
from vaswani.tokens import Tokens

# Texts

PAIRS = (
    ("The dog sleeps.", "Der Hund schläft."),
    ("We read a new book.", "Wir lesen ein neues Buch."),
    ("The old cat sees the dog.", "Die alte Katze sieht den Hund."),
    ("You write an e-mail.", "Du schreibst eine E-Mail."),
)
LINES = [line for pair in PAIRS for line in pair]
WORDS = ["a", "the", "dog", "cat", "man", "woman", "walks", "runs", "old", "young", "red", "two", "street", "house"]


@cache
def tokenizer() -> Tokenizer:
    """Returns a tokenizer of 320 subwords, learned from `LINES`."""
    with tempfile.TemporaryDirectory() as folder:
        return Tokenizer.train(LINES, 320, Path(folder) / "tokenizer.model")


def given_tokenizer(**options: Any) -> Tokenizer:
    """Returns one as a user may give it: a sentencepiece model with the ids that we need, and other `options`."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 3), model_writer=model, model_type="bpe", vocab_size=320, byte_fallback=True,
        pad_id=0, bos_id=1, eos_id=2, unk_id=3, minloglevel=2, **options,
    )  # fmt: skip
    return Tokenizer(model.getvalue())


# Models

TINY = ModelConfig(vocab_size=23, N=2, d_model=16, d_ff=24, h=2, d_k=6, d_v=10, max_positions=40, P_drop=0.0)


def with_loss(objective: Objective, loss: Callable[..., Loss]) -> Objective:
    """Returns the objective with another loss, a function of the parameters, the batch and the noise."""

    class Other(type(objective)):
        def loss(self, *arguments):
            return loss(*arguments)

    return Other(**vars(objective))


def perturbed(config, seed=0):
    """Returns parameters of about their initial size, none of them special: no bias is 0, no norm scale is 1."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        size = 0.1 if len(leaf.shape) == 1 else config.d_model**-0.5
        return jnp.asarray((path[-1].key == "scale") + size * rng.standard_normal(leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, _shapes(config))


@cache
def _shapes(config):
    return jax.eval_shape(lambda: init_params(Transformer(config), jax.random.key(0)))


def noise(seed=0, rows=8, bits="threefry"):
    """The noise of a training pass over so many rows."""
    return Noise(jax.random.key(seed), jnp.arange(rows), bits)


def apply(config, params, *args, **kwargs):
    """Calls `Transformer.apply`, turning arrays of ids into `tokens` of one sentence per row."""
    args = [tokens(x) if getattr(x, "dtype", None) == np.int32 and x.ndim == 2 else x for x in args]
    return Transformer(config).apply({"params": params}, *args, **kwargs)


def apply_jitted(config, params, *args, method=None):
    """`apply`, compiled once for each config, method and shapes; not for use inside another compiled function."""
    return _compiled(config, method)(params, args)


@cache
def _compiled(config, method):
    return jax.jit(lambda params, args: apply(config, params, *args, method=method))


# Batches


def padded_ids(rng, lengths, width, vocab_size):
    """Returns rows of random ids of the given lengths, right-padded with 0 to `width`."""
    ids = rng.integers(1, vocab_size, (len(lengths), width))
    return np.where(np.arange(width) < np.asarray(lengths)[:, None], ids, 0).astype(np.int32)


def tokens(ids, segments=None, positions=None):
    """Returns `Tokens` of arrays; segments and positions default to one sentence per row."""
    one = Tokens.of(jnp.asarray(ids))
    given = {"segments_bt": segments, "positions_bt": positions}
    return one._replace(**{name: jnp.asarray(value) for name, value in given.items() if value is not None})


def batch(rows: int = 4, length: int = 6, vocab_size: int = 20, seed: int = 0) -> Batch:
    """Returns random sentences, one per row, of unequal lengths; the last row is empty, as in an epoch's last batch."""
    rng = np.random.default_rng(seed)
    lengths_b = rng.integers(2, length + 1, size=rows)
    lengths_b[-1] = 0
    real_bt = np.arange(length) < lengths_b[:, None]
    segments_bt = real_bt.astype(np.int32)
    positions_bt = (np.arange(length) * real_bt).astype(np.int32)
    source_bs, target_in_bt, target_out_bt = (
        (rng.integers(4, vocab_size, size=(rows, length)) * real_bt).astype(np.int32) for _ in range(3)
    )
    source = Tokens(source_bs, segments_bt, positions_bt)
    target = Tokens(target_in_bt, segments_bt, positions_bt)
    return Batch(source, target, target_out_bt)


# Configs of trainings


def training_config(folder: Path) -> ConfigDict:
    """Writes 200 random pairs into `folder` and returns a one-layer config; one batch shape, so one compilation."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 200), ("valid", 8)):
        lines = [" ".join(rng.choice(WORDS, size=rng.integers(2, 7))) for _ in range(count)]
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in lines))
        (folder / f"{split}.de").write_text("".join(f"{line[::-1]}\n" for line in lines))
    cfg = default()
    cfg.steps, cfg.log_every = 12, 4
    cfg.data.train, cfg.data.valid = (f"text:{folder}/{split}.{{en,de}}" for split in ("train", "valid"))
    cfg.data.update({"cache": str(folder / "cache"), "vocab_size": 300, "tokens_per_batch": 192, "max_length": 48})
    cfg.data.update({"buckets": (48,), "pack_length": 48})
    cfg.model.update({"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "d_k": 4, "d_v": 4, "P_drop": 0.1})
    cfg.optim.warmup = 8
    cfg.checkpoint.every, cfg.eval.every, cfg.eval.bleu_sentences = 4, 100, 0
    return cfg


def shrink(cfg: ConfigDict, folder: Path, length: int, vocab_size: int) -> None:
    """Makes a config of configs/ small enough for a test: one layer, and batches of eight rows of `length` tokens."""
    cfg.data.cache = str(folder / "cache")
    cfg.data.vocab_size = vocab_size
    cfg.data.max_length = cfg.data.pack_length = length
    cfg.data.buckets = (length,)
    cfg.data.tokens_per_batch = 8 * length
    cfg.model.update({"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "d_k": 8, "d_v": 8, "P_drop": 0.1})


def config_file(folder: Path, cfg: ConfigDict) -> Path:
    """Writes a config file whose `get_config()` is `cfg`."""
    path = folder / "tiny_config.py"
    path.write_text(
        "from vaswani.configs.common import default\n\n\ndef get_config():\n    cfg = default()\n"
        + "".join(f"    cfg.{key} = {value!r}\n" for key, value in _leaves(cfg))
        + "    return cfg\n"
    )
    return path


def _leaves(cfg: ConfigDict, prefix: str = "") -> list[tuple[str, object]]:
    leaves: list[tuple[str, object]] = []
    for key, value in cfg.items():
        leaves += _leaves(value, f"{prefix}{key}.") if isinstance(value, ConfigDict) else [(prefix + key, value)]
    return leaves


# Runs that nobody trained

METRICS = {1: {"loss": 3.0, "bleu": 1.0}, 2: {"loss": 2.0, "bleu": 9.0}, 3: {"loss": 1.0, "bleu": 4.0}, 4: None}


class State(NamedTuple):
    """The part of a training state that readers use."""

    step: Any
    params: Any


def write_run(folder: Path, pairs: tuple[tuple[str, str], ...] = PAIRS, vocab_size: int = 320) -> Path:
    """Writes a run with checkpoints 1 to 4, of which 2 has the best BLEU, as training would leave it; returns `folder`.

    Its subwords are learned from `pairs`, which are its test split, too.
    """
    shutil.copytree(_written(pairs, vocab_size), folder)
    for language, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        (folder.parent / f"tiny.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(run_config(folder, vocab_size).to_dict()))
    return folder


def write_grammar_run(folder: Path, **corpora: str) -> Path:
    """Writes a run as `write_run` does, of subwords from the built-in grammar, so that its sentences are short.

    `corpora` replace those of its `config.data`.
    """
    examples = [grammar.pair("train", i) for i in range(400)]
    write_run(folder, tuple((example.english, example.german) for example in examples), vocab_size=1200)
    config = json.loads((folder / "config.json").read_text())
    config["data"].update(corpora)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@lru_cache
def _written(pairs: tuple[tuple[str, str], ...], vocab_size: int) -> Path:
    """Returns a folder with what does not depend on its name, written once in each process of tests."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    cfg = run_config(folder, vocab_size)
    lines = [line for pair in pairs for line in pair]
    tokenizer = Tokenizer.train(lines, vocab_size, folder / "tokenizer.model")
    checkpoints = Checkpoints(folder / "checkpoints", cfg.checkpoint)
    for step, metrics in METRICS.items():
        state = State(np.int32(step), run_params(tokenizer.vocab_size, cfg, step))
        checkpoints.save(step, state, {"epoch": 0}, metrics, {"seed": 0})
    checkpoints.close()
    return folder


def run_config(folder: Path, vocab_size: int = 320) -> ConfigDict:
    """Returns a config with two layers of two heads, whose test split `write_run` writes."""
    cfg = default()
    cfg.data.vocab_size = vocab_size
    cfg.data.test = f"text:{folder.parent}/tiny.{{en,de}}"
    cfg.model.update({"N": 2, "d_model": 8, "d_ff": 16, "h": 2, "d_k": 4, "d_v": 4})
    cfg.decode.update({"beam": 1, "extra_length": 3, "checkpoint": "average:3"})
    return cfg


def run_params(vocab_size: int, cfg: ConfigDict, step: int) -> Any:
    """Returns the parameters of checkpoint `step`: the same initial ones, with a small change for each step."""
    rng = np.random.default_rng(step)
    fresh = _fresh(model_config(cfg, vocab_size))
    return jax.tree.map(lambda leaf: leaf + rng.normal(scale=0.02, size=leaf.shape).astype(np.float32), fresh)


@lru_cache
def _fresh(model: ModelConfig) -> Any:
    return jax.device_get(init_params(Transformer(model), jax.random.key(0)))


def random_run(**model: object) -> Run:
    """Returns a run of no folder whose parameters are `perturbed`, with these fields of `config.model`."""
    cfg = run_config(Path("nowhere"))
    cfg.model.update(model)
    config = model_config(cfg, tokenizer().vocab_size)
    params = jax.device_get(perturbed(config))
    return Run(Path("nowhere"), cfg, config, tokenizer(), params, 1, (1,))


def ending_run() -> Run:
    """Returns a `random_run` in which the end is likely, so that most searches end after a few tokens."""
    width = {"d_model": 16, "h": 2, "d_k": 8, "d_v": 8, "norm_epsilon": 1e-5}
    run = random_run(N=2, **width, output_bias=True)
    likely_end = 3.0 * (np.arange(run.model_config.vocab_size) == EOS)
    return run._replace(params=run.params | {"output_bias": run.params["output_bias"] + likely_end})

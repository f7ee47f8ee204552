"""Checks a config's keys, types and values before anything is written."""

from itertools import pairwise
from typing import Any

from ml_collections import ConfigDict

from base.errors import UserError, flat
from run.config import check_keys

CHOICES = {
    "task": ("translation", "prefix_lm", "language_model", "masked_lm", "denoising", "classification", "vision"),
    "data.units": ("subwords", "words", "characters", "words,characters", "characters,words"),
    "data.batching": ("bucket", "pack", "window"),
    "optim.name": ("adam", "adamw"),
    "optim.schedule": ("paper", "cosine", "inverse_sqrt"),
}
AT_LEAST_1 = (
    *("steps", "log_every", "eval.every", "checkpoint.every", "checkpoint.keep_last", "optim.warmup"),
    *("optim.accumulate", "data.vocab_size", "data.max_length", "data.tokens_per_batch", "data.pack_length"),
    *("decode.beam", "data.max_ratio", "data.mean_span"),
)
AT_LEAST_0 = (
    *("seed", "checkpoint.every_minutes", "checkpoint.keep_best", "checkpoint.keep_every", "eval.bleu_sentences"),
    *("checkpoint.every_epochs", "eval.every_epochs", "eval.patience", "optim.warmup_from"),
    *("loss.chunk", "image.shift", "optim.weight_decay", "optim.clip_norm"),
    *("decode.extra_length", "decode.alpha"),
)
ABOVE_0 = ("optim.lr", "optim.eps")
FRACTIONS = ("optim.b1", "optim.b2", "loss.eps_ls")  # at least 0, below 1


def check(cfg: ConfigDict, default: ConfigDict) -> None:
    """Raises a `UserError` naming the first key that is unknown or missing, or has the wrong type or value.

    `default` has every legal key. The values of `model.*` are checked by `model.config`, corpora by `data.sources`.
    """
    check_keys(cfg.to_dict(), default.to_dict(), "config")
    given = flat(cfg.to_dict())
    for key, allowed in CHOICES.items():
        _require(given[key] in allowed, key, given[key], f"one of {', '.join(allowed)}")
    for key in AT_LEAST_1:
        _require(given[key] >= 1, key, given[key], "at least 1")
    for key in AT_LEAST_0:
        _require(given[key] >= 0, key, given[key], "at least 0")
    for key in ABOVE_0:
        _require(given[key] > 0, key, given[key], "above 0")
    for key in FRACTIONS:
        _require(0 <= given[key] < 1, key, given[key], "at least 0 and below 1")
    _require(0 < given["data.mask_rate"] < 1, "data.mask_rate", given["data.mask_rate"], "above 0 and below 1")
    units, joiner = given["data.units"], given["data.joiner"]
    reads_symbols = given["task"] in ("translation", "prefix_lm", "language_model")
    _require(reads_symbols or units == "subwords", "data.units", units, f"subwords for task {given['task']}")
    written = units.rpartition(",")[2]
    _require(not joiner or written == "words", "data.joiner", joiner, "empty unless the target's units are words")
    prefix = given["model.prefix"]
    right = (given["task"] == "prefix_lm") == (prefix != "none")
    _require(right, "model.prefix", prefix, "full or causal for task prefix_lm, and none for others")
    buckets = given["data.buckets"]
    ascending = len(buckets) > 0 and buckets[0] >= 1 and all(a < b for a, b in pairwise(buckets))
    _require(ascending, "data.buckets", buckets, "positive lengths in ascending order")


def check_device(cfg: ConfigDict) -> None:
    """Raises a `UserError` if `model.attention_impl` is a kernel that this process's devices cannot run."""
    import jax  # only now, to keep `check` fast

    from model.mixers.kernels import PLATFORMS

    impl, device = cfg.model.attention_impl, jax.default_backend()
    runs = impl not in PLATFORMS or PLATFORMS[impl] == device
    _require(runs, "model.attention_impl", impl, f"einsum on this device ({device})")


def check_rows(cfg: ConfigDict, train: Any, valid: Any) -> None:
    """Raises a `UserError` if the prepared corpora need rows longer than the table of learned positions."""
    from data.batching import length_batches  # only now, to keep `check` fast

    if cfg.model.positions != "learned":
        return
    tokens, packed = cfg.data.tokens_per_batch, cfg.data.batching != "bucket"
    for name, corpus in {"data.train": train, "data.valid": valid}.items():
        longest = max(one.length for one in length_batches(corpus.lengths.max(axis=1), cfg.data.buckets, tokens=tokens))
        if cfg.data.batching == "window" or (packed and corpus is train):
            longest = cfg.data.pack_length
        what = f"at least {longest}, as long as the rows of {name}"
        _require(cfg.model.max_positions >= longest, "model.max_positions", cfg.model.max_positions, what)


def _require(right: bool, key: str, value: Any, what: str) -> None:
    if not right:
        raise UserError(f"config: {key} is {value!r}; it must be {what}")

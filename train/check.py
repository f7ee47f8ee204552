"""Checks a config's keys, types and values before anything is written."""

import re
from itertools import pairwise
from typing import Any

from ml_collections import ConfigDict

from vaswani import tasks
from vaswani.configs.rules import broken
from vaswani.data.tokenizer import NORMALISATIONS
from vaswani.errors import UserError
from vaswani.keys import flat
from vaswani.run.choice import CHOICES as CHECKPOINTS
from vaswani.run.choice import is_choice
from vaswani.run.config import check_keys
from vaswani.search.options import PENALTIES, STOPPINGS, allowed, limits

CHOICES = {
    "task": tuple(tasks.MODULES),
    "data.normalisation": NORMALISATIONS,
    "decode.length_penalty": PENALTIES,
    "decode.stopping": STOPPINGS,
}
AT_LEAST_1 = (
    "checkpoint.every",
    "checkpoint.keep_last",
    "data.max_length",
    "data.max_ratio",
    "data.mean_span",
    "data.min_frequency",
    "data.pack_length",
    "data.tokens_per_batch",
    "eval.every",
    "log_every",
    "optim.accumulate",
    "optim.warmup",
    "steps",
)
AT_LEAST_0 = (
    "checkpoint.every_epochs",
    "checkpoint.every_minutes",
    "checkpoint.keep_best",
    "checkpoint.keep_every",
    "data.vocab_size",
    "diagnose_every",
    "eval.bleu_sentences",
    "eval.every_epochs",
    "eval.patience",
    "image.shift",
    "loss.chunk",
    "optim.clip_norm",
    "optim.warmup_from",
    "optim.weight_decay",
    "seed",
)
SEARCH = ("beam", "alpha", "extra_length")  # keys of `decode` with the flags' limits
MOST = {"data.vocab_size": 1_000_000}  # no vocabulary is as large; refused here, before a corpus is read
ABOVE_0 = ("optim.lr", "optim.eps")
FRACTIONS = ("optim.b1", "optim.b2", "optim.ema", "loss.eps_ls")  # at least 0, below 1


def check(cfg: ConfigDict, default: ConfigDict) -> None:
    """Raises a `UserError` naming the first key that is unknown or missing, or has the wrong type or value.

    `default` has every legal key. configs/rules.py says what goes with what; sizes of the model are checked by
    `model.config`, corpora by `data.sources`.
    """
    check_keys(cfg.to_dict(), default.to_dict(), "config")
    given = flat(cfg.to_dict())
    defaults = flat(default.to_dict())

    _check_ranges(given)
    if fault := broken(given, defaults):
        raise UserError(f"config: {fault}")
    buckets = given["data.buckets"]
    positive = len(buckets) > 0 and buckets[0] >= 1
    ascending = all(shorter < longer for shorter, longer in pairwise(buckets))
    _require("data.buckets", buckets, positive and ascending, "positive lengths in ascending order")


def _check_ranges(given: dict[str, Any]) -> None:
    """Checks what each value may be by itself."""

    def require(key: str, right: bool, what: str) -> None:
        _require(key, given[key], right, what)

    for key, values in CHOICES.items():
        require(key, given[key] in values, f"one of {', '.join(values)}")
    for key in AT_LEAST_1:
        require(key, given[key] >= 1, "at least 1")
    for key in AT_LEAST_0:
        require(key, given[key] >= 0, "at least 0")
    for name in SEARCH:
        require(f"decode.{name}", allowed(name, given[f"decode.{name}"]), limits(name))
    require("decode.checkpoint", is_choice(given["decode.checkpoint"]), f"one of {CHECKPOINTS}")
    for key, most in MOST.items():
        require(key, given[key] <= most, f"at most {most:,}")
    for key in ABOVE_0:
        require(key, given[key] > 0, "above 0")
    for key in FRACTIONS:
        require(key, 0 <= given[key] < 1, "at least 0 and below 1")
    require("data.mask_rate", 0 < given["data.mask_rate"] < 1, "above 0 and below 1")


def parse_profile(text: str, steps: int) -> tuple[int, int]:
    """Returns the first and the last step that `--profile=FIRST:LAST` names, in a run of `steps` steps.

    Raises:
      UserError: it is not of that form, or names steps that the run will not make.
    """
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text)
    if not match:
        raise UserError(f"--profile={text}: it must be FIRST:LAST, the steps to trace, like 10:12")
    first, last = int(match[1]), int(match[2])
    if not 1 <= first <= last <= steps:
        raise UserError(f"--profile={text}: both must be steps of this run, from 1 to steps={steps}, in this order")
    return first, last


def _require(key: str, value: Any, right: bool, what: str) -> None:
    if not right:
        raise UserError(f"config: {key} is {value!r}; it must be {what}")

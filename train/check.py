"""Checks a config's keys, types and values before anything is written."""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from ml_collections import ConfigDict

from vaswani import tasks
from vaswani.data.tokenizer import NORMALISATIONS
from vaswani.errors import UserError
from vaswani.infer.translate.options import PENALTIES, STOPPINGS, allowed, limits
from vaswani.keys import flat
from vaswani.run.choice import CHOICES as CHECKPOINTS
from vaswani.run.choice import EMA, is_choice
from vaswani.run.config import check_keys

CHOICES = {
    "task": tuple(tasks.MODULES),
    "data.units": ("subwords", "words", "characters", "words,characters", "characters,words"),
    "data.normalisation": NORMALISATIONS,
    "data.batching": ("bucket", "pack", "window"),
    "optim.name": ("adam", "adamw", "muon", "ademamix", "adafactor", "schedule_free_adamw"),
    "optim.schedule": ("paper", "cosine", "inverse_sqrt", "constant"),
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
SEARCH = ("beam", "alpha", "extra_length")  # keys of `decode` whose limits are those of the flags
MOST = {"data.vocab_size": 1_000_000}  # no vocabulary is as large; refused here, before a corpus is read
ABOVE_0 = ("optim.lr", "optim.eps")
# What muP (train/mup.py) is derived for, beside what model/config.py says of the model. Without factors in the forward
# pass the norm of the softmax matrix's gradient grows with width, and so would what clipping does.
MUP = {"task": ("translation", "denoising"), "optim.name": ("adam",), "optim.clip_norm": (0.0,)}
FRACTIONS = ("optim.b1", "optim.b2", "optim.ema", "loss.eps_ls")  # at least 0, below 1
OF_ADAM = ("optim.b1", "optim.b2", "optim.eps")  # Adafactor has means of squares alone, with decays of its own
# Tasks whose models have no encoder-decoder attention; and what then has no effect with a mixer without attention
# weights, or without heads.
ONE_STACK = ("language_model", "masked_lm", "classification", "vision")
OF_WEIGHTS = ("model.P_drop_attention", "model.scale_attention", "model.softmax_one")
OF_HEADS = ("model.qk_norm", "model.biases")
# Keys that the models of these tasks would ignore. The softmax of the first two always has a bias, and over classes a
# matrix of its own; images have no embeddings of tokens.
UNUSED = {
    "masked_lm": ("model.output_bias",),
    "classification": ("model.output_bias", "model.tie_embeddings"),
    "vision": ("model.output_bias", "model.scale_embeddings", "model.scale_logits", "model.tie_embeddings"),
}

Require = Callable[[str, bool, str], None]  # a key, whether its value is right, and what it must be


def check(cfg: ConfigDict, default: ConfigDict) -> None:
    """Raises a `UserError` naming the first key that is unknown or missing, or has the wrong type or value.

    `default` has every legal key. The values of `model.*` are checked by `model.config`, corpora by `data.sources`.
    """
    check_keys(cfg.to_dict(), default.to_dict(), "config")
    given = flat(cfg.to_dict())
    defaults = flat(default.to_dict())

    def require(key: str, right: bool, what: str) -> None:
        _require(key, given[key], right, what)

    _check_ranges(given, require)
    _check_text(given, require)
    _check_model(given, defaults, require)
    _check_optimiser(given, defaults, require)
    buckets = given["data.buckets"]
    positive = len(buckets) > 0 and buckets[0] >= 1
    ascending = all(shorter < longer for shorter, longer in pairwise(buckets))
    require("data.buckets", positive and ascending, "positive lengths in ascending order")


def _check_text(given: dict[str, Any], require: Require) -> None:
    """Checks how text is read: whether it fits the task, and one key another."""
    task = given["task"]
    units = given["data.units"]
    reads_symbols = task in (*tasks.TRANSLATION, "language_model")
    require("data.units", reads_symbols or units == "subwords", f"subwords for task {task}")
    writes_words = units.rpartition(",")[2] == "words"
    require("data.joiner", writes_words or not given["data.joiner"], "empty unless the target's units are words")

    has_two_sides = task in ("translation", "recurrent_translation")
    require("data.share_vocabulary", given["data.share_vocabulary"] or has_two_sides, f"True for task {task}")
    is_counted = units != "subwords" and not given["data.tokenizer"]
    what = "1 where no vocabulary of words or characters is made of data.train"
    require("data.min_frequency", given["data.min_frequency"] == 1 or is_counted, what)

    fits = given["data.normalisation"] != "none" or not given["data.lowercase"]
    require("data.normalisation", fits, "nfkc or plain_nfkc with data.lowercase=True, which is part of them")

    fits = (given["data.classes"] != "") == (task == "classification")
    require("data.classes", fits, "two classes or more for task classification, and empty for others")


def _check_model(given: dict[str, Any], defaults: dict[str, Any], require: Require) -> None:
    """Checks whether the model is one of the task, and that no key is set which it would ignore."""
    from vaswani.model.mixers import MIXERS  # only now, since it loads jax

    task = given["task"]
    has_prefix = given["model.prefix"] != "none"
    fits = has_prefix == (task == "prefix_lm")
    require("model.prefix", fits, "full or causal for task prefix_lm, and none for others")

    is_recurrent = given["model.recurrent"] != "none"
    fits = is_recurrent == (task == "recurrent_translation")
    require("model.recurrent", fits, "fixed, additive or dot for task recurrent_translation, and none for others")
    fits = is_recurrent or given["model.cell"] == "lstm"
    require("model.cell", fits, f"lstm for task {task}, which has no other cell")

    has_two_stacks = task in ("translation", "denoising")
    for key in ("model.N_encoder", "model.N_decoder"):
        require(key, has_two_stacks or not given[key], f"0 for task {task}, which has one number of layers, model.N")
    fits = has_two_stacks or not given["model.norm_embeddings"]
    require("model.norm_embeddings", fits, f"False for task {task}, whose model would ignore it")

    mixer = given["model.mixer"]
    ignored: list[str] = []
    if task in ONE_STACK and mixer in MIXERS:  # model.config refuses others
        can = MIXERS[mixer]
        ignored += () if can.weights else OF_WEIGHTS
        ignored += () if can.heads else OF_HEADS
    for key in ignored:
        off = defaults[key]
        require(key, given[key] == off, f"{off} for task {task} with model.mixer={mixer}, which would ignore it")
    for key in UNUSED.get(task, ()):
        off = defaults[key]
        require(key, given[key] == off, f"{off} for task {task}, whose model would ignore it")


def _check_optimiser(given: dict[str, Any], defaults: dict[str, Any], require: Require) -> None:
    """Checks whether the optimiser, its schedule and its average fit the model, and one another."""
    optimiser = given["optim.name"]
    require("optim.b1", given["optim.b1"] > 0 or optimiser != "ademamix", "above 0 with optim.name=ademamix")
    fits = optimiser != "muon" or given["model.recurrent"] == "none"
    require("optim.name", fits, f"another for task {given['task']}, which has none of the matrices that muon is for")
    decays = optimiser not in ("adam", "adafactor")
    require("optim.weight_decay", decays or not given["optim.weight_decay"], f"0 with optim.name={optimiser}")
    if optimiser == "adafactor":
        for key in OF_ADAM:
            off = defaults[key]
            require(key, given[key] == off, f"{off} with optim.name={optimiser}, which would ignore it")
    if optimiser == "schedule_free_adamw":
        is_constant = given["optim.schedule"] == "constant"
        require("optim.schedule", is_constant, f"constant with optim.name={optimiser}, which needs no falling rate")

    schedule = given["optim.schedule"]
    fits = schedule == "inverse_sqrt" or not given["optim.warmup_from"]
    require("optim.warmup_from", fits, f"0.0 with optim.schedule={schedule}, which warms up from 0")
    fits = given["decode.checkpoint"] != EMA or given["optim.ema"] > 0
    require("decode.checkpoint", fits, "another where optim.ema is 0, which keeps no average")

    if given["model.parametrisation"] == "mup":
        for key, derived in MUP.items():
            what = " or ".join(map(str, derived))
            require(key, given[key] in derived, f"{what} with model.parametrisation=mup")


def _check_ranges(given: dict[str, Any], require: Require) -> None:
    """Checks what each value may be by itself."""
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


def profiled(text: str, steps: int) -> tuple[int, int]:
    """Returns the first and the last update that `--profile=FIRST:LAST` names, in a run of `steps` updates.

    Raises:
      UserError: it is not of that form, or names updates that the run will not make.
    """
    match = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text)
    if not match:
        raise UserError(f"--profile={text}: it must be FIRST:LAST, the updates to trace, like 10:12")
    first, last = int(match[1]), int(match[2])
    if not 1 <= first <= last <= steps:
        raise UserError(f"--profile={text}: both must be updates of this run, from 1 to steps={steps}, in this order")
    return first, last


def check_device(cfg: ConfigDict) -> None:
    """Raises a `UserError` if `model.attention_impl` is a kernel that this process's devices cannot run."""
    import jax  # only now, to keep `check` fast

    from vaswani.model.mixers.kernels import PLATFORMS

    impl = cfg.model.attention_impl
    device = jax.default_backend()
    runs = impl not in PLATFORMS or PLATFORMS[impl] == device
    _require("model.attention_impl", impl, runs, f"einsum on this device ({device})")


def _require(key: str, value: Any, right: bool, what: str) -> None:
    if not right:
        raise UserError(f"config: {key} is {value!r}; it must be {what}")

"""What each key of a config may be, and what goes with what: one table, which every check reads.

`CHOICES` lists the values of the keys that are a choice. A row of `RULES` says that some values need others, and why. A
row lists what it allows and refuses all else, so a new kind of positions or a new mixer is refused wherever no row
names it yet. This file imports nothing: a mistyped flag is answered before jax is loaded.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

CHOICES: dict[str, tuple[str, ...]] = {
    "data.units": ("subwords", "words", "characters", "words,characters", "characters,words"),
    "data.batching": ("bucket", "pack", "window"),
    "model.positions": ("sinusoidal", "learned", "rope", "alibi", "t5", "shaw", "none"),
    "model.norm": ("post", "pre", "deep", "none"),
    "model.norm_kind": ("layer", "rms"),
    "model.activation": ("relu", "gelu", "gelu_tanh", "silu", "geglu", "geglu_tanh", "swiglu"),
    "model.scores": ("dot", "additive"),
    "model.dtype": ("float32", "bfloat16"),
    "model.remat": ("none", "full", "dots"),
    "model.dropout_bits": ("threefry", "hash"),
    "model.attention_impl": ("auto", "einsum", "chunked", "splash", "cudnn"),
    "model.mixer": ("attention", "restricted", "strided", "linear", "recurrent", "convolution"),
    "model.prefix": ("none", "full", "causal"),
    "model.recurrent": ("none", "fixed", "additive", "dot"),
    "model.cell": ("lstm", "gru"),
    "model.parametrisation": ("standard", "mup"),
    "optim.name": ("adam", "adamw", "muon", "ademamix", "adafactor", "schedule_free_adamw"),
    "optim.schedule": ("paper", "cosine", "inverse_sqrt", "constant"),
}


class Condition(NamedTuple):
    """A condition on a value, where it is not one of a list: how a message says it, and whether it holds."""

    words: str
    holds: Callable[[Any, Any, Mapping[str, Any]], bool]  # of the value, the key's default, and all that is given


Allowed = tuple[Any, ...] | Condition


class Rule(NamedTuple):
    """Where every key of `when` has one of these values, every key of `needs` must have one of those."""

    when: dict[str, Allowed]
    needs: dict[str, Allowed]
    why: str


def _either(values: tuple[Any, ...]) -> str:
    """Returns "a", or "a, b or c"."""
    *first, last = [str(value) or "empty" for value in values]
    return f"{', '.join(first)} or {last}" if first else last


def other_than(*values: Any) -> Condition:
    """Returns the condition that a value is none of these, so that a new one is held to the rule."""
    return Condition(f"other than {_either(values)}", lambda value, default, given: value not in values)


def _equal_to(key: str) -> Condition:
    return Condition(f"equal to {key}", lambda value, default, given: value == given[key])


OFF = Condition("left at its default", lambda value, default, given: value == default)
SET = Condition("other than its default", lambda value, default, given: value != default)
EVEN = Condition("even", lambda value, default, given: value % 2 == 0)
ABOVE_0 = Condition("above 0", lambda value, default, given: value > 0)
NOT_EMPTY = Condition("given", lambda value, default, given: value != "")
OF_CUDNN = Condition("a multiple of 8 up to 256", lambda value, default, given: value % 8 == 0 and value <= 256)

# Kinds of positions, by where they act.
ADDED = ("sinusoidal", "learned", "none")  # to the embeddings, or nowhere
ROTARY = ("rope",)  # on queries and keys
BIASES = ("alibi", "t5")  # on the scores
VECTORS = ("shaw",)  # on scores and values

# What mixers have.
WITH_WEIGHTS = ("attention", "restricted", "strided")  # attention weights, which can be shown
WITH_HEADS = (*WITH_WEIGHTS, "linear")  # projections to heads, their biases and norms, and gains of initial values

TRANSLATORS = ("translation", "prefix_lm", "recurrent_translation")
ENCODER_DECODER = ("translation", "denoising")  # tasks of the paper's two stacks
KERNEL = other_than("auto", "einsum")
NETWORK = other_than("none")  # of model.recurrent

# Keys of the model that a recurrent translator would ignore. The sizes among the others (h, d_k, ..) have no value that
# is off, so any will do.
NOT_RECURRENT = (
    "P_drop_attention",
    "P_drop_relu",
    "N_encoder",
    "N_decoder",
    "norm",
    "norm_kind",
    "norm_epsilon",
    "residual",
    "norm_embeddings",
    "activation",
    "biases",
    "feed_forward_biases",
    "scores",
    "scale_attention",
    "softmax_one",
    "qk_norm",
    "remat",
    "attention_impl",
    "scan_layers",
    "share_layers",
    "mixer",
    "prefix",
    "parametrisation",
)

RULES: tuple[Rule, ...] = (
    # Text, and the tasks that read it.
    Rule(
        {"data.units": other_than("subwords")},
        {"task": (*TRANSLATORS, "language_model")},
        "only these tasks read words and characters",
    ),
    Rule(
        {"data.joiner": SET},
        {"data.units": ("words", "characters,words")},
        "the words of the target are what it joins",
    ),
    Rule(
        {"data.share_vocabulary": (False,)},
        {"task": ("translation", "recurrent_translation")},
        "only these have a source and a target with matrices of their own",
    ),
    Rule(
        {"data.min_frequency": SET},
        {"data.units": other_than("subwords"), "data.tokenizer": ("",)},
        "it counts the words or characters of data.train, where a vocabulary is made of them",
    ),
    Rule(
        {"data.lowercase": (True,)},
        {"data.normalisation": ("nfkc", "plain_nfkc")},
        "lower-casing is a part of them",
    ),
    Rule({"data.classes": SET}, {"task": ("classification",)}, "no other task predicts the class of a text"),
    Rule({"task": ("classification",)}, {"data.classes": NOT_EMPTY}, "these are what it predicts, two or more"),
    # The model of a task.
    Rule({"model.prefix": other_than("none")}, {"task": ("prefix_lm",)}, "no other model has a prefix"),
    Rule({"task": ("prefix_lm",)}, {"model.prefix": ("full", "causal")}, "its source is the prefix of its target"),
    Rule({"model.recurrent": NETWORK}, {"task": ("recurrent_translation",)}, "other models are no recurrent networks"),
    Rule(
        {"task": ("recurrent_translation",)},
        {"model.recurrent": ("fixed", "additive", "dot")},
        "that is what its decoder knows of the source",
    ),
    Rule(
        {"model.cell": other_than("lstm")},
        {"model.recurrent": ("fixed", "additive", "dot")},
        "other models have no cell",
    ),
    Rule({"model.N_encoder": SET}, {"task": ENCODER_DECODER}, "other models have one number of layers, model.N"),
    Rule({"model.N_decoder": SET}, {"task": ENCODER_DECODER}, "other models have one number of layers, model.N"),
    Rule({"model.norm_embeddings": SET}, {"task": ENCODER_DECODER}, "other models would ignore it"),
    Rule(
        {"task": ("masked_lm", "classification", "vision")},
        {"model.output_bias": OFF},
        "its softmax always has a bias",
    ),
    Rule({"task": ("classification", "vision")}, {"model.tie_embeddings": OFF}, "its softmax is over classes"),
    Rule(
        {"task": ("vision",)},
        {"model.scale_embeddings": OFF, "model.scale_logits": OFF},
        "it embeds no tokens",
    ),
    # A translator's encoder-decoder attention has weights and heads whatever the mixer.
    Rule(
        {"task": other_than(*ENCODER_DECODER), "model.mixer": other_than(*WITH_WEIGHTS)},
        {"model.P_drop_attention": OFF, "model.scale_attention": OFF, "model.softmax_one": OFF},
        "nothing in this model has attention weights",
    ),
    Rule(
        {"task": other_than(*ENCODER_DECODER), "model.mixer": other_than(*WITH_HEADS)},
        {"model.qk_norm": OFF, "model.biases": OFF},
        "nothing in this model has heads",
    ),
    Rule(
        {"model.recurrent": NETWORK},
        {"model.positions": ("none",)} | {f"model.{key}": OFF for key in NOT_RECURRENT},
        "recurrent networks would ignore it",
    ),
    Rule({"model.recurrent": other_than("none", "fixed")}, {"model.d_model": EVEN}, "each direction has half of it"),
    # Positions.
    Rule({"model.positions": ("sinusoidal",)}, {"model.d_model": EVEN}, "sines and cosines come in pairs"),
    Rule({"model.positions": ("rope",)}, {"model.d_k": EVEN}, "it rotates pairs"),
    # Mixers.
    Rule(
        {"model.mixer": other_than("attention")},
        {"model.positions": (*ADDED, *ROTARY, *BIASES)},
        "it has no relative vectors",
    ),
    Rule(
        {"model.mixer": other_than(*WITH_WEIGHTS)},
        {"model.positions": ADDED},
        "it has no scores for relative positions to act on",
    ),
    Rule({"model.mixer": ("recurrent",)}, {"model.d_model": EVEN}, "each direction has half of it"),
    # Scores and kernels.
    Rule(
        {"model.scores": other_than("dot")},
        {"model.mixer": ("attention",), "model.positions": (*ADDED, *BIASES), "model.scale_attention": (True,)},
        "they have no dot products",
    ),
    Rule({"model.attention_impl": KERNEL}, {"model.mixer": ("attention",)}, "other mixers have no kernel"),
    Rule(
        {"model.attention_impl": KERNEL},
        {
            "model.P_drop_attention": (0.0,),
            "model.positions": (*ADDED, *ROTARY),
            "model.scores": ("dot",),
            "model.softmax_one": (False,),
            "model.scale_attention": (True,),
        },
        "it computes softmax(Q K^T / sqrt(d_k)) V and nothing else; einsum does",
    ),
    Rule(
        {"model.attention_impl": other_than("auto", "einsum", "chunked")},
        {"model.prefix": ("none",)},
        "it cannot mask a prefix; einsum and chunked can",
    ),
    Rule({"model.attention_impl": ("cudnn",)}, {"model.dtype": ("bfloat16",)}, "it computes in half precision only"),
    Rule({"model.attention_impl": ("cudnn",)}, {"model.d_k": OF_CUDNN}, "it takes no other widths"),
    Rule({"model.attention_impl": ("cudnn",)}, {"model.d_k": _equal_to("model.d_v")}, "it takes no other widths"),
    Rule(
        {"model.prefix": other_than("none")},
        {"model.mixer": ("attention",), "model.positions": ("sinusoidal", "none", *ROTARY, *BIASES, *VECTORS)},
        "source and target are one row, of whatever length",
    ),
    # Norms and residual connections.
    Rule({"model.norm": ("none",)}, {"model.norm_kind": OFF, "model.norm_epsilon": OFF}, "there is no norm"),
    Rule({"model.norm": ("deep",)}, {"model.mixer": WITH_HEADS}, "it multiplies initial values that others lack"),
    Rule({"model.norm": ("deep",)}, {"model.residual": (True,)}, "it weights the residual connections"),
    # What muP (train/mup.py) is derived for. Without factors in the forward pass the norm of the softmax matrix's
    # gradient grows with width, and so would what clipping does.
    Rule(
        {"model.parametrisation": other_than("standard")},
        {
            "task": ENCODER_DECODER,
            "optim.name": ("adam",),
            "optim.clip_norm": (0.0,),
            "model.tie_embeddings": (False,),
            "model.scale_embeddings": (True,),
            "model.scale_logits": (False,),
            "model.scale_attention": (True,),
            "model.qk_norm": (False,),
            "model.scores": ("dot",),
            "model.mixer": ("attention",),
            "model.positions": ("sinusoidal", "none", "rope", "alibi"),
            "model.prefix": ("none",),
            "model.norm": ("post", "pre", "deep"),
            "model.residual": (True,),
        },
        "its rates are derived for nothing else",
    ),
    # Optimisers.
    Rule({"optim.name": ("muon",)}, {"model.recurrent": ("none",)}, "there are none of the matrices that it is for"),
    Rule({"optim.name": ("ademamix",)}, {"optim.b1": ABOVE_0}, "its slow mean is made of it"),
    Rule(
        {"optim.name": ("adafactor",)},
        {"optim.b1": OFF, "optim.b2": OFF, "optim.eps": OFF},
        "it has only means of squares, with decays of its own",
    ),
    Rule({"optim.name": ("schedule_free_adamw",)}, {"optim.schedule": ("constant",)}, "it needs no falling rate"),
    Rule(
        {"optim.weight_decay": SET},
        {"optim.name": ("adamw", "muon", "ademamix", "schedule_free_adamw")},
        "others have no decoupled decay",
    ),
    Rule({"optim.warmup_from": SET}, {"optim.schedule": ("inverse_sqrt",)}, "others warm up from 0"),
    Rule({"decode.checkpoint": ("ema",)}, {"optim.ema": ABOVE_0}, "without a decay there is no running mean"),
)


def broken(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> str | None:
    """Returns what is wrong with the values of some keys, in one line that names them, or None if they go together.

    Keys that are not given do not count, so a model's config is checked without a task or an optimiser.
    """

    def holds(allowed: Allowed, key: str) -> bool:
        if isinstance(allowed, Condition):
            return allowed.holds(given[key], defaults.get(key), given)
        return given[key] in allowed

    for key, choices in CHOICES.items():
        if key in given and given[key] not in choices:
            return f"{key} is {given[key]!r}; it must be one of {', '.join(choices)}"
    for rule in RULES:
        if not all(key in given and holds(allowed, key) for key, allowed in rule.when.items()):
            continue
        for key, allowed in rule.needs.items():
            if key in given and not holds(allowed, key):
                cause = " with ".join(f"{name}={given[name]}" for name in rule.when)
                return f"{cause} needs {key} to be {_words(allowed, key, defaults)}; it is {given[key]!r}: {rule.why}"
    return None


def _words(allowed: Allowed, key: str, defaults: Mapping[str, Any]) -> str:
    if allowed is OFF:
        return repr(defaults[key])
    return allowed.words if isinstance(allowed, Condition) else _either(allowed)

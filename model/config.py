"""The model's sizes and variants, named as in the paper."""

import dataclasses
from collections.abc import Iterable

from vaswani.model.mixers import MIXERS
from vaswani.model.positions import KINDS, NoPositions

POSITIONS = tuple(KINDS)
ABSOLUTE = ("sinusoidal", "learned", "none")  # positions that act on embeddings alone
NORMS = ("post", "pre", "deep")
NORM_KINDS = ("layer", "rms")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
GATED = ("geglu", "swiglu")  # feed-forward networks with a gate
DTYPES = ("float32", "bfloat16")
DROPOUT_BITS = ("threefry", "hash")
ATTENTION_IMPLS = ("einsum", "chunked", "splash", "cudnn")
REMATS = ("none", "full", "dots")
SCORES = ("dot", "additive")
PREFIXES = ("none", "full", "causal")
PARAMETRISATIONS = ("standard", "mup")

# Larger sizes are refused at once: initialising them would take hours or fill any memory before it failed.
WIDEST = 1 << 20
LARGEST = {"N": 1_000, "vocab_size": 1 << 24, "max_positions": 1 << 24}

SIZES = (
    "vocab_size",
    "N",
    "d_model",
    "d_ff",
    "h",
    "d_k",
    "d_v",
    "max_positions",
    "max_distance",
    "neighbours",
    "kernel_width",
    "mup_width",
)
RATES = ("P_drop", "P_drop_attention", "P_drop_relu")
CHOICES = {
    "positions": POSITIONS,
    "norm": NORMS,
    "norm_kind": NORM_KINDS,
    "activation": (*ACTIVATIONS, *GATED),
    "dtype": DTYPES,
    "remat": REMATS,
    "dropout_bits": DROPOUT_BITS,
    "attention_impl": ATTENTION_IMPLS,
    "mixer": tuple(MIXERS),
    "scores": SCORES,
    "prefix": PREFIXES,
    "parametrisation": PARAMETRISATIONS,
}
# The fields that muP (train/mup.py) depends on, and the values that it is derived for.
MUP = {
    "tie_embeddings": (False,),
    "scale_embeddings": (True,),
    "scale_logits": (False,),
    "scale_attention": (True,),
    "qk_norm": (False,),
    "scores": ("dot",),
    "mixer": ("attention",),
    "positions": ("sinusoidal", "rope", "alibi", "none"),
    "prefix": ("none",),
}


@dataclasses.dataclass(frozen=True)
class CommonConfig:
    """What every model has, Transformers (`ModelConfig`) and recurrent networks alike: layers, embeddings, softmax.

    configs/common.py explains what each field does and where it comes from.

    Raises:
      ValueError: a field is out of its range; the message names the field, its value and what is allowed.
    """

    vocab_size: int
    N: int = 6
    d_model: int = 512
    P_drop: float = 0.1
    output_bias: bool = False
    scale_embeddings: bool = True
    scale_logits: bool = False
    tie_embeddings: bool = True
    dtype: str = "float32"
    dropout_bits: str = "threefry"

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if field in SIZES:
                _check_size(field, value)
            if field in RATES and not 0.0 <= value < 1.0:
                raise ValueError(f"model.{field} is {value}; it must be at least 0 and below 1")
            if field in CHOICES:
                check_choice(field, value, CHOICES[field])

    @property
    def encoding(self) -> NoPositions:
        """The positional encoding: none, unless a model has one."""
        return NoPositions()

    @property
    def base_width(self) -> int:
        """The d_model at which this model has the rates of the standard parametrisation."""
        return self.d_model


def _check_size(field: str, size: int) -> None:
    most = LARGEST.get(field, WIDEST)
    if size < 1:
        raise ValueError(f"model.{field} is {size}; it must be at least 1")
    if size > most:
        raise ValueError(f"model.{field} is {size}; it must be at most {most:,}")


def check_choice(field: str, choice: str, allowed: Iterable[str]) -> None:
    """Raises a `ValueError` unless the value of a field is one of those allowed."""
    if choice not in allowed:
        raise ValueError(f"model.{field} is {choice!r}; it must be one of {', '.join(allowed)}")


@dataclasses.dataclass(frozen=True)
class ModelConfig(CommonConfig):
    """Sizes and variants of one Transformer; the defaults are the paper's base model (section 3, Table 3).

    Raises:
      ValueError: a field is out of its range, or two do not go together.
    """

    d_ff: int = 2048
    h: int = 8
    d_k: int = 64
    d_v: int = 64
    P_drop_attention: float = 0.0
    P_drop_relu: float = 0.0
    positions: str = "sinusoidal"
    max_positions: int = 1024
    max_distance: int = 16
    norm: str = "post"
    norm_kind: str = "layer"
    norm_epsilon: float = 1e-6
    activation: str = "relu"
    biases: bool = False
    feed_forward_biases: bool = True
    scores: str = "dot"
    scale_attention: bool = True
    softmax_one: bool = False
    qk_norm: bool = False
    remat: str = "none"
    attention_impl: str = "einsum"
    scan_layers: bool = False
    share_layers: bool = False
    mixer: str = "attention"
    neighbours: int = 15
    kernel_width: int = 3
    prefix: str = "none"
    parametrisation: str = "standard"
    mup_width: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.norm_epsilon > 0.0:
            raise ValueError(f"model.norm_epsilon is {self.norm_epsilon}; it must be above 0")
        # Then what does not go together.
        self.encoding.check_widths()
        self._check_kernel()
        self._check_mixer()
        self._check_scores()
        self._check_prefix()
        self._check_mup()

    @property
    def base_width(self) -> int:
        """The d_model at which this model has the rates of the standard parametrisation: with muP, its own."""
        return self.mup_width if self.parametrisation == "mup" else self.d_model

    @property
    def encoding(self) -> NoPositions:
        """The positional encoding that `positions` names."""
        return KINDS[self.positions](self.d_model, self.d_k, self.h, self.max_positions, self.max_distance)

    def _check_mixer(self) -> None:
        """Rejects what the mixer does not support, and options that it would ignore."""
        mixer = f"model.mixer={self.mixer!r}"
        can = MIXERS[self.mixer]
        if not can.relative and self.positions not in ABSOLUTE:
            raise ValueError(
                f"{mixer} does not use relative positions such as {self.positions!r}; set model.positions to one of "
                f"{', '.join(ABSOLUTE)}"
            )
        if self.positions == "shaw" and self.mixer != "attention":
            raise ValueError(f"{mixer} has no relative vectors; model.positions=shaw needs model.mixer=attention")
        if self.norm == "deep" and self.mixer in ("recurrent", "convolution"):
            raise ValueError(f"{mixer} has no initial values for model.norm=deep; take post or pre")
        if self.mixer == "recurrent" and self.d_model % 2:
            raise ValueError(f"{mixer} needs an even model.d_model, half for each direction; {self.d_model} is odd")
        if not can.kernels and self.attention_impl != "einsum":
            raise ValueError(f"{mixer} has no kernel and no chunks; set model.attention_impl=einsum")

    def _check_scores(self) -> None:
        """Rejects what only dot products have."""
        if self.scores == "dot":
            return
        scores = f"model.scores={self.scores!r}"
        if self.mixer != "attention":
            raise ValueError(f"{scores} needs model.mixer=attention; it is {self.mixer!r}")
        if self.positions in ("rope", "shaw"):
            raise ValueError(f"model.positions={self.positions} acts on dot products; {scores} has none")
        if not self.scale_attention:
            raise ValueError(f"{scores} does not divide by sqrt(d_k); leave model.scale_attention=True")

    def _check_prefix(self) -> None:
        """Rejects what cannot attend to a whole prefix."""
        can_mask_a_prefix = self.mixer == "attention" and self.attention_impl in ("einsum", "chunked")
        if self.prefix != "none" and (not can_mask_a_prefix or self.encoding.limit):
            raise ValueError(
                f"model.prefix={self.prefix!r} needs model.mixer=attention, model.attention_impl=einsum or chunked, "
                "and model.positions other than learned"
            )

    def _check_mup(self) -> None:
        """Rejects what muP is not derived for."""
        if self.parametrisation != "mup":
            return
        for field, allowed in MUP.items():
            value = getattr(self, field)
            if value not in allowed:
                right = " or ".join(repr(choice) for choice in allowed)
                raise ValueError(f"model.parametrisation=mup needs model.{field}={right}; it is {value!r}")

    def _check_kernel(self) -> None:
        """Rejects what only the einsum supports. A kernel's device is checked when it is compiled."""
        if self.attention_impl == "einsum":
            return
        kernel = f"model.attention_impl={self.attention_impl!r}"
        if self.P_drop_attention:
            raise ValueError(
                f"{kernel} does not support attention dropout; set model.P_drop_attention=0, or use einsum"
            )
        if self.positions in ("alibi", "t5", "shaw"):
            raise ValueError(f"{kernel} does not support a bias; model.positions={self.positions} needs einsum")
        if self.scores != "dot":
            raise ValueError(f"{kernel} multiplies queries and keys; model.scores={self.scores} needs einsum")
        if self.softmax_one:
            raise ValueError(f"{kernel} does not support model.softmax_one=True, which needs einsum")
        if not self.scale_attention:
            raise ValueError(f"{kernel} always divides by sqrt(d_k); model.scale_attention=False needs einsum")
        if self.attention_impl == "cudnn" and self.dtype != "bfloat16":
            raise ValueError(f"{kernel} computes in half precision only; set model.dtype=bfloat16, or use einsum")
        if self.attention_impl == "cudnn" and (self.d_k != self.d_v or self.d_k % 8 or self.d_k > 256):
            raise ValueError(
                f"{kernel} needs d_k = d_v, a multiple of 8 up to 256; model.d_k is {self.d_k} and model.d_v "
                f"{self.d_v}: change them, or use einsum"
            )

"""The model's sizes and variants, named as in the paper."""

import dataclasses
from collections.abc import Iterable

from vaswani.model.attention import check_scores
from vaswani.model.masks import check_prefix
from vaswani.model.mixers import MIXERS, check_mixer
from vaswani.model.mixers.kernels import check_kernel
from vaswani.model.positions import KINDS, NoPositions

POSITIONS = tuple(KINDS)
NORMS = ("post", "pre", "deep", "none")
NORM_KINDS = ("layer", "rms")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
GATED = ("geglu", "geglu_tanh", "swiglu")  # feed-forward networks with a gate
DTYPES = ("float32", "bfloat16")
DROPOUT_BITS = ("threefry", "hash")
ATTENTION_IMPLS = ("auto", "einsum", "chunked", "splash", "cudnn")
REMATS = ("none", "full", "dots")
SCORES = ("dot", "additive")
PREFIXES = ("none", "full", "causal")
PARAMETRISATIONS = ("standard", "mup")

# Larger sizes are refused at once: initialising them would take hours or fill any memory before it failed.
WIDEST = 1 << 20
LARGEST = {
    "N": 1_000,
    "N_encoder": 1_000,
    "N_decoder": 1_000,
    "vocab_size": 1 << 24,
    "source_vocab_size": 1 << 24,
    "max_positions": 1 << 24,
}

SIZES = (
    "vocab_size",
    "source_vocab_size",
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
    source_vocab_size: int | None = None  # of a source with a vocabulary of its own; `vocab_size` is then the target's

    def __post_init__(self) -> None:
        for field, value in vars(self).items():
            if field in SIZES and value is not None:
                _check_size(field, value)
            if field in RATES and not 0.0 <= value < 1.0:
                raise ValueError(f"model.{field} is {value}; it must be at least 0 and below 1")
            if field in CHOICES:
                check_choice(field, value, CHOICES[field])

    @property
    def tables(self) -> tuple[str, str, str]:
        """The names of a translator's parameters that embed the source, embed the target, and make the logits."""
        if not self.tie_embeddings:
            return "source_embed", "target_embed", "softmax"
        if self.source_vocab_size is None:
            return "embed", "embed", "embed"
        return "source_embed", "target_embed", "target_embed"

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

    N_encoder: int = 0
    N_decoder: int = 0
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
    residual: bool = True
    norm_embeddings: bool = False
    activation: str = "relu"
    biases: bool = False
    feed_forward_biases: bool = True
    scores: str = "dot"
    scale_attention: bool = True
    softmax_one: bool = False
    qk_norm: bool = False
    remat: str = "none"
    attention_impl: str = "auto"
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
        for field in ("N_encoder", "N_decoder"):
            if (layers := getattr(self, field)) != 0:
                _check_size(field, layers)
        if not self.norm_epsilon > 0.0:
            raise ValueError(f"model.norm_epsilon is {self.norm_epsilon}; it must be above 0")
        # Then what does not go together: each check stands beside the code that could not do it.
        self.encoding.check_widths()
        check_kernel(self)
        check_mixer(self)
        check_scores(self)
        check_prefix(self)
        check_residual(self)
        check_mup(self)

    @property
    def depths(self) -> tuple[int, int]:
        """The layers of a translator's encoder and those of its decoder."""
        return self.N_encoder or self.N, self.N_decoder or self.N

    @property
    def base_width(self) -> int:
        """The d_model at which this model has the rates of the standard parametrisation: with muP, its own."""
        return self.mup_width if self.parametrisation == "mup" else self.d_model

    @property
    def encoding(self) -> NoPositions:
        """The positional encoding that `positions` names."""
        return KINDS[self.positions](self.d_model, self.d_k, self.h, self.max_positions, self.max_distance)


def check_residual(config: ModelConfig) -> None:
    """Rejects what a model without layer norms or residual connections would ignore."""
    if config.norm == "none":
        for field, off in (("norm_kind", "layer"), ("norm_epsilon", 1e-6)):
            value = getattr(config, field)
            if value != off:
                raise ValueError(f"model.norm=none does not use model.{field}, which is {value!r}; leave it {off!r}")
    if config.norm == "deep" and not config.residual:
        raise ValueError("model.norm=deep weights the residual connections; model.residual=False leaves none")


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
    "norm": ("post", "pre", "deep"),
    "residual": (True,),
}


def check_mup(config: ModelConfig) -> None:
    """Rejects what muP is not derived for."""
    if config.parametrisation != "mup":
        return
    for field, allowed in MUP.items():
        value = getattr(config, field)
        if value not in allowed:
            right = " or ".join(repr(choice) for choice in allowed)
            raise ValueError(f"model.parametrisation=mup needs model.{field}={right}; it is {value!r}")

"""The model's sizes and variants, named as in the paper."""

import dataclasses

from vaswani.configs.rules import broken

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
RATES = ("P_drop", "P_drop_embeddings", "P_drop_attention", "P_drop_relu")


@dataclasses.dataclass(frozen=True)
class CommonConfig:
    """What every model has, Transformers (`ModelConfig`) and recurrent networks alike: layers, embeddings, softmax.

    configs/common.py explains what each field does and where it comes from.

    Raises:
      ValueError: a field is out of its range, or two do not go together (configs/rules.py); the message names them.
    """

    vocab_size: int
    N: int = 6
    d_model: int = 512
    P_drop: float = 0.1
    P_drop_embeddings: float = -1.0
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
            if field in RATES:
                _check_rate(field, value)
        if fault := broken(self.keys, DEFAULTS):
            raise ValueError(fault)

    @property
    def keys(self) -> dict[str, object]:
        """The fields as keys of a config: "model.N"."""
        return {f"model.{field}": value for field, value in vars(self).items()}

    @property
    def embedding_dropout(self) -> float:
        """The rate at which sums of embeddings and positions are dropped."""
        return self.P_drop if self.P_drop_embeddings == -1.0 else self.P_drop_embeddings

    @property
    def tables(self) -> tuple[str, str, str]:
        """The names of a translator's parameters that embed the source, embed the target, and make the logits."""
        if not self.tie_embeddings:
            return "source_embed", "target_embed", "softmax"
        if self.source_vocab_size is None:
            return "embed", "embed", "embed"
        return "source_embed", "target_embed", "target_embed"

    @property
    def limit(self) -> int | None:
        """The most tokens that a row may have; None for no limit."""
        return None

    @property
    def base_width(self) -> int:
        """The d_model at which this model has the rates of the standard parametrisation."""
        return self.d_model


def _check_rate(field: str, rate: float) -> None:
    may_follow = field == "P_drop_embeddings"
    if not 0.0 <= rate < 1.0 and not (may_follow and rate == -1.0):
        or_follow = ", or -1, which is model.P_drop" if may_follow else ""
        raise ValueError(f"model.{field} is {rate}; it must be at least 0 and below 1{or_follow}")


def _check_size(field: str, size: int) -> None:
    most = LARGEST.get(field, WIDEST)
    if size < 1:
        raise ValueError(f"model.{field} is {size}; it must be at least 1")
    if size > most:
        raise ValueError(f"model.{field} is {size}; it must be at most {most:,}")


@dataclasses.dataclass(frozen=True)
class ModelConfig(CommonConfig):
    """Sizes and variants of one Transformer; the defaults are the paper's base model (section 3, Table 3)."""

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

    @property
    def depths(self) -> tuple[int, int]:
        """The layers of a translator's encoder and those of its decoder."""
        return self.N_encoder or self.N, self.N_decoder or self.N

    @property
    def limit(self) -> int | None:
        """The most tokens that a row may have: as many as there are learned positions; None for no limit."""
        return self.max_positions if self.positions == "learned" else None

    @property
    def base_width(self) -> int:
        """The d_model at which this model has the rates of the standard parametrisation: with muP, its own."""
        return self.mup_width if self.parametrisation == "mup" else self.d_model


DEFAULTS = {f"model.{field.name}": field.default for field in dataclasses.fields(ModelConfig)}

"""What the cost of an update and of a search depends on, and how it is grown, one size after the other."""

from typing import Any, NamedTuple

from vaswani.model.config import ModelConfig


class Size(NamedTuple):
    """A model and a batch: d_ff is four times d_model, and there are four heads.

    `length` is the positions of a row on each side; `beam` is only that of a search. With one stack it is a language
    model, of the decoder without its attention to a source.
    """

    length: int = 64
    d_model: int = 64
    N: int = 2
    vocabulary: int = 2_048
    rows: int = 4
    beam: int = 4
    mixer: str = "attention"
    stacks: int = 2
    impl: str = "einsum"

    @property
    def config(self) -> ModelConfig:
        """The model."""
        d = self.d_model
        return ModelConfig(
            vocab_size=self.vocabulary,
            N=self.N,
            d_model=d,
            d_ff=4 * d,
            h=4,
            d_k=d // 4,
            d_v=d // 4,
            mixer=self.mixer,
            attention_impl=self.impl,
            dropout_bits="hash",
        )


class Growth(NamedTuple):
    """One size of `Size` that is doubled again and again, from `base`."""

    base: Size
    name: str
    doublings: int

    @property
    def values(self) -> list[int]:
        """The sizes."""
        first = getattr(self.base, self.name)
        return [first * 2**i for i in range(self.doublings + 1)]

    @property
    def sizes(self) -> list[Size]:
        """A model and a batch for each of them."""
        changes: list[dict[str, Any]] = [{self.name: value} for value in self.values]
        return [self.base._replace(**change) for change in changes]


UPDATE = [Growth(Size(rows=1), "length", 5)]
UPDATE += [Growth(Size(), name, 4) for name in ("d_model", "N", "vocabulary", "rows")]
SEARCH = [Growth(Size(length=32), name, 3) for name in ("length", "d_model", "N", "vocabulary", "rows", "beam")]
# Those that the paper's Table 1 compares, and later ones.
LAYERS = [
    Growth(Size(rows=1, mixer=mixer, stacks=1, impl=impl), "length", 6)
    for mixer, impl in (
        ("attention", "einsum"),
        ("attention", "chunked"),
        ("restricted", "einsum"),
        ("strided", "einsum"),
        ("linear", "einsum"),
        ("recurrent", "einsum"),
        ("convolution", "einsum"),
    )
]

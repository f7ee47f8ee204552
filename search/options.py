"""The options of every search, with their limits; a `Decoding` checks itself."""

import dataclasses
import numbers
from typing import Any

from vaswani.errors import UserError

LIMITS: dict[str, tuple[int | float, int | float]] = {
    "beam": (1, 1000),  # memory for attention over the KV cache grows with the square of the beam
    "alpha": (0, 10),  # above, the score of a long output would leave the range of float32
    "extra_length": (0, 10_000),
    "nbest": (1, 1000),
    "seed": (0, 2**32 - 1),  # jax.random uses 32 bits of it
    "temperature": (1e-6, 1e6),
    "top_k": (0, 2**31 - 1),
    "top_p": (1e-6, 1),
    "min_length": (0, 10_000),
    "no_repeat": (0, 100),
    "groups": (1, 100),
    "diversity": (0, 100),
}
FRACTIONS = ("alpha", "temperature", "top_p", "diversity")  # the other options are whole numbers
PENALTIES = ("gnmt", "power")  # see `search.beam.length_penalty`
STOPPINGS = ("exact", "full")  # see `search.beam`
CHOICES = {"length_penalty": PENALTIES, "stopping": STOPPINGS}


def allowed(name: str, value: int | float | None) -> bool:
    """Returns whether an option may have this value; NaN is outside every range, None stands for the default."""
    low, high = LIMITS[name]
    return value is None or low <= value <= high


def limits(name: str) -> str:
    """Returns the range that `allowed` checks, in words."""
    low, high = LIMITS[name]
    return f"from {low} to {high}"


def check(name: str, value: Any) -> None:
    """Raises a `UserError` unless this is a value of the option: one of its choices, or a number within its limits."""
    if name in CHOICES:
        if value not in CHOICES[name]:
            raise UserError(f"{name} is {value!r}; it must be one of {', '.join(CHOICES[name])}")
        return
    kind: type = numbers.Real if name in FRACTIONS else numbers.Integral
    if isinstance(value, bool) or not issubclass(type(value), kind):
        what = "number" if name in FRACTIONS else "whole number"
        raise UserError(f"{name} is {value!r}; it must be a {what} {limits(name)}")
    if not allowed(name, value):
        raise UserError(f"{name} is {value}; it must be {limits(name)}")


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Options of sampling; see `search.sampling`.

    Raises:
      UserError: a value is outside `LIMITS`.
    """

    seed: int = dataclasses.field(default=0, compare=False)  # other seeds run the same compiled search
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check(name, value)


@dataclasses.dataclass(frozen=True)
class Decoding:
    """Options of decoding; the defaults are the paper's (section 6.1).

    `beam` hypotheses are kept at each step; 1 is greedy. `alpha` is the length penalty (section 6.1), of the kind
    `length_penalty`. `stopping` says when a search ends: "exact" or "full" (see `search.beam`). An output has at
    most `extra_length` subwords more than its source. `nbest` translations of each line are returned, at most `beam`;
    with `sampling`, `nbest` are drawn at random, and `beam`, `alpha` and `stopping` are ignored.
    A search finds outputs of at least `min_length` subwords, in which no sequence of `no_repeat` subwords comes twice;
    0 allows all. Several `groups` of beams are decoded apart, each kept from repeating those before it by the weight
    `diversity`.

    Raises:
      UserError: a value is outside `LIMITS` or unknown, `nbest` exceeds the beam, or rules of a search are given for
        sampling.
    """

    beam: int = 4
    alpha: float = 0.6
    extra_length: int = 50
    nbest: int = 1
    sampling: Sampling | None = None
    length_penalty: str = "gnmt"
    stopping: str = "exact"
    min_length: int = 0
    no_repeat: int = 0
    groups: int = 1
    diversity: float = 0.5

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name != "sampling":
                check(name, value)
        if self.sampling is None and self.nbest > self.beam:
            raise UserError(f"nbest is {self.nbest}, more than the beam of {self.beam}; raise beam too")
        if self.groups > 1 and (self.sampling or self.min_length or self.no_repeat or self.beam < 2 * self.groups):
            raise UserError(
                f"groups is {self.groups}: beam must be {2 * self.groups} or more, with no min_length, no_repeat or "
                "sampling"
            )
        if self.beam % self.groups:
            raise UserError(f"groups is {self.groups}; it must divide the beam of {self.beam}")
        if self.sampling is not None and (self.min_length or self.no_repeat):
            raise UserError("min_length and no_repeat are for searching; leave them out, or the sampling")

    @property
    def rows(self) -> int:
        """The number of hypotheses per sentence that are extended at each step."""
        return self.beam if self.sampling is None else self.nbest

"""The weights of a checkpoint from elsewhere: every one is read, in the shape that its model has, or it is an error."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from base.errors import UserError, shown


class Weights:
    """Arrays by name, which remember whether they were read.

    A reader takes each weight of its model in its shape, and then calls `check_all_read`: nothing of the file is lost.
    """

    def __init__(
        self, source: object, arrays: Mapping[str, np.ndarray], rename: Callable[[str], str] = lambda name: name
    ) -> None:
        """Takes the arrays of `source`, a path; `rename` gives the names under which the reader takes them.

        Raises:
          UserError: two have the same name then.
        """
        self._source, self._arrays = source, dict(arrays)
        self._there: dict[str, str] = {}  # our reader's name of each, and the file's
        self._unread = set(arrays)
        for name in arrays:
            other = self._there.setdefault(rename(name), name)
            if other != name:
                raise self.wrong(f"{shown(other)} and {shown(name)} are the same weight; there must be one of them")

    def renamed(self, rename: Callable[[str], str]) -> "Weights":
        """Returns the same arrays, none of them read, under other names; raises as the constructor."""
        return Weights(self._source, self._arrays, rename)

    def __contains__(self, name: str) -> bool:
        return name in self._there

    def __len__(self) -> int:
        return len(self._there)

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Returns a weight, float32; an axis of -1 may have any size.

        Raises:
          UserError: it is absent, of another shape or not of a floating type, or not all of it is finite.
        """
        if name not in self._there:
            raise self.wrong(f"{shown(name)} is missing")
        there = self._there[name]
        array = self._arrays[there]
        if array.dtype != np.float32:
            raise self.wrong(f"{shown(there)} is of type {array.dtype}, which is not a floating one")
        fits = array.ndim == len(shape) and all(
            size in (-1, given) for size, given in zip(shape, array.shape, strict=True)
        )
        if not fits or not array.size:
            wanted = str(shape).replace("-1", "any")
            raise self.wrong(f"{shown(there)} is of shape {array.shape}; it must be {wanted}")
        if not np.isfinite(array).all():
            raise self.wrong(f"{shown(there)} is not finite")
        self._unread.discard(there)
        return array

    def take_tied(self, names: Iterable[str], *shape: int) -> np.ndarray:
        """Returns the one weight that a model uses in several places, of which a file has one copy or several.

        Raises:
          UserError: there is no copy, two differ, or as `take`.
        """
        names = list(names)
        there = [name for name in names if name in self] or names[:1]
        first, *others = (self.take(name, *shape) for name in there)
        for name, other in zip(there[1:], others, strict=True):
            if not np.array_equal(first, other):
                raise self.wrong(f"{shown(there[0])} and {shown(name)} differ; by its settings they are the same")
        return first

    def check_layers(self, N: int) -> None:
        """Raises `UserError` if there are fewer weights than layers, before work is done for each of these."""
        if len(self) < N:
            raise self.wrong(f"its settings have {N} layers, and it has {len(self)} weights")

    def check_all_read(self, ignored: Sequence[str] = ()) -> None:
        """Raises `UserError` if a weight was not read whose whole name matches none of `ignored`, regular expressions.

        The names are those that the reader gave.
        """
        unread = sorted(
            there
            for name, there in self._there.items()
            if there in self._unread and not any(re.fullmatch(pattern, name) for pattern in ignored)
        )
        if unread:
            more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
            raise self.wrong(f"{shown(unread[0])}{more}: the model of its settings has no such weight")

    def wrong(self, reason: str) -> UserError:
        """Returns the error for weights that a model of its settings does not have."""
        return UserError(f"{self._source}: its weights are not those of its settings: {reason}")

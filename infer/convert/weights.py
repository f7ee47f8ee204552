"""The weights of a checkpoint from elsewhere: every one is read, in the shape that its model has, or it is an error."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from vaswani.errors import UserError, format_value


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
        self._source = source
        self._arrays = dict(arrays)
        self._file_names: dict[str, str] = {}  # by the reader's names
        self._unread = set(arrays)
        for name in arrays:
            same = self._file_names.setdefault(rename(name), name)
            if same != name:
                raise self.wrong(
                    f"{format_value(same)} and {format_value(name)} are the same weight; only one may be present"
                )

    def renamed(self, rename: Callable[[str], str]) -> "Weights":
        """Returns the same arrays, none of them read, under other names; raises as the constructor."""
        return Weights(self._source, self._arrays, rename)

    def __contains__(self, name: str) -> bool:
        return name in self._file_names

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Returns a weight, float32; an axis of -1 may have any size.

        Raises:
          UserError: it is absent, of another shape or not of a floating type, or not all of it is finite.
        """
        if name not in self._file_names:
            raise self.wrong(f"{format_value(name)} is missing")
        file_name = self._file_names[name]
        array = self._arrays[file_name]
        if array.dtype != np.float32:
            raise self.wrong(f"{format_value(file_name)} is of type {array.dtype}, which is not a floating one")
        if not _fits(array, shape) or not array.size:
            expected = str(shape).replace("-1", "any")
            raise self.wrong(f"{format_value(file_name)} is of shape {array.shape}; it must be {expected}")
        if not np.isfinite(array).all():
            raise self.wrong(f"{format_value(file_name)} is not finite")
        self._unread.discard(file_name)
        return array

    def take_tied(self, names: Iterable[str], *shape: int) -> np.ndarray:
        """Returns the one weight that a model uses in several places, of which a file holds one copy or several.

        Raises:
          UserError: there is no copy, two differ, or as `take`.
        """
        names = list(names)
        present = [name for name in names if name in self]
        if not present:
            present = names[:1]  # `take` says that this one is missing
        copies = [self.take(name, *shape) for name in present]
        for name, copy in zip(present[1:], copies[1:], strict=True):
            if not np.array_equal(copies[0], copy):
                raise self.wrong(f"{format_value(present[0])} and {format_value(name)} differ; its settings tie them")
        return copies[0]

    def check_all_read(self, ignored: Sequence[str] = ()) -> None:
        """Raises `UserError` if a weight was not read whose whole name matches none of `ignored`, regular expressions.

        The names are those that the reader gave.
        """
        unread = []
        for name, file_name in self._file_names.items():
            is_ignored = any(re.fullmatch(pattern, name) for pattern in ignored)
            if file_name in self._unread and not is_ignored:
                unread.append(file_name)
        unread.sort()
        if unread:
            more = f" and {len(unread) - 1} more" if len(unread) > 1 else ""
            raise self.wrong(f"{format_value(unread[0])}{more}: a model of these settings has no such weight")

    def wrong(self, reason: str) -> UserError:
        """Returns the error that says that these weights do not fit the settings, and why."""
        return UserError(f"{self._source}: its weights do not match its settings: {reason}")


def _fits(array: np.ndarray, shape: Sequence[int]) -> bool:
    """Returns whether an array is of this shape, in which an axis of -1 may have any size."""
    if array.ndim != len(shape):
        return False
    return all(expected in (-1, size) for expected, size in zip(shape, array.shape, strict=True))

"""Reads and writes the parameters of other engines by tables of their names, our paths and their axes.

A table is text; GPT-2's has this row:

    h.{n}.attn.c_attn.weight    decoder/layer_{n}/self_attention/wq+wk+wv    d 3hk

- The name there: {n} is the number of a layer, {side} is encoder or decoder, {q,k} is either of these, and so in our
  path. With `=` between them, several names are copies of one weight: a file holds at least one.
- Our path (`run.parameters.flatten_params`): with `+`, several parameters lie side by side there.
- The axes there, in our letters (`AXES`): `hk d` is a matrix with a row for each head and entry of it. A
  digit is a size, as of an axis that ours lacks, or of how many parameters lie side by side.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from vaswani.infer.convert.weights import Weights
from vaswani.model.config import ModelConfig

# Our axes: d model (and D, the same), h heads, k and e their keys and values, f feed-forward, v vocabulary,
# u a source's, l positions, r buckets of distances, c classes.
AXES = {
    "source_embed": "ud",
    **dict.fromkeys(("embed", "target_embed", "softmax"), "vd"),
    **dict.fromkeys(("output_bias", "softmax_b"), "v"),
    **dict.fromkeys(("scale", "bias", "token", "head_b"), "d"),
    **dict.fromkeys(("positions", "source_positions", "target_positions"), "ld"),
    "relative_bias": "rh",
    "wq": "dhk",
    "wk": "dhk",
    "wv": "dhe",
    "wo": "hed",
    "bq": "hk",
    "bk": "hk",
    "bv": "he",
    "bo": "d",
    "w1": "df",
    "v": "df",
    "b1": "f",
    "w2": "fd",
    "b2": "d",
    "head_w": "dD",
    "head": "dc",
    "head_bias": "c",
}
_CHOICE = re.compile(r"\{(.*?)\}")


class Row(NamedTuple):
    """A weight there: its names, of which one is enough; our parameters in it, by path; and its axes."""

    names: list[str]
    paths: list[str]
    axes: list[str]

    @property
    def letters(self) -> str:
        """The axes there, each by itself; one of a single entry is none."""
        return "".join(self.axes).replace("1", "")

    @property
    def our_letters(self) -> str:
        """Our axes, preceded by the number of parameters that lie side by side."""
        axes = AXES[self.paths[0].rpartition("/")[2]]
        return f"{len(self.paths)}{axes}" if len(self.paths) > 1 else axes

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Returns the shape there, with -1 for an axis whose size is not known."""
        return tuple(sizes.get(axis, -1) if len(axis) == 1 else _product(axis, sizes) for axis in self.axes)


def rows(table: str, N: int) -> list[Row]:
    """Returns the rows of a table for a model of N layers."""
    layers = ",".join(map(str, range(N)))
    table = table.replace("{side}", "{encoder,decoder}").replace("{n}", f"{{{layers}}}")
    result = []
    for line in filter(None, table.splitlines()):
        names, paths, *axes = line.split()
        for name, path in _expanded(names, paths):
            folder, slash, last = path.rpartition("/")
            result.append(Row(name.split("="), [f"{folder}{slash}{part}" for part in last.split("+")], axes))
    return result


def _expanded(name: str, path: str) -> Iterator[tuple[str, str]]:
    """Yields name and path for every choice in braces."""
    pairs = zip(_CHOICE.findall(name), _CHOICE.findall(path), strict=True)
    choices = [zip(theirs.split(","), ours.split(","), strict=True) for theirs, ours in pairs]
    their_template = _CHOICE.sub("{}", name)
    our_template = _CHOICE.sub("{}", path)
    for chosen in itertools.product(*choices):
        yield (
            their_template.format(*[theirs for theirs, _ in chosen]),
            our_template.format(*[ours for _, ours in chosen]),
        )


def sizes_of(config: ModelConfig | ConfigDict) -> dict[str, int]:
    """Returns the sizes of the axes that a model's config, or the group `model` of a run's, tells."""
    sizes = {str(number): number for number in (1, 2, 3)}
    sizes |= {"d": config.d_model, "D": config.d_model, "f": config.d_ff}
    return sizes | {"h": config.h, "k": config.d_k, "e": config.d_v}


def _product(axes: str, sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[letter] for letter in axes)


def read(
    weights: Weights, table: Iterable[Row], sizes: Mapping[str, int], order: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Returns our parameters by path.

    A letter without a size takes it from the first weight with an axis of that letter. `order` has, for each entry of
    their d, its place in ours.

    Raises:
      UserError: a weight is missing, of another shape or not finite, or two copies differ.
    """
    sizes = dict(sizes)
    params: dict[str, np.ndarray] = {}
    for row in table:
        array = weights.take_tied(row.names, *row.shape(sizes))
        for axis, size in zip(row.axes, array.shape, strict=True):
            sizes.setdefault(axis, size)
        array = array.reshape([sizes[letter] for letter in row.letters])
        array = array.transpose([row.letters.index(letter) for letter in row.our_letters])
        if order is not None and "d" in row.our_letters:
            array = np.take(array, np.argsort(order), row.our_letters.index("d"))
        parts = array if len(row.paths) > 1 else [array]
        params |= {path: np.ascontiguousarray(part) for path, part in zip(row.paths, parts, strict=True)}
    return params


def write(
    params: Mapping[str, np.ndarray], table: Iterable[Row], sizes: Mapping[str, int], order: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Returns their weights by name: the reverse of `read`. Parameters that ours lacks are zeros there."""
    weights = {}
    for row in table:
        parts = [params[path] for path in row.paths if path in params]
        if not parts:
            weights[row.names[0]] = np.zeros(row.shape(sizes), np.float32)
            continue
        array = np.stack(parts) if len(row.paths) > 1 else parts[0]
        if order is not None and "d" in row.our_letters:
            array = np.take(array, order, row.our_letters.index("d"))
        array = array.transpose([row.our_letters.index(letter) for letter in row.letters])
        weights[row.names[0]] = np.ascontiguousarray(array.reshape(row.shape(sizes)))
    return weights

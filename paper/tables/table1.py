"""Table 1, measured: operations, sequential operations and maximum path length of each layer type.

Operations are those that XLA counts in the compiled program. Attention is counted as the paper counts it, without its
projections of 8 n d^2 operations, and once more with them: the paper leaves them out, and they are not small. Time is
the median on this machine; small programs take longer than their operations suggest, so compare the paper's exponents
with those of the operations.

Sequential operations are the matrix products on the longest chain of dependent ones. A path is counted in what a signal
passes between two positions: layers, or cells of the recurrent layer. Recurrence and convolution only look back, so
every position must reach all later ones there, and all others in attention.
"""

import functools
import itertools
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from base.errors import UserError
from base.files import Schema, check
from base.table import Table
from paper import published
from paper.tables.layer_costs import dependencies, operations, path_length, seconds, sequential_products
from paper.tables.layer_types import (
    Gates,
    Projections,
    State,
    attend_nearby,
    attend_to_all,
    cell,
    convolutional,
    recurrent,
    self_attention,
)
from run.folder import cpus


class Sizes(NamedTuple):
    """The paper's n (positions), d (width), k (kernel), r (neighbourhood), and how many layers are below."""

    n: int
    d: int
    k: int
    r: int
    below: int = 0


class Type(NamedTuple):
    """A row: what the paper says of it, the exponents of its complexity, and a function that makes such a layer.

    `make` returns a function of (params, x_td), and params.
    """

    paper: published.Layer
    exponents: dict[str, int]
    make: Callable[[Sizes], tuple[Callable[..., Any], Any]]


FIXED = Sizes(n=1024, d=64, k=5, r=33)
GRIDS = {
    "n": (16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
    "d": (64, 128, 256, 512),
    "k": (3, 5, 9, 17),
    "r": (17, 33, 65, 129),
}
FITTED_FROM = {"n": 512, "d": 64, "k": 3, "r": 17}  # from where on the largest power dominates
SMALL = Sizes(n=128, d=8, k=3, r=5)  # for paths
SMALL_N = (16, 32, 64, 128)
RUNS = 5
PACKAGES = ("jax", "jaxlib", "numpy")
HEAD = (
    *("layer", "operations: paper", "operations: measured", "time: measured"),
    *("sequential: paper", "sequential: measured", "longest path: paper", "longest path: measured"),
)


_POINT = {"n": int, "operations": float, "seconds": float, "sequential": int}
_MEASURED = {
    "lines": {"n": [_POINT]},
    "paths": [{"n": int, "length": int}],
    "exponents": {"operations": dict, "seconds": dict, "sequential": float, "path": float},
}


def normal(inputs: int, *shape: int) -> Float[Array, "..."]:
    """Returns normal weights of variance 1 / inputs, so that activations keep their size."""
    return jax.random.normal(jax.random.key(0), shape) / inputs**0.5


def sequence(sizes: Sizes) -> Float[Array, "t d"]:
    """Returns the input of the layers, [n, d]."""
    return jax.random.normal(jax.random.key(1), (sizes.n, sizes.d))


def _attention(sizes: Sizes) -> tuple[Callable[..., Any], Any]:
    return lambda params, x_td: attend_to_all(x_td, x_td, x_td), ()


def _restricted(sizes: Sizes) -> tuple[Callable[..., Any], Any]:
    return lambda params, x_td: attend_nearby(x_td, x_td, x_td, sizes.r), ()


def _projected(sizes: Sizes) -> tuple[Callable[..., Any], Any]:
    return partial(self_attention, attend=attend_to_all), Projections(*[normal(sizes.d, sizes.d, sizes.d)] * 4)


def _recurrent(sizes: Sizes) -> tuple[Callable[..., Any], Any]:
    return recurrent, Gates(*[normal(2 * sizes.d, sizes.d, 4, sizes.d)] * 2)


def _convolutional(sizes: Sizes, dilation: int = 1) -> tuple[Callable[..., Any], Any]:
    return partial(convolutional, dilation=dilation), normal(sizes.k * sizes.d, sizes.k, sizes.d, sizes.d)


def _dilated(sizes: Sizes) -> tuple[Callable[..., Any], Any]:
    return _convolutional(sizes, sizes.k**sizes.below)


ATTENTION, PROJECTED = "self-attention", "self-attention with projections"
RECURRENT, DILATED = "recurrent", "convolutional, dilated"
PAPER = {row.layer: row for row in published.TABLE1}
TYPES = {
    ATTENTION: Type(PAPER[ATTENTION], {"n": 2, "d": 1}, _attention),
    PROJECTED: Type(PAPER[ATTENTION]._replace(complexity="left out"), {}, _projected),
    RECURRENT: Type(PAPER[RECURRENT], {"n": 1, "d": 2}, _recurrent),
    "convolutional": Type(PAPER["convolutional"], {"k": 1, "n": 1, "d": 2}, _convolutional),
    DILATED: Type(PAPER["convolutional"], {"k": 1, "n": 1, "d": 2}, _dilated),
    "self-attention, restricted": Type(PAPER["self-attention, restricted"], {"r": 1, "n": 1, "d": 1}, _restricted),
}


def measure(name: str, sizes: Sizes, runs: int) -> dict[str, Any]:
    """Returns operations, seconds and the longest chain of products of one layer, with its sizes."""
    # The second layer of a stack: in the first, a dilated convolution is like any other.
    layer, params = TYPES[name].make(sizes._replace(below=1))
    call = layer, params, sequence(sizes)
    costs = {"operations": operations(*call), "seconds": seconds(*call, runs=runs)}
    return {"n": sizes.n, "d": sizes.d, "k": sizes.k, "r": sizes.r, **costs, "sequential": sequential_products(*call)}


def longest_path(name: str, sizes: Sizes) -> int:
    """Returns how many layers, or cells of the recurrent layer, lie between the two positions furthest apart."""
    x_td, itself_ts = sequence(sizes), np.eye(sizes.n, dtype=bool)
    if name == RECURRENT:
        _, params = TYPES[name].make(sizes)
        state = State(x_td, x_td)

        def outputs(state: State, x_td: Float[Array, "t d"]) -> Float[Array, "t e"]:
            before = State(*(jnp.pad(x_te, ((1, 0), (0, 0)))[:-1] for x_te in state))
            return jax.vmap(partial(cell, params))(before, x_td).h

        over_tt = dependencies(lambda h_te: outputs(State(h_te, state.c), x_td), x_td)
        in_ts = dependencies(partial(outputs, state), x_td)
        return path_length(itertools.repeat(over_tt, sizes.n), np.zeros_like(itself_ts), in_ts, np.tri(sizes.n) > 0)

    def layer_below(below: int) -> np.ndarray:
        layer, params = TYPES[name].make(sizes._replace(below=below))
        return dependencies(partial(layer, params), x_td)

    first_ts = layer_below(0)
    stack = map(layer_below, range(sizes.n)) if name == DILATED else itertools.repeat(first_ts, sizes.n)
    looks_back = not np.triu(first_ts, 1).any()
    wanted_ts = np.tri(sizes.n) > 0 if looks_back else np.ones_like(itself_ts)
    return path_length(stack, itself_ts, np.zeros_like(itself_ts), wanted_ts)


def exponent(points: Sequence[Mapping[str, float]], of: str, axis: str, start: int = 0) -> float:
    """Returns the power of `axis` that `of` grows with from `start` on: the least-squares slope of the logarithms."""
    x, y = np.log([(point[axis], point[of]) for point in points if point[axis] >= start]).T
    return float(np.polyfit(x, y, 1)[0])


def crossover(line: Sequence[Mapping[str, float]], other: Sequence[Mapping[str, float]]) -> float | None:
    """Returns the n above which a layer takes more operations than the other; None if one takes fewer everywhere.

    Between two points both are assumed to be powers of n.
    """
    n = np.log([point["n"] for point in line])
    more = np.log([a["operations"] / b["operations"] for a, b in zip(line, other, strict=True)])
    if more[0] >= 0 or more[-1] <= 0:
        return None
    return float(np.exp(np.interp(0.0, more, n)))


def make_record() -> dict[str, Any]:
    """Measures everything, in a few minutes, and names each layer type on stderr."""
    types: dict[str, Any] = {}
    for name, row in TYPES.items():
        print(f"{name} ...", file=sys.stderr)
        axes = row.exponents or TYPES[ATTENTION].exponents
        known = functools.cache(functools.partial(measure, name, runs=RUNS))  # lines cross in FIXED
        lines = {axis: [known(FIXED._replace(**{axis: size})) for size in GRIDS[axis]] for axis in axes}
        paths = [{"n": n, "length": longest_path(name, SMALL._replace(n=n))} for n in SMALL_N]
        types[name] = {
            "lines": lines,
            "paths": paths,
            "exponents": {
                **{
                    quantity: {axis: exponent(lines[axis], quantity, axis, FITTED_FROM[axis]) for axis in axes}
                    for quantity in ("operations", "seconds")
                },
                "sequential": exponent(lines["n"], "sequential", "n"),
                "path": exponent(paths, "length", "n"),
            },
        }
    device = jax.devices()[0]
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "device": {"kind": device.device_kind, "cpus": cpus()},
        "fixed": {axis: size for axis, size in FIXED._asdict().items() if axis in GRIDS},
        "fitted_from": FITTED_FROM,
        "runs": RUNS,
        "paths_at": {axis: SMALL._asdict()[axis] for axis in ("d", "k", "r")},
        "types": types,
        "crossovers": {
            name: crossover(types[name]["lines"]["n"], types[RECURRENT]["lines"]["n"])
            for name in (ATTENTION, PROJECTED)
        },
    }


def check_record(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Returns `record`, which was read from `path`, if it is as `make_record` makes them.

    Raises:
      UserError: it is not.
    """
    types: Schema = dict.fromkeys(TYPES, _MEASURED)
    more = {"fixed": {"d": int}, "fitted_from": dict, "paths_at": dict.fromkeys("dkr", int), "crossovers": dict}
    check(path, "", record, {"types": types, "runs": int, "device": {"kind": str, "cpus": int}, **more})
    check(path, "crossovers", [n for n in record["crossovers"].values() if n is not None], [float])
    for name in TYPES:
        measured = record["types"][name]
        for quantity in ("operations", "seconds"):
            check(path, f"types.{name}", [*measured["exponents"][quantity].values()], [float])
        if not (measured["lines"]["n"] and measured["paths"]):
            raise UserError(f"{path}: damaged: types.{name} has no points")
    return record


def table(record: dict[str, Any]) -> Table:
    """Returns each claim of the paper beside its measurement."""
    rows: list[tuple[str, ...]] = []
    for name, row in TYPES.items():
        measured = record["types"][name]
        powers, line, paths = measured["exponents"], measured["lines"]["n"], measured["paths"]
        rows.append(
            (
                name,
                row.paper.complexity,
                " ".join(f"{axis}^{power:.2f}" for axis, power in powers["operations"].items()),
                " ".join(f"{axis}^{power:.1f}" for axis, power in powers["seconds"].items()),
                row.paper.sequential,
                f"n^{powers['sequential']:.2f}: {line[0]['sequential']} to {line[-1]['sequential']}",
                row.paper.path,
                f"n^{powers['path']:.2f}: {', '.join(str(path['length']) for path in paths)}",
            )
        )
    return Table("table1", "Table 1: layer types", HEAD, rows, notes(record))


def notes(record: dict[str, Any]) -> list[str]:
    """Returns how the numbers were measured, and from which n on recurrence takes fewer operations."""
    fixed, at, attention = record["fixed"], record["paths_at"], record["types"][ATTENTION]
    n, small = ([point["n"] for point in attention["lines"]["n"]], [path["n"] for path in attention["paths"]])
    lines = [
        "Operations as XLA counts them; time is a median of "
        f"{record['runs']} runs on {record['device']['kind']}, cores: {record['device']['cpus']}. One size "
        f"grows while the others stay at {', '.join(f'{axis} = {size}' for axis, size in fixed.items())}; exponents "
        f"are fitted from {', '.join(f'{axis} = {size}' for axis, size in record['fitted_from'].items())} on.",
        f"Sequential operations: matrix products on the longest chain, for n from {n[0]} to {n[-1]}.",
        f"Longest path: layers, or cells of the recurrent layer, for n = {', '.join(map(str, small))} with "
        f"k = {at['k']} and r = {at['r']}. The paper's O(log_k n) is for dilated kernels; for contiguous ones its text "
        "gives O(n/k).",
    ]
    for name, crossing in record["crossovers"].items():
        if crossing is not None:
            lines.append(
                f"With d = {fixed['d']}, {name} takes fewer operations than the recurrent layer, an LSTM, up to "
                f"n = {crossing:.0f} = {crossing / fixed['d']:.1f} d."
            )
    return lines

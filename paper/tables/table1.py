"""Table 1, measured: operations, sequential operations and maximum path length of each layer type.

The layers are the mixers that `config.model.mixer` names, with one head as wide as the model. Operations are those that
XLA counts in the compiled function. For attention they are counted as in the paper, without its projections of 8 n d^2
operations, and again with them: the paper leaves them out, and they are not small. Time, which is of the whole layer,
is the median on this machine; small functions take longer than their operations suggest, so compare the paper's
exponents with the operations'.

Sequential operations are the matmuls on the longest chain of dependent ones. A path is counted in what a signal
passes between two positions: layers, or cells of the recurrent layer. Recurrence and convolution only look back, so
every position must reach all later ones there, and all others in attention.
"""

import functools
import itertools
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vaswani.machine import cpus
from vaswani.model.mixers.state import BeamState
from vaswani.paper import published
from vaswani.paper.tables.layer_costs import dependencies, operations, path_length, seconds, sequential_products
from vaswani.paper.tables.layer_types import Layer, Sizes, layer, projections, recurrent_states
from vaswani.train.table import Table


class Type(NamedTuple):
    """A row: the mixer, what the paper says of it, and the exponents of its complexity."""

    mixer: str
    paper: published.Layer
    exponents: dict[str, int]


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
    "layer",
    "operations: paper",
    "operations: measured",
    "time: measured",
    "sequential: paper",
    "sequential: measured",
    "longest path: paper",
    "longest path: measured",
)
ATTENTION = "self-attention"
PROJECTED = "self-attention with projections"
RESTRICTED = "self-attention, restricted"
RECURRENT = "recurrent"
CONVOLUTIONAL = "convolutional"
DILATED = "convolutional, dilated"
LINEAR = "linear attention"
PAPER = {row.layer: row for row in published.TABLE1}
TYPES = {
    ATTENTION: Type("attention", PAPER[ATTENTION], {"n": 2, "d": 1}),
    PROJECTED: Type("attention", PAPER[ATTENTION]._replace(complexity="left out"), {}),
    RECURRENT: Type("recurrent", PAPER[RECURRENT], {"n": 1, "d": 2}),
    CONVOLUTIONAL: Type("convolution", PAPER[CONVOLUTIONAL], {"k": 1, "n": 1, "d": 2}),
    DILATED: Type("convolution", PAPER[CONVOLUTIONAL], {"k": 1, "n": 1, "d": 2}),
    RESTRICTED: Type("restricted", PAPER[RESTRICTED], {"r": 1, "n": 1, "d": 1}),
    LINEAR: Type("linear", published.Layer(LINEAR, "-", "-", "-"), {"n": 1, "d": 2}),
}


def measure(name: str, sizes: Sizes, runs: int) -> dict[str, Any]:
    """Returns operations, seconds and the longest chain of products of one layer, with its sizes."""
    # The second layer of a stack: in the first, a dilated convolution is like any other.
    function, params = _made(name, sizes._replace(below=1))
    x_td = sequence(sizes)
    counted = operations(function, params, x_td)
    left_out = None if name == PROJECTED else projections(TYPES[name].mixer, sizes)
    if left_out is not None:
        counted -= operations(left_out, params, x_td)
    return {
        "n": sizes.n,
        "d": sizes.d,
        "k": sizes.k,
        "r": sizes.r,
        "operations": counted,
        "seconds": seconds(function, params, x_td, runs=runs),
        "sequential": sequential_products(function, params, x_td),
    }


def sequence(sizes: Sizes) -> Float[Array, "t d"]:
    """Returns the input of the layers, [n, d]."""
    return jax.random.normal(jax.random.key(1), (sizes.n, sizes.d))


def _made(name: str, sizes: Sizes) -> tuple[Layer, Any]:
    return layer(TYPES[name].mixer, sizes, dilation=sizes.k**sizes.below if name == DILATED else 1)


def longest_path(name: str, sizes: Sizes) -> int:
    """Returns how many layers, or cells of the recurrent layer, lie between the two positions furthest apart."""
    if name == RECURRENT:
        return _cells_passed(sizes)
    x_td = sequence(sizes)

    def layer_above(below: int) -> Bool[np.ndarray, "t s"]:
        function, params = _made(name, sizes._replace(below=below))
        return dependencies(partial(function, params), x_td)

    first_ts = layer_above(0)
    stack: Iterable[Bool[np.ndarray, "t s"]] = itertools.repeat(first_ts, sizes.n)
    if name == DILATED:
        stack = map(layer_above, range(sizes.n))
    itself_ts = np.eye(sizes.n, dtype=bool)
    back_ts = np.tri(sizes.n) > 0
    looks_ahead = np.triu(first_ts, 1).any()
    wanted_ts = np.ones_like(back_ts) if looks_ahead else back_ts
    return path_length(stack, itself_ts, np.zeros_like(itself_ts), wanted_ts)


def _cells_passed(sizes: Sizes) -> int:
    """Returns how many cells of the recurrent layer lie between the first and the last position."""
    _, params = _made(RECURRENT, sizes)
    x_td = sequence(sizes)

    def outputs(h_te: Float[Array, "t e"], x_td: Float[Array, "t d"]) -> Float[Array, "t e"]:
        before = [_shifted(h_te), _shifted(sequence(sizes))]
        return recurrent_states(params, sizes, x_td, BeamState(tuple(before))).arrays[0][0, :, 0]

    over_tt = dependencies(lambda h_te: outputs(h_te, x_td), x_td)
    in_ts = dependencies(partial(outputs, x_td), x_td)
    back_ts = np.tri(sizes.n) > 0
    return path_length(itertools.repeat(over_tt, sizes.n), np.zeros_like(back_ts), in_ts, back_ts)


def _shifted(x_te: Float[Array, "t e"]) -> Float[Array, "1 t 1 e"]:
    """Returns for each position what stands at the one before it, zeros for the first."""
    return jnp.pad(x_te, ((1, 0), (0, 0)))[None, :-1, None]


def exponent(points: Sequence[Mapping[str, float]], quantity: str, axis: str, start: int = 0) -> float:
    """Returns the power of `axis` that a quantity grows with from `start` on: least squares of the logarithms."""
    x, y = np.log([(point[axis], point[quantity]) for point in points if point[axis] >= start]).T
    return float(np.polyfit(x, y, 1)[0])


def crossover(line: Sequence[Mapping[str, float]], reference: Sequence[Mapping[str, float]]) -> float | None:
    """Returns the n above which a layer takes more operations than the reference; None if one always takes fewer.

    Between two points both are assumed to be powers of n.
    """
    n = np.log([point["n"] for point in line])
    ratios = [point["operations"] / other["operations"] for point, other in zip(line, reference, strict=True)]
    more = np.log(ratios)
    if more[0] >= 0 or more[-1] <= 0:
        return None
    return float(np.exp(np.interp(0.0, more, n)))


def make_record() -> dict[str, Any]:
    """Measures everything, in a few minutes, and names each layer type on stderr."""
    types: dict[str, Any] = {}
    for name, row in TYPES.items():
        print(f"{name} ...", file=sys.stderr)
        types[name] = _measured(name, list(row.exponents or TYPES[ATTENTION].exponents))
    recurrent = types[RECURRENT]["lines"]["n"]
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
        "crossovers": {name: crossover(types[name]["lines"]["n"], recurrent) for name in (ATTENTION, PROJECTED)},
    }


def _measured(name: str, axes: Sequence[str]) -> dict[str, Any]:
    """Returns the points of one layer type along each axis, its longest paths, and the exponents fitted to both."""
    measure_once = functools.cache(functools.partial(measure, name, runs=RUNS))  # lines cross in FIXED
    lines = {axis: [measure_once(FIXED._replace(**{axis: size})) for size in GRIDS[axis]] for axis in axes}
    paths = [{"n": n, "length": longest_path(name, SMALL._replace(n=n))} for n in SMALL_N]

    def exponents(quantity: str) -> dict[str, float]:
        return {axis: exponent(lines[axis], quantity, axis, FITTED_FROM[axis]) for axis in axes}

    return {
        "lines": lines,
        "paths": paths,
        "exponents": {
            "operations": exponents("operations"),
            "seconds": exponents("seconds"),
            "sequential": exponent(lines["n"], "sequential", "n"),
            "path": exponent(paths, "length", "n"),
        },
    }


def table(record: dict[str, Any]) -> Table:
    """Returns each claim of the paper next to its measurement."""
    rows: list[tuple[str, ...]] = []
    for name, row in TYPES.items():
        measured = record["types"][name]
        powers = measured["exponents"]
        chains = [point["sequential"] for point in measured["lines"]["n"]]
        paths = [str(path["length"]) for path in measured["paths"]]
        rows.append(
            (
                name,
                row.paper.complexity,
                " ".join(f"{axis}^{power:.2f}" for axis, power in powers["operations"].items()),
                " ".join(f"{axis}^{power:.1f}" for axis, power in powers["seconds"].items()),
                row.paper.sequential,
                f"n^{powers['sequential']:.2f}: {chains[0]} to {chains[-1]}",
                row.paper.path,
                f"n^{powers['path']:.2f}: {', '.join(paths)}",
            )
        )
    return Table("table1", "Table 1: layer types", HEAD, rows, notes(record))


def notes(record: dict[str, Any]) -> list[str]:
    """Returns notes on how the numbers were measured, and from which n on recurrence takes fewer operations."""
    fixed = record["fixed"]
    at = record["paths_at"]
    attention = record["types"][ATTENTION]
    n = [point["n"] for point in attention["lines"]["n"]]
    small = [path["n"] for path in attention["paths"]]
    lines = [
        "Operations as XLA counts them; time, which includes attention's projections, is the shortest of "
        f"{record['runs']} runs on {record['device']['kind']}, cores: {record['device']['cpus']}. One size grows while "
        f"the others stay at {_sizes(fixed)}; exponents are fitted from {_sizes(record['fitted_from'])} on.",
        f"Sequential operations: matrix products on the longest chain, for n from {n[0]} to {n[-1]}.",
        f"Longest path: layers, or cells of the recurrent layer, for n = {', '.join(map(str, small))} with "
        f"k = {at['k']} and r = {at['r']}. The paper's O(log_k n) is for dilated kernels; for contiguous ones its text "
        "gives O(n/k). Linear attention is later than the paper.",
    ]
    for name, crossing in record["crossovers"].items():
        if crossing is not None:
            lines.append(
                f"With d = {fixed['d']}, {name} takes fewer operations than the recurrent layer, an LSTM, up to "
                f"n = {crossing:.0f} = {crossing / fixed['d']:.1f} d."
            )
    return lines


def _sizes(by_axis: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} = {size}" for axis, size in by_axis.items())

"""The records of what things cost, and the tables of lab/docs/cost.md that are made of them."""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lab.benchmarks.cost.growth import slopes
from vaswani.files import write_json, write_text
from vaswani.paper.markers import replace_block
from vaswani.read_json import read_json
from vaswani.train.table import NOT_RUN, Table, as_markdown, number, spread

RECORDS = Path("lab/benchmarks/records/cost")
PAGE = Path("lab/docs/cost.md")
BEGIN = "<!-- cost: made by `python -m lab.benchmarks.cost` -->"
END = "<!-- end of cost -->"
MIB = 2**20

_GROWTH = {
    "grows": str,
    "base": {"mixer": str},
    "values": [int],
    "cpu": [[float]],
    "memory": [int],
    "flops": [int],
}
_ABOUT = {"device": {"cpu": str, "cpus": int}, "versions": {"jax": str}}
_BATCHES = [{"first": float, "rate_cpu": float, "peak": float}]
_DEVICE = [{"memory": int, "flops": float, "sent": int}]
SCHEMAS: dict[str, Any] = {
    "update": {**_ABOUT, "growths": [_GROWTH]},
    "layers": {**_ABOUT, "growths": [_GROWTH | {"base": {"mixer": str, "impl": str}}]},
    "search": {**_ABOUT, "growths": [_GROWTH]},
    "corpus": {
        **_ABOUT,
        "pairs": [int],
        "prepare": {count: [{"wall": float, "cpu": float, "peak": float}] for count in ("1", "2")},
        "bucket": _BATCHES,
        "pack": _BATCHES,
    },
    "devices": {**_ABOUT, "counts": [int], "sizes": dict, "data": _DEVICE, "fsdp": _DEVICE},
    "savings": {**_ABOUT, "pairs": int, "tokens": [int], "shapes": dict},
}
# The cost of a layer, by its mixer and how attention is computed, at n positions of width d, and its exponent of n. The
# first four are the paper's Table 1.
COSTS = {
    ("attention", "einsum"): ("n² d", 2),
    ("restricted", "einsum"): ("r n d", 1),
    ("recurrent", "einsum"): ("n d²", 1),
    ("convolution", "einsum"): ("k n d²", 1),
    ("attention", "chunked"): ("n² d", 2),
    ("strided", "einsum"): ("(r + n / r) n d", 2),
    ("linear", "einsum"): ("n d²", 1),
}
# The exponent of what grows fastest in the whole model.
LIMITS = {"length": 2, "d_model": 2, "N": 1, "vocabulary": 1, "rows": 1, "beam": 1}
TIMES = ("from - to", "processor milliseconds", "exponent: time")
MEMORY = ("MiB", "exponent: MiB")
TITLES = {
    "update": "An update",
    "layers": "An update of a language model, with each layer of Table 1, and later ones",
    "search": "A search",
    "corpus": "A corpus",
    "devices": "Several devices",
    "savings": "What bfloat16, recomputation and batches of like lengths bring",
}


def write(name: str, record: dict[str, Any]) -> None:
    """Writes a record, and the tables of all of them into the page."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    write_json(RECORDS / f"{name}.json", record)
    write_text(PAGE, page())


def page() -> str:
    """Returns the page with the tables of the records in it."""
    return replace_block(PAGE, BEGIN, END, "\n\n".join(map(as_markdown, tables())))


def tables() -> list[Table]:
    """Returns the tables of each record, and one that says so for each that is missing."""
    return [table for name in SCHEMAS for table in _tables(name)]


def _tables(name: str) -> list[Table]:
    path = RECORDS / f"{name}.json"
    if not path.exists():
        return [Table(name, TITLES[name], (name,), [(NOT_RUN,)], [])]
    record = read_json(path, SCHEMAS[name])
    count = record["device"]["cpus"]
    processors = f"{count} {'processor' if count == 1 else 'processors'}"
    about = f"{record['device']['cpu']}, {processors}, jax {record['versions']['jax']}"
    return [table._replace(notes=[*table.notes, about]) for table in MAKERS[name](record)]


def growths(name: str, record: dict[str, Any]) -> list[Table]:
    """Returns a row for each size that grows: what the first costs and the last, and the exponents."""
    rows = []
    for one in record["growths"]:
        flops = number(slopes(one["values"], [one["flops"]])[0]) if one["flops"] else "not counted"
        limit = str(LIMITS[one["grows"]])
        rows.append((one["grows"], *_times(one), flops, limit, *_memory(one)))
    head = ("what grows", *TIMES, "exponent: FLOPs", "exponent: in the limit", *MEMORY)
    return [Table(name, TITLES[name], head, rows, [])]


def layers(record: dict[str, Any]) -> list[Table]:
    """Returns a row for each layer: what short rows cost and long ones, and the exponents of their length."""
    rows = []
    for one in record["growths"]:
        mixer, impl = one["base"]["mixer"], one["base"]["impl"]
        formula, exponent = COSTS[mixer, impl]
        name = mixer if impl == "einsum" else f"{mixer}, {impl}"
        rows.append((name, formula, *_times(one), str(exponent), *_memory(one)))
    head = ("layer", "its cost", *TIMES, "exponent: in the limit", *MEMORY)
    return [Table("layers", TITLES["layers"], head, rows, [])]


def _times(one: dict[str, Any]) -> tuple[str, ...]:
    """Returns the sizes; the median of the rounds, of the first and the last; the exponent and its deviation."""
    values = one["values"]
    medians = [statistics.median(times) for times in zip(*one["cpu"], strict=True)]
    return (
        f"{values[0]:,} - {values[-1]:,}",
        f"{_milliseconds(medians[0])} - {_milliseconds(medians[-1])}",
        spread(slopes(values, one["cpu"])),
    )


def _memory(one: dict[str, Any]) -> tuple[str, ...]:
    memory = one["memory"]
    return f"{memory[0] / MIB:,.0f} - {memory[-1] / MIB:,.0f}", number(slopes(one["values"], [memory])[0])


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f}" if seconds < 0.1 else f"{1e3 * seconds:,.0f}"


def corpus(record: dict[str, Any]) -> list[Table]:
    """Returns what it costs to prepare each number of pairs, and to make batches of them."""
    prepared, batches = [], []
    for place, pairs in enumerate(record["pairs"]):
        cells = [f"{pairs:,}"]
        for processors in ("1", "2"):
            one = record["prepare"][processors][place]
            cells += [f"{one['cpu']:,.1f}", f"{one['wall']:,.1f}", f"{one['peak'] / MIB:,.0f}"]
        prepared.append(tuple(cells))
        cells = [f"{pairs:,}"]
        for batching in ("bucket", "pack"):
            one = record[batching][place]
            cells += [f"{one['first']:.2f}", f"{one['rate_cpu']:,.0f}", f"{one['peak'] / MIB:,.0f}"]
        batches.append(tuple(cells))
    of_preparing = ("processor seconds", "seconds", "MiB")
    of_batches = ("processor seconds before the first", "positions per processor second", "MiB")
    head = ["pairs", *(f"on {processors}: {what}" for processors in ("one processor", "two") for what in of_preparing)]
    first = Table("corpus", f"{TITLES['corpus']}: preparing it", tuple(head), prepared, [])
    head = ["pairs", *(f"{batching}: {what}" for batching in ("bucket", "pack") for what in of_batches)]
    return [first, Table("batches", f"{TITLES['corpus']}: making batches of it", tuple(head), batches, [])]


def devices(record: dict[str, Any]) -> list[Table]:
    """Returns a row for each number of devices: what one of them holds and computes, and what collectives move."""
    rows: list[tuple[str, ...]] = []
    for form in ("data", "fsdp"):
        for count, one in zip(record["counts"], record[form], strict=True):
            rows.append(
                (
                    f"mesh.{form}",
                    str(count),
                    f"{one['memory'] / MIB:,.0f}",
                    f"{one['flops'] / 1e9:,.1f}",
                    f"{one['sent'] / MIB:,.1f}",
                )
            )
    sizes = ", ".join(f"{key} {value}" for key, value in record["sizes"].items())
    counted = "collectives: the arrays that an update reduces, gathers or sends, each counted once"
    head = ("all devices on", "devices", "MiB of a device", "GFLOPs of a device", "MiB of collectives")
    return [Table("devices", TITLES["devices"], head, rows, [sizes, counted])]


def savings(record: dict[str, Any]) -> list[Table]:
    """Returns a row for each way to train: its speed, also by that of the first row, its memory and its padding."""
    source, target = record["tokens"]
    rates: dict[str, list[float]] = {}  # of target tokens, by round
    for name, shapes in record["shapes"].items():
        batches = [shape["batches"] for shape in shapes]
        rounds = zip(*(shape["cpu"] for shape in shapes), strict=True)
        rates[name] = [target / float(np.dot(batches, seconds)) for seconds in rounds]
    base = next(iter(rates.values()))
    rows: list[tuple[str, ...]] = []
    for name, shapes in record["shapes"].items():
        ratios = [rate / of_base for rate, of_base in zip(rates[name], base, strict=True)]
        positions = sum(2 * shape["batches"] * shape["rows"] * shape["length"] for shape in shapes)
        rows.append(
            (
                name,
                f"{statistics.median(rates[name]):,.0f}",
                f"{number(statistics.median(ratios))} ({number(min(ratios))} to {number(max(ratios))})",
                f"{max(shape['memory'] for shape in shapes) / MIB:,.0f}",
                f"{1 - (source + target) / positions:.1%}",
            )
        )
    head = ("batches and model", "target tokens a processor second", "times the first", "MiB", "padding")
    counted = f"an epoch of {record['pairs']:,} pairs of Multi30k; medians of {len(base)} rounds, and their range"
    return [Table("savings", TITLES["savings"], head, rows, [counted])]


MAKERS: dict[str, Callable[[dict[str, Any]], list[Table]]] = {
    "update": lambda record: growths("update", record),
    "layers": layers,
    "search": lambda record: growths("search", record),
    "corpus": corpus,
    "devices": devices,
    "savings": savings,
}

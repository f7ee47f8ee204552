"""The records of the loop's overhead, and the table of docs/cpu.md that is made of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vaswani.files import write_json, write_text
from vaswani.paper.markers import replace_block
from vaswani.read_json import read_json
from vaswani.train.table import Markdown, Table, as_markdown

RECORDS = Path("lab/benchmarks/records/overhead")
PAGE = Path("docs/cpu.md")
BEGIN = "<!-- overhead: made by `python -m lab.benchmarks.loop_overhead` -->"
END = "<!-- end of overhead -->"
UPDATES = 200  # of which the last column tells
HEAD = (
    "training",
    "tokens of an update",
    "bare tokens per processor second",
    "loop / bare",
    "lowest - highest",
    "validation",
    "saving",
    f"{UPDATES} updates with both",
)
SCHEMA = {
    "config": str,
    "changes": dict,
    "device": {"cpu": str, "cpus": int},
    "versions": {"jax": str},
    "pairs": int,
    "updates": int,
    "every": {"validation": int, "saving": int},
    "median": {
        "tokens": float,
        "bare_rate": float,
        "bare_cpus": float,
        "loop_cpus": float,
        "share_cpu": float,
        "validation": float,
        "saving": float,
    },
    "rounds": [{"share_cpu": float, "compiled": bool}],
}
_PATHS = ("data.train", "data.valid", "data.test", "data.cache", "data.tokenizer")


def without_paths(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the keys that the command line has set, as JSON has them, without those that name files."""
    return json.loads(json.dumps({key: value for key, value in changes.items() if key not in _PATHS}))


def write(name: str, record: dict[str, Any]) -> None:
    """Writes a record, and the table of all of them into the page."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    write_json(RECORDS / f"{name}.json", record)
    write_text(PAGE, page())


def page() -> str:
    """Returns the page with the table of the records in it."""
    records = {path.stem: _read(path) for path in sorted(RECORDS.glob("*.json"))}
    linked: dict[str, Any] = {
        Markdown(f"[{name}](../{RECORDS}/{name}.json)"): record for name, record in records.items()
    }
    return replace_block(PAGE, BEGIN, END, as_markdown(table(linked)))


def table(records: Mapping[str, dict[str, Any]]) -> Table:
    """Returns a row for each record, by its name, and a note on what was trained where."""
    rows = [(name, *_cells(record)) for name, record in records.items()]
    return Table("overhead", "", HEAD, rows, [_about(record) for record in records.values()])


def _cells(record: dict[str, Any]) -> tuple[str, ...]:
    median = record["median"]
    every = record["every"]
    shares = [one["share_cpu"] for one in record["rounds"][1:] if not one["compiled"]]
    tokens = median["tokens"] / record["updates"]
    bare = UPDATES * tokens / median["bare_rate"]
    looped = bare / median["share_cpu"]
    pauses = [UPDATES / every[name] * median[name] for name in ("validation", "saving")]
    return (
        f"{tokens:,.0f}",
        f"{median['bare_rate'] / median['bare_cpus']:,.0f}",
        f"{median['share_cpu']:.3f}",
        f"{min(shares):.3f} - {max(shares):.3f}",
        f"{median['validation']:.1f} s every {every['validation']:,}",
        f"{median['saving']:.1f} s every {every['saving']:,}",
        f"{bare / (looped + sum(pauses)):.3f}",
    )


def _about(record: dict[str, Any]) -> str:
    changes = "".join(f", {key}={value}" for key, value in sorted(record["changes"].items()))
    device = record["device"]
    warm = sum(not one["compiled"] for one in record["rounds"][1:])
    return (
        f"{record['config']}{changes}: {record['pairs']:,} pairs; medians of {warm} rounds of {record['updates']} "
        f"updates, of which bare ones had {record['median']['bare_cpus']:.2f} and the loop's "
        f"{record['median']['loop_cpus']:.2f} of {device['cpus']} processors; {device['cpu']}, jax "
        f"{record['versions']['jax']}"
    )


def _read(path: Path) -> dict[str, Any]:
    return read_json(path, SCHEMA)

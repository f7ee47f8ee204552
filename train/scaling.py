"""The tables of docs/scaling.md: what `python -m train.compile` says of base and big on TPU slices of many sizes.

    python -m train.scaling          # compiles what results/aot lacks (minutes each), then rewrites the tables

Layers are scanned, which compiles one in the place of six. A record in results/aot is the command's own report, with
its arguments, config and compiler versions. It is made again when its arguments change, or when the file is deleted.
The tables are made from the records and from nothing else.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from base.errors import UserError, run
from base.markers import rewritten
from run.folder import read_json
from train.aot.hardware import CHIPS, GIB
from train.compile import ASSUMPTIONS

RECORDS, PAGE = Path("results/aot"), Path("docs/scaling.md")
BEGIN, END = "<!-- tables: made by `python -m train.scaling` -->", "<!-- end of tables -->"
A_CHIP = 6_250  # positions a side: the paper's 25,000 on four chips, which begin the tables of weak scaling
REDUCTIONS = ("all-reduce", "reduce-scatter")


class Case(NamedTuple):
    """One row: its table, its record's name, and the arguments of `train.compile`."""

    table: str
    name: str
    arguments: tuple[str, ...]


def cases() -> list[Case]:
    """Every row of every table."""

    def case(table: str, name: str, model: str, topology: str, *more: str) -> Case:
        config = (f"--config=configs/{model}.py", "--config.model.dtype=bfloat16", "--config.model.scan_layers=True")
        return Case(table, f"{model}-{name}", (*config, f"--topology={topology}", *more))

    paper = [
        case("paper", topology.replace(":", "-"), model, topology, *(() if topology == "v5e:4x4" else ("--nosearch",)))
        for model in ("base", "big")
        for topology in ("v5e:2x2", "v5e:4x4", "v6e:4x4", "v5p:2x2x2")
    ]
    slices = [
        case("paper", "v5e-4x4-2-slices", model, "v5e:4x4", "--slices=2", "--nosearch") for model in ("base", "big")
    ]
    meshes = [
        case("meshes", f"v5e-4x4-{axis}", "big", "v5e:4x4", f"--config.mesh.{axis}=4", "--nosearch")
        for axis in ("fsdp", "tensor")
    ]
    large = [case("meshes", "v5e-2x2-large", "big", "v5e:2x2", "--config.data.tokens_per_batch=200000", "--nosearch")]
    weak = [
        case(f"weak {model}", f"weak-{chips}", model, topology, tokens, "--nosearch")
        for model in ("base", "big")
        for topology, chips in (("v5e:4x4", 16), ("v5e:8x8", 64), ("v5e:16x16", 256))
        for tokens in (f"--config.data.tokens_per_batch={A_CHIP * chips}",)
    ]
    weak += [c._replace(table=f"weak {c.name.partition('-')[0]}") for c in paper if c.name.endswith("-v5e-2x2")]
    weak.sort(key=lambda c: (c.table, "weak" in c.name))
    return sorted(paper + slices, key=lambda c: c.name.partition("-")[0]) + meshes + large + weak


def make_record(case: Case) -> dict[str, Any]:
    """Compiles a case in a process of its own, whose memory goes with it.

    Raises:
      UserError: it does not compile, for another reason than too little memory.
    """
    command = [sys.executable, "-m", "train.compile", *case.arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise UserError(f"{' '.join(command)}: status {done.returncode}")
    return {"arguments": list(case.arguments), "report": json.loads(done.stdout)}


def read_records() -> dict[str, dict[str, Any]]:
    """The committed report of every case that has one, by name."""
    return {path.stem: read_json(path) for path in sorted(RECORDS.glob("*.json"))}


def tables(records: dict[str, dict[str, Any]]) -> str:
    """All tables, in Markdown, of the cases that have been compiled; the others are named as not compiled yet."""
    of: dict[str, list[dict[str, Any]]] = {}
    names: dict[str, list[str]] = {}
    for case in cases():
        if case.name in records:
            of.setdefault(case.table, []).append(records[case.name]["report"])
            names.setdefault(case.table, []).append(case.name)
    missing = dict.fromkeys(case.name for case in cases() if case.name not in records)
    versions = sorted(
        {f"jax {v['jax']}, libtpu {v['libtpu']}" for v in (r["report"]["versions"] for r in records.values())}
    )
    sections = (
        ("paper", "The paper's batch of 25,000 positions a side", _rows),
        ("meshes", "Other meshes, and what does not fit", _rows),
        ("weak base", "Weak scaling of base: as many positions a chip on 4 to 256 chips", _weak),
        ("weak big", "Weak scaling of big: as many positions a chip on 4 to 256 chips", _weak),
    )
    lines: list[str] = []
    for table, title, rows in sections:
        if table in of:
            lines += [f"### {title}", "", *rows(of[table], names[table]), ""]
    lines += [f"Times and rates: {ASSUMPTIONS}.", "", f"Compiled with {'; '.join(versions) or 'nothing yet'}."]
    return "\n".join([*lines, *(["", f"Not compiled yet: {', '.join(missing)}."] if missing else [])])


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def _rows(reports: list[dict[str, Any]], names: list[str]) -> list[str]:
    head = ["record", "chips", "mesh", "positions a chip", "memory GiB", "of HBM", "FLOPs / analytic", "exchanged MB"]
    head += ["update ms", "bound by", "positions/s", "hours"]
    return _table(head, [[_link(name), *_columns(report)] for name, report in zip(names, reports, strict=True)])


def _columns(found: dict[str, Any]) -> list[str]:
    chip = CHIPS[found["topology"].partition(":")[0]]
    slices = f"{found['slices']} x " if found["slices"] > 1 else ""
    mesh = " ".join(f"{axis} {size}" for axis, size in found["mesh"].items() if size > 1)
    tokens = found["config"]["data"]["tokens_per_batch"]
    columns = [f"{slices}{found['topology']}", mesh, f"{tokens / found['devices']:,.0f}"]
    if "refused" in found:
        needed, available = (found["refused"][key] / GIB for key in ("needed", "available"))
        return [*columns, f"**does not fit**: {needed:.1f} of {available:.2f}", *["-"] * 7]
    longest, middle, e = found["train_longest"], found["train_middle"], found["estimate"]
    return [
        *columns,
        f"{longest['memory']['peak'] / GIB:.2f}",
        f"{longest['memory']['peak'] / chip.memory:.0%}",
        f"{middle['flops'] / middle['flops_analytic']:.3f}",
        "; ".join(f"{kind} {size / 1e6:,.0f}" for kind, size in _exchanged(middle).items()),
        _range(e, "step_seconds", 1e3, ".1f"),
        max(("compute", "memory", "links", "network"), key=lambda part: e[f"{part}_seconds"]),
        _range(e, "positions_per_second", 1.0, ",.0f"),
        _range(e, "hours", 1.0, ".1f"),
    ]


def _weak(reports: list[dict[str, Any]], names: list[str]) -> list[str]:
    head = ["record", "chips", "positions in an update", "memory GiB", "compute ms", "memory ms", "links ms"]
    head += ["update ms", "positions/s", "of linear"]
    first = next((_rate(found) for found in reports if "estimate" in found), 1.0)
    return _table(
        head, [[_link(name), *_weak_columns(found, first)] for name, found in zip(names, reports, strict=True)]
    )


def _rate(found: dict[str, Any]) -> float:
    """Positions a second of one chip, at least."""
    return found["estimate"]["positions_per_second_least"] / found["devices"]


def _weak_columns(found: dict[str, Any], first: float) -> list[str]:
    columns = [str(found["devices"]), f"{found['config']['data']['tokens_per_batch']:,}"]
    if "refused" in found:
        return [*columns, "**does not fit**", *["-"] * 6]
    e = found["estimate"]
    return [
        *columns,
        f"{found['train_longest']['memory']['peak'] / GIB:.2f}",
        *(f"{1e3 * e[f'{part}_seconds']:.2f}" for part in ("compute", "memory", "links")),
        _range(e, "step_seconds", 1e3, ".1f"),
        _range(e, "positions_per_second", 1.0, ",.0f"),
        f"{_rate(found) / first:.1%}",
    ]


def _exchanged(program: dict[str, Any]) -> dict[str, int]:
    """Bytes by kind, largest first, without what is a thousandth of the largest: counts and the like."""
    sizes: dict[str, int] = {}
    for exchange in program["exchanges"]:
        sizes[exchange["kind"]] = sizes.get(exchange["kind"], 0) + exchange["bytes"]
    return {kind: sizes[kind] for kind in sorted(sizes, key=sizes.__getitem__, reverse=True)}


def _range(values: dict[str, float], name: str, factor: float, form: str) -> str:
    return f"{factor * values[f'{name}_least']:{form}} - {factor * values[f'{name}_most']:{form}}"


def _link(name: str) -> str:
    return f"[{name}](../{RECORDS}/{name}.json)"


def main(argv: list[str]) -> None:
    """See the module's docstring."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    for case in cases():
        path = RECORDS / f"{case.name}.json"
        if not path.exists() or read_json(path)["arguments"] != list(case.arguments):
            print(f"{case.name}: {' '.join(case.arguments)}", file=sys.stderr)
            path.write_text(json.dumps(make_record(case), indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(rewritten(PAGE, BEGIN, END, tables(read_records())), encoding="utf-8")


if __name__ == "__main__":
    run(main)

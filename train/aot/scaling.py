"""The tables of docs/scaling.md: the cases to compile, their records, and the tables made from them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from base.errors import UserError
from base.files import Schema, check, read_json
from base.table import Markdown, Table, as_markdown
from train.aot.hardware import ASSUMPTIONS, CHIPS, GIB

RECORDS = Path("results/aot")
A_CHIP = 6_250  # positions per side and chip: weak scaling starts from the paper's 25,000 on four chips
PARTS = ("compute", "memory", "links", "network")
REPORT: Schema = {
    **{"topology": str, "slices": int, "devices": int, "mesh": {"data": int, "fsdp": int, "tensor": int}},
    **{"config": {"data": {"tokens_per_batch": int}}, "versions": {"jax": str, "libtpu": str}},
}
REFUSED: Schema = {"program": str, "needed": int, "available": int}
PROGRAM: Schema = {
    **{"rows": int, "length": int, "flops": float, "flops_analytic": float, "memory": {"peak": float}},
    "collectives": [{"kind": str, "bytes": int, "group": int, "count": int}],
}
RANGES = ("step_seconds", "positions_per_second", "hours")
ESTIMATE = [f"{part}_seconds" for part in PARTS] + [f"{name}_{end}" for name in RANGES for end in ("least", "most")]
COMPILED: Schema = {
    **{"train_longest": PROGRAM, "train_middle": PROGRAM, "estimate": dict.fromkeys(ESTIMATE, float)},
    "config": {"data": {"train": str, "valid": str}},
}
SIZES = (
    *("record", "topology", "mesh", "positions per chip", "memory GiB", "of HBM", "FLOPs / analytic", "collectives MB"),
    *("update ms", "bound by", "positions/s", "hours"),
)
WEAK = (
    *("record", "chips", "positions in an update", "memory GiB", "compute ms", "memory ms", "links ms"),
    *("update ms", "positions/s", "of linear"),
)


class Case(NamedTuple):
    """One row: its table, the name of its record, and the arguments of `train.compile`."""

    table: str
    name: str
    arguments: tuple[str, ...]


def cases() -> list[Case]:
    """Returns every row of every table."""

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
    """Compiles a case in its own process, which frees its memory at the end.

    Raises:
      UserError: it does not compile, for a reason other than too little memory.
    """
    command = [sys.executable, "-m", "train.compile", *case.arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise UserError(f"{' '.join(command)}: status {done.returncode}")
    return {"arguments": list(case.arguments), "report": json.loads(done.stdout)}


def check_report(path: Path, content: Any) -> dict[str, Any]:
    """Returns `content`, read from `path`, if it has the form that `make_record` gives it.

    Raises:
      UserError: it does not.
    """
    found = check(path, "", content, {"arguments": [str], "report": REPORT})["report"]
    if found["topology"].partition(":")[0] not in CHIPS:
        raise UserError(f"{path}: damaged: report.topology is {found['topology']!r}; it must begin like v5e:4x4")
    check(path, "report", found, {"refused": REFUSED} if "refused" in found else COMPILED)
    return content


def read_record(path: Path) -> dict[str, Any]:
    """Reads a record; raises `UserError` if it is damaged."""
    return check_report(path, read_json(path, dict))


def read_records() -> dict[str, dict[str, Any]]:
    """Reads the committed records, by case name."""
    return {path.stem: read_record(path) for path in sorted(RECORDS.glob("*.json"))}


def tables(records: dict[str, dict[str, Any]]) -> str:
    """Returns all tables in Markdown, from the cases compiled so far, and the names of the missing ones."""
    reports: dict[str, dict[str, dict[str, Any]]] = {}
    for case in cases():
        if case.name in records:
            link = Markdown(f"[{case.name}](../{RECORDS}/{case.name}.json)")
            reports.setdefault(case.table, {})[link] = records[case.name]["report"]
    missing = dict.fromkeys(case.name for case in cases() if case.name not in records)
    versions = sorted(
        {f"jax {v['jax']}, libtpu {v['libtpu']}" for v in (r["report"]["versions"] for r in records.values())}
    )
    sections = (
        ("paper", "The paper's batch of 25,000 positions per side", SIZES),
        ("meshes", "Other meshes, and what does not fit", SIZES),
        ("weak base", "Weak scaling of base: the same number of positions per chip on 4 to 256 chips", WEAK),
        ("weak big", "Weak scaling of big: the same number of positions per chip on 4 to 256 chips", WEAK),
    )
    parts = []
    for name, title, head in sections:
        if found := reports.get(name):
            first = next((_rate(report) for report in found.values() if "estimate" in report), 1.0)
            cells = [{"record": link, **_cells(report, first)} for link, report in found.items()]
            rows = [tuple(of.get(heading, "-") for heading in head) for of in cells]
            parts.append(as_markdown(Table(name, title, head, rows, [])))
    parts += [f"Times and rates: {ASSUMPTIONS}.", f"Compiled with {'; '.join(versions) or 'nothing yet'}."]
    return "\n\n".join([*parts, *([f"Not compiled yet: {', '.join(missing)}."] if missing else [])])


def _cells(found: dict[str, Any], first: float) -> dict[str, str]:
    """Returns the cells of a report by heading, fewer where it does not fit; `first` is the `_rate` to compare with."""
    chip = CHIPS[found["topology"].partition(":")[0]]
    slices = f"{found['slices']} x " if found["slices"] > 1 else ""
    tokens = found["config"]["data"]["tokens_per_batch"]
    cells = {
        "topology": f"{slices}{found['topology']}",
        "chips": str(found["devices"]),
        "mesh": " ".join(f"{axis} {size}" for axis, size in found["mesh"].items() if size > 1),
        "positions per chip": f"{tokens / found['devices']:,.0f}",
        "positions in an update": f"{tokens:,}",
    }
    if "refused" in found:
        needed, available = (found["refused"][key] / GIB for key in ("needed", "available"))
        return {**cells, "memory GiB": Markdown(f"**does not fit**: {needed:.1f} of {available:.2f}")}
    peak, middle, e = found["train_longest"]["memory"]["peak"], found["train_middle"], found["estimate"]
    return {
        **cells,
        "memory GiB": f"{peak / GIB:.2f}",
        "of HBM": f"{peak / chip.memory:.0%}",
        "FLOPs / analytic": f"{middle['flops'] / middle['flops_analytic']:.3f}",
        "collectives MB": "; ".join(f"{kind} {size / 1e6:,.0f}" for kind, size in _collective_bytes(middle).items()),
        **{f"{part} ms": f"{1e3 * e[f'{part}_seconds']:.2f}" for part in PARTS},
        "update ms": _range(e, "step_seconds", 1e3, ".1f"),
        "bound by": max(PARTS, key=lambda part: e[f"{part}_seconds"]),
        "positions/s": _range(e, "positions_per_second", 1.0, ",.0f"),
        "hours": _range(e, "hours", 1.0, ".1f"),
        "of linear": f"{_rate(found) / first:.1%}",
    }


def _rate(found: dict[str, Any]) -> float:
    """Returns the lower estimate of positions per second and chip."""
    return found["estimate"]["positions_per_second_least"] / found["devices"]


def _collective_bytes(program: dict[str, Any]) -> dict[str, int]:
    """Returns the bytes of each kind, largest first."""
    sizes: dict[str, int] = {}
    for one in program["collectives"]:
        sizes[one["kind"]] = sizes.get(one["kind"], 0) + one["bytes"]
    return {kind: sizes[kind] for kind in sorted(sizes, key=sizes.__getitem__, reverse=True)}


def _range(values: dict[str, float], name: str, factor: float, form: str) -> str:
    return f"{factor * values[f'{name}_least']:{form}} - {factor * values[f'{name}_most']:{form}}"

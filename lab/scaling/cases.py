"""The tables of docs/scaling.md: the cases to compile, their records, and the tables made from them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.errors import UserError
from vaswani.read_json import read_json_lines
from vaswani.run.folder import git
from vaswani.train.aot.gpus import cudnn_calls
from vaswani.train.aot.hardware import ASSUMPTIONS, CHIPS, GIB
from vaswani.train.aot.report import estimate
from vaswani.train.table import Markdown, Table, as_markdown

RECORDS = Path("paper/records/compiled.jsonl")
MEASURED = Path("lab/gpu/records.jsonl")
MEASURED_CHIP = "h200"  # of the same processors as the h100 that is compiled for, with more and faster memory
PARTS = ("compute", "memory", "links", "network")
SIZES = (
    "record",
    "topology",
    "mesh",
    "positions per chip",
    "memory GiB",
    "of HBM",
    "FLOPs / analytic",
    "collectives MB",
    "update ms",
    "bound by",
    "positions/s",
    "hours",
)
GPUS = (
    "record",
    "topology",
    "mesh",
    "attention",
    "memory GiB",
    "of HBM",
    "cuDNN calls",
    "deterministic",
    "FLOPs / analytic",
    "collectives MB",
    "update ms",
    "bound by",
)
CHECKED = (
    "record",
    "TFLOP",
    "GB",
    "compute ms",
    "memory ms",
    "update ms",
    "measured ms",
    "upper too short by",
    "by the measured peak",
)
SECTIONS = (  # of the page: table, title, headings
    ("paper", "The paper's batch of 25,000 positions per side", SIZES),
    ("meshes", "Other meshes, and what does not fit", SIZES),
    ("gpus", "GPUs: the paper's batch of 25,000 positions per side on one card and on a node of eight", GPUS),
    ("checked", "Estimated and measured: one H200, packed rows of 256, hashed dropout, cuDNN's attention", CHECKED),
)


class Case(NamedTuple):
    """One row: its table, the name of its record, and the arguments of `train.compile`."""

    table: str
    name: str
    arguments: tuple[str, ...]


def cases() -> list[Case]:
    """Returns every row of every table."""
    rows = []
    for model in ("base", "big"):
        for topology in ("v5e:2x2", "v5e:4x4", "v6e:4x4", "v5p:2x2x2"):
            search = () if topology == "v5e:4x4" else ("--nosearch",)
            rows.append(_case("paper", topology.replace(":", "-"), model, topology, *search))
        rows.append(_case("paper", "v5e-4x4-2-slices", model, "v5e:4x4", "--slices=2", "--nosearch"))
    rows.append(_case("meshes", "v5e-4x4", "big", "v5e:4x4"))  # that of the paper's table: with data alone
    for axis in ("fsdp", "tensor"):
        rows.append(_case("meshes", f"v5e-4x4-{axis}", "big", "v5e:4x4", f"--config.mesh.{axis}=4", "--nosearch"))
    too_many_tokens = "--config.data.tokens_per_batch=200000"
    rows.append(_case("meshes", "v5e-2x2-large", "big", "v5e:2x2", too_many_tokens, "--nosearch"))
    rows += _gpu_cases()
    for model in ("base", "big"):
        accelerated = (f"--config=configs/{model}.py:en-de:gpu", "--topology=h100:1", "--nosearch")
        rows.append(Case("checked", f"{model}-h100-1-packed", accelerated))
    return rows


def _gpu_cases() -> list[Case]:
    """Returns the rows of GPUs."""
    einsum = "--config.model.attention_impl=einsum"
    cudnn = "--config.model.attention_impl=cudnn"
    rows = []
    for model in ("base", "big"):
        rows.append(_case("gpus", "h100-1-einsum", model, "h100:1", einsum, "--nosearch"))
        rows.append(_case("gpus", "h100-1-cudnn", model, "h100:1", cudnn, "--nosearch"))
        rows.append(_case("gpus", "h100-8-cudnn", model, "h100:8", cudnn, "--nosearch"))
    for axis in ("fsdp", "tensor"):
        rows.append(_case("gpus", f"h100-8-{axis}", "big", "h100:8", cudnn, f"--config.mesh.{axis}=8", "--nosearch"))
    rows.append(_case("gpus", "a100-8-cudnn", "big", "a100:8", cudnn, "--nosearch"))
    return rows


def _case(table: str, name: str, model: str, topology: str, *more: str) -> Case:
    arguments = (
        f"--config=configs/{model}.py",
        "--config.model.dtype=bfloat16",
        "--config.model.scan_layers=True",
        f"--topology={topology}",
        *more,
    )
    return Case(table, f"{model}-{name}", arguments)


def make_record(case: Case) -> dict[str, Any]:
    """Compiles a case in its own process, which frees its memory at the end.

    Raises:
      UserError: it does not compile, for a reason other than too little memory.
    """
    command = [sys.executable, "-m", "train.compile", *case.arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1) or not done.stdout:
        raise UserError(f"{' '.join(command)}: status {done.returncode}")
    return {"name": case.name, "arguments": list(case.arguments), "git": git(), "report": json.loads(done.stdout)}


def read_records() -> dict[str, dict[str, Any]]:
    """Reads the committed records, by case name."""
    return {record["name"]: record for record in read_json_lines(RECORDS, dict)}


def tables(records: dict[str, dict[str, Any]]) -> str:
    """Returns all tables in Markdown, from the cases compiled so far, and the names of the missing ones."""
    reports: dict[str, dict[str, dict[str, Any]]] = {}
    missing = []
    for case in cases():
        if case.name in records:
            reports.setdefault(case.table, {})[case.name] = records[case.name]["report"]
        elif case.name not in missing:  # a case may be in two tables
            missing.append(case.name)
    parts = []
    for name, title, headings in SECTIONS:
        if name in reports:
            rows = _checked(reports[name]) if name == "checked" else _rows(reports[name], headings)
            parts.append(as_markdown(Table(name, title, headings, rows, [])))
    parts.append(f"Times and rates: {ASSUMPTIONS}.")
    parts.append(f"Compiled with {'; '.join(_compilers(records)) or 'nothing yet'}.")
    if missing:
        parts.append(f"Not compiled yet: {', '.join(missing)}.")
    return "\n\n".join(parts)


def _compilers(records: dict[str, dict[str, Any]]) -> list[str]:
    """Returns the versions that records were made with, each set of them once."""
    compilers = set()
    for record in records.values():
        versions = record["report"]["versions"]
        compilers.add(", ".join(f"{package} {version}" for package, version in versions.items()))
    return sorted(compilers)


def _rows(reports: dict[str, dict[str, Any]], headings: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Returns the rows of a table, given its reports by the names of their records."""
    rows: list[tuple[str, ...]] = []
    for name, report in reports.items():
        cells = {"record": name, **_cells(report)}
        rows.append(tuple(cells.get(heading, "-") for heading in headings))
    return rows


def _cells(report: dict[str, Any]) -> dict[str, str]:
    """Returns the cells of a report by heading, fewer where it does not fit."""
    generation, _, _ = report["topology"].partition(":")
    chip = CHIPS[generation]
    slices = f"{report['slices']} x " if report["slices"] > 1 else ""
    tokens = report["config"]["data"]["tokens_per_batch"]
    cells = {
        "topology": f"{slices}{report['topology']}",
        "mesh": " ".join(f"{axis} {size}" for axis, size in report["mesh"].items() if size > 1) or "one device",
        "positions per chip": f"{tokens / report['devices']:,.0f}",
    }
    if "refused" in report:
        needed = report["refused"]["needed"] / GIB
        available = report["refused"]["available"] / GIB
        cells["memory GiB"] = Markdown(f"**does not fit**: {needed:.1f} of {available:.2f}")
        return cells
    peak = report["train_longest"]["memory"]["peak"]
    program = report["train_middle"]
    estimated = report["estimate"]
    megabytes = [f"{kind} {size / 1e6:,.0f}" for kind, size in _collective_bytes(program).items()]
    cells |= {
        "attention": report["config"]["model"]["attention_impl"],
        "memory GiB": f"{peak / GIB:.2f}",
        "of HBM": f"{peak / chip.memory:.0%}",
        "FLOPs / analytic": f"{program['flops'] / program['flops_analytic']:.3f}",
        "collectives MB": "; ".join(megabytes),
        "update ms": _range(estimated, "step_seconds", 1e3, ".1f"),
        "bound by": max(PARTS, key=lambda part: estimated[f"{part}_seconds"]),
        "positions/s": _range(estimated, "positions_per_second", 1.0, ",.0f"),
        "hours": _range(estimated, "hours", 1.0, ".1f"),
    }
    if "kernels" in program:
        cells["cuDNN calls"] = str(cudnn_calls(program["kernels"]))
        cells["deterministic"] = "yes" if program["deterministic"] else "no"
    return cells


def measured_parts() -> dict[str, dict[str, Any]]:
    """Returns what was measured on a GPU, by the part of `lab.gpu`; of several records of a part, the first."""
    found: dict[str, dict[str, Any]] = {}
    for record in read_json_lines(MEASURED, {"part": str, "found": dict}):
        found.setdefault(record["part"], record["found"])
    return found


def _checked(reports: dict[str, dict[str, Any]]) -> list[tuple[str, ...]]:
    """Returns the rows of estimates beside what was measured; the peak that was measured is that of a large product."""
    found = measured_parts()
    chip = CHIPS[MEASURED_CHIP]
    peak = 1e12 * found["step: matrix peak"]["tflops"]
    rows: list[tuple[str, ...]] = []
    for name, report in reports.items():
        program = report["train_middle"]
        positions = program["rows"] * program["length"]
        estimated = estimate(chip, program, positions, 1)
        by_measured_peak = estimate(chip._replace(peak=peak), program, positions, 1)
        model, _, _ = name.partition("-")
        measured = found[f"step: {model}: ours, cudnn, chunks of 8,192"]["milliseconds"]
        rows.append(
            (
                name,
                f"{program['flops_analytic'] / 1e12:.1f}",
                f"{program['traffic'] / 1e9:.1f}",
                f"{1e3 * estimated['compute_seconds']:.1f}",
                f"{1e3 * estimated['memory_seconds']:.1f}",
                _range(estimated, "step_seconds", 1e3, ".1f"),
                f"{measured:.1f}",
                f"{1 - 1e3 * estimated['step_seconds_most'] / measured:.0%}",
                f"{1 - 1e3 * by_measured_peak['step_seconds_most'] / measured:.0%}",
            )
        )
    return rows


def _collective_bytes(program: dict[str, Any]) -> dict[str, int]:
    """Returns the bytes of each kind, largest first."""
    sizes: dict[str, int] = {}
    for collective in program["collectives"]:
        kind = collective["kind"]
        sizes[kind] = sizes.get(kind, 0) + collective["bytes"]
    return {kind: sizes[kind] for kind in sorted(sizes, key=sizes.__getitem__, reverse=True)}


def _range(values: dict[str, float], name: str, factor: float, form: str) -> str:
    least = factor * values[f"{name}_least"]
    most = factor * values[f"{name}_most"]
    return f"{least:{form}} - {most:{form}}"

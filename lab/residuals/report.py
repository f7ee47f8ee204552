"""The table in lab/residuals/README.md, the verdicts by the rule of the design, and the figure, made of the record."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from lab.residuals.design import APART, BASE, CELLS, COLLAPSED, DEPTHS, NORMS, Cell, seeds
from vaswani.errors import UserError
from vaswani.files import write_text
from vaswani.numbers import from_nll
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.markers import replace_block
from vaswani.read_json import check, read_json, read_json_lines
from vaswani.train.table import NOT_RUN, Table, as_markdown, number

RECORDS = Path("lab/residuals/records.jsonl")
FIGURE = Path("lab/residuals/figure.svg")
PAGE = Path("lab/residuals/README.md")
BEGIN = "<!-- residuals: made by `python -m lab.residuals` -->"
END = "<!-- end of residuals -->"
SCHEMA = {
    "cell": str,
    "seed": int,
    "updates": int,
    "nll": object,
    "gradient": dict,
    "git": {"commit": str, "dirty": bool},
    "device": {"cpu": str},
}
LEVEL = 0.05
DEEPER = DEPTHS[1:]
DEEPEST = DEPTHS[-1]
TITLES = {"post": "post-norm", "pre": "pre-norm", "none": "no norm"}
Runs = dict[Cell, list[dict[str, Any]]]


def record(workdir: Path) -> None:
    """Makes the runs of a folder the record.

    Raises:
      UserError: a run lacks, or its code differed from its commit.
    """
    lines: list[str] = []
    for cell in CELLS:
        for seed in seeds(cell):
            path = workdir / f"{cell.name}-seed{seed}.json"
            run = read_json(path, SCHEMA)
            if run["git"]["dirty"]:
                raise UserError(f"{path}: trained with changes that are not committed; train it again")
            lines.append(json.dumps(run))
    write_text(RECORDS, "".join(f"{line}\n" for line in lines))


def write() -> None:
    """Writes the page and, of runs that are all there, the figure."""
    runs = read()
    write_text(PAGE, page(runs))
    if is_complete(runs):
        plot(runs, FIGURE)


def is_complete(runs: Runs) -> bool:
    """Tells whether every cell has all of its seeds."""
    return all([run["seed"] for run in runs[cell]] == list(seeds(cell)) for cell in CELLS)


def read() -> Runs:
    """Reads the record: the runs of each cell.

    Raises:
      UserError: the record is damaged.
    """
    lines = read_json_lines(RECORDS, SCHEMA)
    for line in lines:
        check(RECORDS, "gradient", line["gradient"], dict.fromkeys(line["gradient"], object))
    return {cell: [line for line in lines if line["cell"] == cell.name] for cell in CELLS}


def page(runs: Runs) -> str:
    """Returns the page with the table in it, or before all runs are there with a word."""
    text = as_markdown(table(runs)) if is_complete(runs) else NOT_RUN
    return replace_block(PAGE, BEGIN, END, text)


def table(runs: Runs) -> Table:
    """Returns a row for each depth and norm, with residual connections and without, and the verdicts as notes."""
    rows: list[tuple[str, ...]] = []
    for layers in DEPTHS:
        for norm in NORMS:
            cells = [Cell(layers, norm, residual) for residual in (True, False)]
            found = [part for cell in cells for part in (_perplexity(runs, cell), _verdict(runs, cell))]
            ratios = [_ratio(runs, cell) for cell in cells]
            rows.append((f"{layers} layers, {TITLES[norm]}", *found[:2], ratios[0], *found[2:], ratios[1]))
    columns = ("perplexity", "verdict", "first / last gradient")
    head = ("", *(f"with residual connections: {c}" for c in columns), *(f"without: {c}" for c in columns))
    (cpu,) = {run["device"]["cpu"] for of_cell in runs.values() for run in of_cell}
    (commit,) = {run["git"]["commit"][:8] for of_cell in runs.values() for run in of_cell}
    notes = [
        f"1. residual connections are critical: {residuals_critical(runs)}",
        f"2. layer normalisation is critical: {norms_critical(runs)}",
        f"3. residual connections prevent the collapse of gradients: {collapse_prevented(runs)}",
        dunnett(runs),
        "perplexity: of validation after the last update, geometric mean of the seeds; base is 2 layers, post-norm, "
        "with residual connections",
        "first / last gradient: norm of the gradient of the encoder's first layer by that of its last, at the first "
        "update, geometric mean of the seeds",
        f"{sum(map(len, runs.values()))} runs of commit {commit}; {cpu}",
    ]
    return Table("residuals", "", head, rows, notes)


def log_perplexities(runs: Runs, cell: Cell) -> list[float]:
    """Returns nats a token of validation for each seed, infinite for one that ended before."""
    return [math.inf if run["nll"] is None else run["nll"] for run in runs[cell]]


def trained_seeds(runs: Runs, cell: Cell) -> int:
    """Counts the seeds that end with at most `APART` times the mean perplexity of base."""
    highest = float(np.mean(log_perplexities(runs, BASE))) + math.log(APART)
    return sum(nll <= highest for nll in log_perplexities(runs, cell))


def trains(runs: Runs, cell: Cell) -> bool:
    """Tells whether all seeds of a cell have trained."""
    return trained_seeds(runs, cell) == len(seeds(cell))


def failed(runs: Runs, cell: Cell) -> bool:
    """Tells whether no seed of a cell has trained."""
    return trained_seeds(runs, cell) == 0


def first_by_last(run: dict[str, Any], layers: int) -> float:
    """Returns the gradient's norm in the encoder's first layer by that in its last; NaN if one is not a number."""
    first = run["gradient"]["encoder/layer_0"]
    last = run["gradient"][f"encoder/layer_{layers - 1}"]
    return math.nan if first is None or not last else first / last


def residuals_critical(runs: Runs) -> str:
    """Judges rule 1 of the design."""
    with_them = [any(trains(runs, Cell(n, norm, True)) for norm in NORMS) for n in DEEPER]
    without = [[Cell(n, norm, False) for norm in NORMS] for n in DEEPER]
    if all(with_them) and all(failed(runs, cell) for cells in without for cell in cells):
        return "shown"
    if all(any(trains(runs, cell) for cell in cells) for cells in without):
        return "refuted"
    return "neither"


def norms_critical(runs: Runs) -> str:
    """Judges rule 2 of the design."""
    with_norm = [any(trains(runs, Cell(n, norm, True)) for norm in ("post", "pre")) for n in DEEPER]
    without = [Cell(n, "none", True) for n in DEEPER]
    if all(with_norm) and all(failed(runs, cell) for cell in without):
        return "shown"
    return "refuted" if all(trains(runs, cell) for cell in without) else "neither"


def collapse_prevented(runs: Runs) -> str:
    """Judges rule 3 of the design."""
    found: list[bool] = []
    for norm in NORMS:
        kept = [first_by_last(run, DEEPEST) for run in runs[Cell(DEEPEST, norm, True)]]
        lost = [first_by_last(run, DEEPEST) for run in runs[Cell(DEEPEST, norm, False)]]
        found.append(all(ratio >= COLLAPSED for ratio in kept) and all(ratio < COLLAPSED for ratio in lost))
    return "shown" if all(found) else "neither" if any(found) else "refuted"


def dunnett(runs: Runs) -> str:
    """Returns a note on Dunnett's test of every cell that trains against base."""
    of_cells = {cell: log_perplexities(runs, cell) for cell in CELLS if cell != BASE and trains(runs, cell)}
    what = f"log perplexity, Dunnett's test against base with pooled variance, {100 * LEVEL:g} % for all together"
    if not of_cells:
        return f"{what}: no other cell trains"
    base = log_perplexities(runs, BASE)
    found = stats.dunnett(*of_cells.values(), control=base, rng=np.random.default_rng(0))
    parts: list[str] = []
    for (cell, nlls), p in zip(of_cells.items(), found.pvalue, strict=True):
        clear = "" if p < LEVEL else ", not clear"
        parts.append(f"{cell.name} {np.mean(nlls) - np.mean(base):+.3f} (p {p:.2g}{clear})")
    return f"{what}, of the cells that train: {'; '.join(parts)}"


def _perplexity(runs: Runs, cell: Cell) -> str:
    mean = float(np.mean(log_perplexities(runs, cell)))
    if not math.isfinite(mean):
        return "not finite"
    perplexity = from_nll(mean)
    return number(perplexity, 1) if math.isfinite(perplexity) else "above 1e300"


def _verdict(runs: Runs, cell: Cell) -> str:
    count = trained_seeds(runs, cell)
    return "trains" if trains(runs, cell) else "did not train" if not count else f"{count} of {len(seeds(cell))} seeds"


def _ratio(runs: Runs, cell: Cell) -> str:
    ratios = [first_by_last(run, cell.layers) for run in runs[cell]]
    return f"{_geometric_mean(ratios):.2g}"


def _geometric_mean(values: Sequence[float]) -> float:
    """Returns the geometric mean; 0 if one is 0."""
    return 0.0 if 0 in values else math.exp(float(np.mean(np.log(values))))


def plot(runs: Runs, path: Path) -> None:
    """Draws the gradient's norm in each layer of the deepest encoders: one panel a norm, with and without.

    Raises:
      UserError: the file cannot be written.
    """
    layers = range(DEEPEST)
    with figure_file(path, 7, 2.4) as figure:
        for axes, norm in zip(figure.subplots(1, len(NORMS), sharey=True), NORMS, strict=True):
            for place, (residual, label) in enumerate(((True, "with residual connections"), (False, "without"))):
                for count, run in enumerate(runs[Cell(DEEPEST, norm, residual)]):
                    norms = [run["gradient"][f"encoder/layer_{n}"] or math.nan for n in layers]
                    name = label if count == 0 else None
                    axes.semilogy([n + 1 for n in layers], norms, ".-", color=colour(place), label=name, markersize=3)
            axes.set(title=TITLES[norm], xlabel="layer of the encoder")
            if norm == NORMS[0]:
                axes.set_ylabel("norm of the gradient")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)

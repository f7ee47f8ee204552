"""The table in docs/tables.md and the figure, made of the record of lockstep."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vaswani.files import write_text
from vaswani.paper.drawing import figure_file
from vaswani.paper.markers import replace_block
from vaswani.read_json import read_json_lines
from vaswani.train.table import Table, as_markdown

RECORDS = Path("lab/lockstep/records.jsonl")
FIGURE = Path("lab/lockstep/figure.svg")
PAGE = Path("docs/tables.md")
BEGIN = "<!-- lockstep: made by `python -m lab.lockstep` -->"
END = "<!-- end of lockstep -->"
SCHEMA = {
    "case": str,
    "ours": [float],
    "theirs": [float],
    "nudged": [float],
    "device": {"cpu": str},
    "versions": {"jax": str, "torch": str, "transformers": str},
}
SHOWN = (1, 5, 10, 20, 30, 40)  # updates
DRAWN = ("the paper's", "pre-norm", "packed", "GPT-2")
EQUAL = 1e-7  # where equal losses are drawn, which have no logarithm


def write() -> None:
    """Writes the table and the figure."""
    cases = read()
    write_text(PAGE, page(cases))
    plot(cases, FIGURE)


def read() -> list[dict[str, Any]]:
    """Reads the record, a dict for each case."""
    return read_json_lines(RECORDS, SCHEMA)


def page(cases: list[dict[str, Any]]) -> str:
    """Returns the page with the table in it."""
    return replace_block(PAGE, BEGIN, END, as_markdown(table(cases)))


def table(cases: list[dict[str, Any]]) -> Table:
    """Returns a row for each case: by how much losses differ at some updates, and at most."""
    rows: list[tuple[str, ...]] = []
    for case in cases:
        for pair, other in (("PyTorch", "theirs"), ("ours, nudged", "nudged")):
            found = difference(case, other)
            cells = [f"{value:.1e}" if value else "0" for value in (*found[np.subtract(SHOWN, 1)], found.max())]
            rows.append((case["case"], pair, *cells))
    head = ("case", "ours minus", *(f"update {n}" for n in SHOWN), "greatest of 40")
    (versions,) = {tuple(case["versions"].values()) for case in cases}
    (cpu,) = {case["device"]["cpu"] for case in cases}
    notes = [
        "absolute differences of the losses, in nats a token; a loss of float32 between 4 and 8 is a multiple of "
        f"{2.0**-21:.1e}",
        "nudged: ours, with 2^-22 added to one row of the first embeddings",
        "jax {}, torch {}, transformers {}; {}".format(*versions, cpu),
    ]
    return Table("lockstep", "", head, rows, notes)


def difference(case: dict[str, Any], other: str) -> Float[np.ndarray, " updates"]:
    """Returns by how much the losses of every update differ from those of the other side."""
    return np.abs(np.subtract(case["ours"], case[other]))


def plot(cases: list[dict[str, Any]], path: Path) -> None:
    """Draws the differences by update: to PyTorch, and to ours from the nudged parameters.

    Raises:
      UserError: the file cannot be written.
    """
    by_name = {case["case"]: case for case in cases}
    with figure_file(path, 7, 2.4) as figure:
        for axes, name in zip(figure.subplots(1, len(DRAWN), sharey=True), DRAWN, strict=True):
            for label, other in (("ours and PyTorch", "theirs"), ("ours and ours + 2^-22", "nudged")):
                found = difference(by_name[name], other)
                axes.semilogy(np.arange(1, len(found) + 1), np.maximum(found, EQUAL), ".-", label=label, markersize=3)
            axes.axhline(1e-4, color="grey", linestyle=":")
            axes.set(title=name, xlabel="update", ylim=(EQUAL / 2, 1e-3))
            if name == DRAWN[0]:
                axes.set_ylabel("difference of losses")
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)

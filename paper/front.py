"""The README's table: results that anyone can repeat, the published number next to ours."""

import statistics
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from vaswani.paper.published import MULTI30K
from vaswani.paper.records import RunRecord
from vaswani.paper.rows import dagger_notes, marked
from vaswani.paper.tables.cost import devices
from vaswani.train.intervals import with_interval
from vaswani.train.table import NOT_RUN, Code, Markdown, Table, as_markdown, number

SCORES = {
    "sacrebleu": "sacreBLEU",
    "bleu_tok_lc": "BLEU of lower-cased tokens",
    "bleu_as_is": "BLEU of lower-cased tokens",  # of a text that is that already
}


class Row(NamedTuple):
    """A row: what is trained, its config, and where its records are.

    `records` is the name of its record or, ending in "/", what the names of its seeds' records begin with. `before` is
    the record of the run whose parameters it begins with, whose minutes also count.
    """

    text: str
    config: str
    records: str
    score: str
    published: float | None = None
    before: str = ""


# Bundled corpora, or those that `python -m data.download` fetches.
ROWS = (
    Row("a bundled grammar", "configs/quickstart.py", "quickstart", "sacrebleu"),
    Row(
        "image captions (Multi30k), published recipe",
        "configs/multi30k_published.py",
        "multi30k_published/",
        "bleu_as_is",
        MULTI30K,
    ),
    Row("the captions, from raw text", "configs/multi30k.py", "multi30k", "bleu_tok_lc", MULTI30K),
    Row("the same, longer", "configs/multi30k.py", "multi30k_longer", "bleu_tok_lc", MULTI30K, before="multi30k"),
)


def table(records: Mapping[str, RunRecord]) -> str:
    """Returns the table in Markdown, given the records by name."""
    lines: list[tuple[str, ...]] = []
    runs_of_rows: dict[str, list[RunRecord]] = {}
    for row in ROWS:
        runs = _runs(row, records)
        runs_of_rows[row.text] = runs
        scores = np.array([run.evaluations[0].scores[row.score] for run in runs])
        lines.append(
            (
                marked(row.text, runs),
                Code(row.config),
                SCORES[row.score],
                number(row.published) if row.published else "-",
                with_interval(scores, 2, sign=False) or NOT_RUN,
                str(len(runs)),
                _minutes(row, records, runs),
            )
        )
    head = ("what is trained", "config", "test score", "published", "ours", "seeds", "minutes a seed")
    notes = [
        Markdown(
            "Scored on held-out test splits. ± is the half-width of the 95 % t interval over the seeds; one seed has "
            "none. [docs/results.md](docs/results.md) lists every score with its signature, "
            "[docs/reproduce.md](docs/reproduce.md) the commands."
        ),
        *dagger_notes(runs_of_rows),
    ]
    return as_markdown(Table("results", "", head, lines, notes))


def _runs(row: Row, records: Mapping[str, RunRecord]) -> list[RunRecord]:
    """Returns the recorded runs of a row, one for each seed."""
    if row.records.endswith("/"):
        return [run for name, run in records.items() if name.startswith(row.records)]
    return [records[row.records]] if row.records in records else []


def _minutes(row: Row, records: Mapping[str, RunRecord], runs: list[RunRecord]) -> str:
    """Returns the mean minutes of a seed, including the run that it began with, and the device."""
    if not runs:
        return ""
    minutes = statistics.fmean(run.minutes for run in runs)
    if row.before:
        minutes += records[row.before].minutes
    return f"{minutes:.0f}, {devices(runs[0].device)}"

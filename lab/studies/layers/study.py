"""Layers before and after self-attention: quality at equal parameters, against operations and time."""

from pathlib import Path

import numpy as np

from base.intervals import with_interval
from base.table import NOT_RUN, Table, spread
from lab.studies.layers.design import D_FF
from paper.drawing import colour, drawn
from paper.records import Records
from paper.rows import RowRuns, caveat_notes, load, row_runs, run_notes
from paper.tables.cost import analytic_flops, cost
from paper.tables.table3 import parameters
from paper.tables.trend import INTERVAL, paired_differences, tested

FILE = "lab/studies/layers/design.py"
BASE = "attention"
COMPARED = {"perplexity": "log perplexity", "sacrebleu": "sacreBLEU"}
HEAD = (
    "layer",
    "perplexity",
    "log perplexity − attention",
    "sacreBLEU",
    "sacreBLEU − attention",
    "parameters",
    "training operations",
    "training minutes",
    "seeds",
    "cost",
)


def tables(records: Records) -> list[Table]:
    """Returns one row for each mixer."""
    runs = rows(records)
    lines: list[tuple[str, ...]] = []
    minus_attention = {
        key: {mixer: paired_differences(row, runs[BASE], key) for mixer, row in runs.items() if mixer != BASE}
        for key in COMPARED
    }
    for mixer, row in runs.items():
        compared = mixer != BASE
        lines.append(
            (
                row.label(mixer),
                row.shown("perplexity", 3),
                with_interval(minus_attention["perplexity"][mixer], 3) if compared else "",
                row.shown("sacrebleu"),
                with_interval(minus_attention["sacrebleu"][mixer], 2) if compared else "",
                f"{parameters(config_of(mixer), row):,}",
                f"{analytic_flops(load(config_of(mixer))):.2e}".replace("e+", "e"),
                spread([seed.run.minutes for seed in row.scored]) or NOT_RUN,
                str(len(row.scored)),
                cost(row.scored),
            )
        )
    notes = [
        "the built-in corpus; perplexity: of a subword of the references; sacreBLEU: decoded greedily",
        f"− attention: mean over the seeds that both rows have, {INTERVAL}; other columns: mean over the seeds, "
        "± standard deviation",
        *(note for key, name in COMPARED.items() for note in tested(minus_attention[key], f"{name} − attention")),
        "training operations: matrix products, forward and backward, padding included",
        *run_notes(runs),
        *caveat_notes(runs),
    ]
    return [Table("layers", "Layers before and after self-attention, at equal parameters", HEAD, lines, notes)]


def plot(records: Records, path: Path) -> None:
    """Draws perplexity as it falls and BLEU at the end, of every seed, over operations and over time, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    runs = rows(records)
    with drawn(path, 7.5, 5.5) as figure:
        grid = figure.subplots(2, 2, sharey="row", sharex="col")
        for place, (mixer, row) in enumerate(runs.items()):
            _draw(grid, place, mixer, row)
        grid[0, 0].set(yscale="log", ylabel="validation perplexity")
        grid[1, 0].set(xlabel="training operations", ylabel="sacreBLEU of the test set")
        grid[1, 1].set(xlabel="training minutes")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(runs))


def _draw(grid: np.ndarray, place: int, mixer: str, row: RowRuns) -> None:
    """Draws the seeds of a mixer into axes, [2,2]: perplexity above BLEU, over operations and over time."""
    whole = analytic_flops(load(config_of(mixer)))
    for number, (run, scores, _) in enumerate(row.scored):
        shares = [record["step"] / run.steps for record in run.validations]
        perplexities = [record["perplexity"] for record in run.validations]
        for column, total in enumerate((whole, run.minutes)):
            name = mixer if number == 0 else None  # one entry of the legend for all seeds
            grid[0, column].plot([share * total for share in shares], perplexities, color=colour(place), label=name)
            grid[1, column].plot(total, scores["sacrebleu"], "o", color=colour(place))


def rows(records: Records) -> dict[str, RowRuns]:
    """Returns the runs of each mixer."""
    return {mixer: row_runs(records, config_of(mixer), "test") for mixer in D_FF}


def config_of(mixer: str) -> str:
    """Returns the config of a mixer."""
    return f"{FILE}:{mixer}"

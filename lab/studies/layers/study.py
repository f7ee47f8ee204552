"""Layers before and after self-attention: quality at equal parameters, against operations and time."""

from pathlib import Path

import numpy as np

from lab.cards.card import Card, between, compare
from lab.studies.layers.design import D_FF
from lab.studies.plots import MIXERS
from lab.studies.study import Rows, Runs, Study, configs, count_seeds, differences, mean, mean_cost, minus, table
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns, load
from vaswani.paper.tables.cost import analytic_flops
from vaswani.paper.tables.table3 import parameters
from vaswani.paper.tables.trend import INTERVAL, tested
from vaswani.train.table import NOT_RUN, Table, spread

FILE = "lab/studies/layers/design.py"
ROWS = Rows(configs(FILE, D_FF))
BASE = "attention"


def count_parameters(mixer: str, runs: Runs) -> str:
    return f"{parameters(ROWS.configs[mixer], runs[mixer]):,}"


def training_operations(mixer: str, runs: Runs) -> str:
    return f"{analytic_flops(load(ROWS.configs[mixer])):.2e}".replace("e+", "e")


def training_minutes(mixer: str, runs: Runs) -> str:
    return spread([seed.run.minutes for seed in runs[mixer].scored]) or NOT_RUN


COLUMNS = {
    "perplexity": mean("perplexity", 3),
    "log perplexity − attention": minus(BASE, "perplexity", 3),
    "sacreBLEU": mean("sacrebleu"),
    "sacreBLEU − attention": minus(BASE, "sacrebleu", 2),
    "parameters": count_parameters,
    "training operations": training_operations,
    "training minutes": training_minutes,
    "seeds": count_seeds,
    "cost": mean_cost,
}


def tables(records: Records) -> list[Table]:
    """Compares the mixers."""
    runs = ROWS.find(records)
    notes = [
        "the built-in corpus; perplexity: of a subword of the references; sacreBLEU: decoded greedily",
        f"− attention: mean over the seeds that both rows have, {INTERVAL}; other columns: mean over the seeds, "
        "± standard deviation",
        *tested(differences(runs, BASE, "perplexity"), "log perplexity − attention"),
        *tested(differences(runs, BASE, "sacrebleu"), "sacreBLEU − attention"),
        "training operations: matrix products, forward and backward, padding included",
    ]
    title = "Layers before and after self-attention, at equal parameters"
    return [table("layers", title, "layer", COLUMNS, runs, notes)]


def cards(records: Records) -> list[Card]:
    """Claims that no mixer is as good as attention."""
    runs = ROWS.find(records)
    claims = [
        between(f"{mixer} layers are worse than attention", row, runs[BASE], "perplexity", 1)
        for mixer, row in runs.items()
        if mixer != BASE
    ]
    return compare("Layers at equal parameters, log perplexity minus attention's", claims, 3)


def plot(records: Records, path: Path) -> None:
    """Draws perplexity as it falls and BLEU at the end, of every seed, over operations and over time, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    runs = ROWS.find(records)
    with figure_file(path, 7.5, 5.5) as figure:
        grid = figure.subplots(2, 2, sharey="row", sharex="col")
        for place, (mixer, row) in enumerate(runs.items()):
            _draw(grid, place, mixer, row)
        grid[0, 0].set(yscale="log", ylabel="validation perplexity")
        grid[1, 0].set(xlabel="training operations", ylabel="sacreBLEU of the test set")
        grid[1, 1].set(xlabel="training minutes")
        figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(runs))


def _draw(grid: np.ndarray, place: int, mixer: str, row: RowRuns) -> None:
    """Draws the seeds of a mixer into axes, [2,2]: perplexity above BLEU, over operations and over time."""
    whole = analytic_flops(load(ROWS.configs[mixer]))
    for number, (run, scores, _) in enumerate(row.scored):
        shares = [record["step"] / run.steps for record in run.validations]
        perplexities = [record["perplexity"] for record in run.validations]
        for column, total in enumerate((whole, run.minutes)):
            name = MIXERS[mixer] if number == 0 else None  # one entry of the legend for all seeds
            grid[0, column].plot([share * total for share in shares], perplexities, color=colour(place), label=name)
            grid[1, column].plot(total, scores["sacrebleu"], "o", color=colour(place))


STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=ROWS.commands(),
)

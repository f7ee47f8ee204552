"""What a study is, and what nearly all have in common: rows, the columns of a table of them, and commands."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from lab.cards.card import Card
from vaswani.paper.launch import folder_of, sweep, train
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns, caveat_notes, row_runs, run_notes
from vaswani.paper.tables.cost import cost
from vaswani.paper.tables.trend import paired_differences
from vaswani.train.intervals import with_interval
from vaswani.train.table import Table

Runs = dict[str, RowRuns]  # by the name of a row
Column = Callable[[str, Runs], str]  # the cell of the row of this name
Commands = list[tuple[str, str]]  # of each row, or stage


class Study(NamedTuple):
    """What is made of records: the runs of the rows, tables, a card for each claim, and a figure, written to a file.

    `commands` are what trains and scores each row.
    """

    rows: Callable[[Records], Runs]
    tables: Callable[[Records], list[Table]]
    cards: Callable[[Records], list[Card]]
    plot: Callable[[Records, Path], None]
    commands: Commands


class Rows(NamedTuple):
    """The config of each row, by name, and which of its runs count: those evaluated on a split by a measure.

    `seeds` are those of the design; without any, every seed counts.
    """

    configs: Mapping[str, str]
    split: str = "test"
    measure: str = "sacrebleu"
    seeds: Sequence[int] = ()

    def find(self, records: Records) -> Runs:
        """Finds the runs of each row."""
        of_design = with_seeds(records, self.seeds) if self.seeds else records
        runs: Runs = {}
        for name, config in self.configs.items():
            runs[name] = row_runs(of_design, config, self.split, self.measure)
        return runs

    def commands(self, after: str = "") -> Commands:
        """Gives the command of each row, with a seed that counts; `after` is what it ends with, ROW in it the row."""
        seed = self.seeds[0] if self.seeds else 0
        commands: Commands = []
        for name, config in self.configs.items():
            folder = folder_of(config.removeprefix("lab/studies/").replace("/design.py", ""))
            commands.append((name, train(config, self.split, seed=seed, folder=folder) + after.replace("ROW", name)))
        return commands


def with_seeds(records: Records, seeds: Sequence[int]) -> Records:
    """Keeps the runs of these seeds alone, those of a design."""
    return records._replace(runs=[run for run in records.runs if run.config["seed"] in seeds])


def configs(file: str, rows: Iterable[str]) -> dict[str, str]:
    """Names the configs FILE:ROW of a design's file."""
    return {row: f"{file}:{row}" for row in rows}


def stages(file: str, folder: str) -> Commands:
    """Gives the commands of both stages of a design, in runs/FOLDER-choose and runs/FOLDER."""
    choose = sweep(f"{file}:choose", f"{folder}-choose")
    return [("stage choose", choose), ("stage test", sweep(f"{file}:test", folder))]


def repeats(study: str, rows: Iterable[str], seed: int) -> Commands:
    """Gives the command that repeats a recorded run of each row, where training no longer has the corpus."""
    return [(row, f"python -m lab.reproduce {study}/{row}-seed{seed}") for row in rows]


def table(name: str, title: str, head: str, columns: Mapping[str, Column], runs: Runs, notes: Iterable[str]) -> Table:
    """Makes a table with a line for each row, whose name stands below `head`; notes on the runs come last."""
    lines = [(row.label(key), *(cell(key, runs) for cell in columns.values())) for key, row in runs.items()]
    return Table(name, title, (head, *columns), lines, [*notes, *run_notes(runs), *caveat_notes(runs)])


def mean(key: str, digits: int = 2) -> Column:
    """Shows the mean of a score over the seeds and its spread, or why there is none."""
    return lambda name, runs: runs[name].shown(key, digits)


def minus(base: str, key: str, digits: int) -> Column:
    """Shows the score minus that of a base row, by seed, with its interval; nothing for the base row itself."""

    def cell(name: str, runs: Runs) -> str:
        return "" if name == base else with_interval(paired_differences(runs[name], runs[base], key), digits)

    return cell


def chosen(options: Mapping[str, Any]) -> Column:
    """Shows what a row has chosen in stage 1."""
    return lambda name, runs: str(options.get(name, "not chosen"))


def count_seeds(name: str, runs: Runs) -> str:
    """Shows how many seeds a row has."""
    return str(len(runs[name].scored))


def mean_cost(name: str, runs: Runs) -> str:
    """Shows what a run of a row costs."""
    return cost(runs[name].scored)


def differences(runs: Runs, base: str, key: str) -> dict[str, Float[np.ndarray, " seeds"]]:
    """Subtracts the base row's score from that of every other row, seed by seed."""
    return {name: paired_differences(row, runs[base], key) for name, row in runs.items() if name != base}

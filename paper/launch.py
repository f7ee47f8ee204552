"""The command that runs each row of the paper's tables, at the paper's size or as a scaled-down model."""

import itertools
from collections.abc import Iterable, Iterator

from vaswani.configs.ablations import WHY
from vaswani.paper.published import TABLE3
from vaswani.paper.tables import table2, table3, table4
from vaswani.train.table import Table


def commands() -> Table:
    """Returns every row of the tables with its command; it has run once evaluated."""
    return table_of(_rows())


def table_of(rows: Iterable[tuple[str, str, str]]) -> Table:
    """Returns a table of rows: the name of their table, their own, and their command."""
    notes = [
        "first, for the paper's size: python -m data.prepare --config=CONFIG",
        "each point of a sweep is a separate run and evaluated like one",
    ]
    return Table("commands", "To run a row", ("table", "row", "command"), [*rows], notes)


def _rows() -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the paper's tables, at both scales."""
    yield "table1", "all", "mkdir -p runs && python -m paper.table1 --output=runs/table1.json"
    scales = ("", ":small")
    for pair, size, scale in itertools.product(table2.PAIRS, table2.SIZES, scales):
        config = table2.config_of(size, pair, scale)
        yield "table2", f"{size} {pair}{scale}", train(config, "test")
    yield "table3", "all of table3", sweep(table3.FILE, "table3")
    yield "table3", "all of table3-small", sweep(f"{table3.FILE}:base:small", "table3-small")
    for row, scale in itertools.product(TABLE3, scales):
        config = f"{table3.FILE}:{row}{scale}"
        yield "table3", f"{row}{scale}", train(config, "valid")
    for row in WHY:
        yield "table3", f"{row}:small", train(f"{table3.FILE}:{row}:small", "valid")
    for config in (*table4.CONFIGS.values(), table4.SMALL):
        _, _, row = config.partition(":")
        yield "table4", row, train(config, "test", "infer.parse")


def sweep(config: str, folder: str) -> str:
    """Returns the command that runs a sweep in the folder runs/FOLDER."""
    return f"python -m train.sweep --config={config} --workdir=runs/{folder}"


def folder_of(config: str) -> str:
    """Returns the name of the folder below runs/ in which a config is run, if no other is given."""
    return config.removeprefix("configs/").replace(".py", "").replace(":", "-")


def train(config: str, split: str, score: str = "infer", seed: int = 0, folder: str = "") -> str:
    """Returns the command that trains a config, in the folder runs/FOLDER, and scores it on a split."""
    folder = folder or folder_of(config)
    with_seed = f" --config.seed={seed}" if seed else ""
    return (
        f"python -m train --config={config} --workdir=runs/{folder}{with_seed} && "
        f"python -m {score} --workdir=runs/{folder} --split={split}"
    )

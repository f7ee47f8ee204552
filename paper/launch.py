"""The command that runs each published row, at the paper's size or as a scaled-down model."""

import itertools
from collections.abc import Iterator

from base.table import Table
from configs.bottleneck import KINDS
from configs.extrapolation import LENGTH, POSITIONS
from configs.g2p import LANGUAGES
from configs.layers import D_FF
from configs.mup import ROWS as MUP
from configs.norms import PAPER, name_of
from configs.norms import ROWS as NORMS
from configs.optimisers import ROWS as OPTIMISERS
from configs.scaling import LONG_ROWS, ROWS
from configs.scan_length import ROWS as SCAN_LENGTH
from configs.scores import ROWS as SCORES
from data.scan import SPLITS
from paper.published import TABLE3
from paper.studies import (
    bottleneck,
    distance,
    extrapolation,
    g2p,
    layers,
    mup,
    norms,
    optimisers,
    scaling,
    scan,
    scan_length,
    scores,
    second,
)
from paper.tables import table2, table3, table4


def commands() -> Table:
    """Returns every row of Tables 2 to 4 and of the studies with its command; it has run once evaluated."""
    notes = [
        "first, for the paper's size: python -m data.prepare --config=CONFIG (needs pip install -e '.[prep]')",
        "each point of a sweep is a run of its own and evaluated like one",
    ]
    head = ("table", "row", "command")
    return Table("commands", "To run a row", head, [*_of_tables(), *_of_studies()], notes)


def _of_tables() -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the paper's tables, at both scales."""
    scales = ("", ":small")
    for pair, size, scale in itertools.product(table2.PAIRS, table2.SIZES, scales):
        config = table2.config_of(size, pair, scale)
        yield "table2", f"{size} {pair}{scale}", _train(config, "test")
    yield "table3", "all of table3", _sweep(table3.FILE, "table3")
    yield "table3", "all of table3-small", _sweep(f"{table3.FILE}:base:small", "table3-small")
    for row, scale in itertools.product(TABLE3, scales):
        config = f"{table3.FILE}:{row}{scale}"
        yield "table3", f"{row}{scale}", _train(config, "valid")
    for config in (*table4.CONFIGS.values(), table4.SMALL):
        _, _, row = config.partition(":")
        yield "table4", row, _train(config, "test", "infer.parse")


def _of_studies() -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the studies."""
    for mixer in D_FF:
        yield "layers", mixer, _train(layers.config_of(mixer), "test")
    for kind in POSITIONS:
        row_length = LENGTH if kind == "learned" else 4 * LENGTH
        command = _train(f"{extrapolation.FILE}:{kind}", "test")
        yield "extrapolation", kind, f"{command} --row_length={row_length}"
    for split in SPLITS:
        yield "scan", split, _train(f"{scan.FILE}:{split}", "test")
    for row in SCAN_LENGTH:
        command = _train(f"{scan_length.FILE}:{row}", "test")
        yield "scan_length", row, f"{command} --oracle_length"
    for row in (*ROWS, *LONG_ROWS):
        yield "scaling", row, _train(f"{scaling.FILE}:{row}", "test")
    yield from _stages("second", second.FILE, "table3-second")
    for row in second.ROWS:
        yield "second", row, _train(second.config_of(row), "test")
    for study, file, rows, split in (
        ("bottleneck", bottleneck.FILE, KINDS, "test"),
        ("scores", scores.FILE, SCORES, "test"),
        ("optimisers", optimisers.FILE, OPTIMISERS, "valid"),
        ("g2p", g2p.FILE, LANGUAGES, "test"),
    ):
        yield from _stages(study, file, study)
        for row in rows:
            yield study, row, _train(f"{file}:{row}", split)
    yield from _stages("distance", distance.FILE, "distance")
    for mixer in D_FF:
        train = _train(f"{distance.FILE}:{mixer}", "test")
        yield "distance", mixer, f"{train} && python -m paper.contrast --workdir=runs/distance-{mixer}"
    yield from _of_grids()


def _of_grids() -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the studies of one stage."""
    yield "norms", "all of norms", _sweep(f"{norms.FILE}:{name_of(*PAPER)}", "norms")
    for row in NORMS:
        yield "norms", row, _train(f"{norms.FILE}:{row}", "valid")
    yield "mup", "all of mup", _sweep(f"{mup.FILE}:{MUP[0]}", "mup")
    for row in MUP:
        yield "mup", f"{row}, one rate", _train(f"{mup.FILE}:{row}", "valid")


def _stages(study: str, file: str, folder: str) -> Iterator[tuple[str, str, str]]:
    """Yields the two stages of a study (base/two_stages.py)."""
    yield study, "stage choose", _sweep(f"{file}:choose", f"{folder}-choose")
    yield study, "stage test", _sweep(f"{file}:test", folder)


def _sweep(config: str, folder: str) -> str:
    return f"python -m train.sweep --config={config} --workdir=runs/{folder}"


def _train(config: str, split: str, score: str = "infer") -> str:
    folder = config.removeprefix("configs/").replace(".py", "").replace(":", "-")
    return (
        f"python -m train --config={config} --workdir=runs/{folder} && "
        f"python -m {score} --workdir=runs/{folder} --split={split}"
    )

"""The command that runs each published row, at the paper's size or as a scaled-down model."""

import itertools

from base.table import Table
from configs.extrapolation import LENGTH, POSITIONS
from configs.layers import D_FF
from configs.scaling import ROWS
from data.scan import SPLITS
from paper.published import TABLE3
from paper.studies import extrapolation, layers, scaling, scan, second
from paper.tables import table2, table3, table4

SWEEP = "python -m train.sweep --config={config} --workdir=runs/{folder}"


def commands() -> Table:
    """Returns every row of Tables 2 to 4 and of the studies with its command; it has run once evaluated."""
    rows: list[tuple[str, ...]] = []
    for pair, size, scale in itertools.product(table2.PAIRS, table2.SIZES, ("", ":small")):
        rows.append(("table2", f"{size} {pair}{scale}", _train(table2.config_of(size, pair, scale), "test")))
    for config, folder in ((table3.FILE, "table3"), (f"{table3.FILE}:base:small", "table3-small")):
        rows.append(("table3", f"all of {folder}", SWEEP.format(config=config, folder=folder)))
    for row, scale in itertools.product(TABLE3, ("", ":small")):
        rows.append(("table3", f"{row}{scale}", _train(f"{table3.FILE}:{row}{scale}", "valid")))
    for config in (*table4.CONFIGS.values(), table4.SMALL):
        rows.append(("table4", config.partition(":")[2], _train(config, "test", "infer.parse")))
    for mixer in D_FF:
        rows.append(("layers", mixer, _train(layers.config_of(mixer), "test")))
    for kind in POSITIONS:
        row_length = LENGTH if kind == "learned" else 4 * LENGTH
        command = _train(f"{extrapolation.FILE}:{kind}", "test")
        rows.append(("extrapolation", kind, f"{command} --row_length={row_length}"))
    for split in SPLITS:
        rows.append(("scan", split, _train(f"{scan.FILE}:{split}", "test")))
    for row in ROWS:
        rows.append(("scaling", row, _train(f"{scaling.FILE}:{row}", "test")))
    for stage, folder in (("choose", "table3-second-choose"), ("test", "table3-second")):
        rows.append(("second", f"stage {stage}", SWEEP.format(config=f"{second.FILE}:{stage}", folder=folder)))
    for row in second.ROWS:
        rows.append(("second", row, _train(second.config_of(row), "test")))
    notes = [
        "first, for the paper's size: python -m data.prepare --config=CONFIG (needs pip install -e '.[prep]')",
        "each point of a sweep is a run of its own and evaluated like one",
    ]
    return Table("commands", "To run a row", ("table", "row", "command"), rows, notes)


def _train(config: str, split: str, score: str = "infer") -> str:
    folder = config.removeprefix("configs/").replace(".py", "").replace(":", "-")
    return (
        f"python -m train --config={config} --workdir=runs/{folder} && "
        f"python -m {score} --workdir=runs/{folder} --split={split}"
    )

"""The command that runs each published row, at the paper's size or as a small twin."""

from base.table import Table
from configs.extrapolation import LENGTH, POSITIONS
from configs.layers import D_FF
from configs.scaling import ROWS
from data.scan import SPLITS
from paper.published import TABLE3
from paper.studies import extrapolation, layers, scaling, scan
from paper.tables import table2, table3, table4

SWEEP = "python -m train.sweep --config={config} --workdir=runs/{folder}"


def commands() -> Table:
    """Returns every row of Tables 2 to 4 and of the studies with its command; it has run once evaluated."""
    rows: list[tuple[str, ...]] = []
    for pair in table2.PAIRS:
        for size in table2.SIZES:
            for scale in ("", ":small"):
                rows.append(("table2", f"{size} {pair}{scale}", _train(table2.config_of(size, pair, scale), "test")))
    for config, folder in ((table3.FILE, "table3"), (f"{table3.FILE}:base:small", "table3-small")):
        rows.append(("table3", f"all of {folder}", SWEEP.format(config=config, folder=folder)))
    rows += [
        ("table3", f"{row}{scale}", _train(f"{table3.FILE}:{row}{scale}", "valid"))
        for row in TABLE3
        for scale in ("", ":small")
    ]
    rows += [
        ("table4", config.partition(":")[2], _train(config, "test", "infer.parse"))
        for config in (*table4.CONFIGS.values(), table4.SMALL)
    ]
    rows += [("layers", mixer, _train(layers.config_of(mixer), "test")) for mixer in D_FF]
    for kind in POSITIONS:
        row_length = LENGTH if kind == "learned" else 4 * LENGTH
        command = f"{_train(f'{extrapolation.FILE}:{kind}', 'test')} --row_length={row_length}"
        rows.append(("extrapolation", kind, command))
    rows += [("scan", split, _train(f"{scan.FILE}:{split}", "test")) for split in SPLITS]
    rows += [("scaling", row, _train(f"{scaling.FILE}:{row}", "test")) for row in ROWS]
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

"""The command that runs each published row, at the paper's size or as a scaled-down model."""

import itertools
from collections.abc import Iterable, Iterator

from base.extras import pip_install
from base.table import Table
from base.two_stages import SEEDS
from configs.ablations import WHY
from configs.bottleneck import KINDS
from configs.classification import CLASSES
from configs.extrapolation import LENGTH, POSITIONS
from configs.g2p import LANGUAGES, LONGER
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
from paper.studies import STUDIES, families, second
from paper.tables import table2, table3, table4

FRESH = SEEDS[0]  # a config's own seed is that of stage 1, which stage 2 does not count


def commands() -> Table:
    """Returns every row of the tables and of the studies with its command; it has run once evaluated."""
    notes = [
        f"first, for the paper's size: python -m data.prepare --config=CONFIG (needs {pip_install('prep')})",
        "each point of a sweep is a run of its own and evaluated like one",
    ]
    head = ("table", "row", "command")
    return Table("commands", "To run a row", head, [*_of_tables(), *_of_studies()], notes)


def _of_tables() -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the paper's tables, at both scales."""
    yield "table1", "all", "mkdir -p runs && python -m paper.table1 --output=runs/table1.json"
    scales = ("", ":small")
    for pair, size, scale in itertools.product(table2.PAIRS, table2.SIZES, scales):
        config = table2.config_of(size, pair, scale)
        yield "table2", f"{size} {pair}{scale}", _train(config, "test")
    yield "table3", "all of table3", _sweep(table3.FILE, "table3")
    yield "table3", "all of table3-small", _sweep(f"{table3.FILE}:base:small", "table3-small")
    for row, scale in itertools.product(TABLE3, scales):
        config = f"{table3.FILE}:{row}{scale}"
        yield "table3", f"{row}{scale}", _train(config, "valid")
    for row in WHY:
        yield "table3", f"{row}:small", _train(f"{table3.FILE}:{row}:small", "valid")
    for config in (*table4.CONFIGS.values(), table4.SMALL):
        _, _, row = config.partition(":")
        yield "table4", row, _train(config, "test", "infer.parse")


def _of_studies() -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the studies."""
    yield from _rows("layers", D_FF, "test")
    for kind in POSITIONS:
        row_length = LENGTH if kind == "learned" else 4 * LENGTH
        yield from _rows("extrapolation", [kind], "test", f" --row_length={row_length}")
    yield from _rows("scan", SPLITS, "test")
    yield from _rows("scan_length", SCAN_LENGTH, "test", " --oracle_length")
    yield from _rows("scaling", (*ROWS, *LONG_ROWS), "test")
    yield from _stages("second", "table3-second")
    for row in second.ROWS:
        yield "second", row, _train(second.config_of(row), "test", seed=FRESH)
    two_stages = (
        ("bottleneck", KINDS, "test"),
        ("scores", SCORES, "test"),
        ("optimisers", OPTIMISERS, "valid"),
        ("g2p", LANGUAGES, "test"),
    )
    for study, rows, split in two_stages:
        yield from _stages(study, study)
        yield from _rows(study, rows, split, seed=FRESH)
    yield "g2p", f"stage {LONGER}", _sweep(f"{STUDIES['g2p'].FILE}:{LONGER}", f"g2p-{LONGER}")
    yield from _stages("distance", "distance")
    for mixer in D_FF:
        contrast = f" && python -m paper.contrast --workdir=runs/distance-{mixer}"
        yield from _rows("distance", [mixer], "test", contrast, seed=FRESH)
    yield from _of_grids()
    yield from _of_families()


def _of_grids() -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the studies of one stage."""
    yield "norms", "all of norms", _sweep(f"{STUDIES['norms'].FILE}:{name_of(*PAPER)}", "norms")
    yield from _rows("norms", NORMS, "valid")
    yield "mup", "all of mup", _sweep(f"{STUDIES['mup'].FILE}:{MUP[0]}", "mup")
    for study, row, command in _rows("mup", MUP, "valid"):
        yield study, f"{row}, one rate", command


def _of_families() -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the study of families; what is fine-tuned after the training that it begins with."""
    for name, way in itertools.product(CLASSES, families.WAYS):
        pretraining = families.PRETRAINING if way == families.WAYS[0] else ""
        yield "families", f"{name}, {way}", _begun(f"configs/classification.py:{name}", pretraining)
    for name, (config, is_begun) in families.TRANSLATORS.items():
        yield "families", name, _begun(config, families.DENOISING if is_begun else "")


def _begun(config: str, pretraining: str) -> str:
    """Returns the command of a run that begins with the parameters and the subwords of another, if there is one."""
    if not pretraining:
        return _train(config, "test")
    first = f"runs/{_folder(pretraining)}"
    own = f"runs/{_folder(config)}-tuned"
    return (
        f"{_train(pretraining, 'test')} && python -m train --config={config} --workdir={own} --init={first} "
        f"--config.data.tokenizer={first}/tokenizer.model && python -m infer --workdir={own} --split=test"
    )


def _rows(study: str, rows: Iterable[str], split: str, more: str = "", seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """Yields the rows of a study, whose commands end with `more`."""
    file = STUDIES[study].FILE
    for row in rows:
        command = _train(f"{file}:{row}", split, seed=seed)
        yield study, row, command + more


def _stages(study: str, folder: str) -> Iterator[tuple[str, str, str]]:
    """Yields the two stages of a study (base/two_stages.py)."""
    file = STUDIES[study].FILE
    yield study, "stage choose", _sweep(f"{file}:choose", f"{folder}-choose")
    yield study, "stage test", _sweep(f"{file}:test", folder)


def _sweep(config: str, folder: str) -> str:
    return f"python -m train.sweep --config={config} --workdir=runs/{folder}"


def _folder(config: str) -> str:
    """Returns the name of the run of a config."""
    return config.removeprefix("configs/").replace(".py", "").replace(":", "-")


def _train(config: str, split: str, score: str = "infer", seed: int = 0) -> str:
    folder = _folder(config)
    with_seed = f" --config.seed={seed}" if seed else ""
    return (
        f"python -m train --config={config} --workdir=runs/{folder}{with_seed} && "
        f"python -m {score} --workdir=runs/{folder} --split={split}"
    )

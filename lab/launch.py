"""The command that runs each row of the studies."""

import itertools
from collections.abc import Iterable, Iterator

from base.table import Table
from configs.classification import CLASSES
from data.scan import SPLITS
from lab.studies.bottleneck.design import KINDS
from lab.studies.extrapolation.design import LENGTH, POSITIONS
from lab.studies.families import study as families
from lab.studies.g2p.design import LANGUAGES, LONGER
from lab.studies.index import STUDIES
from lab.studies.layers.design import D_FF
from lab.studies.mup.design import ROWS as MUP
from lab.studies.norms.design import PAPER, name_of
from lab.studies.norms.design import ROWS as NORMS
from lab.studies.optimisers.design import ROWS as OPTIMISERS
from lab.studies.scaling.design import LONG_ROWS, ROWS
from lab.studies.scan_length.design import ROWS as SCAN_LENGTH
from lab.studies.scores.design import ROWS as SCORES
from lab.studies.second import study as second
from lab.studies.two_stages import SEEDS
from paper.launch import folder_of, sweep, table_of, train

FRESH = SEEDS[0]  # a config's own seed is that of stage 1, which stage 2 does not count


def commands() -> Table:
    """Returns every row of the studies with its command; it has run once evaluated."""
    return table_of(_of_studies())


def _of_studies() -> Iterator[tuple[str, str, str]]:
    """Yields the rows of the studies, in the order of their tables."""
    yield from _rows("layers", D_FF, "test")
    for kind in POSITIONS:
        row_length = LENGTH if kind == "learned" else 4 * LENGTH
        yield from _rows("extrapolation", [kind], "test", f" --row_length={row_length}")
    yield from _rows("scan", SPLITS, "test")
    yield from _rows("scan_length", SCAN_LENGTH, "test", " --oracle_length")
    yield from _rows("scaling", (*ROWS, *LONG_ROWS), "test")
    yield from _of_families()
    yield from _stages("second", "table3-second")
    for row in second.ROWS:
        yield "second", row, _train(second.config_of(row), "test", FRESH)
    yield from _stages("bottleneck", "bottleneck")
    yield from _rows("bottleneck", KINDS, "test", seed=FRESH)
    yield from _stages("scores", "scores")
    yield from _rows("scores", SCORES, "test", seed=FRESH)
    yield from _stages("distance", "distance")
    for mixer in D_FF:
        contrast = f" && python -m lab.contrast --workdir=runs/distance-{mixer}"
        yield from _rows("distance", [mixer], "test", contrast, seed=FRESH)
    yield "norms", "all of norms", sweep(f"{STUDIES['norms'].FILE}:{name_of(*PAPER)}", "norms")
    yield from _rows("norms", NORMS, "valid")
    yield "mup", "all of mup", sweep(f"{STUDIES['mup'].FILE}:{MUP[0]}", "mup")
    for study, row, command in _rows("mup", MUP, "valid"):
        yield study, f"{row}, one rate", command
    yield from _stages("optimisers", "optimisers")
    yield from _rows("optimisers", OPTIMISERS, "valid", seed=FRESH)
    yield from _stages("g2p", "g2p")
    yield from _rows("g2p", LANGUAGES, "test", seed=FRESH)
    yield "g2p", f"stage {LONGER}", sweep(f"{STUDIES['g2p'].FILE}:{LONGER}", f"g2p-{LONGER}")


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
        return train(config, "test")
    first = f"runs/{folder_of(pretraining)}"
    own = f"runs/{folder_of(config)}-tuned"
    return (
        f"{train(pretraining, 'test')} && python -m train --config={config} --workdir={own} --init={first} "
        f"--config.data.tokenizer={first}/tokenizer.model && python -m infer --workdir={own} --split=test"
    )


def _rows(study: str, rows: Iterable[str], split: str, more: str = "", seed: int = 0) -> Iterator[tuple[str, str, str]]:
    """Yields the rows of a study, whose commands end with `more`."""
    file = STUDIES[study].FILE
    for row in rows:
        command = _train(f"{file}:{row}", split, seed)
        yield study, row, command + more


def _stages(study: str, folder: str) -> Iterator[tuple[str, str, str]]:
    """Yields the two stages of a study (lab/studies/two_stages.py)."""
    file = STUDIES[study].FILE
    yield study, "stage choose", sweep(f"{file}:choose", f"{folder}-choose")
    yield study, "stage test", sweep(f"{file}:test", folder)


def _train(config: str, split: str, seed: int) -> str:
    """Returns the command that trains a row of a design, in a folder that has the study's name and the row's."""
    name = config.removeprefix("lab/studies/").replace("/design.py", "")
    return train(config, split, seed=seed, folder=folder_of(name))

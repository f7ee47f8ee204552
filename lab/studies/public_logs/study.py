"""Do our curves lie on those that strangers published? Losses of every epoch, by the rule of `design.py`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lab.cards.card import Card, Claim, Verdict, measure, met
from lab.studies.plots import legend
from lab.studies.public_logs.design import LOGS, SEEDS, UPDATES, get_config
from lab.studies.public_logs.published import LOGS as PUBLISHED
from lab.studies.public_logs.rule import CURVES, Band, compared, curve_bands, end_bands, is_whole, misses
from lab.studies.study import Commands, Runs, Study, count_seeds, mean_cost
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.provenance import caveats
from vaswani.paper.records import Records, RunRecord
from vaswani.paper.rows import RowRuns, ScoredRun, caveat_notes
from vaswani.run.folder import as_json
from vaswani.train.table import NOT_RUN, Table, number

FILE = "lab/studies/public_logs/design.py"
STUDY_NAME = "public_logs"
TITLE = "Public logs, followed"
TITLES = {
    "A": "A: the tutorial's model",
    "B": "B: the paper's base model and schedule",
    "C": "C: PyTorch's tutorial",
}
LATE = 4  # epochs after which validation hardly falls
Seeds = dict[int, dict[str, Any]]  # the records of a log


def seeds_of(records: Records) -> dict[str, Seeds]:
    """Returns the records of each log by seed, of the design's order of pairs alone."""
    found: dict[str, Seeds] = {log: {} for log in LOGS}
    for record in records.of_studies:
        if record["study"] == STUDY_NAME and record["order"] == LOGS[record["log"]].order:
            found[record["log"]][record["seed"]] = record
    return {log: {seed: of_log[seed] for seed in SEEDS if seed in of_log} for log, of_log in found.items()}


def rows(records: Records) -> Runs:
    """Returns the runs of each log as rows of a table."""
    runs: Runs = {}
    for log, of_log in seeds_of(records).items():
        runs[log] = RowRuns([_scored(log, record) for record in of_log.values()], "", [])
    return runs


def _scored(log: str, record: Mapping[str, Any]) -> ScoredRun:
    launches = [{"git": git, "device": record["device"]} for git in record["git"]]
    config = {**as_json(get_config(log)), "seed": record["seed"]}
    validations: list[dict[str, Any]] = []
    for epoch, nll in enumerate(record["valid"], 1):
        step = epoch * UPDATES
        validations.append({"step": step, "kind": "valid", "loss": nll, "nll": nll, "perplexity": float(np.exp(nll))})
    run = RunRecord(
        path=Path(f"lab/studies/{STUDY_NAME}"),
        config=config,
        problem="",
        steps=len(record["train"]) * UPDATES,
        minutes=60 * record["hours"],
        launches=launches,
        evaluations=[],
        validations=validations,
        caveats=caveats(launches),
    )
    return ScoredRun(run, dict(record), run.path)


def tables(records: Records) -> list[Table]:
    """Shows each log's end and verdict, and then its epochs."""
    pytorch = [record for record in records.of_studies if record["study"] == "torch_beside"]
    of_epochs = [
        epochs(log, of_log, [run for run in pytorch if run["log"] == log]) for log, of_log in seeds_of(records).items()
    ]
    return [summary(records), *of_epochs]


def summary(records: Records) -> Table:
    """Returns a row for each log: how much of it lies in the published range, and its cost."""
    runs = rows(records)
    lines: list[tuple[str, ...]] = []
    notes = [f"the design, its rule and what was expected: {FILE}, committed before the first run"]
    for log, of_log in seeds_of(records).items():
        bands = end_bands(log)
        ends: list[str] = []
        for what, digits in (("test", 3), ("bleu", 2)):
            band = bands.get(what)
            ends += [_range(band, digits), _ours(log, of_log, what, digits)] if band else ["-", "-"]
        about = TITLES[log].partition(": ")[2]
        last = count_seeds(log, runs), mean_cost(log, runs)
        lines.append((runs[log].label(log), about, _inside(log, of_log), *ends, *last))
        notes.append(f"verdict on {log}: {verdict(log, of_log).sentence}")
        notes += [f"outside in {log}: {miss}" for miss in misses(log, of_log)]
    head = (
        "log",
        "model",
        "numbers inside the widened range",
        "test loss: published",
        "test loss: ours, by seed",
        "BLEU: published",
        "BLEU: ours, by seed",
        "seeds",
        "cost",
    )
    notes.append("losses in nats a token; the rule has the margins by which ranges are widened")
    return Table("public_logs", TITLE, head, lines, [*notes, *caveat_notes(runs)])


def epochs(log: str, seeds: Seeds, pytorch: Sequence[Mapping[str, Any]]) -> Table:
    """Returns the losses of every epoch beside the published range; `pytorch`: records of torch_beside.py."""
    lines: list[tuple[str, ...]] = []
    of_curves = {curve: curve_bands(log, curve) for curve in CURVES}
    for epoch in range(LOGS[log].epochs):
        cells: list[str] = []
        for curve, bands in of_curves.items():
            band = bands[epoch]
            losses = {seed: run[curve][epoch] for seed, run in seeds.items() if epoch < len(run[curve])}
            inside = "yes" if all(map(band.holds, losses.values())) else "no"
            ours = [number(losses[seed], 3) if seed in losses else NOT_RUN for seed in SEEDS]
            theirs = [number(run[curve][epoch], 3) for run in pytorch]
            cells += [_range(band, 3), *ours, inside if losses else NOT_RUN, *theirs]
        lines.append((str(epoch + 1), *cells))
    columns = (
        "published",
        *(f"seed {seed}" for seed in SEEDS),
        "inside",
        *(f"PyTorch's layers, seed {run['seed']}" for run in pytorch),
    )
    head = ("epoch", *(f"{curve}: {column}" for curve in ("training", "validation") for column in columns))
    notes = [f"lowest and highest loss of {len(PUBLISHED[log])} published runs"]
    if pytorch:
        our_offsets = [late_offset(run) for run in seeds.values() if is_whole(log, run)]
        their_offsets = [late_offset(run) for run in pytorch]
        notes.append(
            f"validation of epochs {LATE + 1} to {LOGS[log].epochs}, mean difference from the two published runs with "
            f"norms as ours: ours {_signed(our_offsets)}; PyTorch's layers on our batches {_signed(their_offsets)}"
        )
        notes += [f"cost of PyTorch's seed {run['seed']}: {number(run['minutes'], 0)} minutes" for run in pytorch]
    return Table(f"public_logs-{log}", f"{TITLE}: {log}", head, lines, notes)


def late_offset(run: Mapping[str, Any]) -> float:
    """Returns how far a run of A is above the two published runs with norms as ours, on validation, in late epochs."""
    published_rp = np.array([other.valid[LATE:] for other in PUBLISHED["A"][:2]])
    return float(np.mean(run["valid"][LATE:] - published_rp.mean(axis=0)))


def _signed(offsets: Sequence[float]) -> str:
    return ", ".join(number(offset, 3, sign=True) for offset in offsets)


def _range(band: Band, digits: int) -> str:
    return f"{number(band.low, digits)} to {number(band.high, digits)}"


def _ours(log: str, seeds: Seeds, what: str, digits: int) -> str:
    return ", ".join(number(run[what], digits) for run in seeds.values() if is_whole(log, run)) or NOT_RUN


def _inside(log: str, seeds: Seeds) -> str:
    if not seeds:
        return NOT_RUN
    numbers = compared(log, seeds)
    return f"{numbers - len(misses(log, seeds))} of {numbers}"


def verdict(log: str, seeds: Seeds) -> Verdict:
    """Judges a log by the rule of the design."""
    if sum(is_whole(log, run) for run in seeds.values()) < len(SEEDS):
        return Verdict.open("not all epochs of all seeds are there")
    outside = len(misses(log, seeds))
    word = met(not outside)
    return Verdict(word, f"{word}; {_inside(log, seeds)} numbers are inside")


REPEATED = "not repeatable by lab.reproduce: lab/studies/public_logs/design.py has its command"


def cards(records: Records) -> list[Card]:
    """Claims that the curves of each log are followed."""
    made: list[Card] = []
    runs = rows(records)
    for log, of_log in seeds_of(records).items():
        published = f"{len(PUBLISHED[log])} runs"
        claim = Claim(f"{TITLES[log]}: all losses in the published range", [runs[log]], published=published)
        card = measure(f"{TITLE}: losses of every epoch", claim._replace(ours=_inside(log, of_log)), 0)
        if of_log:
            card = card._replace(seeds=str(len(of_log)), verdict=verdict(log, of_log).word, command=REPEATED)
        made.append(card)
    return made


def plot(records: Records, path: Path) -> None:
    """Draws the published losses as bands and ours as lines, of training and of validation.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 7, 2.8) as figure:
        panels: Sequence[Any] = figure.subplots(1, len(LOGS))
        for axes, (log, seeds) in zip(panels, seeds_of(records).items(), strict=True):
            epochs_p = np.arange(1, LOGS[log].epochs + 1)
            for place, (curve, name) in enumerate(zip(CURVES, ("training", "validation"), strict=True)):
                bands = curve_bands(log, curve)
                low_p = [band.low for band in bands]
                high_p = [band.high for band in bands]
                ink = colour(place)
                # With an edge, or nothing would be seen where the published runs agree.
                axes.fill_between(epochs_p, low_p, high_p, color=ink, alpha=0.3, lw=2, label=f"{name}, published")
                for number_of_run, run in enumerate(seeds.values()):
                    label = None if number_of_run else f"{name}, ours"
                    axes.plot(epochs_p[: len(run[curve])], run[curve], color=ink, linewidth=0.8, label=label)
            axes.set(title=TITLES[log], xlabel="epoch")
        panels[0].set(ylabel="nats a token")
        legend(figure, panels[0], 4)


def commands() -> Commands:
    """Gives the command of a run of each log."""
    module = "python -m lab.studies.public_logs.train"
    return [(log, f"{module} --log={log} --seed=0 --corpus=FOLDER --workdir=runs/public_logs/{log}-0") for log in LOGS]


STUDY = Study(rows=rows, tables=tables, cards=cards, plot=plot, commands=commands())

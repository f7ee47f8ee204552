"""SCAN by length: exact match where outputs are longer than any in training, by positions and sharing of layers."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from base.intervals import with_interval
from base.table import NOT_RUN, Table, number
from data.scan import LONGEST
from infer.scores.bleu import ORACLE
from lab.studies.scan_length.design import JUDGED, MODELS, ROWS, SEEDS
from paper.drawing import colour, drawn
from paper.published import SCAN_26
from paper.records import Records
from paper.rows import RowRuns, caveat_notes, row_runs, run_notes
from paper.tables.cost import cost
from paper.tables.trend import INTERVAL, LEVEL, holm, p_values_of, paired_differences, tested

FILE = "lab/studies/scan_length/design.py"
Runs = dict[str, RowRuns]  # by the names of lab.studies.scan_length.design.ROWS
COMPARED = {  # what is claimed, of which models; p by Holm over the two of each claim
    "relative positions are better": {
        "own layers": ("shaw", "sinusoidal"),
        "shared layers": ("shaw-shared", "sinusoidal-shared"),
    },
    "shared layers are better": {
        "sinusoidal positions": ("sinusoidal-shared", "sinusoidal"),
        "relative positions": ("shaw-shared", "shaw"),
    },
}
PUBLISHED = "shaw-shared"
AS_PUBLISHED = {"shaw": f"as published for {PUBLISHED}", PUBLISHED: "as published"}  # one number, for both
REACHED = 95.0  # of each seed, for the published value to be met


def tables(records: Records) -> list[Table]:
    """Returns a row for each length and model, and the differences that the design judges in the notes."""
    head = (
        "model",
        "exact match %: published",
        "exact match %: ours",
        "exact match %: ours, oracle length",
        "seeds",
        "cost",
    )
    runs = rows(records)
    lines: list[tuple[str, ...]] = []
    fewer: list[str] = []
    published = {f"{PUBLISHED}:{JUDGED}": number(SCAN_26, 1)}
    for name, row in runs.items():
        with_oracle = _with_oracle(records, name, row)
        if 0 < len(with_oracle.scored) < len(row.scored):
            fewer.append(f"{name} ({len(with_oracle.scored)} of {len(row.scored)})")
        lines.append(
            (
                row.label(name),
                published.get(name, ""),
                row.shown("exact_match"),
                with_oracle.shown(ORACLE),
                str(len(row.scored)),
                cost(row.scored),
            )
        )
    notes = [
        "the design, its rule and what was expected: lab/studies/scan_length/design.py, committed before the first run",
        f"model:N is trained on outputs of up to N actions; the test has all longer ones, of up to {LONGEST}",
        "mean over the seeds, ± standard deviation, decoded greedily; with the oracle length: infer/scores/"
        "oracle_length.py",
        *([f"with the oracle length, of fewer seeds: {', '.join(fewer)}"] if fewer else []),
        *_notes_on_differences(runs),
        *(
            f"verdict on whether {claim}, {name}: {said}"
            for claim in COMPARED
            for name, said in verdicts_on(runs, claim).items()
        ),
        *(f"verdict on {model}, {text}: {verdict_on_published(runs, model)}" for model, text in AS_PUBLISHED.items()),
        *run_notes(runs),
        *caveat_notes(runs),
    ]
    return [Table("scan_length", "SCAN by length", head, lines, notes)]


def _with_oracle(records: Records, name: str, row: RowRuns) -> RowRuns:
    """Returns the runs that a row shows, where there are any, with their newest evaluation with the oracle length."""
    if row.scored:
        records = records._replace(runs=[scored.run for scored in row.scored])
    return row_runs(records, f"{FILE}:{name}", "test", ORACLE)


def _notes_on_differences(runs: Runs) -> list[str]:
    """Returns notes with each difference that the design judges, and with its p once all runs are there."""
    notes: list[str] = []
    for claim in COMPARED:
        found = differences(runs, claim)
        for name, seeds in found.items():
            if len(seeds):
                of_seeds = INTERVAL if len(seeds) > 1 else "of one seed"
                notes.append(f"{claim}, {name}, {JUDGED} actions: {with_interval(seeds, 1)} points, {of_seeds}")
        if is_complete(runs):
            notes += tested(found, f"{claim}, {JUDGED} actions")
    return notes


def rows(records: Records) -> Runs:
    """Returns the runs of each model and length."""
    return {row: row_runs(records, f"{FILE}:{row}", "test") for row in ROWS}


def judged(runs: Runs, model: str) -> RowRuns:
    """Returns the runs of a model that the design judges: those of one length, with the seeds of the design alone."""
    row = runs[f"{model}:{JUDGED}"]
    return row._replace(scored=[scored for scored in row.scored if scored.run.config["seed"] in SEEDS])


def is_complete(runs: Runs) -> bool:
    """Returns whether all runs are there that the design judges."""
    return all(len(judged(runs, model).scored) == len(SEEDS) for model in MODELS)


def differences(runs: Runs, claim: str) -> dict[str, Float[np.ndarray, " seeds"]]:
    """Returns the differences in exact match, by seed, of what `COMPARED` has for a claim."""
    return {
        name: paired_differences(judged(runs, one), judged(runs, other), "exact_match")
        for name, (one, other) in COMPARED[claim].items()
    }


def verdicts_on(runs: Runs, claim: str) -> dict[str, str]:
    """Returns what the rule of the design says of each difference that `COMPARED` has for a claim."""
    found = differences(runs, claim)
    corrected = holm(p_values_of(found))
    verdicts: dict[str, str] = {}
    for name, seeds in found.items():
        if not len(seeds):
            verdicts[name] = NOT_RUN
        elif not is_complete(runs):
            verdicts[name] = "open"
        elif corrected[name] >= LEVEL:
            verdicts[name] = "neither shown nor refuted"
        else:
            verdicts[name] = "shown" if seeds.mean() > 0 else "refuted"
    return verdicts


def verdict_on_published(runs: Runs, model: str) -> str:
    """Returns whether the published value is met by a model."""
    matches = judged(runs, model).values("exact_match")
    if not matches:
        return NOT_RUN
    if not is_complete(runs):
        return "open"
    return "met" if min(matches) >= REACHED else "not met"


def plot(records: Records, path: Path) -> None:
    """Draws every seed of the models that are compared, and what is published as a line, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    runs = rows(records)
    with drawn(path, 5, 3.2) as figure:
        axes = figure.subplots()
        for place, model in enumerate(MODELS):
            row = judged(runs, model)
            with_oracle = _with_oracle(records, f"{model}:{JUDGED}", row)
            matches = row.values("exact_match")
            oracle_matches = with_oracle.values(ORACLE)
            axes.plot(np.full(len(matches), place - 0.1), matches, "o", color=colour(place))
            axes.plot(np.full(len(oracle_matches), place + 0.1), oracle_matches, "o", color=colour(place), mfc="none")
            if model == PUBLISHED:
                axes.plot((place - 0.3, place + 0.3), (SCAN_26, SCAN_26), color="grey")
        axes.set_xticks(range(len(MODELS)), MODELS)
        axes.set(xlim=(-0.5, len(MODELS) - 0.5), ylim=(-3, 103), ylabel="exact match %; grey: published")
        axes.set_xlabel(f"longest outputs in training: {JUDGED} actions; hollow: with the oracle length")

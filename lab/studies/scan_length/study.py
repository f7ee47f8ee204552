"""SCAN by length: exact match where outputs are longer than any in training, by positions and sharing of layers."""

from pathlib import Path

import numpy as np

from lab.cards.card import NEITHER, OPEN, Card, Claim, Verdict, between, compare, measure, met, shown_mean
from lab.published import SCAN_26
from lab.scan import LONGEST
from lab.studies.scan_length.design import JUDGED, MODELS, SEEDS
from lab.studies.scan_length.design import ROWS as NAMES
from lab.studies.study import Rows, Runs, Study, configs, count_seeds, mean, mean_cost, table
from vaswani.infer.scores.bleu import ORACLE
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns
from vaswani.paper.tables.trend import INTERVAL, LEVEL, holm, p_values_of, tested
from vaswani.train.intervals import with_interval
from vaswani.train.table import NOT_RUN, Table, number

FILE = "lab/studies/scan_length/design.py"
ROWS = Rows(configs(FILE, NAMES))
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

LABELS = {
    "sinusoidal": "sinusoids",
    "shaw": "relative",
    "sinusoidal-shared": "sinusoids,\nlayers shared",
    "shaw-shared": "relative,\nlayers shared",
}


def tables(records: Records) -> list[Table]:
    """Compares lengths and models; the differences that the design judges stand in the notes."""
    runs = ROWS.find(records)
    oracle = with_oracle(records, runs)
    published = {f"{PUBLISHED}:{JUDGED}": number(SCAN_26, 1)}
    columns = {
        "exact match %: published": lambda name, runs: published.get(name, ""),
        "exact match %: ours": mean("exact_match"),
        "exact match %: ours, oracle length": lambda name, runs: oracle[name].shown(ORACLE),
        "seeds": count_seeds,
        "cost": mean_cost,
    }
    notes = [
        f"the design, its rule and what was expected: {FILE}, committed before the first run",
        f"model:N is trained on outputs of up to N actions; the test has all longer ones, of up to {LONGEST}",
        "mean over the seeds, ± standard deviation, decoded greedily; with the oracle length: infer/scores/"
        "oracle_length.py",
    ]
    fewer = [
        f"{name} ({len(oracle[name].scored)} of {len(row.scored)})"
        for name, row in runs.items()
        if 0 < len(oracle[name].scored) < len(row.scored)
    ]
    if fewer:
        notes.append(f"with the oracle length, of fewer seeds: {', '.join(fewer)}")
    notes += _notes_on_differences(runs)
    for claim, pairs in COMPARED.items():
        for name, verdict in zip(pairs, verdicts_on(runs, claim), strict=True):
            notes.append(f"verdict on whether {claim}, {name}: {verdict.sentence}")
    for model, text in AS_PUBLISHED.items():
        notes.append(f"verdict on {model}, {text}: {verdict_on_published(runs, model)}")
    return [table("scan_length", "SCAN by length", "model", columns, runs, notes)]


def with_oracle(records: Records, runs: Runs) -> Runs:
    """Finds the newest evaluation with the oracle length of the runs that each row shows, where there are any."""
    found: Runs = {}
    for name, row in runs.items():
        these = records._replace(runs=[scored.run for scored in row.scored]) if row.scored else records
        found |= Rows({name: ROWS.configs[name]}, measure=ORACLE).find(these)
    return found


def _notes_on_differences(runs: Runs) -> list[str]:
    """Lists each difference that the design judges, and its p once all runs are there."""
    notes: list[str] = []
    for claim, pairs in COMPARED.items():
        values = {name: made.values for name, made in zip(pairs, claims_of(runs, claim), strict=True)}
        for name, seeds in values.items():
            if len(seeds):
                of_seeds = INTERVAL if len(seeds) > 1 else "of one seed"
                notes.append(f"{claim}, {name}, {JUDGED} actions: {with_interval(seeds, 1)} points, {of_seeds}")
        if is_complete(runs):
            notes += tested(values, f"{claim}, {JUDGED} actions")
    return notes


def of_design(runs: Runs, model: str) -> RowRuns:
    """Selects the runs of a model that the design judges: those of one length, with the seeds of the design alone."""
    row = runs[f"{model}:{JUDGED}"]
    return row._replace(scored=[scored for scored in row.scored if scored.run.config["seed"] in SEEDS])


def is_complete(runs: Runs) -> bool:
    """Tells whether all runs are there that the design judges."""
    return all(len(of_design(runs, model).scored) == len(SEEDS) for model in MODELS)


def claims_of(runs: Runs, claim: str) -> list[Claim]:
    """Makes the claims about each pair that `COMPARED` has."""
    claims: list[Claim] = []
    for name, (model, other) in COMPARED[claim].items():
        rows = of_design(runs, model), of_design(runs, other)
        claims.append(between(f"{claim} ({name})", *rows, "exact_match", 1))
    return claims


def verdicts_on(runs: Runs, claim: str) -> list[Verdict]:
    """Judges each difference that `COMPARED` has for a claim."""
    claims = claims_of(runs, claim)
    corrected = holm(p_values_of({made.text: made.values for made in claims}))
    verdicts: list[Verdict] = []
    for made in claims:
        if not len(made.values):
            verdicts.append(Verdict(NOT_RUN, NOT_RUN))
        elif not is_complete(runs):
            verdicts.append(Verdict(OPEN, OPEN))
        elif corrected[made.text] >= LEVEL:
            verdicts.append(NEITHER)
        else:
            word = "shown" if made.values.mean() > 0 else "refuted"
            verdicts.append(Verdict(word, word))
    return verdicts


def verdict_on_published(runs: Runs, model: str) -> str:
    """Judges whether a model meets the published value."""
    matches = of_design(runs, model).values("exact_match")
    if not matches:
        return NOT_RUN
    return met(min(matches) >= REACHED) if is_complete(runs) else OPEN


def cards(records: Records) -> list[Card]:
    """Claims of each pair of models which is better, and of two that they reach what is published."""
    about = f"SCAN, longer than the {JUDGED} actions of training: exact match, %"
    runs = ROWS.find(records)
    made: list[Card] = []
    for claim in COMPARED:
        compared = compare(about, claims_of(runs, claim), 1)
        made += [card.by_rule(rule) for card, rule in zip(compared, verdicts_on(runs, claim), strict=True)]
    made = [card._replace(p="") if card.verdict == OPEN else card for card in made]
    for model, text in AS_PUBLISHED.items():
        row = of_design(runs, model)
        reached = Claim(
            f"{model}: {text}",
            [row],
            np.array(row.values("exact_match")),
            published=f"{number(SCAN_26, 0)}, Csordas et al. 2021",
            ours=shown_mean(row, "exact_match"),
        )
        card = measure(about, reached, 1)
        made.append(card._replace(verdict=verdict_on_published(runs, model)))
    return made


def plot(records: Records, path: Path) -> None:
    """Draws every seed of the models that are compared, and what is published as a line, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    runs = ROWS.find(records)
    judged = {f"{model}:{JUDGED}": of_design(runs, model) for model in MODELS}
    oracle = with_oracle(records, judged)
    with figure_file(path, 5, 3.2) as figure:
        axes = figure.subplots()
        for place, (name, row) in enumerate(judged.items()):
            hollow = oracle[name].values(ORACLE)
            axes.plot(np.full(len(row.scored), place - 0.1), row.values("exact_match"), "o", color=colour(place))
            axes.plot(np.full(len(hollow), place + 0.1), hollow, "o", color=colour(place), mfc="none")
            if MODELS[place] == PUBLISHED:
                axes.plot((place - 0.3, place + 0.3), (SCAN_26, SCAN_26), color="grey")
        axes.set_xticks(range(len(MODELS)), LABELS.values())
        axes.set(xlim=(-0.5, len(MODELS) - 0.5), ylim=(-3, 103), ylabel="exact match %; grey: published")
        axes.set_xlabel(f"longest outputs in training: {JUDGED} actions; hollow: with the oracle length")


STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=[(model, f"python -m lab.reproduce scan_length/{model}-{JUDGED}-seed{SEEDS[0]}") for model in MODELS],
)

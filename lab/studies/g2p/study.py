"""Letters in, phones out: errors in ten languages beside the published ones, by the rule of `design.py`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lab.cards.card import OPEN, Card, Claim, Verdict, measure, met, verdict_by_number
from lab.published import G2P
from lab.studies.g2p.design import CHOSEN, LANGUAGES, LONGER, LONGER_LANGUAGES, OPTIONS, PILOT, UPDATES
from lab.studies.plots import draw_seeds
from lab.studies.study import Rows, Runs, Study, configs, count_seeds, mean_cost, stages, table, with_seeds
from lab.studies.two_stages import SEEDS
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.launch import sweep
from vaswani.paper.records import Records, RunRecord
from vaswani.paper.rows import RowRuns, dagger_notes, marked, row_runs
from vaswani.paper.tables.cost import cost
from vaswani.train.intervals import wilson
from vaswani.train.table import NOT_RUN, Table, number, spread

FILE = "lab/studies/g2p/design.py"
ROWS = Rows(configs(FILE, LANGUAGES), measure="edits_as_is", seeds=SEEDS)
TITLE = "Pronunciations in ten languages"
MEMBERS = len(SEEDS)  # of an ensemble
PUBLISHED = float(np.mean(list(G2P.values())))
HELPS = 2.0  # fewer wrong words with longer training, in points
ALIKE = 1.0
Errors = Mapping[str, Mapping[int, float]]  # % of words, by language and seed

LABELS = {
    "arm_e": "Armenian",
    "bul": "Bulgarian",
    "dut": "Dutch",
    "fre": "French",
    "geo": "Georgian",
    "hbs_latn": "Serbo-Croatian",
    "hun": "Hungarian",
    "jpn_hira": "Japanese",
    "kor": "Korean",
    "vie_hanoi": "Vietnamese",
}


def tables(records: Records) -> list[Table]:
    """Compares each language and their mean, with the verdict; what stage 1 found; and longer training."""
    runs = ROWS.find(records)
    together = word_errors(ensembles(records))
    alone = word_errors(runs)
    columns = {
        "word errors %: published, an ensemble": lambda language, runs: number(G2P[language], 1),
        f"word errors %: ours, an ensemble of {MEMBERS}": lambda language, runs: _mean(together[language]),
        "word errors %: ours, alone": lambda language, runs: _mean(alone[language]),
        "95 % interval": lambda language, runs: interval(runs[language]),
        "phone errors %: ours, alone": lambda language, runs: spread(runs[language].values("edits_as_is"), 2),
        "seeds": count_seeds,
        "cost": mean_cost,
    }
    notes = [
        f"the design, its rule and what was predicted: {FILE}, committed before the first run",
        f"verdict: {verdict(together).sentence}",
        "alone: mean over the seeds, ± standard deviation; the mean of all languages, of the seeds that every one has",
        "95 % interval: Wilson's, for the number of test words, around the mean of single models",
    ]
    study = table("g2p", TITLE, "language", columns, runs, notes)
    means = mean_of(alone)
    ours = _mean(mean_of(together)), _mean(means)
    study.rows.append(("mean", number(PUBLISHED, 2), *ours, "", "", str(len(means)), ""))
    return [study, stage_1(records), longer(records)]


def _mean(errors: Mapping[int, float]) -> str:
    return spread(list(errors.values()), 2) or NOT_RUN


def ensembles(records: Records) -> Runs:
    """Finds the ensemble of the seeds of each language, the newest, listed under the first seed."""
    of_design = with_seeds(records, SEEDS)
    found: Runs = {}
    for language, alone in ROWS.find(records).items():
        members = {scored.scores["params_sha256"] for scored in alone.scored}
        of_members = of_design._replace(runs=[_with_ensembles(run, members) for run in of_design.runs])
        found[language] = row_runs(of_members, ROWS.configs[language], "test", "edits_as_is", MEMBERS)
    return found


def _with_ensembles(run: RunRecord, members: set[str]) -> RunRecord:
    """Returns the run with the evaluations of ensembles of exactly these members alone, all under the first seed.

    Which member was given first says nothing, and may differ from language to language.
    """
    kept = [one for one in run.evaluations if set(one.scores.get("members", ())) == members]
    return run._replace(evaluations=kept, config={**run.config, "seed": SEEDS[0]})


def word_errors(of_rows: Mapping[str, RowRuns]) -> dict[str, dict[int, float]]:
    """Gives the % of words that are wrong, by language and seed."""
    return {language: errors_of(row) for language, row in of_rows.items()}


def errors_of(row: RowRuns) -> dict[int, float]:
    """Gives the % of words that are wrong, by seed."""
    return {scored.run.config["seed"]: 100 - scored.scores["exact_match"] for scored in row.scored}


def mean_of(errors: Errors) -> dict[int, float]:
    """Returns the mean over the languages, for each seed that every one has."""
    return {
        seed: float(np.mean([of_language[seed] for of_language in errors.values()]))
        for seed in SEEDS
        if all(seed in of_language for of_language in errors.values())
    }


def interval(row: RowRuns) -> str:
    """Returns Wilson's interval of the share of wrong words, as "13.1 to 17.5"; "" without a run."""
    if not row.scored:
        return ""
    words = sum(band["lines"] for band in row.scored[0].scores["by_length"])
    wrong = round(words * (1 - float(np.mean(row.values("exact_match"))) / 100))
    low, high = wilson(wrong, words)
    return f"{number(100 * low, 1)} to {number(100 * high, 1)}"


def verdict(together: Errors) -> Verdict:
    """Judges the ensembles by the rule of the design."""
    means = list(mean_of(together).values())
    if not means:
        return Verdict.open(f"not every language has an ensemble of {MEMBERS}")
    word = met(means[0] <= PUBLISHED)
    return Verdict(word, f"{word}; the ensembles' mean is {number(means[0], 2)} %")


def cards(records: Records) -> list[Card]:
    """Claims that the mean of the published ensembles is reached, by single models and by ensembles."""
    about = f"Pronunciations, {len(G2P)} languages: word errors, %"
    runs = {"a single model": ROWS.find(records), f"an ensemble of {MEMBERS}": ensembles(records)}
    cards: list[Card] = []
    for name, of_language in runs.items():
        means = np.array(list(mean_of(word_errors(of_language)).values()))
        counts = [len(row.scored) for row in of_language.values()]
        claim = Claim(
            f"{name} reaches the mean of the published ensembles",
            list(of_language.values()),
            means,
            published=f"{number(PUBLISHED, 2)}, Ashby et al. 2021",
            ours=number(float(means.mean()), 2) if len(means) else NOT_RUN,
        )
        card = measure(about, claim, 2)
        if len(means):
            card = card._replace(verdict=verdict_by_number(PUBLISHED - means))
        elif any(counts):  # some languages have run, and the mean is of all
            card = card._replace(ours="", verdict=OPEN)
        cards.append(card)
    return cards


def stage_1(records: Records) -> Table:
    """Returns the errors on the validation words of the language that chooses for all, and what was chosen."""
    shown: list[str] = []
    runs: list[RunRecord] = []
    options = configs(FILE, [f"{PILOT}:{dropout}" for dropout in OPTIONS])
    for row in Rows(options, "valid", "edits_as_is", seeds=[0]).find(records).values():
        runs += [scored.run for scored in row.scored]
        error = errors_of(row).get(0)
        shown.append(NOT_RUN if error is None else number(error, 1))
    head = ("language", *(f"word errors % on validation, dropout: {dropout}" for dropout in OPTIONS), "chosen")
    line = marked(PILOT, runs), *shown, str(CHOSEN)
    notes = [f"one run of seed 0 with each; the choice is recorded in {FILE} before stage 2"]
    notes += dagger_notes({PILOT: runs})
    return Table("g2p-stage-1", f"{TITLE}, stage 1", head, [line], notes)


def longer(records: Records) -> Table:
    """Returns the errors on validation words after the updates of stage 2 and after more, and what the rule says."""
    names = [*LONGER_LANGUAGES, *(f"{language}:{LONGER}" for language in LONGER_LANGUAGES)]
    found = Rows(configs(FILE, names), "valid", "edits_as_is", seeds=SEEDS[:1]).find(records)
    lines: list[tuple[str, ...]] = []
    gains: list[float] = []
    runs: dict[str, list[RunRecord]] = {}
    for language in LONGER_LANGUAGES:
        short = found[language]
        long = found[f"{language}:{LONGER}"]
        runs[language] = [scored.run for scored in (*short.scored, *long.scored)]
        gained = ""
        if short.scored and long.scored:
            gain = errors_of(short)[SEEDS[0]] - errors_of(long)[SEEDS[0]]
            gains.append(round(gain, 6))  # in floating point 38.9 - 36.9 may be less than 2
            gained = number(gains[-1], 1)
        label = marked(language, runs[language])
        lines.append((label, _error_in(short), _error_in(long), gained, cost(long.scored)))
    updates = [f"word errors % on validation: {UPDATES[stage]:,} updates" for stage in ("test", LONGER)]
    head = ("language", *updates, "fewer by", "cost")
    notes = [
        f"verdict on longer training: {verdict_on_longer(gains)}",
        "seed 1 of each; in brackets Wilson's 95 % interval for the number of words",
        *dagger_notes(runs),
    ]
    return Table("g2p-longer", f"{TITLE}, longer training", head, lines, notes)


def _error_in(row: RowRuns) -> str:
    """Returns the word errors of a row of one seed, with their interval."""
    errors = list(errors_of(row).values())
    return f"{number(errors[0], 1)} ({interval(row)})" if errors else row.missing or NOT_RUN


def verdict_on_longer(gains: Sequence[float]) -> str:
    """Judges by how many points fewer words are wrong, by language."""
    if len(gains) < len(LONGER_LANGUAGES):
        return "open, because not both languages have run"
    if min(gains) >= HELPS:
        return "it helps"
    if max(gains) <= ALIKE:
        return "it does not matter"
    return "neither"


def plot(records: Records, path: Path) -> None:
    """Draws the word errors of every seed, and what is published as a line, into a file.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 6, 3.2) as figure:
        axes = figure.subplots()
        for place, (language, of_language) in enumerate(word_errors(ROWS.find(records)).items()):
            draw_seeds(axes, place, list(of_language.values()), colour(0), G2P[language])
        axes.set_xticks(range(len(LANGUAGES)), LABELS.values(), rotation=30)
        axes.set(ylim=(-1, None), ylabel="word errors %; grey: published")


MORE_UPDATES = (f"stage {LONGER}", sweep(f"{FILE}:{LONGER}", f"g2p-{LONGER}"))
STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=[*stages(FILE, "g2p"), *ROWS.commands(), MORE_UPDATES],
)

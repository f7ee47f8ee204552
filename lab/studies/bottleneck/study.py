"""Does one fixed vector hold a long sentence? BLEU by the source's length, by the rule of `design.py`."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from lab.cards.card import NEITHER, Card, Claim, Verdict, between, compare
from lab.drawing import curve
from lab.studies.bottleneck.design import CHOSEN, KINDS, RATES
from lab.studies.choice import stage_1
from lab.studies.plots import legend
from lab.studies.study import Column, Rows, Runs, Study, chosen, configs, count_seeds, mean, mean_cost, stages, table
from lab.studies.two_stages import SEEDS
from vaswani.paper.drawing import figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns
from vaswani.paper.tables.trend import INTERVAL, differences_by_seed
from vaswani.train.intervals import half_interval, with_interval
from vaswani.train.table import NOT_RUN, Table, spread

FILE = "lab/studies/bottleneck/design.py"
ROWS = Rows(configs(FILE, KINDS), measure="by_length", seeds=SEEDS)
SHORT, LONG = 6, 16  # the bands of lengths that are compared, by their first number of words
COMPARED = ("additive", "dot")


def bleu(row: RowRuns, first: int) -> Float[np.ndarray, " seeds"]:
    """Returns the BLEU of every seed on the band of lengths that begins at `first` words; NaN where it has no lines."""
    found: list[float] = []
    for seed in row.scored:
        bands = {band["words"][0]: band["sacrebleu"] for band in seed.scores["by_length"]}
        found.append(bands.get(first, np.nan))
    return np.array(found)


def dropped(row: RowRuns) -> dict[int, float]:
    """Subtracts the BLEU of the long band from that of the short one, by the seed."""
    drops = bleu(row, SHORT) - bleu(row, LONG)
    return {scored.run.config["seed"]: float(drop) for scored, drop in zip(row.scored, drops, strict=True)}


def mean_bleu(first: int) -> Column:
    """Shows the BLEU of a band."""
    return lambda kind, runs: spread(bleu(runs[kind], first).tolist()) or NOT_RUN


def minus_fixed(kind: str, runs: Runs) -> str:
    """Shows how much more a kind drops than one fixed vector."""
    return "" if kind == "fixed" else with_interval(-more(runs, kind), 2)


COLUMNS = {
    "rate": chosen(CHOSEN),
    f"BLEU of sources of {SHORT} to {SHORT + 4} words": mean_bleu(SHORT),
    f"BLEU of sources of {LONG} to {LONG + 4} words": mean_bleu(LONG),
    "drop": lambda kind, runs: spread(list(dropped(runs[kind]).values())),
    "drop minus that of fixed": minus_fixed,
    "all: BLEU": mean("sacrebleu"),
    "seeds": count_seeds,
    "cost": mean_cost,
}

LABELS = {
    "transformer": "Transformer",
    "fixed": "LSTM, the encoder's last state",
    "additive": "LSTM, additive attention",
    "dot": "LSTM, dot-product attention",
}


def tables(records: Records) -> list[Table]:
    """Compares the kinds, with the verdict in the notes, and shows the choice of rates."""
    runs = ROWS.find(records)
    notes = [
        f"the design, its rule and what was expected: {FILE}, committed before the first run",
        f"verdict: {verdict(runs).sentence}",
        f"mean over the seeds, ± standard deviation; differences, of the same seed: {INTERVAL}",
    ]
    study = table("bottleneck", "One vector for a sentence, or attention", "decoder sees", COLUMNS, runs, notes)
    return [study, stage_1(records, study, FILE, dict.fromkeys(KINDS, RATES), "rate", CHOSEN)]


def more(runs: Runs, kind: str, dropping: str = "fixed") -> Float[np.ndarray, " seeds"]:
    """Subtracts the drop of `kind` from that of `dropping`, for each seed that both have."""
    return differences_by_seed(dropped(runs[dropping]), dropped(runs[kind]))


def verdict(runs: Runs) -> Verdict:
    """Judges by the rule of the design."""
    means: list[float] = []
    lower_ends: list[float] = []
    for kind in COMPARED:
        differences = more(runs, kind)
        half = half_interval(differences)
        if half is None or len(differences) < len(SEEDS):
            return Verdict.open(f"fixed and the two with attention need {len(SEEDS)} seeds each")
        means.append(float(differences.mean()))
        lower_ends.append(means[-1] - half)
    if min(lower_ends) > 0:
        return Verdict.shown("one fixed vector drops more than additive and than dot-product attention")
    if max(means) <= 0:
        return Verdict.refuted("one fixed vector drops no more than additive and dot-product attention")
    return NEITHER


def cards(records: Records) -> list[Card]:
    """Claims that one vector loses more than attention, and the Transformer no more than LSTMs with attention."""
    runs = ROWS.find(records)
    about = "One vector for a sentence: BLEU that is lost from short sources to long ones"
    fixed, transformer = runs["fixed"], runs["transformer"]
    loses: list[Claim] = []
    holds: list[Claim] = []
    for kind in COMPARED:
        text = f"one fixed vector (source not reversed) loses more than {kind} attention"
        loses.append(Claim(text, [fixed, runs[kind]], more(runs, kind), 1))
        text = f"the Transformer loses no more than an LSTM with {kind} attention"
        holds.append(Claim(text, [transformer, runs[kind]], more(runs, kind, "transformer"), -1))
    text = "additive attention translates better than the Transformer"
    best = between(text, runs["additive"], transformer, "sacrebleu", 1)
    rule = verdict(runs)  # for both together
    return [
        *(card.by_rule(rule) for card in compare(about, loses, 2)),
        *compare(about, holds, 2),
        *compare("One vector for a sentence: BLEU on sources of any length", [best], 2),
    ]


def plot(records: Records, path: Path) -> None:
    """Draws BLEU by the length of the source: means over the seeds, and between the lowest and the highest a band.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 6.5, 4) as figure:
        axes = figure.subplots()
        for place, (kind, row) in enumerate(ROWS.find(records).items()):
            if not row.scored:
                continue
            first_words = [band["words"][0] for band in row.scored[0].scores["by_length"]]
            bleu_sf = np.stack([bleu(row, first) for first in first_words], axis=1)
            curve(axes, np.array(first_words) + 2, bleu_sf, place, LABELS[kind], marker="o")
        axes.set(xlabel="words of the source, in bands of five", ylabel="sacreBLEU")
        legend(figure, axes, 2)


STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=[*stages(FILE, "bottleneck"), *ROWS.commands()],
)

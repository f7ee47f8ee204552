"""Does one fixed vector hold a long sentence? BLEU by the source's length, by the rule of `design.py`."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from jaxtyping import Float

from base.intervals import half_interval, with_interval
from base.table import NOT_RUN, Table, spread
from lab.studies.bottleneck.design import CHOSEN, KINDS, RATES
from lab.studies.choice import stage_1
from lab.studies.two_stages import SEEDS
from paper.drawing import curve, drawn
from paper.records import Records
from paper.rows import RowRuns, caveat_notes, row_runs, run_notes, with_seeds
from paper.tables.cost import cost
from paper.tables.trend import INTERVAL, differences_by_seed

FILE = "lab/studies/bottleneck/design.py"
SHORT, LONG = 6, 16  # the bands of lengths that are compared, by their first number of words
COMPARED = ("additive", "dot")


def tables(records: Records) -> list[Table]:
    """Returns one row for each kind, with the verdict in the notes, and the choice of rates."""
    runs = rows(records)
    drops = {kind: dropped(row) for kind, row in runs.items()}
    bands = f"{SHORT} to {SHORT + 4}", f"{LONG} to {LONG + 4}"
    head = (
        "decoder sees",
        "rate",
        *(f"BLEU of sources of {band} words" for band in bands),
        "drop",
        "drop minus that of fixed",
        "all: BLEU",
        "seeds",
        "cost",
    )
    lines = [_line(kind, row, drops) for kind, row in runs.items()]
    notes = [
        "the design, its rule and what was expected: lab/studies/bottleneck/design.py, committed before the first run",
        verdict(drops),
        f"mean over the seeds, ± standard deviation; differences, of the same seed: {INTERVAL}",
        *run_notes(runs),
        *caveat_notes(runs),
    ]
    study = Table("bottleneck", "One vector for a sentence, or attention", head, lines, notes)
    return [study, stage_1(records, study, FILE, dict.fromkeys(KINDS, RATES), "rate", CHOSEN)]


def rows(records: Records) -> dict[str, RowRuns]:
    """Returns the runs of each kind with the rate that it chose, and the seeds of the design."""
    of_design = with_seeds(records, SEEDS)
    return {kind: row_runs(of_design, f"{FILE}:{kind}", "test", "by_length") for kind in KINDS}


def bleu(row: RowRuns, first: int) -> Float[np.ndarray, " seeds"]:
    """Returns the BLEU of every seed on the band of lengths that begins at `first` words; NaN where it has no lines."""
    found: list[float] = []
    for seed in row.scored:
        bands = {band["words"][0]: band["sacrebleu"] for band in seed.scores["by_length"]}
        found.append(bands.get(first, np.nan))
    return np.array(found)


def dropped(row: RowRuns) -> dict[int, float]:
    """Returns how much BLEU falls from the short band to the long one, by the seed."""
    drops = bleu(row, SHORT) - bleu(row, LONG)
    return {scored.run.config["seed"]: float(drop) for scored, drop in zip(row.scored, drops, strict=True)}


def more(drops: Mapping[str, Mapping[int, float]], kind: str, dropping: str = "fixed") -> Float[np.ndarray, " seeds"]:
    """Returns how much more BLEU `dropping` loses than `kind`, for each seed that both have."""
    return differences_by_seed(drops[dropping], drops[kind])


def verdict(drops: Mapping[str, Mapping[int, float]]) -> str:
    """Returns what the rule of the design says."""
    means: list[float] = []
    lower_ends: list[float] = []
    for kind in COMPARED:
        differences = more(drops, kind)
        half = half_interval(differences)
        if half is None or len(differences) < len(SEEDS):
            return f"verdict: open, because fixed and the two with attention need {len(SEEDS)} seeds each"
        means.append(float(differences.mean()))
        lower_ends.append(means[-1] - half)
    if min(lower_ends) > 0:
        return "verdict: shown; one fixed vector drops more than additive and than dot-product attention"
    if max(means) <= 0:
        return "verdict: refuted; one fixed vector drops no more than additive and dot-product attention"
    return "verdict: neither shown nor refuted"


def _line(kind: str, row: RowRuns, drops: Mapping[str, Mapping[int, float]]) -> tuple[str, ...]:
    rate = str(CHOSEN.get(kind, "not chosen"))
    short = long = NOT_RUN
    drop = ""
    if row.scored:
        short = spread(bleu(row, SHORT).tolist())
        long = spread(bleu(row, LONG).tolist())
        drop = spread(list(drops[kind].values()))
    return (
        row.label(kind),
        rate,
        short,
        long,
        drop,
        "" if kind == "fixed" else with_interval(-more(drops, kind), 2),
        row.shown("sacrebleu"),
        str(len(row.scored)),
        cost(row.scored),
    )


def plot(records: Records, path: Path) -> None:
    """Draws BLEU by the length of the source: means over the seeds, and between the lowest and the highest a band.

    Raises:
      UserError: the file cannot be written.
    """
    with drawn(path, 6.5, 4) as figure:
        axes = figure.subplots()
        for place, (kind, row) in enumerate(rows(records).items()):
            if not row.scored:
                continue
            first_words = [band["words"][0] for band in row.scored[0].scores["by_length"]]
            bleu_sf = np.stack([bleu(row, first) for first in first_words], axis=1)
            curve(axes, np.array(first_words) + 2, bleu_sf, place, kind, marker="o")
        axes.set(xlabel="words of the source, in bands of five", ylabel="sacreBLEU")
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside lower center", ncols=4, fontsize=7)

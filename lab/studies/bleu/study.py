"""Why is my BLEU lower, and how much text does a model need? Tables, verdicts by the rule of `design.py`, a figure."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from lab.cards.card import Card, Claim, Verdict, measure
from lab.studies.bleu import curve, design
from lab.studies.bleu.design import ROWS, SEEDS
from lab.studies.bleu.signs import signs
from lab.studies.own_records import Record, newest, runs_of
from lab.studies.study import Commands, Runs, Study, count_seeds, differences, mean_cost
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import caveat_notes
from vaswani.paper.tables.trend import paired_differences
from vaswani.train.table import NOT_RUN, Markdown, Table, number, spread

FILE = "lab/studies/bleu/design.py"
BASE = "base"
MARGIN = 1.0  # BLEU: what "costs nothing" allows
TITLE = "Why is my BLEU lower: causes that need training"
READINGS = "Why is my BLEU lower: causes that need no training"
CURVE = "How much text, which model"


def of_part(records: Records, part: str) -> list[dict[str, Any]]:
    """Returns this study's records of a part: training, curve or readings; of one row and seed only the newest."""
    return newest(record for record in records.of_studies if record["study"] == "bleu" and record["part"] == part)


def rows(records: Records) -> Runs:
    """Returns the runs of each row of the first part; of a run that failed, BLEU is 0."""

    def scores(record: Record) -> dict[str, float]:
        return {"sacrebleu": 0.0 if record["failed"] else record["test"]["sacrebleu"]}

    return runs_of(of_part(records, "training"), ROWS, design.get_config, scores)


# The rule


def pooled(runs: Runs) -> tuple[float, int] | None:
    """Returns the spread of one run and the rows that it is pooled over; None before there is one."""
    base = runs[BASE].values("sacrebleu")
    variances: list[float] = []
    for row in runs.values():
        values = row.values("sacrebleu")
        if len(values) == len(SEEDS) == len(base) and np.mean(values) >= np.mean(base) / 2:
            variances.append(float(np.var(values, ddof=1)))
    return (float(np.sqrt(np.mean(variances))), len(variances)) if variances else None


def half_interval(runs: Runs) -> float | None:
    """Returns half of the 95 % interval of a row's difference; None before there is one."""
    from scipy import stats  # only now: it takes a second to load

    found = pooled(runs)
    if found is None:
        return None
    one_run, count = found
    return float(stats.t.ppf(0.975, count)) * one_run


def verdict(name: str, runs: Runs) -> Verdict:
    """Judges a row by the rule of the design."""
    half = half_interval(runs)
    apart = paired_differences(runs[name], runs[BASE], "sacrebleu")
    if half is None or len(apart) < len(SEEDS):
        return Verdict.open("not both seeds have run")
    middle = float(apart.mean())
    sign = ROWS[name].sign
    low, high = middle - half, middle + half
    if sign == 0:
        is_shown = low > -MARGIN and high < MARGIN
        is_refuted = high < -MARGIN or low > MARGIN
    else:
        is_shown = low > 0 if sign > 0 else high < 0
        is_refuted = high < 0 if sign > 0 else low > 0
    if is_shown:
        return Verdict.shown(claim(name))
    if is_refuted:
        return Verdict.refuted(f"not so: {claim(name)}")
    return Verdict("neither", "neither shown nor refuted")


def claim(name: str) -> str:
    """Returns what a row claims of BLEU, in words."""
    says = {-1: "costs BLEU", 0: f"costs nothing, to {MARGIN:g} BLEU", 1: "raises BLEU"}
    return f"{ROWS[name].change}: {says[ROWS[name].sign]}"


# Tables


def tables(records: Records) -> list[Table]:
    """Returns the rows that were trained, the readings of one output, and the curve."""
    return [training(records), readings(records), curve_table(records)]


def training(records: Records) -> Table:
    """Compares every row with the base."""
    runs = rows(records)
    half = half_interval(runs)
    lines = [_line(name, runs, half) for name in _by_loss(runs)]
    found = pooled(runs)
    spread_note = "the spread of one run is not known before both seeds of a row have run"
    if found:
        spread_note = f"the spread of one run, pooled over {found[1]} rows: {number(found[0])} BLEU"
    notes = [
        f"the design, its rule and what was expected: {FILE}, committed before the first run",
        "sacreBLEU of Multi30k's test_2016_flickr: mean of the seeds; its difference from the base ± half of the 95 % "
        "interval; over sentences: that of each seed by a paired bootstrap",
        spread_note,
        *_how_many_cost_nothing(runs, half),
        "the log shows: what both seeds do, against the base of the same seed; validation nll in nats a subword",
        *caveat_notes(runs),
    ]
    head = (
        "change",
        "BLEU",
        "BLEU − base",
        "over sentences",
        "validation nll",
        "what the log shows",
        "our key",
        "claim",
        "verdict",
        "seeds",
        "cost",
    )
    return Table("bleu", TITLE, head, lines, notes)


def _how_many_cost_nothing(runs: Runs, half: float | None) -> list[str]:
    """Says how many changes are no further from the base than chance puts them; nothing before both seeds of any."""
    apart = [values.mean() for values in differences(runs, BASE, "sacrebleu").values() if len(values) == len(SEEDS)]
    if half is None or not apart:
        return []
    near = sum(abs(middle) <= half for middle in apart)
    return [f"of {len(apart)} changes with both seeds, {near} have an interval that holds 0: nothing is shown of them"]


def _by_loss(runs: Runs) -> list[str]:
    """Orders the rows by BLEU lost, the base first and those that have not run last."""

    def key(name: str) -> tuple[int, float]:
        values = runs[name].values("sacrebleu")
        if name == BASE:
            return 0, 0.0
        return (1, float(np.mean(values))) if values else (2, 0.0)

    return sorted(runs, key=key)


def _line(name: str, runs: Runs, half: float | None) -> tuple[str, ...]:
    row = runs[name]
    apart = differences(runs, BASE, "sacrebleu").get(name, np.array([]))
    minus = ""
    if name != BASE and len(apart):
        minus = number(float(apart.mean()), sign=True)
        if half is not None and len(apart) == len(SEEDS):
            minus = f"{minus} ± {number(half)}"
    losses = [scored.scores["valid"][-1]["nll"] for scored in row.scored if scored.scores["valid"]]
    return (
        row.label(ROWS[name].change),
        spread(row.values("sacrebleu")) or NOT_RUN,
        minus,
        "; ".join(filter(None, (_over_sentences(scored.scores) for scored in row.scored))) if name != BASE else "",
        spread(losses, 3) or NOT_RUN,
        "; ".join(shared_signs(name, runs)) or ("nothing" if row.scored and name != BASE else ""),
        ROWS[name].key,
        "" if name == BASE else claim(name).rpartition(": ")[2],
        "" if name == BASE else verdict(name, runs).word,
        count_seeds(name, runs),
        mean_cost(name, runs),
    )


def _over_sentences(scores: Mapping[str, Any]) -> str:
    """Shows the interval of a run's difference over the sentences."""
    found = scores.get("against_base")
    return f"{number(found['low'], 1, sign=True)} to {number(found['high'], 1, sign=True)}" if found else ""


def shared_signs(name: str, runs: Runs) -> list[str]:
    """Returns the signs of the first seed whose kind every seed has: what stands before the first number."""
    bases = {scored.run.config["seed"]: scored.scores for scored in runs[BASE].scored}
    of_seeds: list[dict[str, str]] = []
    for scored in runs[name].scored:
        base = bases.get(scored.run.config["seed"])
        if base:
            of_seeds.append({_kind(sign): sign for sign in signs(scored.scores, base)})
    if not of_seeds:
        return []
    first, *others = of_seeds
    return [sign for kind, sign in first.items() if all(kind in other for other in others)]


def _kind(sign: str) -> str:
    """Returns a sign without its numbers."""
    return re.sub(r"[\d.,+-]|(?<=\d)e", "", sign)


def readings(records: Records) -> Table:
    """Shows what each other reading of one model's translations gives."""
    from lab.studies.bleu.readings import READINGS as NAMED  # which loads the search

    found = of_part(records, "readings")
    latest = found[-1]["readings"] if found else {}
    lines: list[tuple[str, ...]] = []
    for name, (written, _) in NAMED.items():
        key = Markdown(written)
        reading = latest.get(name)
        if reading is None:
            lines.append((name, NOT_RUN, "", "", key))
            continue
        interval = f"{number(reading['low'], sign=True)} to {number(reading['high'], sign=True)}"
        is_usual = reading["difference"] == reading["low"] == reading["high"] == 0
        change = (number(reading["difference"], sign=True), "none" if is_usual else interval)
        lines.append((name, number(reading["bleu"]), *change, key))
    head = ("reading", "BLEU", "BLEU − usual", "95 % interval", "our key or command")
    at_0 = sum(reading["low"] <= 0 <= reading["high"] for reading in latest.values())
    notes = [
        "one model, builtin:tatoeba, on the 3,242 pairs of Tatoeba's test split; nothing is trained, nothing chosen",
        "usual: sacreBLEU of plain text, cased, 13a; a beam of 4, the model's alpha; the interval is a paired "
        "bootstrap over sentences",
    ]
    if latest:
        notes.insert(0, f"of {len(latest)} readings, {at_0} have an interval that holds 0: they cost nothing here")
    return Table("bleu-readings", READINGS, head, lines, notes)


def curve_table(records: Records) -> Table:
    """Shows BLEU and chrF by the number of pairs, on text of the same kind and of another."""
    by_row: dict[str, list[dict[str, Any]]] = {name: [] for name in curve.ROWS}
    for record in of_part(records, "curve"):
        by_row[record["row"]].append(record)
    lines = [_curve_line(name, of_row) for name, of_row in by_row.items()]
    head = (
        "row",
        "pairs",
        "d_model",
        "subwords",
        "dropout",
        "updates",
        "Tatoeba: BLEU",
        "Tatoeba: chrF",
        "LibreOffice's help: BLEU",
        "LibreOffice's help: chrF",
        "seeds",
        "minutes",
    )
    notes = [
        "the design: lab/studies/bleu/curve.py, committed before the first run; settings by rule of thumb, not tuned",
        "test text of the same kind, and of another that none was trained on; minutes of one CPU core in bfloat16",
    ]
    return Table("bleu-curve", CURVE, head, lines, notes)


def _curve_line(name: str, records: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    pairs, size = name.split("-")
    text = curve.TEXT[pairs]
    scores: list[str] = []
    for test in ("test", "foreign"):
        for key in ("sacrebleu", "chrf"):
            scores.append(spread([record[test][key] for record in records]) or NOT_RUN)
    settings = (f"{text.pairs:,}", str(curve.SIZES[size]), f"{text.subwords:,}", f"{text.dropout:g}")
    minutes = spread([record["minutes"] for record in records], 0) or NOT_RUN
    return (name, *settings, f"{text.updates:,}", *scores, str(len(records)), minutes)


# Claims, figure and commands

REPEATED = "not repeatable by lab.reproduce: lab/studies/bleu/design.py has its command"


def cards(records: Records) -> list[Card]:
    """Claims of every change that it costs BLEU, or not."""
    runs = rows(records)
    half = half_interval(runs)
    made: list[Card] = []
    for name, apart in differences(runs, BASE, "sacrebleu").items():
        of_row = Claim(claim(name), [runs[name], runs[BASE]], apart, ROWS[name].sign)
        card = measure("Why is my BLEU lower: BLEU, a change minus the base", of_row, 2)
        if len(apart):
            card = card.by_rule(verdict(name, runs))._replace(command=REPEATED)
            card = card._replace(interval=f"± {number(half)}" if half is not None and len(apart) > 1 else "")
        else:
            card = card.without_runs()
        made.append(card)
    return made


def plot(records: Records, path: Path) -> None:
    """Draws each change's BLEU minus the base's, seed by seed, and BLEU by the number of pairs.

    Raises:
      UserError: the file cannot be written.
    """
    runs = rows(records)
    order = [name for name in reversed(_by_loss(runs)) if name != BASE and runs[name].scored]
    with figure_file(path, 9, 1.2 + 0.2 * max(len(order), 8)) as figure:
        changes, pairs = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_changes(changes, runs, order)
        _draw_curve(pairs, of_part(records, "curve"))


def _draw_changes(axes: Axes, runs: Runs, order: Sequence[str]) -> None:
    for place, name in enumerate(order):
        apart = paired_differences(runs[name], runs[BASE], "sacrebleu")
        axes.plot(apart, [place] * len(apart), "o", color=colour(0), markersize=4)
    half = half_interval(runs)
    if half is not None:
        axes.axvspan(-half, half, color="0.9", zorder=0)
    axes.axvline(0, color="0.6", linewidth=0.8)
    labels = [ROWS[name].change.replace("sqrt(d_model)", r"$\sqrt{d_{model}}$") for name in order]
    axes.set_yticks(range(len(order)), labels)
    axes.set(xlabel="BLEU minus the base's, a point for each seed")


def _draw_curve(axes: Axes, records: Sequence[Mapping[str, Any]]) -> None:
    for place, (size, width) in enumerate(curve.SIZES.items()):
        of_size = [record for record in records if record["row"].endswith(f"-{size}")]
        for test, kind, style in (("test", "Tatoeba", "o-"), ("foreign", "LibreOffice's help", "o--")):
            points: dict[int, list[float]] = {}
            for record in of_size:
                count = curve.TEXT[record["row"].partition("-")[0]].pairs
                points.setdefault(count, []).append(record[test]["sacrebleu"])
            if points:
                counts = sorted(points)
                means = [float(np.mean(points[count])) for count in counts]
                axes.semilogx(counts, means, style, color=colour(place), markersize=3, label=f"{kind}, width {width}")
    axes.set(xlabel="pairs of Tatoeba in training", ylabel="sacreBLEU")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)


def commands() -> Commands:
    """Gives the command of each row."""
    module = "python -m lab.studies.bleu.run"
    return [(name, f"{module} --row={name} --seed=0") for name in (*ROWS, *curve.ROWS)]


STUDY = Study(rows=rows, tables=tables, cards=cards, plot=plot, commands=commands())

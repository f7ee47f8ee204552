"""Where does post-norm fail to start? Loss by norm, depth and warm-up, by the rule of `design.py`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lab.cards.card import NEITHER, Card, Claim, Verdict, measure, shown_seeds
from lab.drawing import mark, shaded
from lab.studies.choice import Validated, notes_on, validated
from lab.studies.norms.design import LAYERS, NORMS, PAPER, SEEDS, STARTED, WARMUPS, name_of
from lab.studies.norms.design import ROWS as NAMES
from lab.studies.study import Rows, Study, configs
from vaswani.paper.drawing import figure_file
from vaswani.paper.launch import sweep
from vaswani.paper.records import Records
from vaswani.paper.rows import marked
from vaswani.train.table import NOT_RUN, Table, number

FILE = "lab/studies/norms/design.py"
ROWS = Rows(configs(FILE, NAMES), "valid")
TITLE = "Norm, depth and warm-up: what starts"
TITLES = {"post": "post-norm (the paper)", "pre": "pre-norm", "deep": "DeepNorm"}
DEEPEST = LAYERS[-1]
SHORTEST = WARMUPS[0]
EASIEST = LAYERS[0], WARMUPS[-1]
Perplexities = dict[str, list[float]]  # by run: of the seeds that have run


def tables(records: Records) -> list[Table]:
    """Returns one row for each norm and depth, with a column for each warm-up, and the verdict in the notes."""
    taken = runs_of(records)
    found = perplexities(taken)
    lines: list[tuple[str, ...]] = []
    for norm in NORMS:
        for layers in LAYERS:
            names = [name_of(norm, layers, warmup) for warmup in WARMUPS]
            cells = [_cell(found[name]) for name in names]
            runs = [one.run for name in names for one in taken[name]]
            label = marked(f"{norm}-{layers}", runs)
            lines.append((label, *cells, str(len(runs))))
    head = ("norm and layers", *(f"warm-up of {warmup} %" for warmup in WARMUPS), "runs")
    notes = [
        f"the design, its rule and what was expected: {FILE}, committed before the first run",
        f"verdict: {verdict(found).sentence}",
        "validation perplexity after the last update, the geometric mean of the seeds; in brackets how many of them "
        f"have started, with a perplexity of at most {STARTED}",
        f"the paper's recipe: {PAPER[0]}-norm, {PAPER[1]} layers, {PAPER[2]} %",
        *notes_on(taken),
    ]
    return [Table("norms", TITLE, head, lines, notes)]


def runs_of(records: Records) -> dict[str, list[Validated]]:
    """Finds the runs of each row, of the seeds of the design, evaluated or not."""
    found = validated(records, ROWS.configs.values())
    of_rows: dict[str, list[Validated]] = {}
    for row, config in ROWS.configs.items():
        of_rows[row] = [found[config][seed] for seed in SEEDS if seed in found[config]]
    return of_rows


def perplexities(taken: Mapping[str, Sequence[Validated]]) -> Perplexities:
    """Returns the validation perplexity of each run's seeds after the last update."""
    return {row: [run.perplexity for run in runs] for row, runs in taken.items()}


def _cell(values: list[float]) -> str:
    if not values:
        return NOT_RUN
    mean = float(np.exp(_mean_log(values)))
    return f"{number(mean, 2)} ({started(values)} of {len(values)})"


def _mean_log(values: list[float]) -> float:
    """Returns the mean of the logarithms; NaN without a value."""
    return float(np.mean(np.log(values))) if values else float("nan")


def started(values: list[float]) -> int:
    """Counts the perplexities of runs that have started."""
    return sum(value <= STARTED for value in values)


def verdict(found: Perplexities) -> Verdict:
    """Judges by the rule of the design."""
    deep = {norm: found[name_of(norm, DEEPEST, SHORTEST)] for norm in NORMS}
    easy = [found[name_of(norm, *EASIEST)] for norm in NORMS]
    if any(len(values) < len(SEEDS) for values in (*deep.values(), *easy)):
        return Verdict.open("not all of the runs that the rule compares are there")
    if started(deep["post"]) == len(SEEDS):
        return Verdict.refuted(f"post-norm starts with {DEEPEST} layers and {SHORTEST} % of warm-up")
    others = all(started(deep[norm]) == len(SEEDS) for norm in NORMS if norm != "post")
    easy_start = all(started(values) == len(SEEDS) for values in easy)
    if started(deep["post"]) == 0 and others and easy_start:
        return Verdict.shown("where it is deep, post-norm needs warm-up, and pre-norm and DeepNorm do not")
    return NEITHER


def cards(records: Records) -> list[Card]:
    """Claims that post-norm alone does not start where it is deep and hardly warmed up."""
    found = perplexities(runs_of(records))
    runs = ROWS.find(records)
    names = {norm: name_of(norm, DEEPEST, SHORTEST) for norm in NORMS}
    claim = Claim(
        f"with {DEEPEST} layers and {SHORTEST} % of warm-up post-norm does not start, the other two do",
        [runs[name] for name in names.values()],
        ours=", ".join(f"{norm} {started(found[name])} of {len(found[name])}" for norm, name in names.items()),
    )
    card = measure("Norm, depth and warm-up: runs that start", claim, 0)
    counts = [len(found[name]) for name in names.values()]
    if not any(counts):
        return [card._replace(ours=NOT_RUN)]
    return [card._replace(seeds=shown_seeds(counts), verdict=verdict(found).word)]


def plot(records: Records, path: Path) -> None:
    """Draws a map for each norm, layers by warm-up, with perplexities; the paper's recipe has a frame.

    Raises:
      UserError: the file cannot be written.
    """
    found = perplexities(runs_of(records))
    columns = [f"{warmup} %" for warmup in WARMUPS]
    labels = [str(layers) for layers in LAYERS]
    highest = float(np.log(4 * STARTED))
    with figure_file(path, 7, 2.8) as figure:
        figure.suptitle("validation perplexity; framed: the paper's recipe", fontsize=8)
        for axes, norm in zip(figure.subplots(1, len(NORMS), sharey=True), NORMS, strict=True):
            logs_nw = np.empty((len(LAYERS), len(WARMUPS)))
            is_paper_nw = np.zeros(logs_nw.shape, bool)
            for n, layers in enumerate(LAYERS):
                for w, warmup in enumerate(WARMUPS):
                    logs_nw[n, w] = _mean_log(found[name_of(norm, layers, warmup)])
                    is_paper_nw[n, w] = (norm, layers, warmup) == PAPER
            shaded(axes, logs_nw, labels, columns, highest=highest)
            mark(axes, is_paper_nw)
            axes.set(title=TITLES[norm], xlabel="warm-up", ylabel="layers" if norm == NORMS[0] else "")


GRID = ("all of norms", sweep(f"{FILE}:{name_of(*PAPER)}", "norms"))
STUDY = Study(
    rows=ROWS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=[GRID, *ROWS.commands()],
)

"""Deep encoder, shallow decoder: BLEU and speed of 10+2 layers beside 6+6, by the rules of `design.py`."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from scipy import stats

from lab.cards.card import NEITHER, Card, Claim, Verdict, measure
from lab.studies.depth.design import EVEN, MARGIN, ROWS, SEEDS, SHALLOW
from lab.studies.plots import legend
from lab.studies.study import Rows, Runs, Study, configs, count_seeds, mean, mean_cost, table
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns, load
from vaswani.paper.tables.table3 import parameters
from vaswani.paper.tables.trend import by_seed, differences_by_seed, paired_differences, shown_p_value
from vaswani.tasks.config import model_config
from vaswani.train.aot.flops import forward_flops
from vaswani.train.intervals import half_interval
from vaswani.train.table import Table, number

FILE = "lab/studies/depth/design.py"
SPEED = "sentences_per_second"
RUNS = Rows(configs(FILE, ROWS), measure=SPEED, seeds=SEEDS)
LENGTH = 12  # subwords of a sentence and of its translation, about the mean of the corpus


class Difference(NamedTuple):
    """The mean BLEU of 10+2 minus that of 6+6; half of its 95 % and its 90 % interval; and p, two-sided."""

    bleu: float
    half_95: float
    half_90: float
    p: float


class Ratio(NamedTuple):
    """The speed of 10+2 by that of 6+6, and its 95 % interval."""

    ratio: float
    low: float
    high: float


def has_all_seeds(runs: Runs) -> bool:
    return all(len(row.scored) == len(SEEDS) for row in runs.values())


def difference(runs: Runs) -> Difference:
    """Compares BLEU by Student's t test of two groups, whose variance is pooled."""
    shallow, even = (runs[name].values("sacrebleu") for name in (SHALLOW, EVEN))
    found = stats.ttest_ind(shallow, even)
    half: dict[float, float] = {}
    for level in (0.95, 0.90):
        interval = found.confidence_interval(level)
        half[level] = float(interval.high - interval.low) / 2
    return Difference(float(np.mean(shallow) - np.mean(even)), half[0.95], half[0.90], float(found.pvalue))


def log_ratios(runs: Runs) -> Float[np.ndarray, " seeds"]:
    """Returns the logarithm of the speed of 10+2 by that of 6+6, for each seed: both were timed in turn."""
    logs: dict[str, dict[int, float]] = {}
    for name, row in runs.items():
        logs[name] = {seed: float(np.log(speed)) for seed, speed in by_seed(row, SPEED).items()}
    return differences_by_seed(logs[SHALLOW], logs[EVEN])


def ratio(runs: Runs) -> Ratio:
    """Compares speeds: the geometric mean over the seeds, and the t interval of its logarithm."""
    logs = log_ratios(runs)
    half = half_interval(logs) or 0.0
    middle = logs.mean()
    return Ratio(*map(float, np.exp([middle, middle - half, middle + half])))


def verdict_on_bleu(runs: Runs) -> Verdict:
    """Applies the first rule of the design."""
    if not has_all_seeds(runs):
        return OPEN
    found = difference(runs)
    if found.bleu - found.half_90 > -MARGIN:
        return Verdict.shown(f"it is not worse by {MARGIN:g} BLEU or more")
    if found.bleu + found.half_90 < -MARGIN:
        return Verdict.refuted(f"it is worse by more than {MARGIN:g} BLEU")
    return NEITHER


def verdict_on_speed(runs: Runs) -> Verdict:
    """Applies the second rule of the design."""
    if not has_all_seeds(runs):
        return OPEN
    found = ratio(runs)
    if found.low > 1:
        return Verdict.shown(f"{number(found.ratio)} times as many sentences a second")
    if found.high < 1:
        return Verdict.refuted("it is slower")
    return NEITHER


OPEN = Verdict.open(f"not all of the {len(SEEDS)} seeds of both have run")
CLAIMS = {
    f"{SHALLOW} translates as well as {EVEN}, to {MARGIN:g} BLEU": verdict_on_bleu,
    f"{SHALLOW} translates faster than {EVEN}": verdict_on_speed,
}


def minus_even(name: str, runs: Runs) -> str:
    if name == EVEN or not has_all_seeds(runs):
        return ""
    found = difference(runs)
    return f"{number(found.bleu, sign=True)} ± {number(found.half_95)}"


def by_even(name: str, runs: Runs) -> str:
    if name == EVEN or not has_all_seeds(runs):
        return ""
    return "{} ({} to {})".format(*map(number, ratio(runs)))


def count_parameters(name: str, runs: Runs) -> str:
    return f"{parameters(RUNS.configs[name], runs[name]):,}"


def search_operations(name: str, runs: Runs) -> str:
    return f"{operations_of_search(name):.2e}".replace("e+", "e")


def operations_of_search(name: str) -> int:
    """Returns the operations of one sentence's search in matrix products; the source's keys count for each beam."""
    cfg = load(RUNS.configs[name])
    found = forward_flops(model_config(cfg, cfg.data.vocab_size), 1, LENGTH, LENGTH)
    return found.encoder + cfg.decode.beam * (found.decoder + found.softmax)


COLUMNS = {
    "sacreBLEU": mean("sacrebleu"),
    f"sacreBLEU − {EVEN}": minus_even,
    "perplexity": mean("perplexity", 3),
    "sentences a second": mean(SPEED, 1),
    f"speed / {EVEN}": by_even,
    "operations of a search": search_operations,
    "parameters": count_parameters,
    "seeds": count_seeds,
    "cost": mean_cost,
}


def tables(records: Records) -> list[Table]:
    """Compares the two, with the verdicts in the notes."""
    runs = RUNS.find(records)
    notes = [
        f"the design, its rules and what was expected: {FILE}, committed before the first run",
        *(f"verdict on whether {claim}: {verdict(runs).sentence}" for claim, verdict in CLAIMS.items()),
        "mean over the seeds ± standard deviation; the difference in BLEU ± half of its 95 % interval, the variance of "
        "both rows pooled",
        "sentences a second: of the processor, test split, beam search of the config, without compilation; speed by "
        "that of the run of the same seed, timed in turn, with its 95 % t interval",
        f"operations of a search: matrix products for a sentence of {LENGTH} subwords and its translation of as many",
    ]
    if has_all_seeds(runs):
        found = difference(runs)
        notes.append(f"the difference's 90 % interval: ± {number(found.half_90)}; p {shown_p_value(found.p)}")
    return [table("depth", "Deep encoder, shallow decoder", "layers", COLUMNS, runs, notes)]


def cards(records: Records) -> list[Card]:
    """Claims that a shallow decoder loses nothing, and is faster."""
    runs = RUNS.find(records)
    shallow, even = rows = runs[SHALLOW], runs[EVEN]
    about = f"Deep encoder, shallow decoder: {SHALLOW} beside {EVEN} layers"
    as_well, faster = CLAIMS
    bleu = measure(about, Claim(as_well, rows, paired_differences(shallow, even, "sacrebleu"), 0), 2)
    speed = measure(about, Claim(faster, rows, log_ratios(runs), 1), 2)
    if has_all_seeds(runs):
        apart = difference(runs)
        bleu = bleu._replace(interval=f"± {number(apart.half_95)}", p=shown_p_value(apart.p))
        times = ratio(runs)
        speed = speed._replace(ours=number(times.ratio), interval=f"{number(times.low)} to {number(times.high)}")
    return [bleu.by_rule(verdict_on_bleu(runs)), speed.by_rule(verdict_on_speed(runs))]


def plot(records: Records, path: Path) -> None:
    """Draws BLEU of every seed over its speed.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 5, 3.2) as figure:
        axes = figure.subplots()
        for place, (name, row) in enumerate(RUNS.find(records).items()):
            _draw(axes, place, name, row)
        axes.set(xlabel="sentences for each second of the processor", ylabel="sacreBLEU of the test set")
        legend(figure, axes, len(ROWS))


def _draw(axes: Axes, place: int, name: str, row: RowRuns) -> None:
    if row.scored:
        label = "{} layers of encoder, {} of decoder".format(*ROWS[name])
        axes.plot(row.values(SPEED), row.values("sacrebleu"), "o", color=colour(place), label=label)


STUDY = Study(
    rows=RUNS.find,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=RUNS.commands(" && python -m lab.studies.depth.speed --workdir=runs/depth-ROW"),
)

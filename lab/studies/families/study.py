"""Families on one block: does training without labels help afterwards, and does a translator need an encoder?"""

import itertools
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from lab.cards.card import Card, Claim, between, compare, measure, met, verdict_by_sign
from lab.studies.study import Commands, Runs, Study, count_seeds, mean, mean_cost, minus, table, with_seeds
from vaswani.configs.classification import CLASSES
from vaswani.paper.drawing import colour, figure_file
from vaswani.paper.launch import folder_of, train
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns, ScoredRun, caveat_notes, identity, is_of, load, row_runs, run_notes
from vaswani.paper.tables.cost import cost
from vaswani.paper.tables.trend import INTERVAL, p_value, paired_differences, tested
from vaswani.run.folder import as_json
from vaswani.train.intervals import with_interval
from vaswani.train.table import Table

WAYS = ("fine-tuned", "from scratch")
TRANSLATORS = {  # name: config, and whether it begins with the parameters of another run
    "encoder and decoder": ("configs/quickstart.py", False),
    "decoder alone": ("configs/prefix_lm.py:full", False),
    "decoder alone, causal": ("configs/prefix_lm.py:causal", False),
    "decoder alone, pre-norm": ("configs/prefix_lm.py:full-pre", False),
    "decoder alone, causal, pre-norm": ("configs/prefix_lm.py:causal-pre", False),
    "T5": ("configs/denoising.py:translate", False),
    "T5, fine-tuned": ("configs/denoising.py:translate", True),
}
PRETRAINING = "configs/masked_lm.py"
DENOISING = "configs/denoising.py"
BASE = "encoder and decoder"
CLASSIFIER_SEEDS = range(3)  # of the design in configs/classification.py
TRANSLATOR_SEEDS = range(5)  # the most that configs/prefix_lm.py and configs/denoising.py allow
# Also compared with each other: does pre-training help, and does seeing the whole source?
PAIRS = (
    ("T5, fine-tuned", "T5"),
    ("decoder alone, pre-norm", "decoder alone, causal, pre-norm"),
)
WITHIN = 2.0  # predicted in configs/prefix_lm.py, for pre-norm


class Beginning(NamedTuple):
    """The run whose parameters another begins with, and their hash, "" where it was not recorded yet."""

    run: str
    sha256: str

    @property
    def parameters(self) -> str:
        """What tells the parameters from others: their hash or, without it, the run."""
        return self.sha256 or self.run


def tables(records: Records) -> list[Table]:
    """Compares both ways of each property of sentences, and the translators."""
    return [_classifiers(records), _translators(records)]


def _classifiers(records: Records) -> Table:
    runs = classifiers(records)
    head = ("property", *(f"accuracy %, {way}" for way in WAYS), "difference", "seeds", "cost")
    lines: list[tuple[str, ...]] = []
    gained: dict[str, Float[np.ndarray, " seeds"]] = {}
    for name in CLASSES:
        tuned, new = (runs[f"{name}, {way}"] for way in WAYS)
        gained[name] = 100 * paired_differences(tuned, new, "accuracy")
        both = tuned._replace(scored=[*tuned.scored, *new.scored])
        seeds = dict.fromkeys(str(len(row.scored)) for row in (tuned, new))  # "3", or "3 and 2"
        lines.append(
            (
                both.label(name),
                _percent(tuned),
                _percent(new),
                with_interval(gained[name], 1),
                " and ".join(seeds),
                cost(both.scored),
            )
        )
    notes = [
        f"of 1,000 test sentences, after training on 1,000; fine-tuned: from the parameters of {PRETRAINING}",
        f"mean over the seeds, ± standard deviation; differences, in points, by seed, {INTERVAL}",
        *tested(gained, "difference"),
        *beginnings(records, runs, PRETRAINING),
        *run_notes(runs),
        *caveat_notes(runs),
    ]
    return Table("families", "Classifiers: from a masked language model and from scratch", head, lines, notes)


COLUMNS = {
    "sacreBLEU": mean("sacrebleu"),
    "sacreBLEU − encoder and decoder": minus(BASE, "sacrebleu", 2),
    "exact match %": mean("exact_match"),
    "perplexity": mean("perplexity", 3),
    "seeds": count_seeds,
    "cost": mean_cost,
}


def _translators(records: Records) -> Table:
    runs = translators(records)
    compared = {f"{name} − {minus}": paired_differences(runs[name], runs[minus], "sacrebleu") for name, minus in PAIRS}
    notes = [
        "the built-in corpus, with equally many updates and tokens each; the fine-tuned one was pre-trained first",
        f"mean over the seeds, ± standard deviation; differences by seed, {INTERVAL}",
        *(f"{name}: {with_interval(seeds, 2)} sacreBLEU" for name, seeds in compared.items() if len(seeds)),
        *tested(compared, "sacreBLEU"),
        *beginnings(records, runs, DENOISING),
    ]
    return table("families-translators", "Translators by family", "model", COLUMNS, runs, notes)


def beginnings(records: Records, rows: dict[str, RowRuns], pretraining: str) -> list[str]:
    """Returns notes on the pre-training runs that these rows' runs begin with; `pretraining` is their config.

    The parameters that a run begins with are known by their hash, which the record of the pre-training run has, too.
    """
    recorded = _hashes(records, pretraining)
    shared: Counter[str] = Counter()
    own = 0
    unknown: dict[str, None] = {}  # each run once, in order
    for row in rows.values():
        of_seeds = [_beginning(seed) for seed in row.scored]
        begun = [beginning for beginning in of_seeds if beginning is not None]
        times = Counter(beginning.parameters for beginning in begun)
        for beginning in begun:
            if times[beginning.parameters] == 1:
                own += 1
            else:
                shared[beginning.run] += 1
        unknown |= dict.fromkeys(beginning.run for beginning in begun if beginning.sha256 not in recorded)
    notes = [
        f"{count} fine-tuned runs begin with the parameters of {run}: "
        "their seeds differ only in what comes after it, so no interval covers how much pre-training runs differ"
        for run, count in shared.items()
    ]
    if own:
        notes.append(f"{own} fine-tuned runs: each seed begins with the parameters of a pre-training run of its own")
    if unknown:
        notes.append(f"pre-trained by runs without a record, or with other parameters in it: {', '.join(unknown)}")
    return notes


def _hashes(records: Records, config: str) -> set[str]:
    """Returns the hashes of the parameters of the runs of a config that have been evaluated."""
    wanted = identity(as_json(load(config)))
    hashes: set[str] = set()
    for run in records.runs:
        if is_of(run.config, wanted):
            hashes.update(evaluation.scores["params_sha256"] for evaluation in run.evaluations)
    return hashes


def _beginning(seed: ScoredRun) -> Beginning | None:
    """Names the run that a run began with; None if it began with new parameters.

    Of several launches before its first checkpoint only the last counts.
    """
    inits = [launch["init"] for launch in seed.run.launches if "init" in launch]
    if not inits:
        return None
    return Beginning(inits[-1]["run"], inits[-1].get("params_sha256", ""))


def _percent(row: RowRuns) -> str:
    scored = [seed._replace(scores={"accuracy": 100 * seed.scores["accuracy"]}) for seed in row.scored]
    return row._replace(scored=scored).shown("accuracy", 1)


def cards(records: Records) -> list[Card]:
    """Claims that pre-training helps, and what a decoder alone and a small T5 can do."""
    runs = rows(records)
    of_classes: list[Claim] = []
    for name in CLASSES:
        tuned, new = (runs[f"{name}, {way}"] for way in WAYS)
        gained = 100 * paired_differences(tuned, new, "accuracy")
        of_classes.append(Claim(f"pre-training helps: {name}", [tuned, new], gained, 1))
    made = compare("Pre-training a classifier, points of accuracy", of_classes, 1)
    texts = (
        "pre-training helps the small T5",
        "with pre-norm, a decoder alone is better if it sees the whole source",
    )
    pairs = [
        between(text, runs[name], runs[other], "sacrebleu", 1) for text, (name, other) in zip(texts, PAIRS, strict=True)
    ]
    of_t5, of_decoder = compare("Translators by family, sacreBLEU", pairs, 2)
    gained = pairs[0].values
    of_t5 = of_t5._replace(verdict=verdict_by_sign(gained, p_value(gained), 1))  # by configs/denoising.py, without Holm
    return [*made, of_t5, of_decoder, *_minus_base(runs)]


def _minus_base(runs: Runs) -> list[Card]:
    about = "Translators by family, sacreBLEU minus that of encoder and decoder"
    cards: list[Card] = []
    base = runs[BASE]
    for name, row in runs.items():
        if name.startswith("decoder alone"):
            claim = between(f"{name}: every seed within {WITHIN:g}", row, base, "sacrebleu", 0)
            card = measure(about, claim, 2)
            if len(claim.values):
                card = card._replace(verdict=met(bool(np.abs(claim.values).max() <= WITHIN)))
            cards.append(card)
    worse = [between(f"{name}: worse", runs[name], base, "sacrebleu", -1) for name in ("T5", "T5, fine-tuned")]
    return [*cards, *compare(about, worse, 2)]


def plot(records: Records, path: Path) -> None:
    """Draws every seed's accuracy and BLEU into a file.

    Raises:
      UserError: the file cannot be written.
    """
    with figure_file(path, 9, 3.4) as figure:
        left, right = figure.subplots(1, 2)
        _draw(left, classifiers(records), "accuracy")
        _draw(right, translators(records), "sacrebleu")
        left.set(xlabel="accuracy on test sentences")
        right.set(xlabel="sacreBLEU of the test set")


def _draw(axes: Axes, runs: dict[str, RowRuns], key: str) -> None:
    """Draws a dot for every seed, a line for each row."""
    for place, row in enumerate(runs.values()):
        values = row.values(key)
        axes.plot(values, np.full(len(values), -place), "o", color=colour(place))
    axes.set_yticks(-np.arange(len(runs)), runs, fontsize=7)


def rows(records: Records) -> Runs:
    """Finds the runs of all of these."""
    return classifiers(records) | translators(records)


def classifiers(records: Records) -> dict[str, RowRuns]:
    """Returns the runs of each property and way, of the seeds of the design."""
    of_design = with_seeds(records, CLASSIFIER_SEEDS)
    rows: dict[str, RowRuns] = {}
    for name in CLASSES:
        for way in WAYS:
            config = f"configs/classification.py:{name}"
            rows[f"{name}, {way}"] = row_runs(of_design, config, "test", "accuracy", begun=way == WAYS[0])
    return rows


def translators(records: Records) -> dict[str, RowRuns]:
    """Returns the runs of each translator, of the seeds that the designs allow."""
    of_design = with_seeds(records, TRANSLATOR_SEEDS)
    return {name: row_runs(of_design, config, "test", begun=begun) for name, (config, begun) in TRANSLATORS.items()}


def commands() -> Commands:
    """Trains each row; what is fine-tuned after the training that it begins with."""
    commands: Commands = []
    for name, way in itertools.product(CLASSES, WAYS):
        pretraining = PRETRAINING if way == WAYS[0] else ""
        commands.append((f"{name}, {way}", _begun(f"configs/classification.py:{name}", pretraining)))
    for name, (config, is_begun) in TRANSLATORS.items():
        commands.append((name, _begun(config, DENOISING if is_begun else "")))
    return commands


def _begun(config: str, pretraining: str) -> str:
    """Gives the command of a run that begins with the parameters and the subwords of another, if there is one."""
    if not pretraining:
        return train(config, "test")
    first = f"runs/{folder_of(pretraining)}"
    own = f"runs/{folder_of(config)}-tuned"
    return (
        f"{train(pretraining, 'test')} && python -m train --config={config} --workdir={own} --init={first} "
        f"--config.data.tokenizer={first}/tokenizer.model && python -m infer --workdir={own} --split=test"
    )


STUDY = Study(
    rows=rows,
    tables=tables,
    cards=cards,
    plot=plot,
    commands=commands(),
)

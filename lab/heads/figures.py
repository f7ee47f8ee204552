"""Draws what was measured of a run's heads, as SVG files: which head follows which relation, and an alignment."""

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from lab.drawing import heat, mark
from lab.heads.measure import sentence_maps
from lab.heads.roles import RELATIONS, AnnotatedPair, annotate
from vaswani.data.grammar import sentences as grammar
from vaswani.infer.attention.kinds import KINDS, TITLES
from vaswani.infer.runs import Run
from vaswani.paper.drawing import figure_file
from vaswani.paper.grammar_runs import direction

SEARCHED = 500  # sentences of the test split, among which one to align is looked for


def draw(model_run: Run, result: dict[str, Any], output: Path) -> list[Path]:
    """Draws the result of `measure_heads`, and a sentence pair's alignment, into a folder; returns the files."""
    layer = result["alignment"]["best_layer"]["layer"] - 1
    reverse = direction(model_run)
    pairs = [annotate(grammar.pair("test", i), reverse) for i in range(SEARCHED)]
    paths = [output / "heads.svg", output / "alignment.svg"]
    draw_roles(result["roles"], paths[0])
    draw_alignment(aligned(model_run, most_crossed(pairs), layer), layer, paths[1])
    return paths


def draw_roles(roles: dict[str, dict[str, Any]], path: Path) -> None:
    """Draws how often each head follows each relation, with a frame around the head chosen on other sentences."""
    kinds = [kind for kind in KINDS if roles[kind]]
    relations = [len(roles[kind]) for kind in kinds]
    heads = max(np.size(role["accuracy"]) for kind in kinds for role in roles[kind].values())
    width = 2.4 + max(0.27 * heads, 2.5)
    height = 0.19 * sum(count + 4 for count in relations)
    with figure_file(path, width, height) as figure:
        grid = figure.subplots(len(kinds), 1, squeeze=False, height_ratios=relations)
        for axes, kind in zip(grid[:, 0], kinds, strict=True):
            _draw_roles_of(axes, roles[kind], numbers=heads <= 64)
            axes.set_title(f"{TITLES[kind]}{', to the translation' if kind == 'cross' else ''}: accuracy in %")
        grid[-1, 0].set_xlabel("layer.head")
        title = "How often each head looks most at the right token; framed: the best head on other sentences; (cases)"
        figure.suptitle(textwrap.fill(title, int(14 * width)), fontsize=9)


def _draw_roles_of(axes: Any, roles: dict[str, Any], *, numbers: bool) -> None:
    """Draws one kind of attention: a row for each relation, a column for each head."""
    n, h = np.shape(next(iter(roles.values()))["accuracy"])
    accuracy = np.array([np.ravel(role["accuracy"]) for role in roles.values()])
    names = [f"{RELATIONS[relation]} ({role['cases']:,})" for relation, role in roles.items()]
    labels = [f"{layer}.{head}" for layer in range(1, n + 1) for head in range(1, h + 1)]
    heat(axes, accuracy, names, labels, numbers=numbers)
    best = np.zeros(accuracy.shape, bool)
    for row, role in enumerate(roles.values()):
        layer = role["best"]["layer"] - 1
        head = role["best"]["head"] - 1
        best[row, layer * h + head] = accuracy[row, layer * h + head] > 0  # the best of none is no find
    mark(axes, best)


class Alignment(NamedTuple):
    """Encoder-decoder attention of a layer, the mean of its heads, and which links are true."""

    rows: list[str]
    columns: list[str]
    weights_ts: Float[np.ndarray, "t s"]
    true_ts: Bool[np.ndarray, "t s"]


def aligned(model_run: Run, pair: AnnotatedPair, layer: int) -> Alignment:
    """Returns the alignment of a pair of the grammar, between tokens."""
    ((_, maps),) = sentence_maps(model_run, [pair])
    weights_ts = maps["cross"][layer].mean(0)
    true_ts = np.zeros(weights_ts.shape, bool)
    for target, source in pair.alignment:
        true_ts[target, source] = True
    return Alignment([*pair.target_tokens], [*pair.source_tokens, "</s>"], weights_ts, true_ts)


def most_crossed(pairs: Sequence[AnnotatedPair]) -> AnnotatedPair:
    """Returns the first pair of at most 16 tokens a side in which most links of the alignment cross."""

    def crossings(pair: AnnotatedPair) -> int:
        count = 0
        for (target, source), (later_target, earlier_source) in itertools.combinations(sorted(pair.alignment), 2):
            if target < later_target and source > earlier_source:
                count += 1
        return count

    short = [pair for pair in pairs if max(len(pair.source_tokens), len(pair.target_tokens)) <= 16]
    return max(short, key=crossings)


def draw_alignment(alignment: Alignment, layer: int, path: Path) -> None:
    """Draws the weights as a heat map, with frames around the true links."""
    width = 0.2 * len(alignment.columns) + 1.4
    height = 0.2 * len(alignment.rows) + 1.4
    with figure_file(path, width, height) as figure:
        axes = figure.subplots()
        heat(axes, alignment.weights_ts, alignment.rows, alignment.columns)
        mark(axes, alignment.true_ts)
        title = f"decoder over encoder, layer {layer + 1}, mean of heads; framed: the true alignment"
        axes.set_title(textwrap.fill(title, 45))

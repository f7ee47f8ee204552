"""The report's drawings: learning curves, and our rows against the paper's. SVG in the colours of the page."""

import html
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from vaswani.intervals import half_interval
from vaswani.paper.drawing import name_points, without_outlier
from vaswani.paper.published import TABLE3, Ablation
from vaswani.paper.records import Records, RunRecord
from vaswani.paper.rows import RowRuns, row_runs
from vaswani.paper.tables.table2 import PAIRS, SIZES, config_of
from vaswani.paper.tables.table3 import FILE
from vaswani.paper.tables.trend import paired_differences

INK = "#0a0b0c"  # used for nothing else, and replaced by the page's text colour
# Readable on white and on black; markers tell them apart as well.
COLOURS = ("#3b82c4", "#e0722f", "#2f9e78", "#c65b9b", "#a8861c", "#8a6fd1", "#d2504b", "#6d8296")
MARKERS = "os^Dv<>P"
Titled = Mapping[str, Mapping[str, RowRuns]]  # rows by title and name
FEWEST_POINTS = 3  # of a curve: fewer show no course
FAMILIES = {
    "heads (A)": ("A1", "A2", "A3", "A4"),
    "width of the keys (B)": ("B1", "B2"),
    "size (C), and big": ("C1", "C2", "C3", "C4", "C5", "C6", "C7", "big"),
    "dropout and smoothing (D)": ("D1", "D2", "D3", "D4"),
    "learned positions (E)": ("E",),
}


def curves(records: Records, rows: Titled) -> dict[str, str]:
    """Draws validation perplexity over updates of Table 3's families, Table 2's pairs and these rows: SVG by title."""
    return _drawn(_groups(records, rows))


def other_curves(records: Records, rows: Titled) -> dict[str, str]:
    """Draws the runs that are in no row of a table or of these, each alone: SVG by the run's name."""
    in_a_row = {run.label for group in _groups(records, rows).values() for runs in group.values() for run in runs}
    others: dict[str, dict[str, Sequence[RunRecord]]] = {}
    for run in records.runs:
        if run.label not in in_a_row:
            others[run.label] = {run.label: [run]}
    return _drawn(others)


def _drawn(groups: Mapping[str, Mapping[str, Sequence[RunRecord]]]) -> dict[str, str]:
    drawn = {title: _draw_curves(title, group) for title, group in groups.items()}
    return {title: svg for title, svg in drawn.items() if svg}


def _groups(records: Records, more: Titled) -> dict[str, dict[str, Sequence[RunRecord]]]:
    """Returns the runs that are drawn together, by the name of their row, by title."""
    groups: dict[str, dict[str, Sequence[RunRecord]]] = {}
    for scale, title in (("", ""), (":small", ", scaled-down models")):
        rows = {name: _runs(row_runs(records, f"{FILE}:{name}{scale}", "valid")) for name in TABLE3}
        for family, names in FAMILIES.items():
            if any(rows[name] for name in names):
                groups[f"Table 3, {family}{title}"] = {name: rows[name] for name in ("base", *names)}
        for pair in PAIRS:
            sizes = {size: row_runs(records, config_of(size, pair, scale), "test") for size in SIZES}
            groups[f"Table 2, {pair}{title}"] = {size: _runs(row) for size, row in sizes.items()}
    for title, of_title in more.items():
        groups[title] = {name: _runs(row) for name, row in of_title.items()}
    return groups


def _runs(row: RowRuns) -> list[RunRecord]:
    return [seed.run for seed in row.scored]


def _draw_curves(title: str, group: Mapping[str, Sequence[RunRecord]]) -> str:
    validated = {name: [run for run in runs if len(run.validations) >= FEWEST_POINTS] for name, runs in group.items()}
    shown = {name: runs for name, runs in validated.items() if runs}
    if not shown:
        return ""
    figure, axes = _figure()
    for place, (name, runs) in enumerate(shown.items()):
        for number, run in enumerate(runs):
            axes.plot(
                [record["step"] for record in run.validations],
                [record["perplexity"] for record in run.validations],
                color=COLOURS[place % len(COLOURS)],
                marker=MARKERS[place % len(MARKERS)],
                linestyle="-" if place < len(COLOURS) else "--",
                markersize=3,
                linewidth=1.2,
                label=None if number else name,
            )
    axes.set(yscale="log", xlabel="updates", ylabel="validation perplexity")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    if len(shown) > 1:
        figure.legend(loc="outside lower center", frameon=False, labelcolor=INK, ncols=min(len(shown), 3), fontsize=8)
    return _svg(figure, title)


def trends(records: Records) -> dict[str, str]:
    """Draws each row's difference from base, the paper's on one axis, the scaled-down model's on the other."""
    rows = {name: row_runs(records, f"{FILE}:{name}:small", "valid") for name in TABLE3}
    papers: dict[str, tuple[str, Callable[[Ablation], float]]] = {
        "log perplexity": ("perplexity", lambda row: math.log(row.perplexity)),
        "BLEU": ("sacrebleu", lambda row: row.bleu),
    }
    drawn: dict[str, str] = {}
    for title, (key, paper) in papers.items():
        points: dict[str, Point] = {}
        for name, row in rows.items():
            seeds = paired_differences(row, rows["base"], key)
            if name != "base" and len(seeds):
                printed = paper(TABLE3[name]) - paper(TABLE3["base"])
                points[name] = Point(printed, seeds.mean(), half_interval(seeds))
        if points:
            drawn[f"{title}: rows of Table 3 minus base"] = _draw_trend(title, points)
    return drawn


class Point(NamedTuple):
    """A row's differences from base: the paper's, ours, and half the width of the interval of ours."""

    paper: float
    ours: float
    half: float | None


def _draw_trend(title: str, points: Mapping[str, Point]) -> str:
    figure, axes = _figure()
    axes.axhline(0, color=INK, linewidth=0.6, alpha=0.5)
    axes.axvline(0, color=INK, linewidth=0.6, alpha=0.5)
    farthest = without_outlier([point.ours for point in points.values()])
    places: dict[str, tuple[float, float]] = {}
    for name, (paper, ours, half) in points.items():
        family = "ABCDE".find(name[0])  # -1 of "big", the last
        style: Any = {"color": COLOURS[family], "marker": MARKERS[family], "markersize": 5, "linewidth": 0.8}
        if abs(ours) > farthest:
            edge = math.copysign(1.15 * farthest, ours)
            places[f"{name}: {ours:+.3g}, outside"] = (paper, edge)
            axes.plot(paper, edge, fillstyle="none", **style)
        else:
            places[name] = (paper, ours)
            axes.errorbar(paper, ours, half, **style)
    lowest = min(0.0, *(ours for _, ours in places.values()))
    highest = max(0.0, *(ours for _, ours in places.values()))
    margin = 0.15 * (highest - lowest) or 1.0
    axes.set_ylim(lowest - margin, highest + margin)
    axes.set(xlabel=f"{title} minus base, the paper's", ylabel="scaled-down models, 95 % t interval")
    figure.draw_without_rendering()
    name_points(axes, places, fontsize=7, color=INK)
    return _svg(figure, title)


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.6, 3.3), layout="constrained")
    axes = figure.subplots()
    axes.tick_params(colors=INK, labelsize=8, which="both")
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=INK, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(INK)
    axes.grid(color=INK, alpha=0.15, linewidth=0.6)
    axes.patch.set_visible(False)
    figure.patch.set_visible(False)
    return figure, axes


def _svg(figure: Figure, title: str) -> str:
    """Returns the drawing as an element of a page: labelled `title`, as wide as its box, in the page's colours."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": title}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = re.sub(r"<(metadata|style).*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r' id="(?![mp][0-9a-f]{10}")[^"]*"', "", svg)  # other names are the same in every drawing
    svg = re.sub(r"font-family: [^;]*;", "font-family: inherit;", svg).replace(INK, "currentColor")
    label = f' role="img" aria-label="{html.escape(title)}"'
    return re.sub(r'(<svg [^>]*?) width="[^"]*" height="[^"]*"', lambda match: match[1] + label, svg, count=1)

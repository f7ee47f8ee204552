"""Draws the record of Table 1: operations, time and paths of every layer type as sequences grow."""

import math
from pathlib import Path
from typing import Any

from vaswani.infer.attention.drawing import save


def plot(record: dict[str, Any], path: Path) -> None:
    """Draws three panels over n on logarithmic axes and marks n = d and where attention overtakes recurrence.

    Time is in units of the fastest layer's at the smallest n. The suffix of `path` decides the kind of file.

    Raises:
      UserError: matplotlib knows no such kind of file, or it cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 4.2), layout="constrained")
    by_operations, by_time, by_path = figure.subplots(1, 3)
    d = record["fixed"]["d"]
    types = record["types"]
    unit = min(measured["lines"]["n"][0]["seconds"] for measured in types.values())
    for place, (name, measured) in enumerate(types.items()):
        line = measured["lines"]["n"]
        paths = measured["paths"]
        n = [point["n"] for point in line]
        operations = [point["operations"] for point in line]
        times = [point["seconds"] / unit for point in line]
        by_operations.plot(n, operations, marker=".", label=name)
        by_time.plot(n, times, marker=".")
        # Equal lengths are common: lines of decreasing width keep all of them visible.
        width = 1.5 * (len(types) - place)
        path_n = [one["n"] for one in paths]
        lengths = [one["length"] for one in paths]
        by_path.plot(path_n, lengths, linewidth=width)
    for axes, title, label in (
        (by_operations, f"operations, d = {d}", "floating-point operations"),
        (by_time, f"time, d = {d}", "time, the fastest at the smallest n = 1"),
        (by_path, "longest path, k = {k}, r = {r}".format(**record["paths_at"]), "layers between two positions"),
    ):
        axes.set(xlabel="n", title=title, ylabel=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        if axes is not by_path:
            axes.axvline(d, color="grey", linestyle=":")
            axes.text(d, 0.98, " n = d", color="grey", transform=axes.get_xaxis_transform(), va="top")
    recurrent = types["recurrent"]["lines"]["n"]
    for crossing in filter(None, record["crossovers"].values()):
        height = crossing / recurrent[0]["n"] * recurrent[0]["operations"]  # recurrence is linear in n
        by_operations.plot(crossing, height, "o", color="black", fillstyle="none", markersize=10)
    figure.legend(loc="outside lower center", ncols=math.ceil(len(types) / 2))
    save(figure, path, str(path), dpi=150)

# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Table 3, scaled down
#
# Which of the paper's choices matter? Its Table 3 answers with variations of the base model, most of which differ from
# it in one setting. The base row alone took half a day on eight GPUs. `configs/ablations.py` has each row twice: at the
# paper's size, and as a scaled-down model, an eighth as wide, that trains on the built-in grammar on a laptop:
#
# ```
# python -m train.sweep --config=configs/ablations.py:base:small --workdir=runs/table3-small
# ```
#
# The BLEU of a scaled-down model says nothing about newstest2013. What can be compared is the direction: is a row that
# is worse than base in the paper also worse here? This notebook reads the runs, or the records of runs, in one folder.
# A row that has not run says so. The notes below the table count the rows that agree in direction, test each row's
# difference from base over seeds, and give the rank correlation with the paper and its bootstrap interval.

# %%
import os
import textwrap
from pathlib import Path

import matplotlib.pyplot as plt

from vaswani.paper.published import TABLE3
from vaswani.paper.records import find_records
from vaswani.paper.rows import row_runs
from vaswani.paper.tables.table3 import small
from vaswani.paper.tables.trend import paired_differences
from vaswani.train.table import Table, as_text

RESULTS = Path(os.environ.get("RESULTS", "../paper/records"))

found = find_records(RESULTS)
table = small(found)


def show(title, heads):
    """Prints some columns of the table; all of them at once would be too wide for a page."""
    places = [table.head.index(head) for head in heads]
    rows = [tuple(row[place] for place in places) for row in table.rows]
    print(as_text(Table(table.name, title, tuple(heads), rows, notes=[])), end="\n\n")


compared = [head for head in table.head if "− base" in head]
show(table.title, ["row", "changed", "parameters", "seeds", "cost"])
show("Differences from base, and scores", ["row", *compared, "perplexity", "sacreBLEU"])
for note in table.notes:
    print(textwrap.fill(note, 110, subsequent_indent="  "))

# %% [markdown]
# ## Row by row
#
# Families are named as in the paper: (A) more and fewer heads at the same cost, (B) narrower keys, (C) smaller and
# larger models, (D) less and more regularisation, (E) learned positions. Bars to the right are better than base; the
# two panels have different scales.

# %%
runs = {name: row_runs(found, f"configs/ablations.py:{name}:small", "valid") for name in TABLE3}
ours = {name: paired_differences(runs[name], runs["base"], "sacrebleu") for name in TABLE3 if name != "base"}
paper = {name: row.bleu - TABLE3["base"].bleu for name, row in TABLE3.items()}
ran = [name for name in ours if len(ours[name])]
figure, panels = plt.subplots(1, 2, figsize=(8, 0.22 * len(TABLE3) + 1), sharey=True, layout="constrained")
for place, name in enumerate(TABLE3):
    panels[0].barh(place, paper[name], color="0.5")
    if name in ran:
        panels[1].barh(place, ours[name].mean(), color="tab:blue")
for panel, title in zip(panels, ("paper: BLEU − base", "here: sacreBLEU − base"), strict=True):
    panel.axvline(0, color="black", linewidth=0.8)
    panel.set(title=title, yticks=range(len(TABLE3)), ylim=(len(TABLE3) - 0.5, -0.5))
    panel.set_yticklabels(TABLE3)
plt.show()

# %% [markdown]
# ## All rows in one plot
#
# The paper's difference from base is on one axis, the scaled-down model's on the other, which is logarithmic beyond 1
# BLEU. In the upper right and lower left quadrants, both agree on the direction.

# %%
figure, panel = plt.subplots(figsize=(8, 4.5), layout="constrained")
panel.set_yscale("symlog", linthresh=1, linscale=0.5)
panel.yaxis.set_major_formatter("{x:g}")
panel.margins(0.08)
behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
for name in ran:
    point = (paper[name], ours[name].mean())
    panel.plot(*point, "o", color="tab:blue", markersize=4)
    panel.annotate(name, point, xytext=(0, 5), textcoords="offset points", fontsize=8, ha="center", bbox=behind)
panel.axhline(0, color="black", linewidth=0.6, zorder=0)
panel.axvline(0, color="black", linewidth=0.6, zorder=0)
panel.set(xlabel="paper: BLEU − base", ylabel="here: sacreBLEU − base", title=f"{len(ran)} of {len(TABLE3) - 1} rows")
plt.show()

# %% [markdown]
# Two cautions. The seeds of a row differ, so read a difference from base together with its interval in the table. And
# the scaled-down models solve a different task from the original: 3,000 sentences of the grammar, each seen some 20
# times (big 60).

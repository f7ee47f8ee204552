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
# # Table 3 in small
#
# Which of the paper's choices matter? Its Table 3 answers with variations of the base model, most of which differ from
# it in one setting. The base row alone took half a day on eight GPUs. `configs/ablations.py` has each row twice: at the
# paper's size, and as a small twin, an eighth as wide, that trains on the built-in grammar on a laptop:
#
# ```
# python -m train.sweep --config=configs/ablations.py:base:small --workdir=runs/table3-small
# ```
#
# A twin's BLEU says nothing about newstest2013. What can be compared is the direction: is a row that is worse than base
# in the paper also worse here? This notebook reads the runs, or the records of runs, in one folder. Rows that have not
# run are blank. The notes below the table count the rows that agree in direction, test each row's difference from base
# over seeds, and give the rank correlation with the paper and its bootstrap interval.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt

from base.table import as_text, mean
from paper.published import TABLE3
from paper.records import find_records, row_runs
from paper.tables.table3 import small

RESULTS = Path(os.environ.get("RESULTS", "../results"))

found = find_records(RESULTS)
print(as_text(small(found)))

# %% [markdown]
# ## Row by row
#
# Families are named as in the paper: (A) more and fewer heads at the same cost, (B) narrower keys, (C) smaller and
# larger models, (D) less and more regularisation, (E) learned positions. Points to the right are better than base.

# %%
ours = {
    name: mean(row_runs(found, f"configs/ablations.py:{name}:small", "valid").values("sacrebleu")) for name in TABLE3
}
ran = [name for name in TABLE3 if ours[name] is not None and ours["base"] is not None and name != "base"]
figure, panels = plt.subplots(1, 2, figsize=(8, 0.22 * len(TABLE3) + 1), sharey=True, layout="constrained")
for place, name in enumerate(TABLE3):
    panels[0].barh(place, TABLE3[name].bleu - TABLE3["base"].bleu, color="0.5")
    if name in ran:
        panels[1].barh(place, ours[name] - ours["base"], color="tab:blue")
for panel, title in zip(panels, ("paper: BLEU − base", "here: sacreBLEU − base"), strict=True):
    panel.axvline(0, color="black", linewidth=0.8)
    panel.set(title=title, yticks=range(len(TABLE3)), ylim=(len(TABLE3) - 0.5, -0.5))
    panel.set_yticklabels(TABLE3)
plt.show()

# %% [markdown]
# ## All rows in one plot
#
# The paper's difference from base is on one axis, the twin's on the other. In the upper right and lower left quadrants,
# both agree on the direction.

# %%
figure, panel = plt.subplots(figsize=(4.5, 4), layout="constrained")
for name in ran:
    x, y = TABLE3[name].bleu - TABLE3["base"].bleu, ours[name] - ours["base"]
    panel.plot(x, y, "o", color="tab:blue", markersize=4)
    panel.annotate(name, (x, y), xytext=(4, 2), textcoords="offset points", fontsize=8)
panel.axhline(0, color="black", linewidth=0.6)
panel.axvline(0, color="black", linewidth=0.6)
panel.set(xlabel="paper: BLEU − base", ylabel="here: sacreBLEU − base", title=f"{len(ran)} of {len(TABLE3) - 1} rows")
plt.show()

# %% [markdown]
# Two cautions. The seeds of a row differ, so read a difference from base together with its standard error in the table.
# And the twins solve a different task from the original: 3,000 sentences of the grammar, each seen some 17 times.

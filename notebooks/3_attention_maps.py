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
# # What the heads of a trained run look at
#
# Section 4 of the paper says that heads learn to do different things, and its last pages show it in three figures.
# This notebook draws the same for a run of yours, and then does what the paper does not: it counts. The run is one on
# the built-in grammar, of which every sentence's structure is known. `make quickstart` trains it in a few minutes.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from data.grammar.sentences import pair
from infer.attention.heads import direction, kept, table
from infer.attention.maps import attention_maps
from infer.attention.roles import RELATIONS
from infer.runs import open_run
from infer.translator import translate_one
from paper import drawing
from paper.figures import example, searched

WORKDIR = Path(os.environ.get("WORKDIR", "../runs/quickstart"))
SENTENCES = int(os.environ.get("SENTENCES", "500"))

run = open_run(WORKDIR)
N, h = run.model_config.N, run.model_config.h
print(f"{N} layers of {h} heads, after {run.step} updates")

# %% [markdown]
# ## One sentence
#
# The model reads a sentence of the test split and translates it. Rows are queries, columns are keys, a dark cell is a
# large weight $a_{ts}$.

# %%
unseen = pair("test", 24)
source, reference = (unseen.german, unseen.english) if direction(run) else (unseen.english, unseen.german)
translation = translate_one(run, source)
print(source, translation, reference, sep="\n")

maps = attention_maps(run.model_config, run.params, run.tokenizer, source, translation)
cross = maps["cross"]
rows, columns = drawing.spelled(cross.queries), drawing.spelled(cross.keys)
size = (min(0.22 * len(columns) * N, 9) + 1, 0.22 * min(len(rows), 20) + 1)
figure, panels = plt.subplots(1, N, figsize=size, sharey=True, squeeze=False, layout="constrained")
for layer, panel in enumerate(panels[0]):
    drawing.heat(panel, cross.weights_nhts[layer].mean(0), rows, columns)
    panel.set_title(f"decoder over encoder, layer {layer}, mean of heads")
plt.show()

# %% [markdown]
# In one of the layers the dark cells run along the word order of the other language: nobody has taught the model
# which word translates which, and there it is. Whether it is right can be asked, for the grammar knows the true
# alignment.
#
# ## A pronoun
#
# The paper's Figure 4 follows "its" back to "the Law". English *it* is *er*, *sie* or *es* in German, by the gender
# of a noun that may stand far away, so somewhere between reading the one and writing the other the model must have
# looked there. Of the test split's longest cases this is the one that shows it best; the paper's example was picked,
# too.

# %%
focus = example(run, searched(direction(run)), "encoder", "antecedent")
order = focus.towards_nh().argsort(axis=None)[::-1][:2]
heads = [np.unravel_index(at, focus.weights_nhts.shape[:2]) for at in order]
height = drawing.ROW * min(len(focus.queries), 60) + 0.6
figure, panels = plt.subplots(1, len(heads), figsize=(7, height), squeeze=False, layout="constrained")
for shade, (panel, (layer, head)) in enumerate(zip(panels[0], heads, strict=True)):
    drawing.columns(panel, focus.queries, focus.keys, focus.query)
    drawing.connect(panel, focus.weights_nhts[layer, head], drawing.colour(shade), [focus.query])
    panel.set_title(f"layer {layer}, head {head}")
plt.show()

# %% [markdown]
# ## Counting
#
# A picture of one sentence proves little: with many heads, some head looks anywhere. So every head is asked about
# every relation, over many unseen sentences: how often does its largest weight lie on the right token? The best head
# is chosen on sentences of the validation split and scored on others, and two heads stand beside it that do not read
# at all: one that always looks a fixed distance away, and one that looks anywhere.

# %%
found = kept(run, SENTENCES)
print(table(found))

# %% [markdown]
# Some of these relations are places in the sentence, which a fixed distance follows as well. The others are not: no
# distance leads from a particle back to its verb. Where the head is far ahead of the fixed distance, it has read.
#
# The decoder's row is the interesting one. German puts the particle of *anrufen* at the end of the clause. When the
# model comes to write it, a head looks back at the verb, for which particle it is depends on that.

# %%
roles = found["roles"]["decoder"]
values = np.array([np.ravel(role["accuracy"]) for role in roles.values()])
names = [f"{RELATIONS[relation]} ({role['cases']})" for relation, role in roles.items()]
figure, panel = plt.subplots(figsize=(max(4, 2.5 + 0.35 * N * h), 0.3 * len(roles) + 1), layout="constrained")
drawing.heat(panel, values, names, [f"{n}.{i}" for n in range(N) for i in range(h)], numbers=True)
panel.set_title("decoder self-attention: accuracy in %, layer.head")
plt.show()

# %% [markdown]
# ## Alignment
#
# If each target token is linked to the source token that it looks at most, how many links are wrong? The alignment
# error rate is $1 - 2|A \cap S| / (|A| + |S|)$ for our links $A$ and the true ones $S$.

# %%
alignment = found["alignment"]
figure, panel = plt.subplots(figsize=(4.5, 2.5), layout="constrained")
panel.plot(range(N), 100 * np.array(alignment["heads"]), "o", color="0.6")
panel.plot(range(N), 100 * np.array(alignment["layers"]), "o-", label="mean of heads")
panel.axhline(100 * alignment["diagonal"], linestyle="--", color="black", label="the diagonal")
panel.set(xlabel="layer (grey: single heads)", ylabel="alignment error, %", xticks=range(N), ylim=(0, 100))
panel.legend(frameon=False)
plt.show()

# %% [markdown]
# These figures and more, as files for print, are one command:
#
# ```
# python -m paper.figures --workdir=runs/quickstart --output=figures
# ```

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
# # What the heads of a trained run attend to
#
# Section 4 of the paper says that heads learn to do different things, and its last pages show it in three figures. This
# notebook draws the same figures for your own run, and then does what the paper does not: it counts. The run is one on
# the built-in grammar, in which the structure of every sentence is known. `make quickstart` trains it in a few minutes.

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
# The model translates a sentence of the test split. Rows are queries, columns are keys, and a dark cell is a large
# weight $a_{ts}$.

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
    panel.set_title(f"decoder over encoder, layer {layer + 1}, mean of heads")
plt.show()

# %% [markdown]
# In one of the layers the dark cells follow the word order of the other language: the model has learned which word
# translates which without being taught. Since the grammar has the true alignment, we can check whether it is right.
#
# ## A pronoun
#
# The paper's Figure 4 resolves "its" to "the Law". English *it* is *er*, *sie* or *es* in German, depending on the
# gender of a noun that may be far away, so to translate it the model must have attended to that noun at some point. Of
# the longest cases in the test split this is the one that shows it best; the paper's example was also hand-picked.

# %%
focus = example(run, searched(direction(run)), "encoder", "antecedent")
order = focus.towards_nh().argsort(axis=None)[::-1][:2]
heads = [np.unravel_index(at, focus.weights_nhts.shape[:2]) for at in order]
height = drawing.ROW * min(len(focus.queries), 60) + 0.6
figure, panels = plt.subplots(1, len(heads), figsize=(7, height), squeeze=False, layout="constrained")
for shade, (panel, (layer, head)) in enumerate(zip(panels[0], heads, strict=True)):
    drawing.columns(panel, focus.queries, focus.keys, focus.query)
    drawing.connect(panel, focus.weights_nhts[layer, head], drawing.colour(shade), [focus.query])
    panel.set_title(f"layer {layer + 1}, head {head + 1}")
plt.show()

# %% [markdown]
# ## Counting
#
# A picture of one sentence proves little: with many heads, some head will attend anywhere. So we measure every head on
# every relation over many held-out sentences: how often is its largest weight on the right token? The best head is
# chosen on sentences of the validation split and scored on the test split. There are two baselines: a head that always
# attends a fixed distance away, and a random one.

# %%
found = kept(run, SENTENCES)
print(table(found))

# %% [markdown]
# Some of these relations are purely positional, and a fixed distance does just as well. The others are not: there is no
# fixed distance from a particle to its verb. A head that is much better than the fixed distance uses the content.
#
# The decoder's row is the interesting one. German puts the particle of *anrufen* at the end of the clause. When the
# model writes it, a head attends to the verb, which decides the particle.

# %%
roles = found["roles"]["decoder"]
values = np.array([np.ravel(role["accuracy"]) for role in roles.values()])
names = [f"{RELATIONS[relation]} ({role['cases']})" for relation, role in roles.items()]
figure, panel = plt.subplots(figsize=(max(4, 2.5 + 0.35 * N * h), 0.3 * len(roles) + 1), layout="constrained")
drawing.heat(panel, values, names, [f"{n + 1}.{i + 1}" for n in range(N) for i in range(h)], numbers=True)
panel.set_title("decoder self-attention: accuracy in %, layer.head")
plt.show()

# %% [markdown]
# ## Alignment
#
# If each target token is linked to the source token with its largest weight, how many links are wrong? The alignment
# error rate is $1 - 2|A \cap S| / (|A| + |S|)$ for predicted links $A$ and true links $S$.

# %%
alignment = found["alignment"]
figure, panel = plt.subplots(figsize=(4.5, 2.5), layout="constrained")
layers = range(1, N + 1)
panel.plot(layers, 100 * np.array(alignment["heads"]), "o", color="0.6")
panel.plot(layers, 100 * np.array(alignment["layers"]), "o-", label="mean of heads")
panel.axhline(100 * alignment["diagonal"], linestyle="--", color="black", label="the diagonal")
panel.set(xlabel="layer (grey: single heads)", ylabel="alignment error, %", xticks=layers, ylim=(0, 100))
panel.legend(frameon=False)
plt.show()

# %% [markdown]
# One command writes these figures and more, as files for print:
#
# ```
# python -m paper.figures --workdir=runs/quickstart --output=figures
# ```

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
from IPython.display import IFrame

from vaswani.data.grammar.sentences import pair
from vaswani.infer.attention.kinds import TITLES
from vaswani.infer.attention.maps import attention_maps
from vaswani.infer.explorer import export
from vaswani.infer.runs import open_run
from vaswani.infer.translate.translator import translate_one
from vaswani.paper import drawing
from vaswani.paper.figures import example, unseen_pairs
from vaswani.paper.heads.ablation import ablate, ablation_text
from vaswani.paper.heads.measure import direction, load_or_measure
from vaswani.paper.heads.roles import RELATIONS
from vaswani.paper.heads.sample import sample
from vaswani.paper.heads.text import heads_text, stands_out

# The run of `make quickstart`, or else the one that comes with the code.
trained = Path("../runs/quickstart")
WORKDIR = os.environ.get("WORKDIR", str(trained) if trained.exists() else "builtin:quickstart")
SENTENCES = int(os.environ.get("SENTENCES", "2500"))
CASES = int(os.environ.get("CASES", "400"))

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
print(f"source:      {source}")
print(f"translation: {translation}")
print(f"reference:   {reference}")

maps = attention_maps(run.model_config, run.params, run.tokenizer, source, translation)
cross = maps["cross"]
rows, columns = drawing.spelled(cross.queries), drawing.spelled(cross.keys)
size = (min(0.22 * len(columns) * N, 9) + 1, 0.22 * min(len(rows), 20) + 1)
figure, panels = plt.subplots(1, N, figsize=size, sharey=True, squeeze=False, layout="constrained")
for layer, panel in enumerate(panels[0]):
    drawing.heat(panel, cross.weights_nhts[layer].mean(0), rows, columns)
    panel.set_title(f"layer {layer + 1}")
figure.suptitle("decoder over encoder, mean of heads")
plt.show()

# %% [markdown]
# Do the dark cells of a layer show which word translates which, even where the word order differs?
# Nothing taught the model that. The grammar knows the true alignment, so we can check it below.
#
# ## A pronoun
#
# The paper's Figure 4 resolves "its" to "the Law". English *it* is *er*, *sie* or *es* in German, depending on the
# gender of a noun that may be far away, so information about that noun must reach the pronoun before it can be
# translated. Of the longest cases in the test split this one shows it best; the paper's may be hand-picked, too.

# %%
focus = example(run, unseen_pairs(direction(run)), "encoder", "antecedent")
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
# chosen on sentences of the validation split and scored on the test split; for rare relations more sentences are read,
# so that an interval extends at most five points to either side. That takes a few minutes the first time.
#
# High accuracy alone proves little too, so there are baselines: the best head of the same model before its first
# update, chosen and scored in the same way; a head that always attends a fixed distance away; a random one; and the
# null, the 95th percentile of the best of as many random heads.

# %%
found = load_or_measure(run, SENTENCES, CASES)
print(heads_text(found))

# %% [markdown]
# A star marks a head above all of them. Where the best fixed distance is right as often as the head, the head may only
# look at that distance: these sentences cannot tell. Which relations are of this kind depends on the source language: a
# particle right after its verb is found by looking one token back, one at the end of a clause is not. The next cell
# compares the two for this run.

# %%
for kind, roles in found["roles"].items():
    stars = [RELATIONS[relation] for relation, role in roles.items() if stands_out(role)]
    print(f"{TITLES[kind]}: above every baseline: {', '.join(stars) or 'no head'}")
    for relation, role in roles.items():
        best, fixed = role["best"], role["fixed"]
        print(
            f"  {RELATIONS[relation]}: the distance {fixed['distance']:+d} is right in {100 * fixed['accuracy']:.1f} % "
            f"of {role['cases']:,} cases, the head in {100 * best['low']:.1f} to {100 * best['high']:.1f} %"
        )

# %% [markdown]
# Where a head looks does not show what it is used for. So we leave the head out, by setting its part of $W^O$ to zero,
# and see how often the words concerned are still predicted: the token itself in the decoder, the translations of the
# token in the encoder. If leaving it out makes no more difference than leaving out any other head, the translation does
# not depend on it. If a head stands out but makes no difference, others do the same work, or its attention is not used.

# %%
test = sample("test", SENTENCES, CASES, direction(run))
print(ablation_text(ablate(run, found["roles"], test)))

# %% [markdown]
# Every head of the decoder, not only the best: the row of a relation that many heads follow is dark throughout.

# %%
roles = found["roles"]["decoder"]
values = np.array([np.ravel(role["accuracy"]) for role in roles.values()])
names = [f"{RELATIONS[relation]} ({role['cases']})" for relation, role in roles.items()]
figure, panel = plt.subplots(figsize=(max(4, 2.5 + 0.35 * N * h), 0.3 * len(roles) + 1.2), layout="constrained")
drawing.heat(panel, values, names, [f"{n + 1}.{i + 1}" for n in range(N) for i in range(h)], numbers=True)
panel.set_xlabel("layer.head")
figure.suptitle("decoder self-attention: accuracy in % (cases)")
plt.show()

# %% [markdown]
# ## Alignment
#
# If each target token is linked to the source token with its largest weight, how many links are wrong? The alignment
# error rate is $1 - 2|A \cap S| / (|A| + |S|)$ for predicted links $A$ and true links $S$.

# %%
alignment = found["alignment"]
figure, panel = plt.subplots(figsize=(7, 2.5), layout="constrained")
layers = range(1, N + 1)
panel.plot(layers, 100 * np.array(alignment["heads"]), "o", color="0.6")
panel.plot(layers, 100 * np.array(alignment["layers"]), "o-", label="mean of heads")
untrained = alignment["untrained"]["best_layer"]["error"]
panel.axhline(100 * untrained, linestyle=":", color="black", label="untrained, the best layer")
panel.axhline(100 * alignment["diagonal"]["error"], linestyle="--", color="black", label="the diagonal")
panel.set(xlabel="layer (grey: single heads)", ylabel="alignment error, %", xticks=layers, ylim=(0, 100))
panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# ## Your own sentences
#
# The explorer is a page in which the model itself runs. Type a sentence, and see every head's map of it; or leave a
# head out, and see what the translation becomes. The file also opens without Python: send it to a friend.

# %%
Path("explorer.html").write_text(export.page(export.as_json(run, source=source)), encoding="utf-8")
IFrame("explorer.html", width="100%", height=800)

# %% [markdown]
# One command writes the figures above and more, as files for print:
#
# ```
# python -m paper.figures --workdir=runs/quickstart --output=figures
# ```

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
# notebook draws the same of two models: the bundled translator of everyday English, and a run on the built-in grammar,
# in which the structure of every sentence is known. `make quickstart` trains the latter in a few minutes.

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import IFrame

from vaswani.infer.attention.maps import attention_maps
from vaswani.infer.explorer import export
from vaswani.infer.runs import open_run
from vaswani.infer.translate.translator import translate_one
from vaswani.paper import drawing
from vaswani.paper.figures import example

translator = open_run("builtin:tatoeba")
N, h = translator.model_config.N, translator.model_config.h
print(f"{N} layers of {h} heads, after {translator.step} steps")

# %% [markdown]
# ## One sentence
#
# English has the verb in the middle, and a German subordinate clause has it at the end. Rows are queries, columns are
# keys, and a dark cell is a large weight $a_{ts}$.

# %%
source = "I think that she has already read the book."
translation = translate_one(translator, source)
print(f"source:      {source}")
print(f"translation: {translation}")

maps = attention_maps(translator.model_config, translator.params, translator.tokenizer, source, translation)
cross = maps["cross"]
rows, columns = drawing.spelled(cross.queries), drawing.spelled(cross.keys)
size = (min(0.22 * len(columns) * N, 9) + 1, 0.22 * min(len(rows), 20) + 1)
figure, panels = plt.subplots(1, N, figsize=size, sharey=True, squeeze=False, layout="constrained")
for layer, panel in enumerate(panels[0]):
    panel.imshow(cross.weights_nhts[layer].mean(0), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    panel.set_xticks(range(len(columns)), columns, rotation=90)
    panel.set_yticks(range(len(rows)), rows)
    panel.set_title(f"layer {layer + 1}")
figure.suptitle("decoder over encoder, mean of heads")
plt.show()

# %% [markdown]
# Do the dark cells of a layer show which word translates which, even where the word order differs?
# Nothing taught the model that.
#
# ## A pronoun
#
# The paper's Figure 4 resolves "its" to "the Law". English *it* is *er*, *sie* or *es* in German, depending on the
# gender of a noun that may be far away, so information about that noun must reach the pronoun before it can be
# translated. Of the longest cases in the test split this one shows it best; the paper's may be hand-picked, too.

# %%
# The run of `make quickstart`, or else the one that comes with the code.
trained = Path("../runs/quickstart")
WORKDIR = os.environ.get("WORKDIR", str(trained) if trained.exists() else "builtin:quickstart")
run = open_run(WORKDIR)

focus = example(run, "pronouns")
order = focus.towards_nh().argsort(axis=None)[::-1][:2]
heads = [np.unravel_index(at, focus.weights_nhts.shape[:2]) for at in order]
height = drawing.ROW * min(len(focus.tokens), 60) + 0.6
figure, panels = plt.subplots(1, len(heads), figsize=(7, height), squeeze=False, layout="constrained")
for shade, (panel, (layer, head)) in enumerate(zip(panels[0], heads, strict=True)):
    drawing.columns(panel, focus.tokens, focus.query)
    drawing.connect(panel, focus.weights_nhts[layer, head], drawing.colour(shade), [focus.query])
    panel.set_title(f"layer {layer + 1}, head {head + 1}")
plt.show()

# %% [markdown]
# A picture of one sentence proves little: with many heads, some head will attend anywhere. In a clone of the
# repository `python -m lab.heads --workdir=runs/quickstart --ablate` counts over thousands of unseen sentences: how
# often a head looks at the right token, compared with the untrained model, a fixed distance and chance; whether the
# translation needs that head; and how many links of the true word alignment the decoder finds.
#
# ## Your own sentences
#
# The explorer is a page in which the model itself runs. Type a sentence, and see every head's map of it; or leave a
# head out, and see what the translation becomes. The file also opens without Python: send it to a friend.

# %%
Path("explorer.html").write_text(export.page(export.as_json(translator, source=source)), encoding="utf-8")
IFrame("explorer.html", width="100%", height=800)

# %% [markdown]
# One command draws Figures 3 to 5 as files for print:
#
# ```
# python -m paper.figures --workdir=runs/quickstart --output=figures
# ```

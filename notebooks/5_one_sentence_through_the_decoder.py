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
# # One sentence through the decoder
#
# What happens between five tokens of a source, four of a target and the probabilities of the next? This notebook draws
# Figures 1 and 2 of the paper from a config, then follows one pair of sentences through a decoder layer, step by step
# in NumPy, with the shape of every array. At each step the numbers are compared with those of the model.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import FancyBboxPatch

from vaswani import load_run
from vaswani.data.sources import open_corpus
from vaswani.ids import BOS, EOS
from vaswani.infer.inside.trace import record
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.tokens import Tokens

# %% [markdown]
# ## Figure 1, from a config
#
# The figure is a list of boxes for each side. Their labels and the places of the norms are read from the config, so
# that a variant draws itself.

# %%
COLOURS = {"attention": "#fbe0c4", "feed": "#c7e3f1", "norm": "#f3f2b8", "embed": "#f6d5d7", "out": "#d5d3ea"}


def box(axes, x, y, text, colour, width=2.7, height=0.56):
    patch = FancyBboxPatch((x - width / 2, y - height / 2), width, height, boxstyle="round,pad=0.04", fc=colour, lw=0.8)
    axes.add_patch(patch)
    axes.text(x, y, text, ha="center", va="center", fontsize=7)


def arrow(axes, start, end, curve=0.0):
    style = {"arrowstyle": "-|>", "lw": 0.8, "color": "0.3", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
    axes.annotate("", end, start, arrowprops={**style, "connectionstyle": f"arc3,rad={curve}"})


def sublayers(c, cross):
    """Returns the sub-layers of a layer, from below: their kinds and what is written on them."""
    name = "Masked self-attention" if cross else "Self-attention"
    heads = f"{c.h} heads, $d_k$ = {c.d_k}"
    found = [("attention", f"{name}\n{heads}")]
    if cross:
        found.append(("attention", f"Attention to the encoder\n{heads}"))
    found.append(("feed", f"Feed-forward, {c.activation}\n{c.d_model} → {c.d_ff} → {c.d_model}"))
    return found


def boxes(c, cross):
    """Returns the boxes of one layer, from below: kind, text, and whether a sub-layer's residual ends in it."""
    found = []
    for kind, text in sublayers(c, cross):
        norm = "LayerNorm" if c.norm_kind == "layer" else "RMSNorm"
        if c.norm == "pre":
            found += [("norm", norm, False), (kind, text, False), ("norm", "Add", True)]
        else:
            found += [(kind, text, False), ("norm", f"Add & {norm}", True)]
    return found


def column(axes, x, c, cross, side):
    """Draws one side from below; returns the heights of its top and of its attention to the encoder."""
    embed = f"Embedding of {c.vocab_size:,}\n+ {c.positions} positions"
    box(axes, x, 0, embed, COLOURS["embed"])
    axes.text(x, -0.62, "source" if not cross else "target, shifted right", ha="center", fontsize=8)
    y = joint = 0.75
    arrow(axes, (x, 0.32), (x, 1.0))
    bottom, memory = y, None
    for kind, text, ends in boxes(c, cross):
        y += 0.9 if kind != "norm" else 0.8
        box(axes, x, y, text, COLOURS[kind], height=0.56 if kind != "norm" else 0.36)
        if "encoder" in text:
            memory = y
        if ends:  # the residual connection, around the sub-layer
            outside = x + side * 1.65
            axes.plot([x, outside, outside], [joint, joint, y], color="0.3", lw=0.8)
            arrow(axes, (outside, y), (x + side * 1.4, y))
            joint = y + 0.3
        arrow(axes, (x, y + (0.32 if kind != "norm" else 0.22)), (x, y + (0.5 if kind != "norm" else 0.42)))
    frame = FancyBboxPatch((x - 1.65, bottom - 0.05), 3.3, y - bottom + 0.5, boxstyle="round", fc="none", ec="0.6")
    axes.add_patch(frame)
    axes.text(x + side * 2.25, (bottom + y) / 2, f"N = {c.N}", ha="center", rotation=90, va="center", fontsize=9)
    return y + 0.4, memory


def figure_1(axes, c, title):
    """Draws the encoder-decoder of a config."""
    encoder_top, _ = column(axes, 0, c, False, -1)
    decoder_top, memory = column(axes, 5, c, True, 1)
    ends = {0: encoder_top, 5: decoder_top}
    if c.norm == "pre":
        for x, top in ends.items():
            box(axes, x, top + 0.75, "LayerNorm", COLOURS["norm"], height=0.36)
            arrow(axes, (x, top), (x, top + 0.52))
            ends[x] = top + 1.0
    top = ends[0] + 0.5
    axes.plot([0, 0, 2.5, 2.5], [ends[0], top, top, memory], color="0.3", lw=0.8)
    arrow(axes, (2.5, memory), (3.6, memory))
    tied = "the embedding" if c.tie_embeddings else "own matrix"
    box(axes, 5, ends[5] + 0.7, f"Linear ({tied}), softmax", COLOURS["out"], width=3.6)
    arrow(axes, (5, ends[5] + 1.02), (5, ends[5] + 1.4))
    axes.text(2.5, -1.5, title, ha="center", fontsize=9)
    axes.set(xlim=(-2.4, 7.4), ylim=(-1.6, 11.5), aspect="equal")
    axes.axis("off")


base = ModelConfig(vocab_size=37_000)
variant = ModelConfig(vocab_size=8_000, N=3, d_model=256, d_ff=1024, h=4, norm="pre", activation="gelu",
                      positions="learned", tie_embeddings=False)  # fmt: skip
figure, panels = plt.subplots(1, 2, figsize=(9, 6.4), layout="constrained")
figure_1(panels[0], base, "the paper's base model")
figure_1(panels[1], variant, "pre-norm, GELU, learned positions")
plt.show()

# %% [markdown]
# ## Figure 2, from a config
#
# On the left one head: scaled dot-product attention. On the right all of them: each has its own $W^Q, W^K, W^V$, and
# $W^O$ mixes their outputs. The shapes are those of a sentence of t queries and s keys.


# %%
def figure_2(axes, c):
    """Draws attention and multi-head attention with the sizes of a config."""
    scale = f"divide by $\\sqrt{{{c.d_k}}}$" if c.scale_attention else "not scaled"
    steps = [
        ("$Q K^T$", "t × s", "attention"),
        (scale, "t × s", "norm"),
        ("mask", "t × s", "embed"),
        ("softmax over s", "t × s", "out"),
        ("weights × $V$", f"t × {c.d_v}", "attention"),
    ]
    for y, (text, shape, colour) in enumerate(steps, 1):
        box(axes, 0, y, text, COLOURS[colour], width=1.7)
        axes.text(1.05, y, shape, va="center", fontsize=8)
        if y < len(steps):
            arrow(axes, (0, y + 0.32), (0, y + 0.68))
    for x, name, size in ((-0.6, "Q", c.d_k), (0.6, "K", c.d_k)):
        axes.text(x, -0.1, f"{name}\n{'t' if name == 'Q' else 's'} × {size}", ha="center", fontsize=8)
        arrow(axes, (x, 0.3), (x / 2, 0.68))
    axes.text(-1.45, -0.1, f"V\ns × {c.d_v}", ha="center", fontsize=8)
    axes.plot([-1.45, -1.45], [0.3, 5], color="0.3", lw=0.8)
    arrow(axes, (-1.45, 5), (-0.9, 5))

    middle = 5.2
    for shift in range(min(c.h, 4) - 1, -1, -1):  # the heads, one behind the other
        for x, name in ((-1.6, "$W^Q$"), (0, "$W^K$"), (1.6, "$W^V$")):
            text = "" if shift else name
            box(axes, middle + x + 0.1 * shift, 1 + 0.1 * shift, text, "white", width=1.1, height=0.45)
        text = "" if shift else "attention of each head"
        box(axes, middle + 0.1 * shift, 2.6 + 0.1 * shift, text, COLOURS["attention"], width=3.6)
    for x, side in ((-1.6, "t"), (0, "s"), (1.6, "s")):
        axes.text(middle + x, -0.1, f"{side} × {c.d_model}", ha="center", fontsize=8)
        arrow(axes, (middle + x, 0.2), (middle + x, 0.72))
        arrow(axes, (middle + x, 1.62), (middle + x, 2.25))
    axes.text(middle + 2.3, 2.8, f"h = {c.h}", va="center", fontsize=9)
    box(axes, middle, 4, f"concatenate: t × {c.h * c.d_v}", COLOURS["norm"], width=3.6)
    box(axes, middle, 5, f"$W^O$: t × {c.d_model}", "white", width=3.6)
    arrow(axes, (middle, 3.28), (middle, 3.68))
    arrow(axes, (middle, 4.32), (middle, 4.68))
    axes.set(xlim=(-2.2, 8.6), ylim=(-0.4, 5.6), aspect="equal")
    axes.axis("off")


figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
figure_2(axes, base)
plt.show()

# %% [markdown]
# ## One pair of sentences
#
# A small model with freshly initialised parameters: shapes do not depend on what is learnt. The decoder has read `<s>`
# and three words, and predicts a word at each of the four positions.

# %%
config = ModelConfig(vocab_size=20, N=2, d_model=16, d_ff=64, h=4, d_k=4, d_v=4)
params = init_params(Transformer(config), jax.random.key(0))
source = Tokens.of(jnp.array([[5, 6, 7, 8, 2]]))  # 2 is </s>
target = Tokens.of(jnp.array([[1, 9, 10, 11]]))  # 1 is <s>
model = record(config, params, source, target, {})
p = jax.tree.map(np.asarray, params)["decoder"]["layer_0"]


def step(name, array, expected=None):
    """Prints an array's shape, and compares it with the model's activation of that name."""
    print(f"{name:<38} {' x '.join(map(str, array.shape)):>12}", end="")
    if expected is None:
        print()
        return
    difference = np.abs(array - model[expected]).max()
    print(f"   the model's {expected}")
    assert difference < 1e-4, difference


def normed(x_td, norm):
    centred_td = x_td - x_td.mean(-1, keepdims=True)
    return norm["scale"] * centred_td / np.sqrt(x_td.var(-1, keepdims=True) + 1e-6) + norm["bias"]


def softmax(z):
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


# %% [markdown]
# **In.** Each token's embedding is scaled by $\sqrt{d_{model}}$, and its position is added.

# %%
ids_t = np.asarray(target.ids_bt[0])
embedded_td = np.asarray(params["embed"])[ids_t] * np.sqrt(config.d_model)
angles_tk = np.arange(4)[:, None] / 10000 ** (np.arange(0, config.d_model, 2) / config.d_model)
positions_td = np.stack([np.sin(angles_tk), np.cos(angles_tk)], axis=-1).reshape(4, -1)
x_td = embedded_td + positions_td
step("token ids", ids_t)
step("embeddings", embedded_td)
step("plus positions", x_td, "decoder/embedding")

# %% [markdown]
# **Masked self-attention.** Queries, keys and values are of the same four positions, in four heads. A position sees
# itself and those before it.

# %%
w = p["self_attention"]
name = "decoder/layer_0/self_attention"
q_htk = np.einsum("td,dhk->htk", x_td, w["wq"])
k_hsk = np.einsum("sd,dhk->hsk", x_td, w["wk"])
v_hse = np.einsum("sd,dhe->hse", x_td, w["wv"])
step("queries", q_htk.swapaxes(0, 1), f"{name}/q")
step("keys", k_hsk.swapaxes(0, 1), f"{name}/k")
step("values", v_hse.swapaxes(0, 1), f"{name}/v")
scores_hts = np.einsum("htk,hsk->hts", q_htk, k_hsk) / np.sqrt(config.d_k)
step("scores", scores_hts)
visible_ts = np.tril(np.ones((4, 4), bool))
step("mask", visible_ts)
weights_hts = softmax(np.where(visible_ts, scores_hts, -1e9))
step("weights", weights_hts.swapaxes(0, 1), f"{name}/weights")
heads_hte = np.einsum("hts,hse->hte", weights_hts, v_hse)
step("heads", heads_hte.swapaxes(0, 1), f"{name}/heads")
y_td = np.einsum("hte,hed->td", heads_hte, w["wo"])
step("concatenated, times W^O", y_td, name)
x_td = normed(x_td + y_td, p["norm_1"])
step("add and norm", x_td, "decoder/layer_0/norm_1")

# %% [markdown]
# **Attention to the encoder.** Queries come from the decoder's four positions, keys and values from the encoder's five.
# There is no mask: every target word may look at every source word.

# %%
w = p["cross_attention"]
name = "decoder/layer_0/cross_attention"
memory_sd = model["encoder"]
step("the encoder's output", memory_sd, "encoder")
q_htk = np.einsum("td,dhk->htk", x_td, w["wq"])
k_hsk = np.einsum("sd,dhk->hsk", memory_sd, w["wk"])
v_hse = np.einsum("sd,dhe->hse", memory_sd, w["wv"])
step("queries", q_htk.swapaxes(0, 1), f"{name}/q")
step("keys", k_hsk.swapaxes(0, 1), f"{name}/k")
step("values", v_hse.swapaxes(0, 1), f"{name}/v")
weights_hts = softmax(np.einsum("htk,hsk->hts", q_htk, k_hsk) / np.sqrt(config.d_k))
step("weights", weights_hts.swapaxes(0, 1), f"{name}/weights")
y_td = np.einsum("hts,hse,hed->td", weights_hts, v_hse, w["wo"])
step("heads, times W^O", y_td, name)
x_td = normed(x_td + y_td, p["norm_2"])
step("add and norm", x_td, "decoder/layer_0/norm_2")

# %% [markdown]
# **Feed-forward.** Each position by itself becomes four times as wide and narrow again.

# %%
w = p["feed_forward"]
hidden_tf = np.maximum(0, x_td @ w["w1"] + w["b1"])
step("hidden", hidden_tf, "decoder/layer_0/feed_forward/hidden")
x_td = normed(x_td + hidden_tf @ w["w2"] + w["b2"], p["norm_3"])
step("add and norm", x_td, "decoder/layer_0")

# %% [markdown]
# **Out.** The second layer repeats all this. Its output is multiplied by the embedding matrix again, and the softmax
# makes a distribution over the vocabulary of the *next* token at each position. In translation only the last row is
# needed; in training all four are, at once.

# %%
x_td = model["decoder"]
logits_tv = x_td @ np.asarray(params["embed"]).T
step("the decoder's output", x_td, "decoder")
step("logits", logits_tv, "logits")
probabilities_tv = softmax(logits_tv)
step("probabilities", probabilities_tv)
print("sums of the rows:", probabilities_tv.sum(-1).round(6))

# %% [markdown]
# Every shape is made of a few sizes: t and s of the two sentences, and from the config $d_{model}$, h, $d_k$, $d_v$,
# $d_{ff}$ and the vocabulary. What the mask leaves of the first layer's self-attention, and the attention to the
# encoder, which has no mask:

# %%
shown = {"masked self-attention": "self_attention", "attention to the encoder": "cross_attention"}
figure, panels = plt.subplots(1, 2, figsize=(6.5, 2.6), layout="constrained")
for panel, (title, kind) in zip(panels, shown.items(), strict=True):
    weights_ths = model[f"decoder/layer_0/{kind}/weights"]
    image = panel.imshow(weights_ths[:, 0], cmap="Blues", vmin=0, vmax=1)
    panel.set_title(f"{title}, head 1", fontsize=9)
    panel.set(xlabel="key", ylabel="query", xticks=range(weights_ths.shape[2]), yticks=range(4))
figure.colorbar(image, ax=panels, label="weight")
plt.show()

# %% [markdown]
# ## A trained model, word by word
#
# So far the parameters were random. `builtin:tatoeba` has learned to translate everyday English. At each step its
# decoder reads what has been written so far, and the last row of the probabilities says what may come next. Greedy
# search appends the most probable token; beam search keeps the rivals in mind as well.

# %%
translator = load_run("builtin:tatoeba").run
tokenizer = translator.tokenizer
english = "Where is the train station?"
source = Tokens.of(jnp.array([[*tokenizer.encode(english), EOS]]))
written = [BOS]
while written[-1] != EOS:
    logits_btv = Transformer(translator.model_config).apply(
        {"params": translator.params}, source, Tokens.of(jnp.array([written]))
    )
    next_v = softmax(np.asarray(logits_btv[0, -1]))
    best = np.argsort(-next_v)[:4]
    rivals = "   ".join(
        f"{piece} {next_v[i]:.3f}" for i, piece in zip(best, tokenizer.pieces(best.tolist()), strict=True)
    )
    print(f"{tokenizer.decode(written[1:]):<25} {rivals}")
    written.append(int(best[0]))

greedy = tokenizer.decode(written[1:-1])
print(f"{english} -> {greedy}")

# %% [markdown]
# ## Teacher forcing
#
# In training the decoder reads the reference up to a position, whatever it would have written itself: *forced*
# prefixes, which make all positions computable at once. In use it reads its *own*. How much worse does it predict then?
#
# The design, written before anything was run: for 500 sentences of the test split, the loss $-\log p(y_t \mid
# \mathrm{prefix})$ of the reference's token at each position t, once with the reference's first t - 1 tokens as
# prefix, once with those of the greedy translation, for the model that comes with the code. We expect the loss under
# own prefixes to be above that under forced ones at every position after the first, and the gap to grow: its mean over
# positions 9 to 12 exceeds that over 2 to 5. Either failing refutes it. A translation that left the reference need
# not be wrong, so the gap is an upper bound of what errors cost.

# %%
pairs = list(open_corpus("grammar:test:500").pairs())
positions = range(1, 13)


def padded(rows):
    ids_bt = np.zeros((len(rows), max(map(len, rows))), int)
    for ids_t, row in zip(ids_bt, rows, strict=True):
        ids_t[: len(row)] = row
    return ids_bt


def reference_losses(run, source_bs, prefix_bt, target_bt):
    """Returns -log p(y_t | prefix) [b, t] of the reference's tokens, in nats."""
    apply = jax.jit(Transformer(run.model_config).apply)
    logits_btv = apply({"params": run.params}, Tokens.of(jnp.array(source_bs)), Tokens.of(jnp.array(prefix_bt)))
    log_probs_btv = jax.nn.log_softmax(logits_btv)
    return -np.take_along_axis(np.asarray(log_probs_btv), target_bt[:, :, None], axis=-1)[:, :, 0]


def forced_and_own(workdir):
    """Prints both losses at each position; returns the gap between them, from the second position on."""
    loaded = load_run(workdir)
    tokenizer = loaded.run.tokenizer
    source_bs = padded([[*tokenizer.encode(source), EOS] for source, _ in pairs])
    target_bt = padded([[*tokenizer.encode(target), EOS] for _, target in pairs])
    written = loaded.hypotheses([source for source, _ in pairs], beam=1)
    own_bt = padded([best.tokens for (best,) in written])
    width = target_bt.shape[1]
    forced_bt = np.insert(target_bt, 0, BOS, axis=1)[:, :width]
    own_bt = np.insert(np.pad(own_bt, ((0, 0), (0, width))), 0, BOS, axis=1)[:, :width]
    forced_loss_bt = reference_losses(loaded.run, source_bs, forced_bt, target_bt)
    own_loss_bt = reference_losses(loaded.run, source_bs, own_bt, target_bt)
    left_bt = np.logical_or.accumulate(forced_bt != own_bt, axis=1)  # the prefix is no longer the reference's
    assert np.allclose(forced_loss_bt[~left_bt], own_loss_bt[~left_bt], atol=1e-3)

    print(f"{workdir}\nposition sentences  forced     own   prefixes that left  own loss of these")
    gap = {}
    for t in positions:
        there_b = (target_bt[:, t - 1] > 0) & (own_bt[:, t - 1] > 0)
        forced, own = forced_loss_bt[there_b, t - 1].mean(), own_loss_bt[there_b, t - 1].mean()
        left_b = there_b & left_bt[:, t - 1]
        after = f"{own_loss_bt[left_b, t - 1].mean():.2f}" if left_b.any() else "-"
        print(f"{t:>8} {there_b.sum():>9} {forced:>7.3f} {own:>7.3f} {left_b.sum():>20} {after:>18}")
        gap[t] = own - forced
    return gap


gap = forced_and_own("builtin:quickstart")
is_above = all(gap[t] > 0 for t in positions[1:])
early, late = np.mean([gap[t] for t in range(2, 6)]), np.mean([gap[t] for t in range(9, 13)])
print(f"own above forced at every position after the first: {is_above}")
print(f"gap: {early:.3f} nats at positions 2 to 5, {late:.3f} at 9 to 12; it grows: {bool(late > early)}")

# %% [markdown]
# Both expectations about prefixes are met. The forced loss has no trend, so the growth is that of the prefixes that
# have left the reference: few, but after most of them its next token is unlikely. Whether such a translation is wrong,
# this loss does not tell: with a word more it may be right, and is scored against the wrong place.
#
# What does label smoothing do to it? We trained ten small models of this task, five of them without it. Under forced
# prefixes the losses are alike; under own ones, the gap is nearly twice as wide without smoothing. A smoothed model has
# learned to keep some probability for every word, so one that it did not expect costs it less.

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
# # A walk through the model
#
# Five things in section 3 of the paper take one line each and are easy to get wrong: the division of the scores by
# $\sqrt{d_k}$, the masks, the place of dropout, residual connections with their norms, and the positions. Here we look
# at each of them in turn.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from vaswani.model.config import ModelConfig
from vaswani.model.masks import Mask
from vaswani.model.noise import Noise, dropout
from vaswani.model.parameter_count import parameter_count
from vaswani.model.parameters import init_params
from vaswani.model.positions import sinusoids
from vaswani.model.transformer import Transformer
from vaswani.tokens import Tokens

rng = np.random.default_rng(0)

# %% [markdown]
# ## Why $\sqrt{d_k}$
#
# Suppose the components of a query and of a key are independent, with mean 0 and variance 1. Their dot product is a
# sum of $d_k$ terms of variance 1, so its variance is $d_k$: the wider the heads, the larger the scores.

# %%
widths = [1, 4, 16, 64, 256, 1024]
keys = 16
weights = {}
entropy: dict[str, list[float]] = {"unscaled": [], "scaled": []}
gradient: dict[str, list[float]] = {"unscaled": [], "scaled": []}
for k in widths:
    logits_ts = rng.normal(size=(400, k)) @ rng.normal(size=(keys, k)).T
    print(f"d_k = {k:>4}: variance of the scores {logits_ts.var():>7.1f}")
    for name, z_ts in (("unscaled", logits_ts), ("scaled", logits_ts / np.sqrt(k))):
        a_ts = np.asarray(jax.nn.softmax(z_ts))
        weights[name, k] = np.sort(a_ts, axis=-1)[:, ::-1].mean(0)
        entropy[name].append(-(a_ts * np.log(a_ts + 1e-30)).sum(-1).mean())
        gradient[name].append((a_ts * (1 - a_ts)).mean())

# %% [markdown]
# Large scores saturate the softmax: one weight is nearly 1, the rest nearly 0. The derivative of a weight with respect
# to its own score is $a(1-a)$, which is then nearly 0 everywhere: hardly any gradient reaches the query. Divided by
# $\sqrt{d_k}$, the scores have variance 1 at every width, and this does not happen.

# %%
figure, panels = plt.subplots(1, 3, figsize=(9, 2.7), layout="constrained")
for k in (4, 64, 1024):
    panels[0].plot(range(1, keys + 1), weights["unscaled", k], "o-", markersize=3, label=f"$d_k$ = {k}")
panels[0].plot(range(1, keys + 1), weights["scaled", 1024], "k--", label="$d_k$ = 1024, scaled")
panels[0].set(title="mean weight", xlabel="keys, the largest weight first")
panels[0].legend(frameon=False)
for panel, values, title in zip(
    panels[1:], (entropy, gradient), ("entropy of the weights", "mean of $a(1 - a)$"), strict=True
):
    for name, style in (("unscaled", "o-"), ("scaled", "k--")):
        panel.plot(widths, values[name], style, markersize=3, label=name)
    panel.set(title=title, xscale="log", xlabel="$d_k$", ylim=(0, None))
panels[1].legend(frameon=False)
plt.show()

assert gradient["unscaled"][-1] < gradient["scaled"][-1] / 5

# %% [markdown]
# ## Masks
#
# Attention is used in three places, which differ in where keys and values come from, and in the mask. In the encoder
# every token attends to every token. In the decoder a token attends to itself and those before it; otherwise training
# would copy the answer from the next position. In encoder-decoder attention the keys and values are those of the
# encoder's output, and there is again no restriction.
#
# A batch is rectangular and sentences vary in length. Either rows are filled with padding, to which no token may
# attend, or several sentences are packed into a row and must not attend to each other. Segments distinguish them: 0 is
# padding, and 1, 2, … are the sentences of the row.

# %%
source_bs = jnp.array([[1, 1, 1, 1, 2, 2, 2, 0, 0]])
target_bt = jnp.array([[1, 1, 1, 2, 2, 2, 2, 2, 0]])
masks = {
    "encoder": Mask(source_bs, source_bs),
    "decoder": Mask(target_bt, target_bt, causal=True),
    "decoder over encoder": Mask(target_bt, source_bs),
}
figure, panels = plt.subplots(1, 3, figsize=(8, 2.8), layout="constrained")
for panel, (name, mask) in zip(panels, masks.items(), strict=True):
    panel.imshow(mask.dense()[0], cmap="Blues", vmin=0, vmax=1.4)
    panel.set(title=name, xticks=range(9), yticks=range(9), xlabel="key", ylabel="query")
    panel.set_xticklabels(np.asarray(mask.keys_bs)[0])
    panel.set_yticklabels(np.asarray(mask.queries_bt)[0])
plt.show()

# %% [markdown]
# Does this hold in the whole model? Two targets that differ only in their last token must have the same logits before
# it, and padding after a sentence must not change its logits.

# %%
config = ModelConfig(vocab_size=30, N=2, d_model=32, d_ff=64, h=4, d_k=8, d_v=8, P_drop=0.1)
params = init_params(Transformer(config), jax.random.key(0))
apply = jax.jit(lambda params, *ids: Transformer(config).apply(params, *map(Tokens.of, ids)))
source = jnp.array([[5, 6, 7, 8, 9]])
target, other = jnp.array([[1, 10, 11, 12]]), jnp.array([[1, 10, 11, 25]])
logits, changed = (np.asarray(apply({"params": params}, source, ids)) for ids in (target, other))
padded = np.asarray(apply({"params": params}, jnp.pad(source, ((0, 0), (0, 4))), target))

moved = np.abs(logits - changed).max(axis=(0, 2))
print("largest change of the logits at each position:", moved.round(6))
print("largest change by padding the source:", np.abs(logits - padded).max())
assert moved[:-1].max() == 0 < moved[-1] and np.allclose(logits, padded, atol=1e-5)

# %% [markdown]
# ## Where dropout is applied
#
# Dropout sets each number to 0 with probability $P_{drop}$ and divides the others by $1 - P_{drop}$, so that the
# expected value is unchanged and nothing needs rescaling at test time.

# %%
dropped = np.asarray(dropout(jnp.ones((1000, 100)), 0.1, Noise(jax.random.key(1), jnp.arange(1000))))
print(f"set to 0: {(dropped == 0).mean():.3f}; the others: {dropped.max():.4f}; mean: {dropped.mean():.4f}")

# %% [markdown]
# Section 5.4 names only two places. One is the sum of embeddings and positions, at the bottom of both stacks. The other
# is the output of every sub-layer, before it is added to the sub-layer's input and normalised:
#
# $$\mathrm{LayerNorm}(x + \mathrm{Dropout}(\mathrm{Sublayer}(x)))$$
#
# It is applied inside the sum, not after it. The residual path $x \to x$ from bottom to top therefore loses nothing:
# dropout removes part of a sub-layer's output, never of the token itself. Attention weights and the hidden layer of the
# feed-forward network have no dropout. Many implementations apply it there too; here these are `P_drop_attention` and
# `P_drop_relu`, and both are 0.
#
# The difference shows in an encoder of six layers, with twelve sub-layers whose outputs $\mathrm{Sublayer}(x)$ are all
# 0. How much of a token is left at the top?

# %%
inside = outside = jnp.ones((1000, 100))
for key in jax.random.split(jax.random.key(2), 12):
    noise = Noise(key, jnp.arange(1000))
    inside = inside + dropout(jnp.zeros_like(inside), 0.1, noise)
    outside = dropout(outside + jnp.zeros_like(outside), 0.1, noise)
print(f"dropout inside the sum: {(inside != 0).mean():.2f} of the numbers; after it: {(outside != 0).mean():.2f}")

# %% [markdown]
# ## Residual connections and norms
#
# Readers of the paper call both "critical for training stability", and say that the residual connection "prevents the
# collapse of gradients". Here are models with twelve layers on each side: post-norm as in the paper, pre-norm, or no
# norm, and $x + \mathrm{Sublayer}(x)$ or $\mathrm{Sublayer}(x)$ alone. How large is the gradient of the first update in
# each layer?

# %%
sentences = jnp.array(rng.integers(4, 100, size=(8, 12)))


def gradient_by_layer(norm, residual):
    """Returns the gradient's norm [n] in each layer of the encoder and of the decoder, for random sentences to copy."""
    deep = ModelConfig(vocab_size=100, N=12, d_model=32, d_ff=64, h=4, d_k=8, d_v=8, norm=norm, residual=residual)
    model = Transformer(deep)
    read, written = Tokens.of(sentences), Tokens.of(sentences[:, :-1])

    def loss(params):
        logits_btv = model.apply({"params": params}, read, written)
        return optax.softmax_cross_entropy_with_integer_labels(logits_btv, sentences[:, 1:]).mean()

    params = model.init(jax.random.key(0), read, written)["params"]
    gradient = jax.grad(loss)(params)
    norms = {}
    for side in ("encoder", "decoder"):
        norms[side] = np.array([optax.tree.norm(gradient[side][f"layer_{n}"]) for n in range(12)])
    return norms


figure, panels = plt.subplots(1, 2, figsize=(9, 2.9), layout="constrained", sharey=True)
by_layer = {}
for colour, kind in enumerate(("post", "pre", "none")):
    for residual, style in ((True, "o-"), (False, "x--")):
        by_layer[kind, residual] = gradient_by_layer(kind, residual)
        for panel, (side, norms) in zip(panels, by_layer[kind, residual].items(), strict=True):
            label = f"{kind}, {'with' if residual else 'without'}"
            drawn = np.where(norms > 0, norms, np.nan)  # 0 has no place on a logarithmic scale
            panel.plot(range(1, 13), drawn, style, color=f"C{colour}", markersize=4, label=label)
            panel.set(title=side, xlabel="layer", yscale="log")
panels[0].set_ylabel("norm of the gradient")
panels[1].legend(title="norm, residual connections", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

for (kind, residual), norms in by_layer.items():
    first, *_, last = norms["decoder"]
    print(f"decoder, {kind:>4}, {'with' if residual else 'without':>7}: first layer {first:.1e}, last {last:.1e}")
    assert (first / last > 1e-4) == residual
assert by_layer["none", True]["decoder"].min() > 1e3 * by_layer["pre", True]["decoder"].max()

# %% [markdown]
# Without residual connections a decoder passes hardly anything down: what it takes from the encoder is no longer added
# to the token but replaces it, and below its last layers the gradient is 0. In the encoder the gradient does not
# collapse behind a norm, which scales up what has become small. Without norms, but with residual connections, all
# gradients explode.
#
# We trained such models in a study, with 2, 6 and 12 layers and one learning rate. Without residual connections none
# trained, with any norm. Without norms two layers did, and deeper models did not; but nor did the paper's post-norm at
# that rate, and pre-norm did at every depth. So "critical" is true of residual connections there. Of norms it is true
# of deep models, and depends on where they are.

# %% [markdown]
# ## Positions
#
# Attention is a sum over keys, and a sum has no order. Without positions, an encoder gives the same outputs for a
# reversed sentence, in reversed order:

# %%
blind = ModelConfig(vocab_size=30, N=2, d_model=32, d_ff=64, h=4, d_k=8, d_v=8, positions="none")


def read_both_ways(cfg):
    encode = jax.jit(lambda params, ids: Transformer(cfg).apply(params, Tokens.of(ids), method="encode"))
    forwards, backwards = (np.asarray(encode({"params": params}, ids)) for ids in (source, source[:, ::-1]))
    return np.abs(forwards - backwards[:, ::-1]).max()


differences = {"without positions": read_both_ways(blind), "with sinusoids": read_both_ways(config)}
for name, by in differences.items():
    print(f"{name}: largest difference {by:.6f}")
assert differences["without positions"] < 1e-5 < differences["with sinusoids"]

# %% [markdown]
# The paper adds to each embedding a vector that depends on the position alone (section 3.5),
#
# $$PE_{(pos, 2i)} = \sin(pos / 10000^{2i/d_{model}}), \qquad PE_{(pos, 2i+1)} = \cos(pos / 10000^{2i/d_{model}})$$
#
# Each pair of dimensions is the hand of a clock. The first turns once in $2\pi$ tokens, the last once in nearly $10000
# \cdot 2\pi$.

# %%
encodings_td = np.asarray(sinusoids(jnp.arange(100)[None], 128))[0]
figure, (table, lines) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
image = table.imshow(encodings_td, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
table.set(xlabel="dimension", ylabel="position")
figure.colorbar(image, ax=table, ticks=(-1, 0, 1))
for dimension in (4, 20, 40):
    lines.plot(encodings_td[:, dimension], label=str(dimension))
lines.set(xlabel="position")
lines.legend(title="dimension", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %% [markdown]
# Why this form? To move $k$ tokens forward, rotate every hand by its angle for $k$ tokens: $PE_{pos+k}$ is a linear
# function of $PE_{pos}$, with one matrix for all positions, so a head can learn "three to the left" once. We can write
# the matrix down and check it at every position:

# %%
offset = 3
angles = offset * 10000.0 ** (-np.arange(0, 128, 2) / 128)
turn_dd = np.zeros((128, 128))
for i, angle in enumerate(angles):
    turn_dd[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
error = np.abs(encodings_td[:-offset] @ turn_dd.T - encodings_td[offset:]).max()
print(f"largest error of the turned positions: {error:.1e}")
assert error < 1e-4

# %% [markdown]
# ## What it adds up to
#
# With $V$ subwords shared by source, target and softmax, the base model has

# %%
base = ModelConfig(vocab_size=37_000)
A = 2 * base.d_model * base.h * base.d_k + 2 * base.d_model * base.h * base.d_v
F = 2 * base.d_model * base.d_ff + base.d_ff + base.d_model
norm = 2 * base.d_model
P = base.vocab_size * base.d_model + base.N * ((A + F + 2 * norm) + (2 * A + F + 3 * norm))
print(f"attention {A:,}, feed-forward {F:,}, embeddings {base.vocab_size * base.d_model:,}; in all {P:,} parameters")
assert parameter_count(base) == P

# %% [markdown]
# Two thirds of an encoder layer's parameters are in its feed-forward network, which processes one token at a time.
# Attention only decides what information reaches it.

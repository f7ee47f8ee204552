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
# # Attention from scratch
#
# Section 3.2 of the paper fits into a page of NumPy: the forward pass is its equations, and the backward pass the same
# equations read from right to left. Here both are written by hand and compared with the model of this repository, with
# finite differences, and, if PyTorch is installed, with `torch.nn.MultiheadAttention`.
#
# Letters are the same in the text, in names and in `einsum`: $b$ sentences, $t$ queries, $s$ keys, $d$ for
# $d_{model}$, $h$ heads, $k$ for $d_k$ and $e$ for $d_v$. `q_bhtk` is an array whose name lists its four axes.

# %%
import importlib.util

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from vaswani.model.config import ModelConfig
from vaswani.model.masks import Mask
from vaswani.model.mixers.attention import MultiHeadAttention
from vaswani.model.positions import NoPositions

rng = np.random.default_rng(0)
b, t, d, h, k, e = 2, 6, 32, 4, 8, 8

# %% [markdown]
# ## Forward
#
# A query is compared with every key by a dot product. The softmax turns a row of such scores into weights that sum to
# one, and the output is the weighted mean of the values:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right) V$$
#
# A mask may forbid a query to attend to a key. The score is then $-10^9$, and $e^{-10^9}$ is 0.


# %%
def softmax(logits):
    grown = np.exp(logits - logits.max(-1, keepdims=True))  # the largest exponent is 0, so nothing overflows
    return grown / grown.sum(-1, keepdims=True)


def attention(q_bhtk, k_bhsk, v_bhse, mask_ts):
    logits_bhts = np.einsum("bhtk,bhsk->bhts", q_bhtk, k_bhsk) / np.sqrt(q_bhtk.shape[-1])
    weights_bhts = softmax(np.where(mask_ts, logits_bhts, -1e9))
    return np.einsum("bhts,bhse->bhte", weights_bhts, v_bhse), weights_bhts


# %% [markdown]
# A single head averages all that it attends to. The paper therefore projects queries, keys and values $h$ times, to
# $d_k$ or $d_v$ dimensions each, attends $h$ times, and concatenates the results:
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h) W^O, \qquad
# \mathrm{head}_i = \mathrm{Attention}(QW_i^Q, KW_i^K, VW_i^V)$$
#
# With the heads as an axis of the matrices there is nothing to concatenate: the last `einsum` sums over heads and
# $d_v$ at once, which is what multiplying the long vector by $W^O$ does.


# %%
def multi_head(x_btd, w, mask_ts):
    q_bhtk = np.einsum("btd,dhk->bhtk", x_btd, w["wq"])
    k_bhsk = np.einsum("bsd,dhk->bhsk", x_btd, w["wk"])
    v_bhse = np.einsum("bsd,dhe->bhse", x_btd, w["wv"])
    heads_bhte, weights_bhts = attention(q_bhtk, k_bhsk, v_bhse, mask_ts)
    y_btd = np.einsum("bhte,hed->btd", heads_bhte, w["wo"])
    return y_btd, (q_bhtk, k_bhsk, v_bhse, heads_bhte, weights_bhts)


w = {name: rng.normal(size=(d, h, k)) * d**-0.5 for name in ("wq", "wk")}
w |= {"wv": rng.normal(size=(d, h, e)) * d**-0.5, "wo": rng.normal(size=(h, e, d)) * (h * e) ** -0.5}
x_btd = rng.normal(size=(b, t, d))
causal_ts = np.tril(np.ones((t, t), bool))

y_btd, kept = multi_head(x_btd, w, causal_ts)
weights_bhts = kept[-1]

# %% [markdown]
# The mask is the decoder's causal mask, under which position $t$ attends to positions up to $t$ (section 3.2.3). So the
# weights are triangular. The parameters are random, and so are the patterns; every row sums to one.

# %%
figure, panels = plt.subplots(1, h, figsize=(8, 2.3), sharey=True, layout="constrained")
for head, panel in enumerate(panels):
    panel.imshow(weights_bhts[0, head], cmap="Blues", vmin=0, vmax=1)
    panel.set(title=f"head {head + 1}", xlabel="key s")
panels[0].set_ylabel("query t")
plt.show()

assert np.allclose(weights_bhts.sum(-1), 1)

# %% [markdown]
# ## What a second head buys
#
# Attention reaches every position in one step, "albeit at the cost of reduced effective resolution due to averaging
# attention-weighted positions, an effect we counteract with Multi-Head Attention" (section 2). Here the third token
# needs both words before it. Each word is a vector of four random numbers, followed by its position. Heads have eight
# numbers in all: one head of eight, or two of four. How much of each word's variance can be read from them, by the best
# linear map?


# %%
def read_back(rows_hs, width=8, size=4):
    """Returns the shares of two words that can be read from the heads of the third, with weights `rows_hs`."""
    random = np.random.default_rng(1)
    words_bsw = random.normal(size=(1000, 3, size))
    tokens_bsd = np.concatenate([words_bsw, np.broadcast_to(np.eye(3), (1000, 3, 3))], axis=-1)
    heads = len(rows_hs)
    wq = np.zeros((size + 3, heads, 3))
    wq[-1] = np.log(np.maximum(rows_hs, 1e-30)) * np.sqrt(3)  # the third position asks for exactly these weights,
    wk = np.zeros((size + 3, heads, 3))
    wk[size:] = np.eye(3)[:, None]  # of keys that are positions
    wv = np.zeros((size + 3, heads, width // heads))
    wv[:size] = random.normal(size=(size, heads, width // heads))  # any values
    wo = np.zeros((heads, width // heads, size + 3))
    _, (*_, heads_bhte, _) = multi_head(tokens_bsd, {"wq": wq, "wk": wk, "wv": wv, "wo": wo}, np.ones((3, 3), bool))
    seen_be = heads_bhte[:, :, 2].reshape(1000, width)
    both_bw = words_bsw[:, :2].reshape(1000, -1)
    map_ew = np.linalg.lstsq(seen_be, both_bw)[0]
    missed_w = (both_bw - seen_be @ map_ew).var(0) / both_bw.var(0)
    return 1 - missed_w.reshape(2, size).mean(-1)


layouts = {
    "one head, half and half": [[0.5, 0.5, 0]],
    "one head, more of the first": [[0.8, 0.2, 0]],
    "one head, the first alone": [[1.0, 0, 0]],
    "two heads, a word each": [[1.0, 0, 0], [0.0, 1, 0]],
}
for name, weights in layouts.items():
    first, second = read_back(np.array(weights))
    print(f"{name:<28} first word {first:.2f}, second word {second:.2f}")
    assert abs(first + second - len(weights)) < 0.02

# %% [markdown]
# One head sends one mean. What it gains for one word it loses for the other, whatever the weights, and its eight
# numbers do not help: they are eight linear functions of a mean of four. Two heads of half the width lose nothing.
#
# ## Backward
#
# Let a bar over a name mean the derivative of some loss with respect to it: $\bar y$ is given, and we want $\bar x$ and
# $\bar W$. A product $C = AB$ gives $\bar A = \bar C B^\top$ and $\bar B = A^\top \bar C$. In `einsum` this is
# mechanical: swap the output's letters with those of the operand whose derivative we want.
#
# Only the softmax needs thought. With $a = \mathrm{softmax}(z)$ we have $\partial a_i / \partial z_j = a_i
# (\delta_{ij} - a_j)$, and therefore
#
# $$\bar z_j = a_j \left(\bar a_j - \sum_i a_i \bar a_i\right)$$
#
# The gradient of a key's score measures how far $\bar a_j$ of that key is from the weighted mean over all keys. The
# equation also shows a danger: if one weight is 1 and the others 0, $\bar z$ is zero everywhere. The paper suspects
# that undivided scores run into it, and divides them by $\sqrt{d_k}$: see the next notebook.


# %%
def multi_head_backward(dy_btd, x_btd, w, kept):
    q_bhtk, k_bhsk, v_bhse, heads_bhte, a_bhts = kept
    dheads_bhte = np.einsum("btd,hed->bhte", dy_btd, w["wo"])
    da_bhts = np.einsum("bhte,bhse->bhts", dheads_bhte, v_bhse)
    dv_bhse = np.einsum("bhts,bhte->bhse", a_bhts, dheads_bhte)
    dz_bhts = a_bhts * (da_bhts - (a_bhts * da_bhts).sum(-1, keepdims=True)) / np.sqrt(q_bhtk.shape[-1])
    dq_bhtk = np.einsum("bhts,bhsk->bhtk", dz_bhts, k_bhsk)
    dk_bhsk = np.einsum("bhts,bhtk->bhsk", dz_bhts, q_bhtk)
    dw = {
        "wq": np.einsum("btd,bhtk->dhk", x_btd, dq_bhtk),
        "wk": np.einsum("bsd,bhsk->dhk", x_btd, dk_bhsk),
        "wv": np.einsum("bsd,bhse->dhe", x_btd, dv_bhse),
        "wo": np.einsum("bhte,btd->hed", heads_bhte, dy_btd),
    }
    dx_btd = np.einsum("bhtk,dhk->btd", dq_bhtk, w["wq"])
    dx_btd += np.einsum("bhsk,dhk->bsd", dk_bhsk, w["wk"])  # x is used three times, so three gradients add up
    dx_btd += np.einsum("bhse,dhe->bsd", dv_bhse, w["wv"])
    return dx_btd, dw


dy_btd = rng.normal(size=y_btd.shape)
dx_btd, dw = multi_head_backward(dy_btd, x_btd, w, kept)

# %% [markdown]
# Masked keys need no extra line: their weight $a_j$ is 0, so their $\bar z_j$ is 0.
#
# ## Is it right?
#
# First by the definition of a derivative: move one parameter slightly in both directions, and see how the loss $\sum
# \bar y \cdot y$ changes.


# %%
def by_differences(name, place, step=1e-5):
    losses = {}
    for sign in (+1, -1):
        moved = {n: m.copy() for n, m in w.items()}
        moved[name][place] += sign * step
        y_btd, _ = multi_head(x_btd, moved, causal_ts)
        losses[sign] = (dy_btd * y_btd).sum()
    return (losses[+1] - losses[-1]) / (2 * step)


for name in w:
    place = (1, 2, 3)
    print(f"{name}{list(place)}: by hand {dw[name][place]:+.8f}, by differences {by_differences(name, place):+.8f}")
    assert np.isclose(dw[name][place], by_differences(name, place), rtol=1e-5, atol=1e-8)

# %% [markdown]
# Then against `model/mixers/attention.py`, the module used in our Transformer, with JAX's automatic differentiation. It
# computes in float32, so six digits agree.

# %%
config = ModelConfig(vocab_size=4, d_model=d, h=h, d_k=k, d_v=e)
module = MultiHeadAttention(config, NoPositions())
positions_bt = jnp.broadcast_to(jnp.arange(t)[None], (b, t))
mask = Mask(dense_bts=jnp.broadcast_to(causal_ts[None], (b, t, t)))


def ours(params, x_btd):
    return module.apply({"params": params}, x_btd, positions_bt, mask)[0]


w32, x32_btd = jax.tree.map(lambda leaf: leaf.astype(np.float32), (w, x_btd))
y_ours, backward = jax.vjp(jax.jit(ours), w32, x32_btd)
dw_ours, dx_ours = backward(dy_btd.astype(np.float32))


def difference(a, b):
    return np.abs(np.asarray(a) - b).max() / np.abs(b).max()


pairs = {"y": (y_ours, y_btd), "dx": (dx_ours, dx_btd)} | {f"d{name}": (dw_ours[name], dw[name]) for name in w}
for name, (module_says, by_hand) in pairs.items():
    print(f"{name:<4} largest relative difference {difference(module_says, by_hand):.1e}")
    assert difference(module_says, by_hand) < 1e-5

# %% [markdown]
# And against PyTorch, whose module stores the three input matrices as one, stacked and transposed, and whose masks have
# `True` for "may not attend".

# %%
if importlib.util.find_spec("torch"):
    import torch

    theirs = torch.nn.MultiheadAttention(d, h, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(
            torch.tensor(np.concatenate([w[name].reshape(d, -1).T for name in ("wq", "wk", "wv")]))
        )
        theirs.out_proj.weight.copy_(torch.tensor(w["wo"].reshape(-1, d).T))
    x_torch = torch.tensor(x_btd, requires_grad=True)
    y_torch, _ = theirs(x_torch, x_torch, x_torch, attn_mask=torch.tensor(~causal_ts))
    y_torch.backward(torch.tensor(dy_btd))
    for name, torch_says, by_hand in (("y", y_torch.detach(), y_btd), ("dx", x_torch.grad, dx_btd)):
        print(f"{name:<4} largest relative difference {difference(torch_says, by_hand):.1e}")
        assert difference(torch_says, by_hand) < 1e-10
else:
    print("PyTorch is not installed: pip install -e '.[bench]' brings it")

# %% [markdown]
# ## Three relatives
#
# **Message passing.** A mask is the adjacency matrix of a graph: a query receives from the nodes that its row allows,
# and the softmax weighs the edges. With equal scores it takes the mean over its neighbours, the simplest graph network,
# and n layers carry a message n edges far. Without a mask the graph is complete, so one layer is enough.

# %%
nodes = 6
ring_ts = (np.abs(np.arange(nodes)[:, None] - np.arange(nodes)) <= 1).astype(float)
ring_ts[0, -1] = ring_ts[-1, 0] = 1
features_bhsk = np.eye(nodes)[None, None]  # each node is told by a number of its own
nothing_bhtk = np.zeros_like(features_bhsk)
state_bhse = features_bhsk
for layer in range(1, 4):
    state_bhse, _ = attention(nothing_bhtk, features_bhsk, state_bhse, ring_ts.astype(bool))
    reached_t = (state_bhse[0, 0] > 0).sum(1)
    print(f"layer {layer}: a node of the ring has heard from {reached_t[0]} of {nodes}")
    assert np.allclose(state_bhse[0, 0], np.linalg.matrix_power(ring_ts / ring_ts.sum(1), layer))
assert (reached_t == nodes).all()

# %% [markdown]
# **A bidirectional RNN** gives a word a vector that depends on its sentence, too. Two sentences of the paper's kind
# differ in one word after "it", which decides what "it" is. Before any layer the vector of "it" is the same in both. An
# RNN that reads from the left cannot tell them apart; one that reads from the right can, but the word reaches "it"
# through one state for each word between, and is multiplied by a matrix at each. In self-attention it is one weight
# away, whatever the distance. The parameters are random: we compare paths, not knowledge.

# %%
random = np.random.default_rng(3)
words = ["the", "animal", "did", "not", "cross", "the", "street", "since", "it", "was", "far", "too"]
embedding = {word: random.normal(size=d) for word in [*words, "tired", "wide"]}
it = words.index("it")
recurrent_dd = 0.9 * np.linalg.qr(random.normal(size=(d, d)))[0]
w_qk, w_v = random.normal(size=(2, d, d)) / np.sqrt(d), random.normal(size=(d, d)) / np.sqrt(d)


def read_from_left(x_td):
    states_td = np.zeros_like(x_td)
    before_d = np.zeros(d)
    for position, x_d in enumerate(x_td):
        before_d = np.tanh(x_d @ w_v + before_d @ recurrent_dd)
        states_td[position] = before_d
    return states_td


def attend(x_td):
    q_td, k_td = x_td @ w_qk[0], x_td @ w_qk[1]
    everything_tt = np.ones((len(x_td), len(x_td)), bool)
    y_bhtd, _ = attention(q_td[None, None], k_td[None, None], (x_td @ w_v)[None, None], everything_tt)
    return y_bhtd[0, 0]


readers = {
    "embedding": lambda x_td: x_td,
    "RNN, from the left": read_from_left,
    "RNN, from the right": lambda x_td: read_from_left(x_td[::-1])[::-1],
    "self-attention": attend,
}
moved = {}
for distance in (1, 4, 16):
    # The word that decides stands so many places after "it"; what stands between repeats.
    between = (words[it + 1 :] * distance)[: distance - 1]
    contexts = [[*words[: it + 1], *between, last] for last in ("tired", "wide")]
    for name, reader in readers.items():
        tired_td, wide_td = (reader(np.stack([embedding[word] for word in context])) for context in contexts)
        moved[name, distance] = np.linalg.norm(tired_td[it] - wide_td[it]) / np.linalg.norm(tired_td[it])

print('how far the vector of "it" moves, as a share of its length, if the word that decides is changed')
print(f"{'the word stands after':<22} {'1':>9} {'4':>9} {'16 places':>9}")
for name in readers:
    print(f"{name:<22} {moved[name, 1]:>9.1e} {moved[name, 4]:>9.1e} {moved[name, 16]:>9.1e}")
assert all(moved[name, distance] == 0 for name in ("embedding", "RNN, from the left") for distance in (1, 4, 16))
assert moved["RNN, from the right", 16] < moved["RNN, from the right", 1] / 100
assert moved["self-attention", 16] > moved["self-attention", 1] / 30

# %% [markdown]
# **Decomposable attention** (Parikh et al. 2016), a reference of the paper, compared two sentences without recurrence
# or order: the words $a_t$ of one sentence attend to the words $b_s$ of the other, with scores $F(a_t) \cdot F(b_s)$ of
# a small network $F$. It is equation (1) with $Q = F(a)$, $K = F(b)$ and $V = b$, one head, not divided by
# $\sqrt{d_k}$. Shuffling b changes nothing; hence the Transformer's positions.

# %%
random = np.random.default_rng(2)
f_dk = random.normal(size=(d, k)) / np.sqrt(d)
a_td, b_sd = random.normal(size=(4, d)), random.normal(size=(5, d))


def aligned(a_td, b_sd):
    q_tk, k_sk = np.maximum(0, a_td @ f_dk), np.maximum(0, b_sd @ f_dk)
    undivided_tk = q_tk * np.sqrt(k)
    y_bhtd, _ = attention(undivided_tk[None, None], k_sk[None, None], b_sd[None, None], np.ones((4, 5), bool))
    return y_bhtd[0, 0]


shuffled_sd = b_sd[random.permutation(5)]
print(f"largest change by shuffling b: {np.abs(aligned(a_td, b_sd) - aligned(a_td, shuffled_sd)).max():.1e}")
assert np.allclose(aligned(a_td, b_sd), aligned(a_td, shuffled_sd), atol=1e-12)

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
# # Ten mistakes
#
# Ten errors that readers make when they write the paper's model for themselves. None of them raises an exception: the
# shapes fit, and in most of them the loss falls. Each is run here, so that its symptom can be recognised, with the
# right version beside it. Two traps of PyTorch's own module follow, 11 and 12.

# %%
import importlib.util

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
import sacrebleu

rng = np.random.default_rng(0)
t, d, h = 6, 16, 4  # positions, d_model, heads
k = d // h
x_td = rng.normal(size=(t, d))
wq_dd, wk_dd, wv_dd, wo_dd = rng.normal(size=(4, d, d)) / np.sqrt(d)
causal_ts = np.tril(np.ones((t, t), bool))


def softmax(z, axis=-1):
    e = np.exp(z - z.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def split(x_td):
    """From [t, d] to the heads [h, t, k]."""
    return x_td.reshape(t, h, k).swapaxes(0, 1)


def attend(x_td, split=split, axis=-1, mask_ts=causal_ts):
    """Returns the concatenated heads [t, d] of masked self-attention."""
    q_htk, k_hsk, v_hse = split(x_td @ wq_dd), split(x_td @ wk_dd), split(x_td @ wv_dd)
    scores_hts = np.einsum("htk,hsk->hts", q_htk, k_hsk) / np.sqrt(k)
    weights_hts = softmax(np.where(mask_ts, scores_hts, -1e9), axis)
    heads_hte = np.einsum("hts,hse->hte", weights_hts, v_hse)
    return heads_hte.swapaxes(0, 1).reshape(t, d)


def moved_by_the_last_token(f):
    """Returns how far each position's output moves if the last token is another one."""
    other_td = x_td.copy()
    other_td[-1] = rng.normal(size=d)
    return np.abs(f(x_td) - f(other_td)).max(axis=1)


# %% [markdown]
# ## 1. A view in place of a transpose
#
# The projections have shape [t, h·k]. `reshape(h, t, k)` gives the shape that attention wants, and the wrong numbers:
# a "head" is then a stretch of the sentence, and its "positions" are pieces of tokens. The mask no longer means time,
# and the future leaks. With one head, or one token, both are the same, so tests of these sizes pass.

# %%
wrong = moved_by_the_last_token(lambda x: attend(x, split=lambda y_td: y_td.reshape(h, t, k)))
right = moved_by_the_last_token(attend)
print("moved by the last token, position by position")
print("wrong:", wrong.round(3))
print("right:", right.round(3))
assert wrong[:-1].max() > 0.01 and right[:-1].max() == 0 < right[-1]

# %% [markdown]
# ## 2. No $W^O$
#
# The concatenated heads have the width of the model already, so $W^O$ seems to be superfluous. Without it each head can
# write to its own $d_v$ dimensions of the sum only, and no dimension ever hears from two heads. The model still
# trains. What shows it is which dimensions change if one head is silenced:

# %%
concatenated_td = attend(x_td)
reached = {"without $W^O$": np.zeros((h, d)), "with $W^O$": np.zeros((h, d))}
for head in range(h):
    own_td = np.zeros((t, d))
    own_td[:, head * k : (head + 1) * k] = concatenated_td[:, head * k : (head + 1) * k]
    reached["without $W^O$"][head] = np.abs(own_td).max(0)
    reached["with $W^O$"][head] = np.abs(own_td @ wo_dd).max(0)
figure, panels = plt.subplots(1, 2, figsize=(7, 1.9), layout="constrained")
for panel, (title, values) in zip(panels, reached.items(), strict=True):
    panel.imshow(values > 1e-9, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    panel.set(title=title, xlabel="dimension of the output", ylabel="head", xticks=range(0, d, 5), yticks=range(h))
plt.show()
for title, values in reached.items():
    print(f"{title}: a head reaches {(values > 1e-9).sum(1).mean():.0f} of {d} dimensions")

# %% [markdown]
# ## 3. Wrong frequencies in the sinusoids
#
# $PE_{(pos, 2i)}$ and $PE_{(pos, 2i+1)}$ have the *same* frequency, $10000^{-2i/d_{model}}$. If the exponent is taken
# from the dimension itself, sine and cosine of a pair turn at different speeds. The shapes and the picture look alike,
# but a step of k tokens is no rotation any more: how similar two positions are then depends on where they are, and not
# on their distance alone.


# %%
def encodings(exponents_d, length=200):
    angles_td = np.arange(length)[:, None] / 10000**exponents_d
    even_d = np.arange(len(exponents_d)) % 2 == 0
    return np.where(even_d, np.sin(angles_td), np.cos(angles_td))


width = 64
dimensions = np.arange(width)
kinds = {"wrong: $10000^{j/d}$": dimensions / width, "right: $10000^{2i/d}$": dimensions // 2 * 2 / width}
figure, panel = plt.subplots(figsize=(7, 2.4), layout="constrained")
spread = {}
for (title, exponents_d), style in zip(kinds.items(), ("-", "k--"), strict=True):
    pe_td = encodings(exponents_d)
    likeness_t = (pe_td[5:] * pe_td[:-5]).sum(-1)
    panel.plot(likeness_t, style, label=title)
    spread[title] = np.ptp(likeness_t)
panel.set(xlabel="position", ylabel="dot product", title="positions 5 apart")
panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
for title, value in spread.items():
    print(f"{title.split(':')[0]}: the product of positions 5 apart varies by {value:.6f}")
assert min(spread.values()) < 1e-9 < 1 < max(spread.values())

# %% [markdown]
# ## 4. $-\infty$ on a row without keys
#
# A query may have nothing to attend to: it is padding, or its source is empty. A row of $-\infty$ has the softmax 0/0.
# Overwriting the NaN afterwards does not help, since the gradient of the values is 0 · NaN, and after one update every
# parameter is NaN. A large finite number gives equal weights, which nobody reads.


# %%
def loss(values_s, masked):
    weights_s = jax.nn.softmax(jnp.full(3, masked))
    return jnp.where(False, weights_s @ values_s, 0.0)  # "overwritten afterwards"


weights, gradients = {}, {}
for masked in (-jnp.inf, -1e9):
    weights[masked] = np.asarray(jax.nn.softmax(jnp.full(3, masked)))
    gradients[masked] = np.asarray(jax.grad(loss)(jnp.ones(3), masked))
    print(f"masked by {masked:>6.0e}: weights {weights[masked].round(3)}, gradient of the values {gradients[masked]}")
assert np.isnan(gradients[-jnp.inf]).all() and np.isfinite(gradients[-1e9]).all()

# %% [markdown]
# ## 5. Dropout missing, or doubled
#
# Section 5.4: on each sub-layer's output before it is added, and on the sum of embeddings and positions, which is often
# forgotten. If both the sub-layer and the residual connection apply it, the rate is $1 - 0.9^2$. Neither raises an
# error; two checks reveal them. Apply dropout to an array of ones, and count the zeros; and run the same batch twice
# with two keys: where the results are the same, dropout is missing.


# %%
def dropout(x, key, rate=0.1):
    kept = jax.random.bernoulli(key, 1 - rate, x.shape)
    return jnp.where(kept, x / (1 - rate), 0)


ones = jnp.ones((1000, 100))
keys = jax.random.split(jax.random.key(0), 4)
versions = {
    "missing": lambda a, b: ones,
    "doubled": lambda a, b: dropout(dropout(ones, a), b),
    "right": lambda a, b: dropout(ones, a),
}
zeros = {}
for name, version in versions.items():
    first, second = version(keys[0], keys[1]), version(keys[2], keys[3])
    zeros[name] = float((first == 0).mean())
    print(f"{name}: {zeros[name]:.3f} are 0; the same with another key: {bool((first == second).all())}")
assert zeros["missing"] == 0 and abs(zeros["doubled"] - 0.19) < 0.01 and abs(zeros["right"] - 0.1) < 0.01

# %% [markdown]
# ## 6 and 9. A mask shifted by one; targets not shifted
#
# The decoder reads `<s>`, y₁, y₂, … and predicts y₁, y₂, y₃, …: at position t it may see the inputs up to t, which are
# the targets up to t - 1. If the mask's diagonal is one too high, or if the input is the target itself, the answer is
# among what it sees. The loss then falls quickly to nearly 0, and that is the symptom: a loss that is too good. In this
# text of random letters nothing can be predicted, and an honest loss cannot fall below log 16.

# %%
letters, length, rows, wide = 16, 12, 64, 32
START = letters


def initial(key):
    shapes = {"embed": (letters + 1, wide), "q": (wide, wide), "k": (wide, wide), "v": (wide, wide),
              "out": (wide, letters), "positions": (length, wide)}  # fmt: skip
    keys = jax.random.split(key, len(shapes))
    pairs = zip(keys, shapes.items(), strict=True)
    return {name: jax.random.normal(key, shape) / np.sqrt(wide) for key, (name, shape) in pairs}


def predict(p, inputs_bt, diagonal):
    x_btd = (p["embed"][inputs_bt] + p["positions"]) * np.sqrt(wide)
    scores_bts = jnp.einsum("btd,bsd->bts", x_btd @ p["q"], x_btd @ p["k"]) / np.sqrt(wide)
    visible_ts = jnp.tril(jnp.ones((length, length), bool), diagonal)
    weights_bts = jax.nn.softmax(jnp.where(visible_ts, scores_bts, -1e9))
    return (x_btd + weights_bts @ (x_btd @ p["v"])) @ p["out"]


def train(is_shifted, diagonal, updates=400):
    adam = optax.adam(3e-3)
    params = initial(jax.random.key(0))
    state = adam.init(params)

    @jax.jit
    def update(params, state, inputs_bt, targets_bt):
        def mean_loss(p):
            logits_btv = predict(p, inputs_bt, diagonal)
            return optax.softmax_cross_entropy_with_integer_labels(logits_btv, targets_bt).mean()

        value, gradient = jax.value_and_grad(mean_loss)(params)
        updates, state = adam.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    losses = []
    text = np.random.default_rng(1)
    for _ in range(updates):
        targets_bt = text.integers(letters, size=(rows, length))
        starts_b1 = np.full((rows, 1), START)
        inputs_bt = np.concatenate([starts_b1, targets_bt[:, :-1]], 1) if is_shifted else targets_bt
        params, state, value = update(params, state, inputs_bt, targets_bt)
        losses.append(float(value))
    return losses


curves = {
    "right": train(is_shifted=True, diagonal=0),
    "mask shifted by one": train(is_shifted=True, diagonal=1),
    "targets not shifted": train(is_shifted=False, diagonal=0),
}
figure, panel = plt.subplots(figsize=(7, 2.6), layout="constrained")
for (name, losses), style in zip(curves.items(), ("k-", "-", "--"), strict=True):
    panel.plot(losses, style, label=name)
panel.axhline(np.log(letters), color="0.6", lw=0.8)
panel.text(400, np.log(letters) + 0.08, "log 16", ha="right", color="0.4")
panel.set(xlabel="update", ylabel="loss, nats a letter", ylim=(0, None))
panel.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
for name, losses in curves.items():
    print(f"{name}: the last loss is {losses[-1]:.2f}; log 16 is {np.log(letters):.2f}")
assert curves["right"][-1] > 2.7 and max(curves["mask shifted by one"][-1], curves["targets not shifted"][-1]) < 1

# %% [markdown]
# One too low, the diagonal hides from each position its own input, the newest word; and the first position has no key
# at all, as in 4.
#
# ## 7. The softmax over the wrong axis
#
# The weights of a *query* must sum to 1, over its keys: the last axis of [t, s]. Over the axis of queries the shapes
# are the same and the columns sum to 1. The rows do not, and what an early position gets depends on the queries after
# it, mask or no mask.

# %%
scores_ts = np.where(causal_ts, rng.normal(size=(t, t)), -1e9)
for name, axis in (("wrong", -2), ("right", -1)):
    sums_t = softmax(scores_ts, axis).sum(-1)
    moved = moved_by_the_last_token(lambda x, axis=axis: attend(x, axis=axis))
    print(f"{name}: sums of the rows {sums_t.round(2)}; moved by the last token {moved.round(2)}")
    assert (moved[:-1].max() > 0.01) == (name == "wrong")

# %% [markdown]
# ## 8. Embeddings that are not scaled
#
# An embedding drawn from N(0, 1/d_model), as the softmax that shares it wants, is a vector of length 1. A position's
# sinusoids have the length $\sqrt{d_{model}/2}$, 16 in the base model. Without the factor $\sqrt{d_{model}}$ (section
# 3.4) the word is lost in its position: two places of one word are less alike than two words in one place.

# %%
width = 512
pe_td = encodings(np.arange(width) // 2 * 2 / width)
words_vd = rng.normal(size=(1000, width)) / np.sqrt(width)


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


likeness = {}
for name, factor in (("wrong", 1), ("right", np.sqrt(width))):
    same_word = np.mean([cosine(factor * w + pe_td[3], factor * w + pe_td[40]) for w in words_vd])
    pairs = zip(words_vd[::2], words_vd[1::2], strict=True)
    same_place = np.mean([cosine(factor * a + pe_td[3], factor * b + pe_td[3]) for a, b in pairs])
    likeness[name] = (same_word, same_place)
    print(f"{name}: one word in two places {same_word:.2f}, two words in one place {same_place:.2f}")
assert likeness["wrong"][0] < likeness["wrong"][1] and likeness["right"][0] > likeness["right"][1]

# %% [markdown]
# ## 10. BLEU on tokenised text
#
# BLEU counts n-grams of *tokens*, so what a token is decides the score. Text that a program has split already, into
# words and punctuation or even into subwords, has more tokens, and easier ones: the pieces of a wrong word may be
# right. Such a score cannot be compared with any other. Give sacreBLEU the text as people write it, and print its
# signature.

# %%
references = ["Die Ärztin liest ein altmodisches Buch.", "Wir haben den Zug nach Berlin verpasst."]
outputs = ["Die Ärztin liest ein altmodisch Buch.", "Wir haben den Zug nach Bern verpasst."]


def pieces(line):
    """Splits a line as subwords would: words of more than three letters in twos, and the full stop by itself."""
    found = []
    for word in line.replace(".", " .").split():
        size = 2 if len(word) > 3 else len(word)
        found += [word[i : i + size] for i in range(0, len(word), size)]
    return " ".join(found)


bleu = sacrebleu.metrics.BLEU()
right = bleu.corpus_score(outputs, [references])
wrong = bleu.corpus_score([pieces(line) for line in outputs], [[pieces(line) for line in references]])
print(f"wrong, of pieces: {wrong.score:.1f}    {pieces(outputs[0])}")
print(f"right, of text:   {right.score:.1f}    {outputs[0]}")
print(bleu.get_signature())
assert wrong.score > right.score + 10

# %% [markdown]
# ## 11. PyTorch: no `batch_first`
#
# `torch.nn.MultiheadAttention` expects [t, b, d] unless it is told `batch_first=True`. Given [b, t, d] it takes
# sentences for positions: each word attends to the words at the same place in the *other sentences*. Nothing is said,
# unless a mask of the wrong size is given too, and in a batch as large as a sentence is long even that fits. The
# symptom: a sentence's output changes with its neighbours in the batch, and not with its own words.

# %%
if has_torch := importlib.util.find_spec("torch") is not None:
    import torch

    torch.manual_seed(0)
    batch_btd = torch.tensor(rng.normal(size=(3, t, d)))
    changed_btd = batch_btd.clone()
    changed_btd[0, -1] = torch.tensor(rng.normal(size=d))  # the last word of the first sentence
    for name, batch_first in (("wrong", False), ("right", True)):
        module = torch.nn.MultiheadAttention(d, h, batch_first=batch_first, dtype=torch.float64).eval()
        with torch.no_grad():
            before_btd, after_btd = (module(x, x, x)[0] for x in (batch_btd, changed_btd))
        moved_bt = (before_btd - after_btd).abs().amax(-1).numpy() > 1e-9
        own, others = moved_bt[0, :-1].sum(), moved_bt[1:].sum()
        print(f"{name}: the word moves {own} of {t - 1} before it, and {others} words of the other sentences")
        assert (own, others) == ((0, 2) if name == "wrong" else (t - 1, 0))
else:
    print("PyTorch is not installed: pip install -e '.[bench]' brings it")

# %% [markdown]
# ## 12. PyTorch: `True` hides
#
# In a boolean `attn_mask` or `key_padding_mask` of that module, `True` means *hidden*. It means *may attend* here, in
# Flax, and in PyTorch's own `scaled_dot_product_attention`; so does the 1 of a tokenizer's `attention_mask`, where 0 is
# padding. Both masks have the same shape and type. Inverted, a causal mask shows each position the future alone, and
# leaves the last with no key, which is 4.

# %%
if has_torch:
    module = torch.nn.MultiheadAttention(d, h, batch_first=True, dtype=torch.float64).eval()

    def with_mask(hidden_ts):
        def run(x_td):
            x_btd = torch.tensor(x_td)[None]
            with torch.no_grad():
                return module(x_btd, x_btd, x_btd, attn_mask=torch.tensor(hidden_ts))[0][0].numpy()

        return run

    for name, hidden_ts in (("wrong", causal_ts), ("right", ~causal_ts)):
        moved = moved_by_the_last_token(with_mask(hidden_ts))
        print(f"{name}: moved by the last token {moved.round(3)}")
        assert (moved[:-1].max() > 0.01) == np.isnan(moved[-1]) == (name == "wrong")

    q_htk, k_hsk, v_hse = (torch.tensor(split(x_td @ w_dd).copy()) for w_dd in (wq_dd, wk_dd, wv_dd))
    heads_hte = torch.nn.functional.scaled_dot_product_attention(q_htk, k_hsk, v_hse, attn_mask=torch.tensor(causal_ts))
    difference = np.abs(heads_hte.numpy().swapaxes(0, 1).reshape(t, d) - attend(x_td)).max()
    print(f"scaled_dot_product_attention, with True for what may be seen: differs from ours by {difference:.0e}")
    assert difference < 1e-12
else:
    print("PyTorch is not installed: pip install -e '.[bench]' brings it")

# %% [markdown]
# ## What finds them
#
# Five tests find most of them: change the last token, and no earlier output may move (1, 6, 7, 12); train on noise, and
# the loss may not fall below its entropy (6, 9); silence a head, and look where it is missing (2); apply dropout to
# ones, and count the zeros (5); and a row that is empty must stay finite (4, 12). One more is for batches: another
# sentence beside it must not change a sentence's output (11). `tests/model/test_invariants.py` has tests of this kind
# for the model in this repository.

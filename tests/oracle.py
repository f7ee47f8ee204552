"""The paper in plain NumPy, float64, forward and backward by hand: what model/ is tested against.

Written from the paper's equations and not from model/: it shares no code with it, only the names of parameters. Slow
and short on purpose. Every operation returns its value and a function from the gradient of the value to the gradient
of its input; gradients of parameters collect in `Oracle.gradients`.
"""

import functools

import numpy as np
from scipy.special import erf

LAYER_NORM_EPSILON = 1e-6
PAD = 0


def flatten(tree, prefix=""):
    """{"a": {"b": x}} -> {"a/b": x in float64}."""
    flat = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= flatten(value, f"{prefix}{name}/")
        else:
            flat[prefix + name] = np.asarray(value, np.float64)
    return flat


@functools.cache
def positional_encoding(length, d_model):
    """Section 3.5, element by element."""
    table = np.zeros((length, d_model))
    for pos in range(length):
        for i in range(d_model // 2):
            table[pos, 2 * i] = np.sin(pos / 10000 ** (2 * i / d_model))
            table[pos, 2 * i + 1] = np.cos(pos / 10000 ** (2 * i / d_model))
    return table


@functools.cache
def rotations(length, width):
    """RoPE as the block-diagonal matrices R_pos of its paper, [length, width, width]; x is turned to R x."""
    table = np.zeros((length, width, width))
    for pos in range(length):
        for i in range(width // 2):
            angle = pos * 10000 ** (-2 * i / width)
            block = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
            table[pos, 2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = block
    return table


def slopes(h):
    """ALiBi's slopes as its authors' recursion gives them."""
    if h & (h - 1) == 0:
        return [2 ** (-8 * (i + 1) / h) for i in range(h)]
    below = 1 << (h.bit_length() - 1)
    return slopes(below) + slopes(2 * below)[0::2][: h - below]


def relu(x):
    return np.maximum(0.0, x), (x > 0) * 1.0


def gelu(x):
    """x times the normal distribution up to x, and its derivative."""
    up_to = 0.5 * (1 + erf(x / np.sqrt(2)))
    return x * up_to, up_to + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def gelu_tanh(x):
    """GPT-2's approximation of `gelu`, and its derivative."""
    a = np.sqrt(2 / np.pi)
    tanh = np.tanh(a * (x + 0.044715 * x**3))
    return 0.5 * x * (1 + tanh), 0.5 * (1 + tanh) + 0.5 * x * (1 - tanh**2) * a * (1 + 3 * 0.044715 * x**2)


def silu(x):
    sigmoid = 1 / (1 + np.exp(-x))
    return x * sigmoid, sigmoid + x * sigmoid * (1 - sigmoid)


GATED = {"geglu": gelu, "geglu_tanh": gelu_tanh, "swiglu": silu}
ACTIVATIONS = {"relu": relu, "gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu, **GATED}


class Oracle:
    """The Transformer of `config` (any object with ModelConfig's fields) at `params`, without dropout."""

    def __init__(self, config, params):
        self.c = config
        self.p = flatten(params)
        self.gradients = {name: np.zeros_like(value) for name, value in self.p.items()}

    def __call__(self, source, target):
        """Logits [b, t, v] of decoder inputs `target` given `source`, and the function that runs all of it backward."""
        memory, encoder_back = self.encode(source)
        d_memory = np.zeros_like(memory)
        x, embed_back = self.embed(target, "target")
        causal = np.tril(np.ones((target.shape[1],) * 2, bool))[None] & (target != PAD)[:, None]
        to_source = np.broadcast_to((source != PAD)[:, None], (*target.shape, source.shape[1]))
        backs = [embed_back]
        for n in range(self.c.N_decoder or self.c.N):
            name = f"decoder/layer_{0 if self.c.share_layers else n}/"

            def cross(x, name=name):
                y, back = self.attention(name + "cross_attention", x, memory, to_source, relative=False)

                def back_and_keep(dy):
                    dx, dm = back(dy)
                    d_memory[:] += dm
                    return dx

                return y, back_and_keep

            def itself(x, name=name):
                y, back = self.attention(name + "self_attention", x, x, causal, relative=True)
                return y, lambda dy: sum(back(dy))

            for f, norm in ((itself, "norm_1"), (cross, "norm_2"), (self.feed_forward_of(name), "norm_3")):
                x, back = self.residual(x, f, name + norm)
                backs.append(back)
        if self.c.norm == "pre":
            x, back = self.layer_norm(x, "decoder/final_norm")
            backs.append(back)
        logits, back = self.logits(x)
        backs.append(back)

        def backward(d_logits):
            dx = d_logits
            for back in reversed(backs):
                dx = back(dx)
            encoder_back(d_memory)
            return self.gradients

        return logits, backward

    def encode(self, source):
        """The encoder's output [b, s, d] and its backward."""
        x, back = self.embed(source, "source")
        backs = [back]
        mask = np.broadcast_to((source != PAD)[:, None], (*source.shape, source.shape[1]))
        for n in range(self.c.N_encoder or self.c.N):
            name = f"encoder/layer_{0 if self.c.share_layers else n}/"

            def itself(x, name=name):
                y, back = self.attention(name + "self_attention", x, x, mask, relative=True)
                return y, lambda dy: sum(back(dy))

            for f, norm in ((itself, "norm_1"), (self.feed_forward_of(name), "norm_2")):
                x, back = self.residual(x, f, name + norm)
                backs.append(back)
        if self.c.norm == "pre":
            x, back = self.layer_norm(x, "encoder/final_norm")
            backs.append(back)

        def backward(dx):
            for back in reversed(backs):
                dx = back(dx)

        return x, backward

    def loss(self, logits, labels, eps):
        """Smoothed cross-entropy in nats per token, 1 - eps on the label and eps / (V - 1) elsewhere; its gradient."""
        v, real = logits.shape[-1], (labels != PAD)[:, :, None]
        shifted = logits - logits.max(-1, keepdims=True)
        log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        wanted = np.full(logits.shape, eps / (v - 1))
        np.put_along_axis(wanted, labels[:, :, None], 1 - eps, axis=-1)
        wanted = wanted * real
        return -(wanted * log_probs).sum() / real.sum(), (np.exp(log_probs) * real - wanted) / real.sum()

    def embed(self, ids, side):
        one_matrix = self.c.tie_embeddings and self.c.source_vocab_size is None
        name = "embed" if one_matrix else f"{side}_embed"
        factor = np.sqrt(self.c.d_model) if self.c.scale_embeddings else 1.0
        x = self.p[name][ids] * factor
        if self.c.positions == "sinusoidal":
            x = x + positional_encoding(ids.shape[1], self.c.d_model)
        if self.c.positions == "learned":
            x = x + self.p[f"{side}_positions"][: ids.shape[1]]
        norm_back = lambda dx: dx  # noqa: E731
        if self.c.norm_embeddings:
            x, norm_back = self.layer_norm(x, f"{side}_norm")

        def back(dx):
            dx = norm_back(dx)
            np.add.at(self.gradients[name], ids, dx * factor)
            if self.c.positions == "learned":
                self.gradients[f"{side}_positions"][: ids.shape[1]] += dx.sum(0)

        return x, back

    def logits(self, x):
        name = "embed" if self.c.source_vocab_size is None else "target_embed"
        if not self.c.tie_embeddings:
            name = "softmax"
        factor = self.c.d_model**-0.5 if self.c.scale_logits else 1.0

        def back(dy):
            self.gradients[name] += factor * np.einsum("btv,btd->vd", dy, x)
            return factor * dy @ self.p[name]

        return factor * x @ self.p[name].T, back

    def layer_norm(self, x, name):
        if self.c.norm_kind == "rms":
            return self.rms_norm(x, name)
        scale, bias = self.p[name + "/scale"], self.p[name + "/bias"]
        mean = x.mean(-1, keepdims=True)
        deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + LAYER_NORM_EPSILON)
        hat = (x - mean) / deviation

        def back(dy):
            self.gradients[name + "/scale"] += (dy * hat).sum((0, 1))
            self.gradients[name + "/bias"] += dy.sum((0, 1))
            d_hat = dy * scale
            return (d_hat - d_hat.mean(-1, keepdims=True) - hat * (d_hat * hat).mean(-1, keepdims=True)) / deviation

        return hat * scale + bias, back

    def residual(self, x, f, norm):
        skipped = 1.0 if self.c.residual else 0.0
        if self.c.norm == "none":
            y, f_back = f(x)
            out = skipped * x + y

            def back(dy):
                return skipped * dy + f_back(dy)

        elif self.c.norm != "pre":
            alpha = skipped
            if self.c.norm == "deep":
                N = self.c.N_encoder or self.c.N
                M = self.c.N_decoder or self.c.N
                alpha = (3 * M) ** (1 / 4) if norm.startswith("decoder") else 0.81 * (N**4 * M) ** (1 / 16)
            y, f_back = f(x)
            out, norm_back = self.layer_norm(alpha * x + y, norm)

            def back(dy):
                ds = norm_back(dy)
                return alpha * ds + f_back(ds)

        else:
            normed, norm_back = self.layer_norm(x, norm)
            y, f_back = f(normed)
            out = skipped * x + y

            def back(dy):
                return skipped * dy + norm_back(f_back(dy))

        return out, back

    def feed_forward_of(self, layer):
        name = layer + "feed_forward/"
        w1, b1, w2, b2 = (self.p[name + part] for part in ("w1", "b1", "w2", "b2"))
        gated = self.c.activation in GATED

        def f(x):
            active, slope = ACTIVATIONS[self.c.activation](x @ w1 + b1)
            linear = x @ self.p[name + "v"] if gated else 1.0
            hidden = active * linear

            def back(dy):
                d_product = dy @ w2.T
                d_hidden = d_product * linear * slope
                dx = d_hidden @ w1.T
                if gated:
                    self.gradients[name + "v"] += np.einsum("btd,btf->df", x, d_product * active)
                    dx = dx + (d_product * active) @ self.p[name + "v"].T
                self.gradients[name + "w1"] += np.einsum("btd,btf->df", x, d_hidden)
                self.gradients[name + "b1"] += d_hidden.sum((0, 1))
                self.gradients[name + "w2"] += np.einsum("btf,btd->fd", hidden, dy)
                self.gradients[name + "b2"] += dy.sum((0, 1))
                return dx

            return hidden @ w2 + b2, back

        return f

    def rms_norm(self, x, name):
        """x over the root of its mean square, times a scale."""
        scale = self.p[name + "/scale"]
        size = np.sqrt((x**2).mean(-1, keepdims=True) + LAYER_NORM_EPSILON)
        hat = x / size

        def back(dy):
            self.gradients[name + "/scale"] += (dy * hat).sum((0, 1))
            d_hat = dy * scale
            return (d_hat - hat * (d_hat * hat).mean(-1, keepdims=True)) / size

        return hat * scale, back

    def query_or_key(self, x, name):
        return self.rms_norm(x, name) if self.c.qk_norm else (x, lambda dy: dy)

    def relative_vectors(self, name, after_ts, relative):
        """Shaw et al.'s vectors a^K and a^V of each query and key, [t, s, k] and [t, s, e]; zeros if there are none."""
        if not relative or self.c.positions != "shaw":
            return np.zeros((*after_ts.shape, self.c.d_k)), np.zeros((*after_ts.shape, self.c.d_v)), lambda dk, dv: None
        far = self.c.max_distance
        row_ts = np.clip(after_ts, -far, far) + far

        def back(dk, dv):
            np.add.at(self.gradients[name + "/relative_k"], row_ts, dk)
            np.add.at(self.gradients[name + "/relative_v"], row_ts, dv)

        return self.p[name + "/relative_k"][row_ts], self.p[name + "/relative_v"][row_ts], back

    def attention(self, name, x, memory, mask, *, relative):
        """Output and backward, which returns the gradients of x and of memory. One head at a time, as in the paper."""
        divisor = np.sqrt(self.c.d_k) if self.c.scale_attention else 1.0
        wq, wk, wv, wo = (self.p[f"{name}/{part}"] for part in ("wq", "wk", "wv", "wo"))
        rope, alibi = relative and self.c.positions == "rope", relative and self.c.positions == "alibi"
        t5, table = relative and self.c.positions == "t5", f"{name.split('/')[0]}/relative_bias"
        after_ts = np.arange(memory.shape[1])[None] - np.arange(x.shape[1])[:, None]
        bucket_ts = np.abs(after_ts) + 16 * ((after_ts > 0) & name.startswith("encoder"))  # while all are near
        vectors_k, vectors_v, vectors_back = self.relative_vectors(name, after_ts, relative)
        turn = rotations(memory.shape[1], self.c.d_k) if rope else None
        distance = np.abs(np.arange(x.shape[1])[:, None] - np.arange(memory.shape[1])[None])
        out, heads = 0.0, []
        for i in range(self.c.h):
            q, q_back = self.query_or_key(x @ wq[:, i], name + "/q_norm")
            k, k_back = self.query_or_key(memory @ wk[:, i], name + "/k_norm")
            v = memory @ wv[:, i]
            if rope:
                q, k = np.einsum("tij,btj->bti", turn, q), np.einsum("sij,bsj->bsi", turn, k)
            additive = self.c.scores == "additive"
            energies = np.tanh(q[:, :, None] + k[:, None]) if additive else None
            if additive:
                scores = energies @ self.p[name + "/energy"][i]
            else:
                scores = q @ k.swapaxes(1, 2) / divisor
            if alibi:
                scores = scores - slopes(self.c.h)[i] * distance
            if t5:
                scores = scores + self.p[table][bucket_ts, i]
            scores = scores + np.einsum("btk,tsk->bts", q, vectors_k) / divisor
            scores = np.where(mask, scores, -1e9)
            largest = scores.max(-1, keepdims=True)
            weights = np.exp(scores - largest)
            weights = weights / (weights.sum(-1, keepdims=True) + self.c.softmax_one * np.exp(-largest))
            head = weights @ v + np.einsum("bts,tse->bte", weights, vectors_v)
            out = out + head @ wo[i]
            heads.append((q, k, v, energies, weights, head, q_back, k_back))

        def back(dy):
            dx, d_memory = np.zeros_like(x), np.zeros_like(memory)
            for i, (q, k, v, energies, weights, head, q_back, k_back) in enumerate(heads):
                self.gradients[f"{name}/wo"][i] += np.einsum("bte,btd->ed", head, dy)
                d_head = dy @ wo[i].T
                d_weights, dv = d_head @ v.swapaxes(1, 2), weights.swapaxes(1, 2) @ d_head
                d_weights = d_weights + np.einsum("bte,tse->bts", d_head, vectors_v)
                d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True)) / divisor
                if t5:
                    np.add.at(self.gradients[table][:, i], bucket_ts, d_scores.sum(0) * divisor)
                dq, dk = d_scores @ k, d_scores.swapaxes(1, 2) @ q
                if energies is not None:
                    d_scores = d_scores * divisor
                    self.gradients[name + "/energy"][i] += np.einsum("bts,btsk->k", d_scores, energies)
                    d_sum = d_scores[..., None] * self.p[name + "/energy"][i] * (1 - energies**2)
                    dq, dk = d_sum.sum(2), d_sum.sum(1)
                dq = dq + np.einsum("bts,tsk->btk", d_scores, vectors_k)
                vectors_back(np.einsum("bts,btk->tsk", d_scores, q), np.einsum("bts,bte->tse", weights, d_head))
                if rope:
                    dq, dk = np.einsum("tij,bti->btj", turn, dq), np.einsum("sij,bsi->bsj", turn, dk)
                dq, dk = q_back(dq), k_back(dk)
                self.gradients[f"{name}/wq"][:, i] += np.einsum("btd,btk->dk", x, dq)
                self.gradients[f"{name}/wk"][:, i] += np.einsum("bsd,bsk->dk", memory, dk)
                self.gradients[f"{name}/wv"][:, i] += np.einsum("bsd,bse->de", memory, dv)
                dx += dq @ wq[:, i].T
                d_memory += dk @ wk[:, i].T + dv @ wv[:, i].T
            return dx, d_memory

        return out, back

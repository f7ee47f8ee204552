"""Attention of one head for some queries at a time, so that their weights stay in a processor's cache.

The function is that of `model.attention`; only the order of the sums differs. The weights [t,s] of long rows fill
memory, and each pass over them then waits for it; those of a few queries do not. The backward pass computes them again
from the softmax's normaliser, as FlashAttention does (Dao et al. 2022, arXiv 2205.14135, algorithm 4).
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vaswani.model.attention import scaled_dot_products
from vaswani.model.masks import MASKED, Mask

SPANS = 4  # parts of a causal row; queries of each read the keys up to its end, and each is compiled


T = TypeVar("T")
# Of one function over heads, or over rows: the function for several, such as `jax.vmap`.
Each = Callable[[Callable], Callable]
Saved = tuple[Array, Array, Array, Array, Array, Mask]  # queries, keys, values, heads, normalisers
Sums = tuple[Array, Array]  # of the gradients of keys and values, over queries


# The rule covers the loops over rows and heads too: of loops around it jax would keep the masks of all chunks, [t,s].
@partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def all_heads(
    q_bhtk: Float[Array, "b h t k"],
    k_bhsk: Float[Array, "b h s k"],
    v_bhse: Float[Array, "b h s e"],
    mask: Mask,
    size: int,
    each: Each,
) -> Float[Array, "b h t e"]:
    """Returns softmax(Q K^T / sqrt(d_k)) V over unmasked keys, for `size` queries at a time.

    `size` divides the number of queries. `each` goes over the rows, and over the heads of a row.
    """
    heads_bhte, _ = _forward_all(q_bhtk, k_bhsk, v_bhse, mask, size, each)
    return heads_bhte


def _forward_all(q_bhtk: Array, k_bhsk: Array, v_bhse: Array, mask: Mask, size: int, each: Each) -> tuple[Array, Saved]:
    head = partial(_forward, size=size)
    heads_bhte, normaliser_bht1 = _over_heads(each, head, (q_bhtk, k_bhsk, v_bhse), mask)
    return heads_bhte, (q_bhtk, k_bhsk, v_bhse, heads_bhte, normaliser_bht1, mask)


def _backward_all(size: int, each: Each, saved: Saved, dheads_bhte: Array) -> tuple[Array, Array, Array, None]:
    *arrays_bh, mask = saved
    dq_bhtk, dk_bhsk, dv_bhse = _over_heads(each, partial(_backward, size=size), (*arrays_bh, dheads_bhte), mask)
    return dq_bhtk, dk_bhsk, dv_bhse, None


all_heads.defvjp(_forward_all, _backward_all)


def _over_heads(each: Each, function: Callable[..., T], arrays_bh: tuple[Array, ...], mask: Mask) -> T:
    """Returns a function of a head's arrays and its row's mask, for every head of every row."""

    def row(row: tuple[tuple[Array, ...], Mask]) -> T:
        arrays_h, mask = row
        # A batch of one row.
        mask_of_row = mask.replace(queries_bt=mask.queries_bt[None], keys_bs=mask.keys_bs[None])
        return each(lambda head: function(*head, mask_of_row))(arrays_h)

    return each(row)((arrays_bh, mask))


def _forward(q_tk: Array, k_sk: Array, v_se: Array, mask: Mask, size: int) -> tuple[Array, Array]:
    """Returns a head [t,e], and log sum exp of each query's scores [t,1], which the backward pass needs."""
    heads = []
    normalisers = []
    for first_n, keys in _spans(mask, q_tk.shape[0], k_sk.shape[0], size):
        k_ck, v_ce = k_sk[:keys], v_se[:keys]

        def chunk(first: Array, k_sk: Array = k_ck, v_se: Array = v_ce) -> tuple[Array, Array]:
            q_ck = _rows(q_tk, first, size)
            # S = Q K^T / sqrt(d_k), of these queries only.
            legal_cs = _legal_scores(q_ck, k_sk, _dense(mask, first, size, len(k_sk)))
            # Minus the highest score, so that exp cannot overflow.
            highest_c1 = legal_cs.max(axis=-1, keepdims=True)
            weights_cs = jnp.exp(legal_cs - highest_c1)
            sum_c1 = weights_cs.sum(axis=-1, keepdims=True)
            # Divided after the product, which has fewer numbers than the weights.
            heads_ce = _product("cs,se->ce", weights_cs.astype(v_se.dtype), v_se) / sum_c1
            return heads_ce.astype(v_se.dtype), highest_c1 + jnp.log(sum_c1)

        heads_nce, normaliser_nc1 = jax.lax.map(chunk, first_n)
        heads.append(heads_nce.reshape(-1, v_se.shape[1]))
        normalisers.append(normaliser_nc1.reshape(-1, 1))
    return jnp.concatenate(heads), jnp.concatenate(normalisers)


def _backward(
    q_tk: Array,
    k_sk: Array,
    v_se: Array,
    heads_te: Array,
    normaliser_t1: Array,
    dheads_te: Array,
    mask: Mask,
    size: int,
) -> tuple[Array, Array, Array]:
    """Returns the gradients of a head's queries, keys and values; those of the latter are added up in float32."""
    root = jnp.sqrt(jnp.float32(q_tk.shape[1]))
    # The softmax's gradient subtracts the mean over the keys, sum P dP, which equals dO . O: no need of the weights.
    mean_t1 = (dheads_te.astype(jnp.float32) * heads_te).sum(axis=-1, keepdims=True)
    dq = []
    dk_ks = jnp.zeros(k_sk.shape[::-1], jnp.float32)
    dv_es = jnp.zeros(v_se.shape[::-1], jnp.float32)
    for first_n, keys in _spans(mask, q_tk.shape[0], k_sk.shape[0], size):
        k_ck, v_ce = k_sk[:keys], v_se[:keys]

        def chunk(sums: Sums, first: Array, k_sk: Array = k_ck, v_se: Array = v_ce) -> tuple[Sums, Array]:
            dk_ks, dv_es = sums
            q_ck, dheads_ce, mean_c1, normaliser_c1 = (
                _rows(x, first, size) for x in (q_tk, dheads_te, mean_t1, normaliser_t1)
            )
            # The weights again: P = exp(S - log sum exp S).
            legal_cs = _legal_scores(q_ck, k_sk, _dense(mask, first, size, len(k_sk)))
            weights_cs = jnp.exp(legal_cs - normaliser_c1)
            # Back through O = P V, through the softmax, and through S = Q K^T / sqrt(d_k).
            dweights_cs = _product("ce,se->cs", dheads_ce, v_se)
            dscores_cs = (weights_cs * (dweights_cs - mean_c1) / root).astype(q_tk.dtype)
            dq_ck = _product("cs,sk->ck", dscores_cs, k_sk).astype(q_tk.dtype)
            # dK = dS^T Q and dV = P^T dO, sums over queries. [k,c][c,s] and not [s,c][c,k]: XLA's product on a CPU is
            # up to ten times as fast where not the large matrix is transposed, but the small one.
            dk_ks += _product("kc,cs->ks", q_ck.T, dscores_cs)
            dv_es += _product("ec,cs->es", dheads_ce.T, weights_cs.astype(v_se.dtype))
            return (dk_ks, dv_es), dq_ck

        nothing = (jnp.zeros_like(dk_ks[:, :keys]), jnp.zeros_like(dv_es[:, :keys]))
        (span_dk_ks, span_dv_es), dq_nck = jax.lax.scan(chunk, nothing, first_n)
        dq.append(dq_nck.reshape(-1, q_tk.shape[1]))
        dk_ks = dk_ks.at[:, :keys].add(span_dk_ks)
        dv_es = dv_es.at[:, :keys].add(span_dv_es)
    return jnp.concatenate(dq), dk_ks.T.astype(k_sk.dtype), dv_es.T.astype(v_se.dtype)


def _spans(mask: Mask, t: int, s: int, size: int) -> list[tuple[Array, int]]:
    """Returns parts of a row: the first query of each of its chunks, and how many keys any of its queries may see."""
    # A causal query sees no later key but the prefix's: the first parts need only the beginning of the row.
    chunks = t // size
    parts = min(SPANS, chunks) if mask.causal else 1
    bounds = [chunks * part // parts for part in range(parts + 1)]
    spans = []
    for begin, end in pairwise(bounds):
        keys = min(s, max(end * size, mask.prefix)) if mask.causal else s
        spans.append((size * jnp.arange(begin, end), keys))
    return spans


def _legal_scores(
    q_ck: Float[Array, "c k"], k_sk: Float[Array, "s k"], mask_cs: Bool[Array, "c s"]
) -> Float[Array, "c s"]:
    scores_11cs = scaled_dot_products(q_ck[None, None], k_sk[None, None])
    return jnp.where(mask_cs, scores_11cs[0, 0], MASKED)


def _dense(mask: Mask, first: Array, size: int, keys: int) -> Bool[Array, "c s"]:
    """Returns the dense mask of the chunk of queries from `first` on, against so many keys."""
    return mask.replace(keys_bs=mask.keys_bs[:, :keys]).dense_from(first, size)[0]


def _rows(x_tk: Array, first: Array, size: int) -> Array:
    return jax.lax.dynamic_slice_in_dim(x_tk, first, size)


def _product(axes: str, x: Array, y: Array) -> Array:
    """Returns an einsum, in float32 even where x and y are in bfloat16."""
    return jnp.einsum(axes, x, y, preferred_element_type=jnp.float32)

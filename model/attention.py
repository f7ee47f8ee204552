"""Scaled dot-product attention (section 3.2.1, equation 1), and what may replace its scores and its softmax."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vaswani.model.masks import MASKED


def scaled_dot_products(q_bhtk: Float[Array, "b h t k"], k_bhsk: Float[Array, "b h s k"]) -> Float[Array, "b h t s"]:
    """Returns Q K^T / sqrt(d_k), in float32."""
    d_k = q_bhtk.shape[-1]
    return dot_products(q_bhtk, k_bhsk) / jnp.sqrt(jnp.float32(d_k))


def softmax(scores_bhts: Float[Array, "b h t s"]) -> Float[Array, "b h t s"]:
    """Returns the softmax over keys. For its gradient only the weights are kept."""
    # Without this switch jax differentiates exp, sum and quotient, and what they gave is kept, too.
    with jax.softmax_custom_jvp(True):
        return jax.nn.softmax(scores_bhts)


def keep_all(weights_bhts: Float[Array, "b h t s"]) -> Float[Array, "b h t s"]:
    """Returns the weights themselves: the paper drops none of them."""
    return weights_bhts


def attention(
    q_bhtk: Float[Array, "b h t k"],
    k_bhsk: Float[Array, "b h s k"],
    v_bhse: Float[Array, "b h s e"],
    mask_bts: Bool[Array, "b t s"],
    scores: Callable[[Array, Array], Array] = scaled_dot_products,
    softmax: Callable[[Array], Array] = softmax,
    drop: Callable[[Array], Array] = keep_all,
) -> tuple[Float[Array, "b h t e"], Float[Array, "b h t s"]]:
    """Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V, of every head; also returns the weights of V, in float32.

    `scores` replaces Q K^T / sqrt(d_k), and `softmax` the softmax over keys; `drop` is dropout of the weights.
    """
    # How compatible each query t is with each key s.
    scores_bhts = scores(q_bhtk, k_bhsk)
    # Illegal connections are set to -infinity (section 3.2.3), here to a number so low that exp of it is 0.
    legal_bhts = jnp.where(mask_bts[:, None], scores_bhts, MASKED)
    # Over the keys of a query the weights add up to 1.
    weights_bhts = drop(softmax(legal_bhts))
    # "The output is computed as a weighted sum of the values."
    heads_bhte = jnp.einsum("bhts,bhse->bhte", weights_bhts.astype(v_bhse.dtype), v_bhse)
    return heads_bhte, weights_bhts


# In place of the scores.


def dot_products(q_bhtk: Float[Array, "b h t k"], k_bhsk: Float[Array, "b h s k"]) -> Float[Array, "b h t s"]:
    """Returns Q K^T, in float32 even where Q and K are in bfloat16."""
    return jnp.einsum("bhtk,bhsk->bhts", q_bhtk, k_bhsk, preferred_element_type=jnp.float32)


def additive_scores(
    q_bhtk: Float[Array, "b h t k"], k_bhsk: Float[Array, "b h s k"], energy_hk: Float[Array, "h k"]
) -> Float[Array, "b h t s"]:
    """Returns v^T tanh(q + k), in float32: the "additive attention" of section 3.2.1.

    Bahdanau et al. 2015 (appendix A.1.2), with the projections of Q and K for their W and U, a v for each head, and no
    hidden layer beside it. Memory grows with t s d_k, not with t s.
    """
    energies_bhtsk = jnp.tanh(q_bhtk[:, :, :, None] + k_bhsk[:, :, None])
    v_hk = energy_hk.astype(energies_bhtsk.dtype)
    return jnp.einsum("bhtsk,hk->bhts", energies_bhtsk, v_hk, preferred_element_type=jnp.float32)


# In place of the softmax.


def softmax_one(scores_bhts: Float[Array, "b h t s"]) -> Float[Array, "b h t s"]:
    """Returns the softmax with exp(0) added to its denominator, so that a head may attend to nothing.

    Miller 2023, "Attention is off by one".
    """
    # One more key, of score 0, whose weight is thrown away.
    with_zero_bhtu = jnp.pad(scores_bhts, ((0, 0), (0, 0), (0, 0), (0, 1)))
    return softmax(with_zero_bhtu)[..., :-1]


# Shaw et al. 2018 (arXiv 1803.02155): a vector for each distance r, added to keys and to values.


def relative_scores(
    q_bhtk: Float[Array, "b h t k"], table_rk: Float[Array, "r k"], distance_btsr: Float[Array, "b t s r"], scale: bool
) -> Float[Array, "b h t s"]:
    """Returns q_i a^K_ij (equation 4), in float32, with `scale` divided by sqrt(d_k); distances are one-hot."""
    # Each query is multiplied by the r vectors once, whatever the number of keys: no array is [t,s,k].
    table_rk = table_rk.astype(q_bhtk.dtype)
    scores_bhtr = jnp.einsum("bhtk,rk->bhtr", q_bhtk, table_rk, preferred_element_type=jnp.float32)
    if scale:
        scores_bhtr = scores_bhtr / jnp.sqrt(jnp.float32(q_bhtk.shape[-1]))
    return jnp.einsum("bhtr,btsr->bhts", scores_bhtr, distance_btsr)


def relative_values(
    weights_bhts: Float[Array, "b h t s"], table_re: Float[Array, "r e"], distance_btsr: Float[Array, "b t s r"]
) -> Float[Array, "b h t e"]:
    """Returns sum_j alpha_ij a^V_ij (equation 3); distances are one-hot."""
    # The weights of all keys at one distance are added up before they multiply its vector: no array is [t,s,e].
    weights_bhtr = jnp.einsum("bhts,btsr->bhtr", weights_bhts, distance_btsr.astype(weights_bhts.dtype))
    return jnp.einsum("bhtr,re->bhte", weights_bhtr, table_re.astype(weights_bhts.dtype))

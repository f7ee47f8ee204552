"""What multi-head attention may do otherwise than section 3.2.2: each variant is one method of `HeadVariants`.

All are off by default: `Heads` (model/mixers/attention.py) then has the paper's four matrices and nothing else.
"""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.model.attention import (
    additive_scores,
    dot_products,
    relative_scores,
    relative_values,
    scaled_dot_products,
    softmax,
    softmax_one,
)
from vaswani.model.config import ModelConfig
from vaswani.model.positions import NoPositions, clipped_distances


class HeadVariants(nn.Module):
    """The parameters and the methods of every variant of `Heads`, which calls them where the variant enters."""

    config: ModelConfig
    encoding: NoPositions  # `NoPositions` in cross-attention and in linear attention
    gain: float = 1.0  # of the initial values of W^V and W^O

    def make_variants(self) -> None:
        """Makes the variants' parameters; the random numbers of each depend on how many were made before it."""
        self._make_biases()
        self._make_norms()
        self._make_energy()
        self._make_relative_vectors()
        self.softmax = softmax_one if self.config.softmax_one else softmax

    def _make_biases(self) -> None:
        """Makes a bias of each projection, with `config.biases`, as GPT-2 and BERT have."""
        c = self.config
        self.bq = self.bk = self.bv = self.bo = None
        if c.biases:
            self.bq = self.param("bq", nn.initializers.zeros, (c.h, c.d_k))
            self.bk = self.param("bk", nn.initializers.zeros, (c.h, c.d_k))
            self.bv = self.param("bv", nn.initializers.zeros, (c.h, c.d_v))
            self.bo = self.param("bo", nn.initializers.zeros, (c.d_model,))

    def _make_norms(self) -> None:
        """Makes norms of the queries and keys of each head, with `config.qk_norm`.

        Henry et al. 2020 (arXiv 2010.04245), with the root mean square for their norm.
        """
        c = self.config
        self.q_norm = self.k_norm = identity
        if c.qk_norm:
            self.q_norm = nn.RMSNorm(epsilon=c.norm_epsilon, dtype=c.dtype)
            self.k_norm = nn.RMSNorm(epsilon=c.norm_epsilon, dtype=c.dtype)

    def _make_energy(self) -> None:
        """Makes the vector v of each head, with `config.scores` "additive" (`additive_scores`)."""
        c = self.config
        if c.scores == "additive":
            # Glorot-uniform for each head by itself, from d_k energies to one number.
            init = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=1, out_axis=(), batch_axis=0)
            self.energy = self.param("energy", init, (c.h, c.d_k))

    def _make_relative_vectors(self) -> None:
        """Makes Shaw's vectors of keys and values, one for each distance, for all heads alike."""
        c = self.config
        distances = self.encoding.distances
        if distances:
            init = nn.initializers.glorot_uniform()
            self.relative_k = self.param("relative_k", init, (distances, c.d_k))
            self.relative_v = self.param("relative_v", init, (distances, c.d_v))

    def scores(
        self,
        q_bhtk: Float[Array, "b h t k"],
        k_bhsk: Float[Array, "b h s k"],
        positions_bt: Int[Array, "b t"],
        positions_bs: Int[Array, "b s"],
        table_rh: Float[Array, "r h"] | None,
    ) -> Float[Array, "b h t s"]:
        """Returns Q K^T / sqrt(d_k), or what replaces it, in float32; some kinds of positions add to it."""
        c = self.config
        if c.scores == "additive":
            scores_bhts = additive_scores(q_bhtk, k_bhsk, self.energy)
        elif c.scale_attention:
            scores_bhts = scaled_dot_products(q_bhtk, k_bhsk)
        else:
            scores_bhts = dot_products(q_bhtk, k_bhsk)

        bias_bhts = self.encoding.bias(positions_bt, positions_bs, table_rh)
        if self.encoding.distances:
            distance_btsr = clipped_distances(positions_bt, positions_bs, c.max_distance)
            bias_bhts = relative_scores(q_bhtk, self.relative_k, distance_btsr, c.scale_attention)
        return scores_bhts if bias_bhts is None else scores_bhts + bias_bhts

    def add_relative_values(
        self,
        heads_bhte: Float[Array, "b h t e"],
        weights_bhts: Float[Array, "b h t s"],
        positions_bt: Int[Array, "b t"],
        positions_bs: Int[Array, "b s"],
    ) -> Float[Array, "b h t e"]:
        """Returns the heads; with Shaw's a^V_ij added to the values, so plus their weighted sum."""
        if not self.encoding.distances:
            return heads_bhte
        distance_btsr = clipped_distances(positions_bt, positions_bs, self.config.max_distance)
        weights_bhts = weights_bhts.astype(heads_bhte.dtype)
        return heads_bhte + relative_values(weights_bhts, self.relative_v, distance_btsr)


def identity(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Returns x: what stands in the place of a norm that a model does not have."""
    return x


def add_bias(x_bt: Array, bias: Array | None) -> Array:
    """Returns x [b,t,..] with the bias [..] added at every position; x itself without one."""
    if bias is None:
        return x_bt
    # Cast only then, so that the bias's gradient, a sum over all positions, is added up in the bias's own float32.
    return x_bt + jnp.broadcast_to(bias, x_bt.shape).astype(x_bt.dtype)

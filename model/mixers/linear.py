"""Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236): a product of features in place of the softmax.

With phi(x) = elu(x) + 1, y_i = sum_j phi(q_i)^T phi(k_j) v_j / sum_j phi(q_i)^T phi(k_j). The sums over j of
phi(k_j) v_j^T and of phi(k_j) serve every query, so the cost grows with n and not with its square.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vaswani.model.masks import NO_SEGMENT, Mask
from vaswani.model.mixers.attention import Heads
from vaswani.model.mixers.state import BeamState
from vaswani.model.noise import Noise

BLOCK = 64  # positions; within a block all pairs are computed, between blocks only sums are passed on
LEAST = 1e-6  # added to the denominator, as by its authors

Sums = tuple[Array, Array]  # of k v^T, and their segment


def features(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Returns elu(x) + 1, as exp(x) below 0, where the sum would round to 0."""
    return jnp.where(x > 0, x + 1, jnp.exp(jnp.minimum(x, 0)))


class LinearAttention(Heads):
    """Linear attention to the positions of the sentence, under a causal mask to those up to and including its own."""

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        mask: Mask,
        cache: BeamState | None = None,
        noise: Noise | None = None,
    ) -> tuple[Float[Array, "b t d"], BeamState | None, None]:
        """Returns the output, and the sums of phi(k) v^T with x; there are no weights to drop or to draw."""
        q_bhtk, k_bhtk, v_bhte = self._features(x_btd, positions_bt)
        # Blocks of pairs, and sums between blocks.
        heads_bhte = linear_attention(q_bhtk, k_bhtk, v_bhte, mask.queries_bt, mask.causal)
        if cache is not None:
            # A search goes on from the sums over the whole prompt.
            cache = cache.begin(_sums(k_bhtk, v_bhte, mask))
        return self.output(heads_bhte), cache, None

    def step(
        self, x_bmd: Float[Array, "b m d"], positions_bm: Int[Array, "b m"], cache: BeamState
    ) -> tuple[Float[Array, "b m d"], BeamState]:
        """Returns the output of one more token of each beam, and the sums with it."""
        q_bhmk, k_bhmk, v_bhme = self._features(x_bmd, positions_bm)
        # All that a query needs of the tokens before it is their sum.
        (before_bmhke,) = cache.arrays
        new_bmhke = jnp.einsum("bhmk,bhme->bmhke", k_bhmk, _with_one(v_bhme), preferred_element_type=jnp.float32)
        sums_bmhke = before_bmhke + new_bmhke
        weighted_bhme = jnp.einsum("bhmk,bmhke->bhme", q_bhmk.astype(jnp.float32), sums_bmhke)
        heads_bhme = _normalised(weighted_bhme).astype(x_bmd.dtype)
        return self.output(heads_bhme), BeamState((sums_bmhke,))

    def _features(self, x_btd: Array, positions_bt: Array) -> tuple[Array, Array, Array]:
        """Returns phi(q), phi(k) and v. phi is positive, so products of it are weights without a softmax."""
        k_bhtk, v_bhte, _ = self.keys_values(x_btd, positions_bt)
        k_bhtk = features(k_bhtk)
        return features(self.queries(x_btd, positions_bt)), k_bhtk, v_bhte

    def init_cache(self, rows: int, beams: int, slots: int) -> BeamState:
        """Returns the sums over no tokens at all."""
        c = self.config
        sums_bmhke = jnp.zeros((rows, beams, c.h, c.d_k, c.d_v + 1), jnp.float32)
        return BeamState((sums_bmhke,))


def _sums(k_bhtk: Float[Array, "b h t k"], v_bhte: Float[Array, "b h t e"], mask: Mask) -> Float[Array, "b h k e+1"]:
    """Returns the sums over the tokens of each row, padding left out."""
    real_b1t1 = (mask.keys_bs != 0)[:, None, :, None].astype(k_bhtk.dtype)
    return jnp.einsum("bhtk,bhte->bhke", k_bhtk * real_b1t1, _with_one(v_bhte), preferred_element_type=jnp.float32)


def linear_attention(
    q_bhtk: Float[Array, "b h t k"],
    k_bhtk: Float[Array, "b h t k"],
    v_bhte: Float[Array, "b h t e"],
    segments_bt: Int[Array, "b t"],
    causal: bool,
) -> Float[Array, "b h t e"]:
    """Returns sum_j (q_i k_j) v_j / sum_j (q_i k_j) over the j of i's segment, causally over those up to i.

    Rows are split into blocks. Within a block pairs are multiplied out; what the blocks before (and, without
    `causal`, after) contribute comes from a scan over blocks, which carries the sums of k v^T of the segment that
    crosses into the block.
    """
    b, h, t, _ = q_bhtk.shape
    block = min(BLOCK, t)
    n = -(-t // block)

    def split(x_bhtk: Array) -> Array:
        """From [b,h,t,k] to blocks [n,b,h,q,k]."""
        x_bhtk = jnp.pad(x_bhtk, ((0, 0), (0, 0), (0, n * block - t), (0, 0)))
        return jnp.moveaxis(x_bhtk.reshape(b, h, n, block, -1), 2, 0)

    # Along n are the blocks, q the queries of one and s its keys.
    q_nbhqk = split(q_bhtk)
    k_nbhsk = split(k_bhtk)
    v_nbhse = split(_with_one(v_bhte))
    segments_bt = jnp.pad(segments_bt, ((0, 0), (0, n * block - t)), constant_values=NO_SEGMENT)
    segments_nbq = segments_bt.reshape(b, n, block).swapaxes(0, 1)
    # Within a block: all pairs of one sentence, as in softmax attention.
    pairs_nbqs = segments_nbq[..., :, None] == segments_nbq[..., None, :]
    if causal:
        pairs_nbqs = pairs_nbqs & jnp.tril(jnp.ones((block, block), bool))[None, None]
    scores_nbhqs = jnp.einsum("nbhqk,nbhsk->nbhqs", q_nbhqk, k_nbhsk, preferred_element_type=jnp.float32)
    scores_nbhqs = jnp.where(pairs_nbqs[:, :, None], scores_nbhqs, 0.0).astype(v_nbhse.dtype)
    sums_nbhqe = jnp.einsum("nbhqs,nbhse->nbhqe", scores_nbhqs, v_nbhse, preferred_element_type=jnp.float32)
    # Between blocks: what the others contribute is one matrix [k,e] per block.
    directions = (False,) if causal else (False, True)  # whether the other blocks are those after
    for after in directions:
        others_nbhke, segment_nb = _other_blocks(k_nbhsk, v_nbhse, segments_nbq, after)
        # Only queries of the sentence that crosses the border read it.
        reads_nbq = (segments_nbq == segment_nb[..., None]).astype(jnp.float32)
        more_nbhqe = jnp.einsum("nbhqk,nbhke->nbhqe", q_nbhqk.astype(jnp.float32), others_nbhke)
        sums_nbhqe = sums_nbhqe + more_nbhqe * reads_nbq[:, :, None, :, None]
    # Back from blocks to rows, [n,b,h,q,e] -> [b,h,t,e].
    sums_bhte = jnp.moveaxis(sums_nbhqe, 0, 2).reshape(b, h, n * block, -1)[:, :, :t]
    return _normalised(sums_bhte).astype(v_bhte.dtype)


def _other_blocks(
    k_nbhsk: Float[Array, "n b h s k"],
    v_nbhse: Float[Array, "n b h s e"],
    segments_nbs: Int[Array, "n b s"],
    after: bool,
) -> tuple[Float[Array, "n b h k e"], Int[Array, "n b"]]:
    """Returns, for each block, the sum of k v^T over the blocks before it (or after it), and that sum's segment.

    It is the segment of the position next to the block: no other segment reaches into the block.
    """
    border = 0 if after else -1

    def add(carry: Sums, block: tuple[Array, Array, Array]) -> tuple[Sums, Sums]:
        sums_bhke, segment_b = carry
        k_bhsk, v_bhse, segments_bs = block
        # The sentence that reaches out of this block, towards the next.
        next_b = segments_bs[:, border]
        own_bhsk = k_bhsk * (segments_bs == next_b[:, None])[:, None, :, None]
        own_bhke = jnp.einsum("bhsk,bhse->bhke", own_bhsk, v_bhse, preferred_element_type=jnp.float32)
        # What came from further away is only passed on if it belongs to that sentence, too.
        kept_bhke = jnp.where((segment_b == next_b)[:, None, None, None], sums_bhke, 0.0)
        return (kept_bhke + own_bhke, next_b), carry

    _, b, h, _, k = k_nbhsk.shape
    e = v_nbhse.shape[-1]
    no_sums_bhke = jnp.zeros((b, h, k, e), jnp.float32)
    no_segment_b = jnp.full((b,), NO_SEGMENT, jnp.int32)
    blocks = (k_nbhsk, v_nbhse, segments_nbs)
    _, others = jax.lax.scan(add, (no_sums_bhke, no_segment_b), blocks, reverse=after)
    return others


def _with_one(v_bhte: Float[Array, "b h t e"]) -> Float[Array, "b h t f"]:
    """Returns the values with a 1 appended to each, whose weighted sum is the denominator."""
    return jnp.concatenate([v_bhte, jnp.ones_like(v_bhte[..., :1])], axis=-1)


def _normalised(sums_bhte: Float[Array, "b h t f"]) -> Float[Array, "b h t e"]:
    # The last column is the sum of the weights, see `_with_one`.
    numerator_bhte = sums_bhte[..., :-1]
    denominator_bht1 = sums_bhte[..., -1:]
    return numerator_bhte / (denominator_bht1 + LEAST)

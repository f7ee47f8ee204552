"""Cross-entropy with label smoothing, as sums and counts (paper, section 5.4).

`cross_entropy` is the definition. `softmax_cross_entropy` computes the same from the two factors of the logits, which
it never stores for more than a chunk of the positions: for the paper's 25,000 positions and 37,000 subwords they would
be 3.7 GB in float32, and their gradient as much again.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float, Int

from vaswani.model.embed import logits_of
from vaswani.run.sharding import ROWS, row_parts


class Loss(NamedTuple):
    """Weighted sums over predicted tokens, in nats; divide by `tokens` only after all sums have been added up."""

    loss_sum: Float[Array, ""]  # cross-entropy against the smoothed distribution: what is minimised
    nll_sum: Float[Array, ""]  # negative log-likelihood of the true tokens, from which perplexity is computed
    tokens: Float[Array, ""]  # sum of the weights: with weights 1 and 0, the number of tokens


def cross_entropy(
    logits_btv: Float[Array, "b t v"], target_bt: Int[Array, "b t"], weights_bt: Float[Array, "b t"], eps_ls: float
) -> Loss:
    """Returns the smoothed and the plain cross-entropy of `target_bt`, each token weighted by `weights_bt`.

    A token of weight 0 is ignored, even if its logits are not finite.

    The paper does not say how the smoothing mass is distributed. Here, as in tensor2tensor and fairseq, the true token
    keeps 1 - eps_ls and each of the other v - 1 gets eps_ls / (v - 1); the entropy of that distribution, a constant, is
    not subtracted, so the smoothed loss cannot reach 0.

    With q the smoothed distribution, -sum_v q_v log p_v = lse(x) - sum_v q_v x_v, because q sums to one. This form
    needs neither log-probabilities nor one-hot targets of the size of the logits.
    """
    lse_bt = jax.nn.logsumexp(logits_btv, axis=-1)
    sum_bt = jnp.sum(logits_btv, axis=-1)
    return _loss(logits_btv, lse_bt, sum_bt, target_bt, weights_bt, eps_ls)


def _loss(
    logits_btv: Array,
    lse_bt: Array,
    sum_bt: Array,
    target_bt: Array,
    weights_bt: Array,
    eps_ls: float,
) -> Loss:
    """Returns `cross_entropy`, given log sum_v exp(x_v) and sum_v x_v of the logits."""
    # q is `low` at each token and 1 - eps_ls at the true one, so that
    # sum_v q_v x_v = low sum_v x_v + (1 - eps_ls - low) x_gold.
    low = eps_ls / (logits_btv.shape[-1] - 1)
    gold_bt = jnp.take_along_axis(logits_btv, target_bt[:, :, None], axis=-1)[:, :, 0]
    nll_bt = lse_bt - gold_bt
    loss_bt = lse_bt - (1.0 - eps_ls - low) * gold_bt - low * sum_bt

    # `where` as well as the weight: 0 times infinity would be NaN.
    def total(x_bt: Array) -> Array:
        return jnp.sum(x_bt * weights_bt, where=weights_bt != 0)

    return Loss(total(loss_bt), total(nll_bt), jnp.sum(weights_bt))


def softmax_cross_entropy(
    x_btd: Float[Array, "b t d"],
    softmax_vd: Float[Array, "v d"],
    target_bt: Int[Array, "b t"],
    weights_bt: Float[Array, "b t"],
    eps_ls: float,
    chunk: int,
) -> Loss:
    """Returns `cross_entropy` of the logits x E^T, of which at most about `chunk` positions per device exist at a time.

    With a chunk of 0 all positions are one chunk. Only `loss_sum` has a gradient, with respect to `x_btd` and
    `softmax_vd`; it is computed together with the value, chunk by chunk, so nothing is computed twice. The logits and
    their gradient are float32; the gradient is rounded to x's dtype for the two matmuls that it enters, which would
    otherwise be slow ones in float32.
    """
    loss_sum, nll_sum = _sums(eps_ls, chunk, x_btd, softmax_vd, target_bt, weights_bt)
    return Loss(loss_sum, jax.lax.stop_gradient(nll_sum), jnp.sum(weights_bt))


def chunks(rows: int, length: int, chunk: int) -> tuple[int, int]:
    """Returns the number of chunks, and the positions of each row in one chunk, which waste the least padding.

    Where rows of 10 positions may be cut into pieces of 3, four chunks would compute 12 of each; five of 2 compute 10.
    """
    # Every row gives as many positions to a chunk, so a chunk of fewer positions than rows still has one of each.
    most = length
    if chunk:
        most = min(length, max(1, chunk // rows))

    def padded_length(each: int) -> int:
        return -(-length // each) * each

    # Halving the pieces at most: smaller ones could waste less padding, but would take more steps.
    from_the_largest = range(most, most // 2, -1)
    each = min(from_the_largest, key=padded_length)
    return -(-length // each), each


# In the names below c are chunks, p parts of the rows, one for each device, and n the positions of a part in one chunk.


_Piece = tuple[Array, Array, Array]  # x_pnd, target_pn and weights_pn of a chunk


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _sums(
    eps_ls: float, chunk: int, x_btd: Array, softmax_vd: Array, target_bt: Array, weights_bt: Array
) -> tuple[Array, Array]:
    """Returns loss_sum and nll_sum without a gradient, as in validation."""
    b, t = target_bt.shape
    division = _divide(b, t, chunk)
    table_vd, table_sum_d = _prepare(softmax_vd, x_btd.dtype, division)

    def add(sums: tuple[Array, Array], piece: _Piece) -> tuple[tuple[Array, Array], None]:
        loss, _, _ = _loss_of_chunk(*piece, table_vd, table_sum_d, eps_ls)
        loss_sum, nll_sum = sums
        return (loss_sum + loss.loss_sum, nll_sum + loss.nll_sum), None

    no_sums = (jnp.zeros(()), jnp.zeros(()))
    sums, _ = division.scan(add, no_sums, (x_btd, target_bt, weights_bt))
    return sums


def _sums_and_gradient(
    eps_ls: float, chunk: int, x_btd: Array, softmax_vd: Array, target_bt: Array, weights_bt: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Returns the sums and, for `_backward`, loss_sum's gradients by x and by the softmax matrix.

    The gradients of a chunk are computed while its logits exist, so that the backward pass needs none of the arrays.
    """
    b, t, d = x_btd.shape
    v = softmax_vd.shape[0]
    division = _divide(b, t, chunk)
    table_vd, table_sum_d = _prepare(softmax_vd, x_btd.dtype, division)

    def add(total: Any, piece: _Piece) -> tuple[Any, Array]:
        (loss_sum, nll_sum), dtable_pvd = total
        x_pnd, target_pn, weights_pn = piece
        loss, logits_pnv, lse_pn = _loss_of_chunk(*piece, table_vd, table_sum_d, eps_ls)
        sums = (loss_sum + loss.loss_sum, nll_sum + loss.nll_sum)

        # The logits are x E^T. Given their gradient G, E's is G^T x, a sum over all chunks, and x's is G E.
        dlogits_pnv = _logits_gradient(logits_pnv, lse_pn, target_pn, weights_pn, eps_ls)
        dlogits_pnv = dlogits_pnv.astype(x_pnd.dtype)
        dtable_pvd += jnp.einsum("pnv,pnd->pvd", dlogits_pnv, x_pnd, preferred_element_type=jnp.float32)
        dx_pnd = jnp.einsum("pnv,vd->pnd", dlogits_pnv, table_vd)
        return (sums, dtable_pvd), dx_pnd

    no_sums = (jnp.zeros(()), jnp.zeros(()))
    # Each part adds up its own gradient of the matrix, or else every chunk would wait for all devices.
    no_dtable_pvd = division.constrain(jnp.zeros((division.parts, v, d)), P(*ROWS, "tensor", None))
    whole = (x_btd, target_bt, weights_bt)
    (sums, dtable_pvd), dx_cpnd = division.scan(add, (no_sums, no_dtable_pvd), whole)
    dsoftmax_vd = jnp.sum(dtable_pvd, axis=0).astype(softmax_vd.dtype)
    return sums, (division.join(dx_cpnd, b, t), dsoftmax_vd)


def _backward(eps_ls: float, chunk: int, gradient: tuple[Array, Array], cotangent: tuple[Array, Array]) -> Any:
    """Returns the cotangents of the arrays: `gradient` times loss_sum's cotangent."""
    dx_btd, dsoftmax_vd = gradient
    loss_cotangent, _ = cotangent  # nll_sum has no gradient
    dx_btd = (dx_btd * loss_cotangent).astype(dx_btd.dtype)
    dsoftmax_vd = (dsoftmax_vd * loss_cotangent).astype(dsoftmax_vd.dtype)
    no_gradient = None  # of the targets and the weights
    return dx_btd, dsoftmax_vd, no_gradient, no_gradient


_sums.defvjp(_sums_and_gradient, _backward)


def _prepare(softmax_vd: Array, dtype: Any, division: "_Division") -> tuple[Array, Array]:
    """Returns the softmax matrix E as the matmuls take it, and sum_v E_v: both once, not in every chunk."""
    table_vd = division.constrain(softmax_vd.astype(dtype), P("tensor", None))  # gathered along d_model
    return table_vd, jnp.sum(table_vd, axis=0, dtype=jnp.float32)


def _loss_of_chunk(
    x_pnd: Array, target_pn: Array, weights_pn: Array, table_vd: Array, table_sum_d: Array, eps_ls: float
) -> tuple[Loss, Array, Array]:
    """Returns the loss of a chunk; and its logits with their logsumexp, which the gradient needs too."""
    # x E^T, [p,n,v]: the one large array.
    logits_pnv = logits_of(x_pnd, table_vd)
    lse_pn = logsumexp(logits_pnv)
    # sum_v x E_v^T is x (sum_v E_v)^T: without another pass over the logits.
    sum_pn = jnp.sum(x_pnd * table_sum_d[None, None], axis=-1)
    loss = _loss(logits_pnv, lse_pn, sum_pn, target_pn, weights_pn, eps_ls)
    return loss, logits_pnv, lse_pn


def logsumexp(x_pnv: Array) -> Array:
    """Returns log sum_v exp(x_v), on CUDA's GPUs in one pass over x, where memory is what the loss waits for."""
    return jax.lax.platform_dependent(x_pnv, cuda=one_pass, default=partial(jax.nn.logsumexp, axis=-1))


def one_pass(x_pnv: Array) -> Array:
    """Returns the same with the maximum and the sum of exponentials in one reduction (Milakov and Gimelshein 2018)."""

    def join(left: tuple[Array, Array], right: tuple[Array, Array]) -> tuple[Array, Array]:
        # Each side is a part of the row, with its maximum and the sum of exp(x - its maximum).
        maximum = jnp.maximum(left[0], right[0])
        return maximum, left[1] * jnp.exp(left[0] - maximum) + right[1] * jnp.exp(right[0] - maximum)

    # The least finite number, since -inf - -inf would be NaN.
    nothing = (jnp.finfo(x_pnv.dtype).min, jnp.zeros((), x_pnv.dtype))
    maximum_pn, sum_pn = jax.lax.reduce((x_pnv, jnp.ones_like(x_pnv)), nothing, join, (x_pnv.ndim - 1,))
    return maximum_pn + jnp.log(sum_pn)


def _logits_gradient(logits_pnv: Array, lse_pn: Array, target_pn: Array, weights_pn: Array, eps_ls: float) -> Array:
    """Returns the gradient of `cross_entropy`'s loss_sum by the logits; zeros for a token of weight 0."""
    v = logits_pnv.shape[-1]
    # The derivative of -sum_v q_v log p_v by the logits is p - q; q is written out here, as nowhere else.
    low = eps_ls / (v - 1)
    is_true_pnv = jnp.arange(v)[None, None] == target_pn[:, :, None]
    q_pnv = jnp.where(is_true_pnv, 1.0 - eps_ls, low)
    p_pnv = jnp.exp(logits_pnv - lse_pn[:, :, None])

    weights_pn1 = weights_pn[:, :, None]
    dlogits_pnv = weights_pn1 * (p_pnv - q_pnv)
    # Selected, since 0 times a logit that is not finite would be NaN.
    return jnp.where(weights_pn1 != 0, dlogits_pnv, 0)


class _Division(NamedTuple):
    """How positions are divided: the rows into `parts`, one per device, and each row into `chunks` of length `each`."""

    parts: int
    chunks: int
    each: int

    def constrain(self, x: Array, spec: P) -> Array:
        """Returns x, sharded as `spec` says where each device has its own part of the rows."""
        return x if self.parts == 1 else jax.lax.with_sharding_constraint(x, spec)

    def scan(self, add: Callable[[Any, _Piece], tuple[Any, Any]], start: Any, whole: _Piece) -> tuple[Any, Any]:
        """Does `jax.lax.scan` over the chunks of `whole`; a single chunk needs no loop."""
        pieces = jax.tree.map(self.cut, whole)
        if self.chunks == 1:
            return add(start, jax.tree.map(lambda x_c: x_c[0], pieces))
        return jax.lax.scan(add, start, pieces)

    def cut(self, x_bt: Array) -> Array:
        """Returns [b,t,..] as [c,p,n,..]: n positions of each chunk c and part p, the last chunk padded with zeros."""
        b, t, *rest = x_bt.shape
        no_padding = ((0, 0),) * len(rest)
        padded_bt = jnp.pad(x_bt, ((0, 0), (0, self.chunks * self.each - t), *no_padding))
        # [p, rows of a part, c, positions of a row in a chunk, ..]: a chunk has the same positions of every row.
        split = padded_bt.reshape(self.parts, b // self.parts, self.chunks, self.each, *rest)
        return jnp.moveaxis(split, 2, 0).reshape(self.chunks, self.parts, b // self.parts * self.each, *rest)

    def join(self, x_cpnd: Array, b: int, t: int) -> Array:
        """Returns [b,t,d] from what `cut` made of it; the axis c may be absent if it is 1."""
        d = x_cpnd.shape[-1]
        split = x_cpnd.reshape(self.chunks, self.parts, b // self.parts, self.each, d)
        return jnp.moveaxis(split, 0, 2).reshape(b, self.chunks * self.each, d)[:, :t]


def _divide(b: int, t: int, chunk: int) -> _Division:
    """Returns the division of [b,t] positions into chunks of about `chunk` positions per device.

    A chunk holds the same positions of every row, so that each device of a mesh works on its own rows.
    """
    mesh = jax.sharding.get_abstract_mesh()
    devices = 1 if mesh.empty else row_parts(mesh)
    # Rows that the devices cannot share equally are left to the compiler.
    if b % devices:
        devices = 1
    count, each = chunks(b // devices, t, chunk)
    # A single chunk is all of [b,t], which the compiler shards by itself.
    parts = devices if count > 1 else 1
    return _Division(parts, count, each)

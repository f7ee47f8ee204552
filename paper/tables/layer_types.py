"""The layer types of Table 1 (section 4), each a plain function of its parameters and one sequence x_td.

Each maps a sequence of t positions, d wide, to another of the same shape. `s` counts keys and `r`, as in the paper, the
positions that restricted self-attention attends to. Kernels are `w` wide here, since `k` is the width of queries and
keys.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from model.mixers.attention import attention_weights

Attend = Callable[[Float[Array, "t k"], Float[Array, "t k"], Float[Array, "t e"]], Float[Array, "t e"]]


class Projections(NamedTuple):
    """W^Q, W^K, W^V and W^O of one head."""

    wq: Float[Array, "d k"]
    wk: Float[Array, "d k"]
    wv: Float[Array, "d e"]
    wo: Float[Array, "e d"]


class Gates(NamedTuple):
    """An LSTM's weights on the input and on the previous output, for its four gates g."""

    wx: Float[Array, "d g e"]
    wh: Float[Array, "e g e"]


class State(NamedTuple):
    """An LSTM's output and its cell."""

    h: Float[Array, " e"]
    c: Float[Array, " e"]


def self_attention(params: Projections, x_td: Float[Array, "t d"], attend: Attend) -> Float[Array, "t d"]:
    """attend(x W^Q, x W^K, x W^V) W^O, where `attend` is one of the two functions below."""
    q_tk, k_tk, v_te = (jnp.einsum("td,dk->tk", x_td, w_dk) for w_dk in (params.wq, params.wk, params.wv))
    return jnp.einsum("te,ed->td", attend(q_tk, k_tk, v_te), params.wo)


def attend_to_all(
    q_tk: Float[Array, "t k"], k_sk: Float[Array, "s k"], v_se: Float[Array, "s e"]
) -> Float[Array, "t e"]:
    """softmax(Q K^T / sqrt(d_k)) V (equation 1) of one head that attends to every position."""
    everything_1ts = jnp.ones((1, len(q_tk), len(k_sk)), bool)
    weights_11ts = attention_weights(q_tk[None, None], k_sk[None, None], everything_1ts)
    return jnp.einsum("ts,se->te", weights_11ts[0, 0], v_se)


def attend_nearby(
    q_tk: Float[Array, "t k"], k_tk: Float[Array, "t k"], v_te: Float[Array, "t e"], r: int
) -> Float[Array, "t e"]:
    """The same, of a head that attends to r positions with its own in the middle, fewer at the ends of the sequence.

    Positions are split into blocks of (r - 1) / 2, each attending to itself and its two neighbours, 3 (r - 1) / 2
    positions, and a mask hides those too far away. So the products grow with r t, and no array is [t,t].

    Raises:
      ValueError: r is even or below 3.
    """
    if r < 3 or r % 2 == 0:
        raise ValueError(f"r is {r}: a neighbourhood with its own position in the middle is 3, 5, 7, ...")
    t, reach = len(q_tk), r // 2
    blocks = -(-t // reach)

    def split(x_tk: Float[Array, "t k"]) -> Float[Array, "b q k"]:
        return jnp.pad(x_tk, ((0, blocks * reach - t), (0, 0))).reshape(blocks, reach, -1)

    def beside(x_bqk: Float[Array, "b q k"]) -> Float[Array, "b s k"]:
        x_bqk = jnp.pad(x_bqk, ((1, 1), (0, 0), (0, 0)))
        return jnp.concatenate([x_bqk[:-2], x_bqk[1:-1], x_bqk[2:]], axis=1)

    start_b11 = reach * jnp.arange(blocks)[:, None, None]
    query_bq1 = start_b11 + jnp.arange(reach)[None, :, None]
    key_b1s = start_b11 + jnp.arange(-reach, 2 * reach)[None, None, :]
    mask_bqs = (jnp.abs(query_bq1 - key_b1s) <= reach) & (key_b1s >= 0) & (key_b1s < t)
    # Blocks take the place of the batch; there is one head.
    weights_b1qs = attention_weights(split(q_tk)[:, None], beside(split(k_tk))[:, None], mask_bqs)
    heads_bqe = jnp.einsum("bqs,bse->bqe", weights_b1qs[:, 0], beside(split(v_te)))
    return heads_bqe.reshape(blocks * reach, -1)[:t]


def recurrent(params: Gates, x_td: Float[Array, "t d"]) -> Float[Array, "t e"]:
    """An LSTM (Hochreiter and Schmidhuber 1997) from the first position to the last."""

    def step(state: State, x_d: Float[Array, " d"]) -> tuple[State, Float[Array, " e"]]:
        state = cell(params, state, x_d)
        return state, state.h

    nothing_e = jnp.zeros(params.wh.shape[0], x_td.dtype)
    return jax.lax.scan(step, State(nothing_e, nothing_e), x_td)[1]


def cell(params: Gates, before: State, x_d: Float[Array, " d"]) -> State:
    """One step of an LSTM with a forget gate, without biases and peepholes."""
    gates_ge = jnp.einsum("d,dge->ge", x_d, params.wx) + jnp.einsum("f,fge->ge", before.h, params.wh)
    enter_e, keep_e, leave_e = jax.nn.sigmoid(gates_ge[:3])
    c_e = keep_e * before.c + enter_e * jnp.tanh(gates_ge[3])
    return State(leave_e * jnp.tanh(c_e), c_e)


def convolutional(w_wde: Float[Array, "w d e"], x_td: Float[Array, "t d"], dilation: int) -> Float[Array, "t e"]:
    """A convolution over w positions: its own and those before it, `dilation` apart.

    It only looks back, like the recurrent layer. With centred kernels a stack of dilations 1, w, w^2, ... would not
    connect all pairs near the ends, where some paths would have to leave the sequence and return.
    """
    before = (w_wde.shape[0] - 1) * dilation
    y_1te = jax.lax.conv_general_dilated(
        x_td[None],
        w_wde,
        window_strides=(1,),
        padding=[(before, 0)],
        rhs_dilation=(dilation,),
        dimension_numbers=("NWC", "WIO", "NWC"),
    )
    return y_1te[0]

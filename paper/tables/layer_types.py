"""The layer types of Table 1 (section 4): the mixers of `model.mixers`, as functions of parameters and one sequence."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from vaswani.model.block import self_mixer
from vaswani.model.config import ModelConfig
from vaswani.model.masks import Mask
from vaswani.model.mixers.attention import Heads
from vaswani.model.mixers.state import BeamState

LOOK_BACK = ("recurrent", "convolution")
Layer = Callable[[Any, Float[Array, "t d"]], Any]


class Sizes(NamedTuple):
    """The paper's n (positions), d (width), k (kernel), r (neighbourhood), and how many layers are below."""

    n: int
    d: int
    k: int
    r: int
    below: int = 0


def layer(mixer: str, sizes: Sizes, dilation: int = 1) -> tuple[Layer, Any]:
    """Returns a mixer, of one head as wide as the model, as a function of (params, x_td), and its parameters.

    The recurrent layer and the convolution only look back. With centred kernels a stack of dilations 1, k, k^2, ...
    would not connect all pairs near the ends, where some paths would have to leave the sequence and return. A dilation
    is the same mixer over every `dilation`-th position.
    """
    module = _module(mixer, sizes)

    def mixed(params: Any, x_td: Float[Array, "t d"]) -> Float[Array, "t d"]:
        t, d = x_td.shape
        each = -(-t // dilation)
        padded_td = jnp.pad(x_td, ((0, each * dilation - t), (0, 0)))
        x_btd = padded_td.reshape(each, dilation, d).swapaxes(0, 1)
        y_btd, _, _ = module.apply(params, *_rows(mixer, x_btd))
        return y_btd.swapaxes(0, 1).reshape(each * dilation, d)[:t]

    one_position_btd = jnp.zeros((1, 1, sizes.d))
    return mixed, module.init(jax.random.key(0), *_rows(mixer, one_position_btd))


def projections(mixer: str, sizes: Sizes) -> Layer | None:
    """Returns the projections that are part of an attention, as a function of the same; None for another mixer."""
    module = _module(mixer, sizes)

    def projected(heads: Heads, x_btd: Float[Array, "b t d"], positions_bt: Array) -> tuple[Array, ...]:
        k_bhtk, v_bhte, _ = heads.keys_values(x_btd, positions_bt)
        return heads.queries(x_btd, positions_bt), k_bhtk, heads.output(v_bhte)

    if not isinstance(module, Heads):
        return None
    return lambda params, x_td: module.apply(params, *_rows(mixer, x_td[None])[:2], method=projected)


def recurrent_states(params: Any, sizes: Sizes, x_td: Float[Array, "t d"], before: BeamState) -> BeamState:
    """Returns output and cell of the recurrent layer, [1,t,1,d], after one step from those before each position."""
    module = _module("recurrent", sizes)
    x_btd, positions_bt, _ = _rows("recurrent", x_td[None])
    _, after, _ = module.apply(params, x_btd, positions_bt, None, before)
    return after


def _module(mixer: str, sizes: Sizes) -> nn.Module:
    config = ModelConfig(
        vocab_size=1,
        d_model=sizes.d,
        h=1,
        d_k=sizes.d,
        d_v=sizes.d,
        positions="none",
        attention_impl="einsum",  # equation 1 as written: all n^2 scores at once
        mixer=mixer,
        neighbours=sizes.r,
        kernel_width=sizes.k,
    )
    return self_mixer(config, mixer in LOOK_BACK)


def _rows(mixer: str, x_btd: Float[Array, "b t d"]) -> tuple[Array, Array, Any]:
    """Returns the arguments of a mixer for rows of one sentence each: x, positions, and the mask."""
    ones_bt = jnp.ones(x_btd.shape[:2], jnp.int32)
    mask = Mask(ones_bt, ones_bt, mixer in LOOK_BACK)
    if mixer == "attention":
        mask = mask.with_dense()
    positions_bt = jnp.cumsum(ones_bt, axis=1) - 1
    return x_btd, positions_bt, mask

"""The number of parameters of a model, which is not built: jax traces the shapes of its initial parameters."""

from functools import cache, partial
from typing import Any

import jax

from vaswani.model import language_model, translation
from vaswani.model.config import CommonConfig


@cache
def parameter_count(config: CommonConfig, *, decoder_only: bool = False) -> int:
    """Returns the number of parameters of a translator, or with `decoder_only` of a language model.

    The paper's equations have no biases in attention or the softmax, two in each feed-forward network, and a scale and
    a bias in each layer norm. The counts that the paper prints (65e6, 213e6) do not match a shared vocabulary of
    37,000; this follows the equations.
    """
    init: Any = language_model.init_params if decoder_only else translation.init_params
    shapes = jax.eval_shape(partial(init, config), jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))

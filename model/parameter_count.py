"""The number of parameters of a model, which is not built: jax traces the shapes of its initial parameters."""

from functools import cache, partial

import jax

from vaswani.model.config import CommonConfig
from vaswani.model.language_model import LanguageModel
from vaswani.model.parameters import init_params
from vaswani.model.translation import translation_model


@cache
def parameter_count(config: CommonConfig, *, decoder_only: bool = False) -> int:
    """Returns the number of parameters of a translator, or with `decoder_only` of a language model.

    The paper's equations have no biases in attention or the softmax, two in each feed-forward network, and a scale and
    a bias in each layer norm. The counts that the paper prints (65e6, 213e6) do not match a shared vocabulary of
    37,000; this follows the equations.
    """
    model = LanguageModel(config) if decoder_only else translation_model(config)
    shapes = jax.eval_shape(partial(init_params, model), jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))

"""The models that translate: which of them a config means."""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from vaswani.model.baselines.recurrent_translator import RecurrentConfig, RecurrentTranslator
from vaswani.model.config import CommonConfig, ModelConfig
from vaswani.model.prefix_lm import PrefixLM
from vaswani.model.transformer import Transformer
from vaswani.tokens import Tokens


def translation_model(config: CommonConfig) -> Transformer | PrefixLM | RecurrentTranslator:
    """Returns the model: encoder and decoder, with `config.prefix` the decoder alone, or recurrent networks."""
    if isinstance(config, RecurrentConfig):
        return RecurrentTranslator(config)
    assert isinstance(config, ModelConfig)
    if config.prefix != "none":
        return PrefixLM(config)
    return Transformer(config)


def init_params(config: CommonConfig, key: PRNGKeyArray) -> dict:
    """Returns new float32 parameters of that model."""
    # Parameters do not depend on the number of rows or tokens: one of each is enough to make them.
    token = Tokens.of(jnp.ones((1, 1), jnp.int32))
    return jax.jit(translation_model(config).init)(key, token, token)["params"]

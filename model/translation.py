"""The models that translate: which of them a config means."""

from jaxtyping import PRNGKeyArray

from vaswani.model import prefix_lm, recurrent_translator, transformer
from vaswani.model.config import ModelConfig
from vaswani.model.prefix_lm import PrefixLM
from vaswani.model.recurrent_translator import RecurrentTranslator
from vaswani.model.transformer import Transformer


def translation_model(config: ModelConfig) -> Transformer | PrefixLM | RecurrentTranslator:
    """Returns the model: encoder and decoder, with `config.prefix` the decoder alone, or recurrent networks."""
    if config.recurrent != "none":
        return RecurrentTranslator(config)
    if config.prefix != "none":
        return PrefixLM(config)
    return Transformer(config)


def init_params(config: ModelConfig, key: PRNGKeyArray) -> dict:
    """Returns new float32 parameters of that model."""
    if config.recurrent != "none":
        return recurrent_translator.init_params(config, key)
    if config.prefix != "none":
        return prefix_lm.init_params(config, key)
    return transformer.init_params(config, key)

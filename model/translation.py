"""The models that translate: which of them a config means."""

from jaxtyping import PRNGKeyArray

from model import prefix_lm, recurrent_translator, transformer
from model.config import ModelConfig
from model.prefix_lm import PrefixLM
from model.recurrent_translator import RecurrentTranslator
from model.transformer import Transformer


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

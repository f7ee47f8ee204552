"""The models that translate: which of them a config means."""

from jaxtyping import PRNGKeyArray

from vaswani.model import prefix_lm, recurrent_translator, transformer
from vaswani.model.config import CommonConfig, ModelConfig
from vaswani.model.prefix_lm import PrefixLM
from vaswani.model.recurrent_translator import RecurrentConfig, RecurrentTranslator
from vaswani.model.transformer import Transformer


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
    if isinstance(config, RecurrentConfig):
        return recurrent_translator.init_params(config, key)
    assert isinstance(config, ModelConfig)
    if config.prefix != "none":
        return prefix_lm.init_params(config, key)
    return transformer.init_params(config, key)

"""The models that translate: which of them a config means."""

from vaswani.model.baselines.recurrent_translator import RecurrentConfig, RecurrentTranslator
from vaswani.model.config import CommonConfig, ModelConfig
from vaswani.model.prefix_lm import PrefixLM
from vaswani.model.transformer import Transformer


def translation_model(config: CommonConfig) -> Transformer | PrefixLM | RecurrentTranslator:
    """Returns the model: encoder and decoder, with `config.prefix` the decoder alone, or recurrent networks."""
    if isinstance(config, RecurrentConfig):
        return RecurrentTranslator(config)
    assert isinstance(config, ModelConfig)
    if config.prefix != "none":
        return PrefixLM(config)
    return Transformer(config)

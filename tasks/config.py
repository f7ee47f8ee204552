"""The model's config of a run's: `config.model` as a frozen dataclass."""

from typing import Any

from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.model.baselines.recurrent_translator import RecurrentConfig
from vaswani.model.config import ModelConfig


def model_config(cfg: ConfigDict, vocab_size: int, source_vocab_size: int | None = None) -> Any:
    """Returns `config.model` as the model's own frozen type, `ModelConfig` or of recurrent networks `RecurrentConfig`.

    With `data.share_vocabulary=False`, `vocab_size` is the target's, and the source's too if that is not given.

    Raises:
      UserError: the model's `ValueError`.
    """
    keys = cfg.model.to_dict()
    if not cfg.data.share_vocabulary:
        keys["source_vocab_size"] = source_vocab_size or vocab_size
    try:
        if cfg.model.recurrent != "none":
            return RecurrentConfig.of(vocab_size, keys)
        del keys["recurrent"], keys["cell"]
        return ModelConfig(vocab_size, **keys)
    except ValueError as error:
        raise UserError(f"config: {error}") from error

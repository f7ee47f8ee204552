"""Classification of texts, by the encoder of a masked language model: BERT's fine-tuning, with `--init`."""

from functools import partial
from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from vaswani.data.batching import Batch
from vaswani.data.classes import classes_of
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.model.config import ModelConfig
from vaswani.model.masked_lm import MaskedLM
from vaswani.tasks import texts
from vaswani.tasks.config import model_config
from vaswani.tasks.task import Evaluation, Example, Objective, Task


def make_example(batch: Batch) -> Example:
    """Has a text's class predicted at the EOS that ends it: BERT's [SEP] may also stand within it."""
    segments_bt = jnp.pad(batch.source.segments_bt, ((0, 0), (0, 1)))
    is_last_bt = segments_bt[:, :-1] != segments_bt[:, 1:]
    is_end_bt = jnp.asarray(is_last_bt & (batch.source.ids_bt == EOS), jnp.float32)
    return Example((batch.source,), jnp.asarray(batch.labels_bt), is_end_bt)


def _objective(cfg: ConfigDict, config: ModelConfig) -> Objective:
    classes = len(classes_of(cfg.data.classes))
    return Objective(MaskedLM(config, classes), make_example, cfg.loss.eps_ls, cfg.loss.chunk)


def _check(cfg: ConfigDict, train: Any) -> None:
    """Raises a `UserError` if no text that is kept of the training corpus has one of the classes."""
    for number, name in enumerate(classes_of(cfg.data.classes)):
        if number not in train.class_n:
            raise UserError(
                f"data.classes has {name!r}, which is the class of no text of {cfg.data.train} of at most"
                f" {cfg.data.max_length} tokens (data.max_length)"
            )


def _signatures(cfg: ConfigDict, tokenizer: Tokenizer, count: int) -> dict[str, str]:
    return {"perplexity": f"unit:text|classes:{len(classes_of(cfg.data.classes))}|task:classification"}


TASK = Task(
    config=model_config,
    objective=_objective,
    data=partial(texts.training_data, sides=2, examples=texts.classified, check=_check),
    evaluation=Evaluation(
        batches=partial(texts.all_batches, sides=2, examples=texts.classified),
        signatures=_signatures,
        unit="text",
    ),
)

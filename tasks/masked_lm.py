"""Masked language modelling: predicts the masked tokens of a text from the tokens on both sides."""

from functools import partial

import jax.numpy as jnp

from vaswani.data.batching import Batch
from vaswani.ids import PAD
from vaswani.model.config import ModelConfig
from vaswani.model.masked_lm import MaskedLM
from vaswani.tasks import texts
from vaswani.tasks.config import model_config
from vaswani.tasks.task import Evaluation, Example, Objective, Task, of_config


def make_example(batch: Batch) -> Example:
    """Returns the inputs, labels and weights: only masked tokens count."""
    is_masked_bt = jnp.asarray(batch.labels_bt != PAD, jnp.float32)
    return Example((batch.source,), jnp.asarray(batch.labels_bt), is_masked_bt)


def objective(config: ModelConfig, eps_ls: float, chunk: int = 0) -> Objective:
    """Returns the loss of the paper's encoder without a decoder."""
    return Objective(MaskedLM(config), make_example, eps_ls, chunk)


TASK = Task(
    config=model_config,
    objective=of_config(objective),
    data=partial(texts.training_data, sides=1, examples=texts.masked),
    evaluation=Evaluation(
        batches=partial(texts.all_batches, sides=1, examples=texts.masked),
        signatures=partial(texts.hidden_signatures, "masked_lm"),
    ),
)

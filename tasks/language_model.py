"""Language modelling: predicts each token of a text from those before it."""

from functools import partial

import jax.numpy as jnp

from vaswani.data.batching import TextBatch
from vaswani.data.pipeline import text_batches
from vaswani.model.config import ModelConfig
from vaswani.model.language_model import LanguageModel
from vaswani.tasks import texts
from vaswani.tasks.config import model_config
from vaswani.tasks.task import Example, Objective, Task, of_config


def make_example(batch: TextBatch) -> Example:
    """Has every token predicted from those before it."""
    is_token_bt = jnp.asarray(batch.target.segments_bt != 0, jnp.float32)
    return Example((batch.target,), jnp.asarray(batch.labels_bt), is_token_bt)


def objective(config: ModelConfig, eps_ls: float, chunk: int = 0) -> Objective:
    """Returns the loss of the paper's decoder without an encoder."""
    return Objective(LanguageModel(config), make_example, eps_ls, chunk)


TASK = Task(
    config=model_config,
    objective=of_config(objective),
    data=partial(texts.training_data, sides=1, validation=text_batches),
)

"""Translation: predicts the next target token from the source sentence and the target so far."""

from functools import partial

import jax.numpy as jnp

from vaswani.data.batching import Batch
from vaswani.model.config import CommonConfig
from vaswani.model.translation import translation_model
from vaswani.tasks import texts
from vaswani.tasks.config import model_config
from vaswani.tasks.task import Example, Objective, Task, of_config


def make_example(batch: Batch) -> Example:
    """Has every target token predicted from the source and the target before it."""
    is_token_bt = jnp.asarray(batch.target.segments_bt != 0, jnp.float32)
    return Example((batch.source, batch.target), jnp.asarray(batch.labels_bt), is_token_bt)


def objective(config: CommonConfig, eps_ls: float, chunk: int = 0) -> Objective:
    """Returns the loss of the paper's model, or of another that `config` names (`model.translation`)."""
    return Objective(translation_model(config), make_example, eps_ls, chunk)


TASK = Task(
    config=model_config,
    objective=of_config(objective),
    data=partial(texts.training_data, sides=2),
)

"""Translation: predicts the next target token from the source sentence and the target so far."""

from functools import partial

import jax.numpy as jnp
from ml_collections import ConfigDict

from vaswani.data.batching import Batch
from vaswani.model.config import CommonConfig
from vaswani.model.translation import init_params, translation_model
from vaswani.tasks import texts
from vaswani.tasks.config import model_config
from vaswani.tasks.task import Example, Objective, Task


def make_example(batch: Batch) -> Example:
    """Has every target token predicted from the source and the target before it."""
    is_token_bt = jnp.asarray(batch.target.segments_bt != 0, jnp.float32)
    return Example((batch.source, batch.target), jnp.asarray(batch.labels_bt), is_token_bt)


def objective(config: CommonConfig, eps_ls: float, chunk: int = 0) -> Objective:
    """Returns the loss of the paper's model, or of another that `config` names (`model.translation`)."""
    return Objective(translation_model(config), partial(init_params, config), make_example, eps_ls, chunk)


def _objective(cfg: ConfigDict, config: CommonConfig) -> Objective:
    return objective(config, cfg.loss.eps_ls, cfg.loss.chunk)


TASK = Task(
    config=model_config,
    objective=_objective,
    data=partial(texts.training_data, sides=2),
)

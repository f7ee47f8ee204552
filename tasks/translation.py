"""Translation: predicts the next target token from the source sentence and the target so far."""

from functools import partial

from data.batching import Batch
from model.config import ModelConfig
from model.translation import init_params, translation_model
from run.folder import model_config
from tasks import texts
from tasks.task import Objective, Question, Task, from_config, question_where, softmax_objective


def question(batch: Batch) -> Question:
    """Returns the question of each target token, given the source and the target before it."""
    return question_where(batch.labels_bt, batch.target.segments_bt != 0, batch.source, batch.target)


def objective(config: ModelConfig, eps_ls: float, chunk: int = 0) -> Objective:
    """Returns the loss of the paper's model, or of another that `config` names (`model.translation`)."""
    return softmax_objective(translation_model(config), partial(init_params, config), question, eps_ls, chunk)


TASK = Task(
    config=model_config,
    objective=from_config(objective),
    data=partial(texts.training_data, sides=2),
)

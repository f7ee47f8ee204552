"""Language modelling: predicts each token of a text from those before it."""

from functools import partial

from data.batching import TextBatch
from data.pipeline import text_batches
from model.config import ModelConfig
from model.language_model import LanguageModel, init_params
from run.folder import model_config
from tasks import texts
from tasks.task import Objective, Question, Task, from_config, question_where, softmax_objective


def question(batch: TextBatch) -> Question:
    """Returns the question of each token, given those before it."""
    return question_where(batch.labels_bt, batch.target.segments_bt != 0, batch.target)


def objective(config: ModelConfig, eps_ls: float, chunk: int = 0) -> Objective:
    """Returns the loss of the paper's decoder without an encoder."""
    return softmax_objective(LanguageModel(config), partial(init_params, config), question, eps_ls, chunk)


TASK = Task(
    config=model_config,
    objective=from_config(objective),
    data=partial(texts.training_data, sides=1, validation=text_batches),
)

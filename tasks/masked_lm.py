"""Masked language modelling: predicts the tokens hidden from a text, from what is on both sides of them."""

from functools import partial

from base.ids import PAD
from data.batching import Batch
from model.config import ModelConfig
from model.masked_lm import MaskedLM, init_params
from run.folder import model_config
from tasks import texts
from tasks.task import Evaluation, Objective, Question, Task, from_config, question_where, softmax_objective


def question(batch: Batch) -> Question:
    """Returns the question of the hidden tokens, given the corrupted text."""
    return question_where(batch.labels_bt, batch.labels_bt != PAD, batch.source)


def objective(config: ModelConfig, eps_ls: float, chunk: int = 0) -> Objective:
    """Returns the loss of the paper's encoder without a decoder."""
    return softmax_objective(MaskedLM(config), partial(init_params, config), question, eps_ls, chunk)


TASK = Task(
    config=model_config,
    objective=from_config(objective),
    data=partial(texts.training_data, sides=1, examples=texts.masked),
    evaluation=Evaluation(
        batches=partial(texts.all_batches, sides=1, examples=texts.masked),
        signatures=partial(texts.hidden_signatures, "masked_lm"),
    ),
)

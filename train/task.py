"""What training must know of what it trains; train/tasks/ has the tasks, a file each."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxtyping import PRNGKeyArray

from data.pipeline import TrainingBatches
from model.noise import Noise
from model.tokens import Tokens
from train.loss import Loss

Batch = Any  # a tree of arrays, rows along their first axis


class Objective(NamedTuple):
    """A model and its loss, as pure functions."""

    init: Callable[[PRNGKeyArray], dict]  # returns fresh parameters
    loss: Callable[[dict, Batch, Noise | None], Loss]  # without noise it is that of evaluation
    tokens: Callable[[Batch], tuple[Tokens, ...]]  # returns all that the model reads of a batch


class Task(NamedTuple):
    """An objective, and what it is trained and validated on: numpy arrays of this process's rows."""

    objective: Objective
    batches: TrainingBatches
    validation: Callable[[], Iterator[Batch]]  # returns every validation record once
    measure: Callable[[dict], dict[str, float]]  # returns further metrics of parameters, such as BLEU
    manifests: dict[str, dict]  # of the data, for the record of the run

"""The interface between the training loop and a task; train/tasks/ has one file per task."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import PRNGKeyArray

from data.pipeline import State
from model.noise import Noise
from model.tokens import Tokens
from train.loss import Loss

Batch = Any  # a pytree of arrays with rows along the first axis


class Objective(NamedTuple):
    """A model and its loss, as pure functions."""

    init: Callable[[PRNGKeyArray], dict]  # returns new parameters
    loss: Callable[[dict, Batch, Noise | None], Loss]  # with None for noise, the loss for evaluation
    tokens: Callable[[Batch], tuple[Tokens, ...]]  # returns the model's inputs from a batch


@runtime_checkable
class Batches(Protocol):
    """Endless batches of training data, such as `data.pipeline.TrainingBatches`, which defines these functions."""

    def __next__(self) -> Batch: ...

    def get_state(self) -> State: ...

    def set_state(self, state: State) -> None: ...

    def close(self) -> None: ...


class Task(NamedTuple):
    """An objective with its training and validation data, as numpy arrays of this process's rows."""

    objective: Objective
    batches: Batches
    validation: Callable[[], Iterator[Batch]]  # yields every validation record once
    measure: Callable[[dict], dict[str, float]]  # returns further metrics of the parameters, such as BLEU
    manifests: dict[str, dict]  # of the data, recorded in the run's `run.json`

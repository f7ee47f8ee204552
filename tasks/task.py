"""What a task is made of: functions, since all of it depends on the config."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from flax import linen as nn
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray
from ml_collections import ConfigDict

from vaswani.data.pipeline import OnePass, State
from vaswani.model.noise import Noise
from vaswani.model.parameters import init_params
from vaswani.tasks.loss import Loss, softmax_cross_entropy
from vaswani.tokens import Tokens

Batch = Any  # a pytree of arrays with rows along the first axis


class Example(NamedTuple):
    """The rows of a batch as examples: targets that the model predicts from inputs; weight 0 leaves a target out."""

    inputs: tuple[Any, ...]  # arguments of the model
    target_bt: Int[Array, "b t"]
    weights_bt: Float[Array, "b t"]


@dataclass(frozen=True)
class Objective:
    """A model and its loss, the cross-entropy of its softmax with label smoothing (section 5.4).

    The methods are pure functions of the parameters. The model's `logit_factors` returns the two factors of the logits
    (`model.embed.Embedding`).
    """

    model: nn.Module
    make_example: Callable[[Batch], Example]
    eps_ls: float
    chunk: int = 0  # positions whose logits exist at a time; 0: all

    def init(self, key: PRNGKeyArray) -> dict:
        """Returns new parameters."""
        return init_params(self.model, key)

    def loss(self, params: dict, batch: Batch, noise: Noise | None) -> Loss:
        """Returns the loss of a batch; without `noise`, the validation loss."""
        inputs, target_bt, weights_bt = self.make_example(batch)
        x_btd, softmax_vd = self.model.apply({"params": params}, *inputs, noise, method="logit_factors")
        return softmax_cross_entropy(x_btd, softmax_vd, target_bt, weights_bt, self.eps_ls, self.chunk)

    def logits(self, params: dict, batch: Batch) -> Float[Array, "b t v"]:
        """Returns the logits of each target, without noise."""
        return self.model.apply({"params": params}, *self.make_example(batch).inputs)

    def tokens(self, batch: Batch) -> tuple[Tokens, ...]:
        """Returns the positions that the model computes, of each stack."""
        return self.make_example(batch).inputs


def of_config(objective: Callable[[Any, float, int], Objective]) -> Callable[[ConfigDict, Any], Objective]:
    """Returns a task's objective as a function of a whole config and the model's, not of single values."""
    return lambda cfg, config: objective(config, cfg.loss.eps_ls, cfg.loss.chunk)


@runtime_checkable
class Batches(Protocol):
    """Endless batches of training data, such as `data.pipeline.TrainingBatches`, which defines these functions."""

    def __next__(self) -> Batch: ...

    def get_state(self) -> State: ...

    def set_state(self, state: State) -> None: ...

    def close(self) -> None: ...


class Data(NamedTuple):
    """Training and validation data, as numpy arrays of this process's rows."""

    batches: Batches
    validation_batches: Callable[[], OnePass[Batch]]  # returns every validation record once
    manifests: dict[str, dict]  # recorded in the run's `run.json`


class Evaluation(NamedTuple):
    """How `infer.evaluate.predictions` evaluates a run: by how well it predicts the targets of its task.

    Attributes:
      batches: returns the batches of a corpus, each record once, for a run with this config and tokenizer (None for
        images); raises a `UserError` if the run does not read such a corpus.
      signatures: returns the scores that need a signature, each with its own, given a config, a tokenizer and the
        number of predictions.
      unit: what a prediction is of: a token, a text or an image.
    """

    batches: Callable[[ConfigDict, Any, str, Mesh], OnePass[Batch]]
    signatures: Callable[[ConfigDict, Any, int], dict[str, str]]
    unit: str = "token"


class Task(NamedTuple):
    """One thing that a model can learn; tasks/NAME.py has the `TASK` of each.

    Attributes:
      config: returns the model's config, given a whole config, the vocabulary's size and, if the source has a separate
        vocabulary, its size.
      objective: returns the model and its loss.
      data: returns the data of a config for training in a folder. Prepares the corpora, and the run's tokenizer, where
        they do not exist yet; raises a `UserError` if the config or a corpus is at fault.
      evaluation: how a run is evaluated; None for translation and language models, which infer/evaluate implements.
      images: whether the model reads images, so that there is no tokenizer.
    """

    config: Callable[..., Any]
    objective: Callable[[ConfigDict, Any], Objective]
    data: Callable[[ConfigDict, Path, Mesh], Data]
    evaluation: Evaluation | None = None
    images: bool = False

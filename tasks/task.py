"""What a task is made of: functions, since all of it depends on the config."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from flax import linen as nn
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, PRNGKeyArray
from ml_collections import ConfigDict

from base.tokens import Tokens
from data.pipeline import OnePass, State
from model.config import ModelConfig
from model.noise import Noise
from tasks.loss import Loss, softmax_cross_entropy

Batch = Any  # a pytree of arrays with rows along the first axis


class Question(NamedTuple):
    """What a batch asks of a model: to predict the targets from the inputs. A target of weight 0 is not asked for."""

    inputs: tuple[Any, ...]  # arguments of the model
    target_bt: Int[Array, "b t"]
    weights_bt: Float[Array, "b t"]


class Objective(NamedTuple):
    """A model and its loss, as pure functions of the parameters."""

    model: nn.Module
    init: Callable[[PRNGKeyArray], dict]  # returns new parameters
    loss: Callable[[dict, Batch, Noise | None], Loss]  # with None for noise, the loss for validation
    tokens: Callable[[Batch], tuple[Tokens, ...]]  # returns the positions that the model computes
    question: Callable[[Batch], Question]
    logits: Callable[[dict, Batch], Float[Array, "b t v"]]  # without noise


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
    """How `infer.evaluate.predictions` evaluates a run: by the answers to the questions of its task.

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
      config: returns the model's config, of a whole config and the size of the vocabulary.
      objective: returns the model and its loss.
      data: returns the data of a config for training in a folder. Prepares the corpora, and the run's tokenizer, where
        they do not exist yet; raises a `UserError` if the config or a corpus is at fault.
      evaluation: how a run is evaluated; None for translation and language models, which have files of their own in
        infer/evaluate.
      images: whether the model reads images, so that there is no tokenizer.
    """

    config: Callable[[ConfigDict, int], ModelConfig]
    objective: Callable[[ConfigDict, ModelConfig], Objective]
    data: Callable[[ConfigDict, Path, Mesh], Data]
    evaluation: Evaluation | None = None
    images: bool = False


def from_config(
    objective: Callable[[ModelConfig, float, int], Objective],
) -> Callable[[ConfigDict, ModelConfig], Objective]:
    """Returns `Task.objective` of a function that takes the smoothing and the chunk of the loss as numbers."""

    def of_config(cfg: ConfigDict, config: ModelConfig) -> Objective:
        return objective(config, cfg.loss.eps_ls, cfg.loss.chunk)

    return of_config


def softmax_objective(
    model: nn.Module,
    init: Callable[[PRNGKeyArray], dict],
    question: Callable[[Batch], Question],
    eps_ls: float,
    chunk: int = 0,
) -> Objective:
    """Returns the label-smoothed cross-entropy of a model of tokens, `chunk` positions at a time (0: all).

    The model's `logit_factors` returns the two factors of the logits (`model.embed.Embedding.logit_factors`).
    """

    def loss(params: dict, batch: Batch, noise: Noise | None) -> Loss:
        asked = question(batch)
        x_btd, softmax_vd = model.apply({"params": params}, *asked.inputs, noise, method="logit_factors")
        return softmax_cross_entropy(x_btd, softmax_vd, asked.target_bt, asked.weights_bt, eps_ls, chunk)

    def tokens(batch: Batch) -> tuple[Tokens, ...]:
        return question(batch).inputs

    def logits(params: dict, batch: Batch) -> Float[Array, "b t v"]:
        return model.apply({"params": params}, *question(batch).inputs)

    return Objective(model, init, loss, tokens, question, logits)


def question_where(target_bt: Any, asked_bt: Any, *inputs: Tokens) -> Question:
    """Returns the question of the targets, given the inputs, where `asked_bt` is true."""
    return Question(inputs, jnp.asarray(target_bt), jnp.asarray(asked_bt, jnp.float32))

"""Several models that search together: the next token's logits are the mean of the models' log-probabilities."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from model.config import ModelConfig
from model.search.state import Model
from model.translation import translation_model


class Caches(NamedTuple):
    """The cache of every member."""

    members: tuple[Any, ...]

    def select(self, parents_bm: Int[Array, "b m"]) -> "Caches":
        """Returns the caches in which each beam continues the given parent."""
        return Caches(tuple(cache.select(parents_bm) for cache in self.members))

    def grow(self, slots: int) -> "Caches":
        """Returns the caches padded to `slots` slots."""
        return Caches(tuple(cache.grow(slots) for cache in self.members))


class Ensemble(NamedTuple):
    """Models of one vocabulary, searched as one (see `model.search.state`); parameters are a tuple, one tree for each.

    A token's probability is the members' geometric mean, normalised over the vocabulary.
    """

    members: tuple[Model, ...]

    def output_limits(self, inputs_bs: Int[Array, "b s"], extra_length: int) -> tuple[Int[Array, " b"], int]:
        """Returns the limits that every member can reach."""
        limits_b = []
        steps = []
        for model in self.members:
            limit_b, most = model.output_limits(inputs_bs, extra_length)
            limits_b.append(limit_b)
            steps.append(most)
        return jnp.min(jnp.stack(limits_b), axis=0), min(steps)

    def apply(self, variables: dict[str, Any], *arguments: Any, method: str = "") -> Any:
        """Returns what `start` or `step` does, called as of a Flax module; without a method, mean log-probabilities."""
        of_members = zip(self.members, variables["params"], strict=True)
        if not method:
            logits = [model.apply({"params": params}, *arguments) for model, params in of_members]
            return _mean_log_probs(logits)
        outputs = []  # first tokens from `start`, logits from `step`
        caches = []
        *shared, last = arguments
        for number, (model, params) in enumerate(of_members):
            own = last.members[number] if method == "step" else last
            output, cache = model.apply({"params": params}, *shared, own, method=method)
            outputs.append(output)
            caches.append(cache)
        if method == "start":
            return outputs[0], Caches(tuple(caches))
        return _mean_log_probs(outputs), Caches(tuple(caches))


def _mean_log_probs(logits: list[Float[Array, "*b v"]]) -> Float[Array, "*b v"]:
    """Returns the mean over the members, which is not normalised."""
    log_probs = [jax.nn.log_softmax(of_member) for of_member in logits]
    return jnp.mean(jnp.stack(log_probs), axis=0)


def searched(config: ModelConfig | tuple[ModelConfig, ...]) -> Any:
    """Returns the model of a config; of several, their ensemble."""
    if isinstance(config, tuple):
        return Ensemble(tuple(map(translation_model, config)))
    return translation_model(config)

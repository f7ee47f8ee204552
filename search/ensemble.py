"""Several models that search together: the next token's logits are the mean of the models' log-probabilities."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from vaswani.model.config import CommonConfig
from vaswani.model.decoding import Cache
from vaswani.model.translation import translation_model
from vaswani.model.types import Params
from vaswani.search.state import Model


class Caches(NamedTuple):
    """The cache of every member."""

    members: tuple[Cache, ...]

    def select(self, parents_bm: Int[Array, "b m"]) -> "Caches":
        """Returns the caches in which each beam continues the given parent."""
        return Caches(tuple(cache.select(parents_bm) for cache in self.members))

    def grow(self, slots: int) -> "Caches":
        """Returns the caches padded to `slots` slots."""
        return Caches(tuple(cache.grow(slots) for cache in self.members))


class Ensemble(NamedTuple):
    """Models of one vocabulary, searched as one (see `search.state`); parameters are a tuple, one tree for each.

    A token's probability is the members' geometric mean, normalised over the vocabulary.
    """

    members: tuple[Model, ...]

    def output_limits(self, inputs_bs: Int[Array, "b s"], extra_length: int) -> tuple[Int[Array, " b"], int]:
        """Returns the limits that every member can reach."""
        # The member with the shortest table of positions decides.
        limits_b = []
        steps = []
        for model in self.members:
            limit_b, most = model.output_limits(inputs_bs, extra_length)
            limits_b.append(limit_b)
            steps.append(most)
        return jnp.min(jnp.stack(limits_b), axis=0), min(steps)

    def apply(self, variables: Mapping[str, Any], *arguments: Any, method: str | None = None) -> Any:
        """Does what a Flax module's `apply` does: `start`, `step` or, without a method, mean log-probabilities."""
        members = list(zip(self.members, variables["params"], strict=True))
        # All begin with the same token; each has a cache of its own.
        if method == "start":
            started = [model.apply({"params": params}, *arguments, method="start") for model, params in members]
            first_token_b, _ = started[0]
            return first_token_b, Caches(tuple(cache for _, cache in started))
        if method == "step":
            return self._step(members, *arguments)
        logits = [model.apply({"params": params}, *arguments) for model, params in members]
        return _mean_log_probs(logits)

    def _step(
        self, members: list[tuple[Model, Params]], token_bm: Int[Array, "b m"], step: Int[Array, ""], caches: Caches
    ) -> tuple[Float[Array, "b m v"], Caches]:
        logits = []
        after = []
        for (model, params), cache in zip(members, caches.members, strict=True):
            logits_bmv, cache = model.apply({"params": params}, token_bm, step, cache, method="step")
            logits.append(logits_bmv)
            after.append(cache)
        return _mean_log_probs(logits), Caches(tuple(after))


def _mean_log_probs(logits: list[Float[Array, "*b v"]]) -> Float[Array, "*b v"]:
    """Returns the mean of log p over the members, which is not normalised."""
    # The mean of log p is the geometric mean of p. The search takes a softmax of it, as of any logits.
    log_probs = [jax.nn.log_softmax(member_logits) for member_logits in logits]
    return jnp.mean(jnp.stack(log_probs), axis=0)


def model_or_ensemble(config: CommonConfig | tuple[CommonConfig, ...]) -> Model:
    """Returns the model of a config, or the ensemble of several."""
    if isinstance(config, tuple):
        return Ensemble(tuple(map(translation_model, config)))
    return translation_model(config)

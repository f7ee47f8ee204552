"""What to look at when training goes wrong: gradients, steps and attention, layer by layer (`diagnose_every`)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax.traverse_util import flatten_dict
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vaswani.model.prefix_lm import PrefixLM, joined
from vaswani.tasks.task import Batch, Objective
from vaswani.train.schedule_free import gradient_point
from vaswani.train.step import TrainState, noise_of

_ROWS = 8  # of a batch, whose attention weights are looked at: all rows' may not fit into memory


def make_diagnosis(
    objective: Objective, tx: optax.GradientTransformation, accumulate: int
) -> Callable[[TrainState, Batch, PRNGKeyArray], dict[str, Float[Array, ""]]]:
    """Returns a jitted function from a step's arguments to metrics of the step; it recomputes the gradient.

    They are, for each PART of the model, such as "encoder/layer_0" or "embed":

      gradient_norm/PART: the norm of the mean loss's gradient with respect to it, before clipping.
      update_ratio/PART: the norm of what the update adds to its parameters, divided by the norm of the parameters.
      attention_entropy/KIND/layer_N: the entropy of a query's attention weights, in nats, averaged over queries and
        heads: from 0, where one key has all the weight, to the logarithm of the number of keys. Absent for mixers
        without weights, and for models of images.

    With `accumulate` the gradient is computed on a step's first microbatch.
    """

    def diagnosis(state: TrainState, batch: Batch, key: PRNGKeyArray) -> dict[str, Float[Array, ""]]:
        part = jax.tree.map(lambda x_b: x_b[::accumulate], batch)
        whole_noise = noise_of(objective, state, batch, key)
        noise = whole_noise.replace(rows_b=whole_noise.rows_b[::accumulate])

        def mean_loss(params: dict) -> Array:
            loss = objective.loss(params, part, noise)
            return loss.loss_sum / jnp.maximum(loss.tokens, 1)

        gradient = jax.grad(mean_loss)(gradient_point(state.params, state.opt_state))
        updates, _ = tx.update(gradient, state.opt_state, state.params)
        sizes = _norms(state.params)
        metrics = {}
        for name, norm in _norms(gradient).items():
            metrics[f"gradient_norm/{name}"] = norm
        for name, norm in _norms(updates).items():
            metrics[f"update_ratio/{name}"] = norm / jnp.maximum(sizes[name], 1e-12)
        return metrics | _entropies(objective, state.params, part)

    return jax.jit(diagnosis)


def _norms(tree: dict) -> dict[str, Float[Array, ""]]:
    """Returns the norm of the arrays of each layer, and of each part that is in none."""
    parts: dict[str, list[Any]] = {}
    for path, leaf in flatten_dict(tree).items():
        is_in_layer = len(path) > 1 and path[1].startswith("layer")
        depth = 2 if is_in_layer else 1
        name = "/".join(path[:depth])
        parts.setdefault(name, []).append(leaf)
    return {name: optax.tree.norm(leaves) for name, leaves in parts.items()}


def _entropies(objective: Objective, params: dict, batch: Batch) -> dict[str, Float[Array, ""]]:
    model = objective.model
    if not hasattr(model, "attention_maps"):
        return {}
    sides = jax.tree.map(lambda x_bt: x_bt[:_ROWS], objective.tokens(batch))
    maps = model.apply({"params": params}, *sides, method="attention_maps")
    source = sides[0]
    target = sides[-1]
    if isinstance(model, PrefixLM):
        target = joined(source, target)  # its decoder reads both in one row
    metrics = {}
    for kind, weights_nbhts in maps.items():
        queries = source if kind == "encoder" else target
        real_bt = queries.segments_bt != 0
        for layer, weights_bhts in enumerate(weights_nbhts):
            metrics[f"attention_entropy/{kind}/layer_{layer}"] = _entropy(weights_bhts, real_bt)
    return metrics


def _entropy(weights_bhts: Float[Array, "b h t s"], real_bt: Bool[Array, "b t"]) -> Float[Array, ""]:
    """Returns the mean entropy, in nats, of the weights of queries that are not padding."""
    entropy_bht = -jnp.sum(jax.scipy.special.xlogy(weights_bhts, weights_bhts), axis=-1)
    mean_bt = jnp.mean(entropy_bht, axis=1)
    queries = jnp.maximum(jnp.sum(real_bt), 1)
    return jnp.sum(mean_bt * real_bt) / queries

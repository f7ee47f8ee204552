"""Schedule-free AdamW: a mean of all iterates instead of a falling rate (Defazio et al. 2024, arXiv 2405.15682).

The paper has three sequences: z, which AdamW without momentum moves; x, the mean of all z, weighted with their squared
rates; and y = (1 - b1) z + b1 x, where the gradient is taken. Here the parameters are x, so that validations,
checkpoints and averages need know nothing of this, and the state holds the lead y - x, which begins at 0.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int


class ScheduleFree(NamedTuple):
    """The optimiser's state: y - x as the parameters, the sum of all weights, and what AdamW keeps."""

    lead: Any
    weights: Float[Array, ""]
    updates: Int[Array, ""]
    base: Any


def schedule_free(
    base: optax.GradientTransformation, rate: Callable[[Any], Float[Array, ""]], b1: float
) -> optax.GradientTransformation:
    """Returns `base`, an optimiser without momentum, made schedule-free; its parameters are x.

    `rate` takes the number of steps done, and must not fall. Gradients must be those at `gradient_point`.
    """

    def init(x: dict) -> ScheduleFree:
        return ScheduleFree(jax.tree.map(jnp.zeros_like, x), jnp.zeros(()), jnp.zeros((), jnp.int32), base.init(x))

    def update(gradient: dict, state: ScheduleFree, x: dict) -> tuple[dict, ScheduleFree]:
        y = optax.apply_updates(x, state.lead)
        step, base_state = base.update(gradient, state.base, y)
        weight = rate(state.updates) ** 2
        weights = state.weights + weight
        share = weight / jnp.maximum(weights, jnp.finfo(jnp.float32).tiny)  # of the new z in the mean
        # From y = (1 - b1) z + b1 x: lead = y - x = (1 - b1) (z - x), so z = x + lead / (1 - b1). With z' = z + step,
        # the mean moves by x' - x = share (z' - x), and lead' = (1 - b1) (z' - x') = (1 - b1) (1 - share) (z' - x).
        updates = jax.tree.map(lambda lead, moved: share * (lead / (1 - b1) + moved), state.lead, step)
        lead = jax.tree.map(lambda lead, moved: (1 - share) * (lead + (1 - b1) * moved), state.lead, step)
        return updates, ScheduleFree(lead, weights, state.updates + 1, base_state)

    return optax.GradientTransformation(init, update)


def gradient_point(params: dict, opt_state: Any) -> dict:
    """Returns the point at which to take the next gradient: y if the optimiser is schedule-free, else `params`."""
    for part in jax.tree.leaves(opt_state, is_leaf=lambda part: isinstance(part, ScheduleFree)):
        if isinstance(part, ScheduleFree):
            return optax.apply_updates(params, part.lead)
    return params

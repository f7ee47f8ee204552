"""Learning rate and optimiser (paper, section 5.3)."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict

Scalar = int | Int[Array, ""]


def learning_rate(cfg: ConfigDict, d_model: int, steps: int, step: Scalar) -> Float[Array, ""]:
    """Returns the learning rate of update number `step`, counted from 1 as in the paper.

    "paper": lr d_model^-0.5 min(step^-0.5, step warmup^-1.5), equation (3) times a factor lr.
    "inverse_sqrt": linear warmup from `warmup_from` to lr over `warmup` updates, then lr (warmup / step)^0.5.
    "cosine": linear warmup to lr over `warmup` updates, then half a cosine down to 0 at `steps`.

    Args:
      cfg: `config.optim`.
      d_model: width of the model, which scales the paper's schedule.
      steps: updates in the whole run; used by "cosine" only.
      step: number of the update.
    """
    n = jnp.asarray(step, jnp.float32)
    if cfg.schedule == "paper":
        falling = n**-0.5
        rising = n * cfg.warmup**-1.5
        return cfg.lr * d_model**-0.5 * jnp.minimum(falling, rising)
    if cfg.schedule == "inverse_sqrt":
        rising = cfg.warmup_from + (cfg.lr - cfg.warmup_from) * n / cfg.warmup
        falling = cfg.lr * jnp.sqrt(cfg.warmup / n)
        return jnp.where(n < cfg.warmup, rising, falling)
    progress = jnp.clip((n - cfg.warmup) / max(steps - cfg.warmup, 1), 0.0, 1.0)
    falling = 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
    return cfg.lr * jnp.minimum(n / cfg.warmup, falling)


def optimizer(cfg: ConfigDict, d_model: int, steps: int) -> optax.GradientTransformation:
    """Returns Adam with the schedule above: "adam" as in the paper, or "adamw" with decoupled weight decay."""

    def rate(updates_done: Scalar) -> Float[Array, ""]:
        return learning_rate(cfg, d_model, steps, updates_done + 1)

    if cfg.name == "adamw":
        adam = optax.adamw(rate, cfg.b1, cfg.b2, cfg.eps, weight_decay=cfg.weight_decay, mask=_decayed)
    else:
        adam = optax.adam(rate, cfg.b1, cfg.b2, cfg.eps)
    parts = [adam]
    if cfg.clip_norm:
        parts.insert(0, optax.clip_by_global_norm(cfg.clip_norm))
    if cfg.ema:
        parts.append(_averaging(cfg.ema))
    return optax.chain(*parts) if len(parts) > 1 else adam


class Average(NamedTuple):
    """The exponential moving average of the parameters, in the optimiser's state, so that checkpoints have it."""

    ema: Any  # as the parameters
    updates: Int[Array, ""]


def _averaging(decay: float) -> optax.GradientTransformation:
    """Returns a transformation that leaves the updates as they are, and averages the parameters that they lead to.

    After update n the weight of the parameters of update i is proportional to decay^(n - i); so those of before the
    first update have none, as in Adam's corrected moments (Kingma and Ba 2015, section 3).
    """

    def init(params: dict) -> Average:
        return Average(jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32))

    def update(updates: dict, state: Average, params: dict) -> tuple[dict, Average]:
        done = state.updates + 1
        weight = (1 - decay) / (1 - jnp.float32(decay) ** done)
        new_params = optax.apply_updates(params, updates)
        ema = jax.tree.map(lambda mean, new: mean + weight * (new - mean), state.ema, new_params)
        return updates, Average(ema, done)

    return optax.GradientTransformation(init, update)


def _decayed(params: dict) -> dict:
    """Returns the mask of weight decay: matrices decay; biases and layer norms, being vectors, do not."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

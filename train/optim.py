"""Learning rate and optimiser (paper, section 5.3)."""

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
    if cfg.clip_norm:
        return optax.chain(optax.clip_by_global_norm(cfg.clip_norm), adam)
    return adam


def _decayed(params: dict) -> dict:
    """Returns the mask of weight decay: matrices decay; biases and layer norms, being vectors, do not."""
    return jax.tree.map(lambda leaf: leaf.ndim > 1, params)

"""Learning rate and optimiser (paper, section 5.3)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import optax.contrib
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict
from optax.contrib import MuonDimensionNumbers

from vaswani.train.mup import scale_by_mup
from vaswani.train.schedule_free import schedule_free

Scalar = int | Int[Array, ""]
Rate = Callable[[Scalar], Float[Array, ""]]

# The root mean square of Muon's updates, about the same as Adam's (Liu et al. 2025, arXiv 2502.16982).
MUON_RMS = 0.2
# The matrices that Muon is for, by name; of each, which axes are its inputs and which its outputs.
_PROJECTION = MuonDimensionNumbers((0,), (1, 2))  # [d,h,k]
_MATRIX = MuonDimensionNumbers((0,), (1,))
HIDDEN_MATRICES = {
    **dict.fromkeys(("wq", "wk", "wv"), _PROJECTION),
    "wo": MuonDimensionNumbers((0, 1), (2,)),  # [h,e,d]
    **dict.fromkeys(("w1", "w2", "v", "head_w"), _MATRIX),
    **dict.fromkeys(("wx", "wh"), MuonDimensionNumbers((1,), (3,))),  # [r,d,4,e]: for each direction and gate
    "kernel": MuonDimensionNumbers((0, 1), (3,)),  # [w,d,2,d]: for the values and their gates
}

_HEADS_BIASES = ("bq", "bk", "bv")  # [h,k]; others are vectors, except T5's relative_bias, a table, which decays

# Adafactor's factors, of rows and columns, are of arrays with two axes at least as long; optax's default.
FACTORED = 128

# AdEMAMix's second mean, as its authors train Transformers.
SLOW_DECAY = 0.9999
SLOW_WEIGHT = 5.0


def learning_rate(cfg: ConfigDict, d_model: int, steps: int, step: Scalar) -> Float[Array, ""]:
    """Returns the learning rate of step `step`, counted from 1 as in the paper.

    "paper": lr d_model^-0.5 min(step^-0.5, step warmup^-1.5), equation (3) times a factor lr.
    "inverse_sqrt": linear warmup from `warmup_from` to lr over `warmup` steps, then lr (warmup / step)^0.5.
    "cosine": linear warmup to lr over `warmup` steps, then half a cosine down to 0 at `steps`.
    "constant": linear warmup to lr over `warmup` steps, then lr.

    Args:
      cfg: `config.optim`.
      d_model: width of the model, which scales the paper's schedule.
      steps: in the whole run; used by "cosine" only.
      step: its number, from 1.
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
    if cfg.schedule == "constant":
        return cfg.lr * jnp.minimum(n / cfg.warmup, 1.0)
    assert cfg.schedule == "cosine", cfg.schedule
    progress = jnp.clip((n - cfg.warmup) / max(steps - cfg.warmup, 1), 0.0, 1.0)
    falling = 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
    return cfg.lr * jnp.minimum(n / cfg.warmup, falling)


def optimizer(cfg: ConfigDict, d_model: int, steps: int, r: float = 1.0) -> optax.GradientTransformation:
    """Returns the optimiser that `cfg.name` names, with the schedule above.

    "adam": as in the paper. "adamw": with decoupled weight decay.
    "muon": hidden matrices by Muon (Jordan et al. 2024), whose updates are as large as Adam's (Liu et al. 2025, arXiv
    2502.16982), so that both have one rate; embeddings, tables, norms and biases by Adam. Momentum is Nesterov's.
    "ademamix": Adam with a second, slow mean of the gradients (Pagliardini et al. 2024, arXiv 2409.03137).
    "adafactor": second moments in factors, and a rate relative to the parameters' size (Shazeer and Stern 2018, arXiv
    1804.04235). Only arrays with two axes of `FACTORED` or more are factored; all others, such as attention's [d,h,k]
    with a smaller d_k, keep a second moment of every parameter.
    "schedule_free_adamw": AdamW, with a mean of its iterates instead of a falling rate (train/schedule_free.py).

    Args:
      cfg: `config.optim`.
      d_model: width of the model or, with muP, of its base.
      steps: in the whole run.
      r: how many times as wide as its base the model is; other than 1 only for "adam", whose `update` then raises
        `ValueError` if train/mup.py has no rule for a parameter.
    """

    def rate(updates_done: Scalar) -> Float[Array, ""]:
        return learning_rate(cfg, d_model, steps, updates_done + 1)

    decay = {"weight_decay": cfg.weight_decay, "mask": _decay_mask}
    match cfg.name:
        case "adamw":
            chosen = optax.adamw(rate, cfg.b1, cfg.b2, cfg.eps, **decay)
        case "muon":
            chosen = optax.contrib.muon(
                rate,
                eps=cfg.eps,
                weight_decay=cfg.weight_decay,
                adam_b1=cfg.b1,
                adam_b2=cfg.b2,
                muon_weight_dimension_numbers=_hidden_matrices,
                consistent_rms=MUON_RMS,
            )
        case "ademamix":
            slow, weight = _slow_mean(cfg.b1, steps)
            chosen = optax.contrib.ademamix(rate, cfg.b1, cfg.b2, slow, weight, cfg.eps, **decay)
        case "adafactor":
            chosen = optax.adafactor(rate, min_dim_size_to_factor=FACTORED)
        case "schedule_free_adamw":
            chosen = schedule_free(optax.adamw(rate, 0.0, cfg.b2, cfg.eps, **decay), rate, cfg.b1)
        case "adam":
            chosen = optax.adam(rate, cfg.b1, cfg.b2, cfg.eps)
        case other:
            raise ValueError(f"optim.name is {other!r}, which train/optim.py does not know")
    parts = [chosen]
    if cfg.clip_norm:
        parts.insert(0, optax.clip_by_global_norm(cfg.clip_norm))
    if r != 1:
        parts.append(scale_by_mup(r))
    if cfg.ema:
        parts.append(_averaging(cfg.ema))
    return optax.chain(*parts) if len(parts) > 1 else chosen


def _hidden_matrices(params: dict) -> dict:
    """Returns the input and output axes of each hidden matrix; None for all other parameters."""

    def axes(path: tuple[Any, ...], leaf: Any) -> MuonDimensionNumbers | None:
        return HIDDEN_MATRICES.get(path[-1].key)

    return jax.tree_util.tree_map_with_path(axes, params)


def _slow_mean(b1: float, steps: int) -> tuple[Rate, Rate]:
    """Returns AdEMAMix's slow decay and its weight by the number of updates done; both grow during all of training.

    The weight grows linearly; the decay, from b1, so that its half-life does (section 3, and appendix A.1).
    """

    def progress(updates_done: Scalar) -> Float[Array, ""]:
        return jnp.minimum((updates_done + 1) / steps, 1.0)

    def decay(updates_done: Scalar) -> Float[Array, ""]:
        first = jnp.log(b1)
        last = jnp.log(SLOW_DECAY)
        part = progress(updates_done)
        return jnp.exp(first * last / ((1 - part) * last + part * first))

    def weight(updates_done: Scalar) -> Float[Array, ""]:
        return SLOW_WEIGHT * progress(updates_done)

    return decay, weight


class Average(NamedTuple):
    """The exponential moving average of the parameters, in the optimiser's state, so that checkpoints have it."""

    ema: Any  # as the parameters
    updates: Int[Array, ""]


def _averaging(decay: float) -> optax.GradientTransformation:
    """Returns a transformation that leaves the updates as they are, and averages the parameters that they lead to.

    After update n the parameters after update i have a weight proportional to decay^(n - i). The initial ones have
    none, as in Adam's corrected moments (Kingma and Ba 2015, section 3).
    """

    def init(params: dict) -> Average:
        return Average(jax.tree.map(jnp.zeros_like, params), jnp.zeros((), jnp.int32))

    def update(updates: dict, state: Average, params: dict) -> tuple[dict, Average]:
        done = state.updates + 1
        # 1 - decay^n, of which float32 would otherwise keep few digits where the decay is near 1.
        all_weights = -jnp.expm1(done * jnp.log1p(decay - 1))
        weight = (1 - decay) / all_weights
        new_params = optax.apply_updates(params, updates)
        ema = jax.tree.map(lambda mean, new: mean + weight * (new - mean), state.ema, new_params)
        return updates, Average(ema, done)

    return optax.GradientTransformation(init, update)


def _decay_mask(params: dict) -> dict:
    """Returns the mask of weight decay: matrices decay; biases and layer norms do not."""

    def is_matrix(path: tuple[Any, ...], leaf: Array) -> bool:
        return leaf.ndim > 1 and path[-1].key not in _HEADS_BIASES

    return jax.tree_util.tree_map_with_path(is_matrix, params)

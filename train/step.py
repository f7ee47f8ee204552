"""One update, and one validation batch, as pure functions of (state, batch, key)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float, Int, PRNGKeyArray

from data.batching import Batch
from model.config import ModelConfig
from model.transformer import Transformer, init_params
from train.loss import Loss, cross_entropy


class TrainState(struct.PyTreeNode):
    """Everything that training changes, and so everything that a checkpoint must hold besides the data position."""

    # Any, because jax also builds this tree with shapes, shardings or None in the place of arrays.
    step: Any  # int32 scalar: updates done
    params: Any  # float32, nested dicts; see `model.transformer.init_params`
    opt_state: Any  # what optax keeps for them


class Sums(NamedTuple):
    """What one update reports, over its whole batch; everything but `gradient_norm` may be added up across updates."""

    loss: Loss
    source_tokens: Int[Array, ""]  # non-pad
    gradient_norm: Float[Array, ""]  # of the mean loss, before clipping; finite unless the update went wrong


def init_state(config: ModelConfig, tx: optax.GradientTransformation, key: PRNGKeyArray) -> TrainState:
    """Returns the state before the first update. Under `jax.eval_shape`, the shapes that a checkpoint must have."""
    params = init_params(config, key)
    return TrainState(step=jnp.zeros((), jnp.int32), params=params, opt_state=tx.init(params))


def batch_loss(
    model: Transformer,
    params: dict,
    batch: Batch,
    eps_ls: float,
    key: PRNGKeyArray | None = None,
    rows_b: Int[Array, " b"] | None = None,
) -> Loss:
    """Returns the summed loss of a batch: with dropout from `key` to the rows of these numbers, or without any."""
    logits_btv = model.apply(
        {"params": params},
        batch.source_bs,
        batch.target_in_bt,
        batch.source_segments_bs,
        batch.target_segments_bt,
        batch.source_positions_bs,
        batch.target_positions_bt,
        train=key is not None,
        rows_b=rows_b,
        rngs=None if key is None else {"dropout": key},
    )
    return cross_entropy(logits_btv, jnp.asarray(batch.target_out_bt), eps_ls)


def make_train_step(
    model: Transformer, tx: optax.GradientTransformation, eps_ls: float, accumulate: int, shardings: Any = None
) -> Callable[[TrainState, Batch, PRNGKeyArray], tuple[TrainState, Sums]]:
    """Returns the jitted update `(state, batch, key) -> (state, sums)`; it compiles once for each batch shape.

    The gradient is that of loss_sum / tokens over the whole batch, also where `accumulate` cuts it into that many
    slices of rows to save memory: sums are added, and divided once. Row r goes to slice r mod `accumulate`, so that a
    device which holds neighbouring rows holds its part of every slice. `key` is the same for every update, which folds
    in its own number, so that a run's dropout does not depend on where it was interrupted. The old state is donated:
    its buffers become the new one's.

    Args:
      model: the Transformer.
      tx: the optimiser.
      eps_ls: label smoothing.
      accumulate: number of slices; a divisor of the batch's rows.
      shardings: of the state, `run.sharding.shardings`; where it is None, the compiler's choice.
    """

    def sums_and_gradient(params: dict, batch: Batch, rows_b: Array, key: PRNGKeyArray) -> tuple[Loss, dict]:
        def loss_sum(params: dict) -> tuple[Array, Loss]:
            loss = batch_loss(model, params, batch, eps_ls, key, rows_b)
            return loss.loss_sum, loss

        (_, loss), gradient = jax.value_and_grad(loss_sum, has_aux=True)(params)
        return loss, gradient

    def accumulated(params: dict, batch: Batch, rows_b: Array, key: PRNGKeyArray) -> tuple[Loss, dict]:
        def add(total: tuple[Loss, dict], slice_: tuple[Batch, Array]) -> tuple[tuple[Loss, dict], None]:
            return jax.tree.map(jnp.add, total, sums_and_gradient(params, *slice_, key)), None

        def cut(x: Array) -> Array:
            return x.reshape(x.shape[0] // accumulate, accumulate, *x.shape[1:]).swapaxes(0, 1)

        zeros = Loss(jnp.zeros(()), jnp.zeros(()), jnp.zeros((), jnp.int32)), jax.tree.map(jnp.zeros_like, params)
        return jax.lax.scan(add, zeros, jax.tree.map(cut, (batch, rows_b)))[0]

    def train_step(state: TrainState, batch: Batch, key: PRNGKeyArray) -> tuple[TrainState, Sums]:
        gradient_of = sums_and_gradient if accumulate == 1 else accumulated
        rows_b = jnp.arange(batch.source_bs.shape[0], dtype=jnp.int32)
        loss, gradient = gradient_of(state.params, batch, rows_b, jax.random.fold_in(key, state.step))
        gradient = jax.tree.map(lambda g: g / jnp.maximum(loss.tokens, 1), gradient)
        updates, opt_state = tx.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        sums = Sums(loss, jnp.sum(batch.source_bs != 0, dtype=jnp.int32), optax.tree.norm(gradient))
        return TrainState(state.step + 1, params, opt_state), sums

    return jax.jit(train_step, donate_argnums=0, out_shardings=None if shardings is None else (shardings, None))


def make_eval_step(model: Transformer, eps_ls: float) -> Callable[[dict, Batch], Loss]:
    """Returns the jitted `(params, batch) -> Loss`, without dropout."""
    return jax.jit(lambda params, batch: batch_loss(model, params, batch, eps_ls))

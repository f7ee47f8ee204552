"""One step, and one validation batch, as pure functions of (state, batch, key)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vaswani.model.noise import Noise
from vaswani.tasks.loss import Loss
from vaswani.tasks.task import Batch, Objective
from vaswani.train.schedule_free import gradient_point

CompilerOptions = dict[str, bool | str]


class TrainState(struct.PyTreeNode):
    """Everything that training changes, and so what a checkpoint must hold, besides the data position."""

    # Any, because jax also builds this tree with shapes, shardings or None as leaves.
    step: Any  # int32 scalar: steps done
    params: Any  # float32, nested dicts
    opt_state: Any  # optax's state


class Sums(NamedTuple):
    """What one step reports about its batch; everything but `gradient_norm` can be summed across steps."""

    loss: Loss
    input_tokens: Int[Array, ""]  # that the model reads, without padding; `loss.tokens` are those that it predicts
    gradient_norm: Float[Array, ""]  # of the mean loss, before clipping; finite unless the step went wrong


def init_state(init: Callable[[PRNGKeyArray], dict], tx: optax.GradientTransformation, key: PRNGKeyArray) -> TrainState:
    """Returns the state before the first step; under `jax.eval_shape`, the shapes that a checkpoint must have."""
    params = init(key)
    return TrainState(step=jnp.zeros((), jnp.int32), params=params, opt_state=tx.init(params))


def noise_of(objective: Objective, state: TrainState, batch: Batch, key: PRNGKeyArray) -> Noise:
    """Returns the noise of the step from `state` on `batch`.

    `key` is the same for every step, which folds in its number, so a run's dropout does not depend on where it was
    interrupted.
    """
    rows = jax.tree.leaves(batch)[0].shape[0]
    rows_b = jnp.arange(rows, dtype=jnp.int32)
    return Noise.of(objective.model.config, jax.random.fold_in(key, state.step), rows_b)


def make_train_step(
    objective: Objective,
    tx: optax.GradientTransformation,
    accumulate: int,
    shardings: Any = None,
    options: CompilerOptions | None = None,
) -> Callable[[TrainState, Batch, PRNGKeyArray], tuple[TrainState, Sums]]:
    """Returns the jitted step `(state, batch, key) -> (state, sums)`; it compiles once for each batch shape.

    The loss is loss_sum / tokens over the whole batch, even if `accumulate` splits it into microbatches to save
    memory: their sums are added up, then divided once. Row r goes to microbatch r mod `accumulate`, so a device that
    holds neighbouring rows holds its part of every microbatch. `key` is `noise_of`'s. The old state is donated: its
    buffers are reused for the new one.

    Args:
      objective: what is trained.
      tx: the optimiser.
      accumulate: number of microbatches; must divide the batch's rows.
      shardings: of the state, from `run.sharding.shardings`; None leaves them to the compiler.
      options: of the compiler; None for its own.
    """

    def loss_and_gradient(params: dict, batch: Batch, noise: Noise) -> tuple[Loss, dict]:
        # The sum over tokens, not the mean: the sums of microbatches can be added up.
        def loss_sum(params: dict) -> tuple[Array, Loss]:
            loss = objective.loss(params, batch, noise)
            return loss.loss_sum, loss

        (_, loss), gradient = jax.value_and_grad(loss_sum, has_aux=True)(params)
        return loss, gradient

    def accumulate_gradient(params: dict, batch: Batch, noise: Noise) -> tuple[Loss, dict]:
        def add(total: tuple[Loss, dict], microbatch: tuple[Batch, Array]) -> tuple[tuple[Loss, dict], None]:
            batch, rows_b = microbatch
            # A row keeps its number in the whole batch, and so its dropout (section 5.4).
            sums = loss_and_gradient(params, batch, noise.replace(rows_b=rows_b))
            return jax.tree.map(jnp.add, total, sums), None

        def split(x_b: Array) -> Array:
            # (b, ..) -> (b / accumulate, accumulate, ..) -> (accumulate, b / accumulate, ..), for the scan
            rows = x_b.shape[0] // accumulate
            return x_b.reshape(rows, accumulate, *x_b.shape[1:]).swapaxes(0, 1)

        no_loss = Loss(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))
        no_gradient = jax.tree.map(jnp.zeros_like, params)
        microbatches = jax.tree.map(split, (batch, noise.rows_b))
        # One after the other: the activations of only one microbatch are in memory.
        total, _ = jax.lax.scan(add, (no_loss, no_gradient), microbatches)
        return total

    def train_step(state: TrainState, batch: Batch, key: PRNGKeyArray) -> tuple[TrainState, Sums]:
        # Forward and backward, at the parameters themselves, unless the optimiser is schedule-free.
        compute = loss_and_gradient if accumulate == 1 else accumulate_gradient
        point = gradient_point(state.params, state.opt_state)
        loss, gradient = compute(point, batch, noise_of(objective, state, batch, key))
        # Divided by the batch's tokens, for the mean loss; without any it is 0, not NaN.
        gradient = jax.tree.map(lambda g: g / jnp.maximum(loss.tokens, 1), gradient)

        # Adam, at the rate of equation 3 (section 5.3), or as `config.optim` says.
        updates, opt_state = tx.update(gradient, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)

        # What is reported. Segment 0 is padding.
        input_tokens = jnp.int32(0)
        for tokens in objective.tokens(batch):
            input_tokens += jnp.sum(tokens.segments_bt != 0, dtype=jnp.int32)
        sums = Sums(loss, input_tokens, gradient_norm=optax.tree.norm(gradient))
        return TrainState(state.step + 1, params, opt_state), sums

    out_shardings = None if shardings is None else (shardings, None)
    return jax.jit(train_step, donate_argnums=0, out_shardings=out_shardings, compiler_options=options)


def make_eval_step(objective: Objective, options: CompilerOptions | None = None) -> Callable[[dict, Batch], Loss]:
    """Returns the jitted `(params, batch) -> Loss`, without dropout, compiled with `options`."""
    return jax.jit(lambda params, batch: objective.loss(params, batch, None), compiler_options=options)

"""The functions that a training compiles, and where the arrays of its state lie."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh
from jaxtyping import Array, PRNGKeyArray
from ml_collections import ConfigDict

from vaswani.run.sharding import placed_shapes, shardings
from vaswani.tasks.loss import Loss
from vaswani.tasks.task import Batch, Objective
from vaswani.train import cpu_matmuls
from vaswani.train.diagnose import make_diagnosis
from vaswani.train.optim import learning_rate, optimizer
from vaswani.train.step import TrainState, init_state, make_eval_step, make_train_step


class Program(NamedTuple):
    """Jitted functions: none is compiled before it is called.

    Attributes:
      placed: the state's shapes, each with its sharding.
      init: makes the state before the first step from a key.
      train_step: (state, batch, key) -> (state, Sums); it can also be lowered.
      diagnose: (state, batch, key) -> the metrics of `train.diagnose`.
      eval_step: (parameters, batch) -> Loss, without dropout.
      rate: learning rate of a step, by its number.
    """

    placed: TrainState
    init: Callable[[PRNGKeyArray], TrainState]
    train_step: Any
    diagnose: Callable[..., dict[str, Array]]
    eval_step: Callable[[dict, Batch], Loss]
    rate: Callable[[int], Array]


def make_program(cfg: ConfigDict, objective: Objective, mesh: Mesh) -> Program:
    """Returns the functions of a whole config that train `objective` on `mesh`.

    Raises:
      UserError: the mesh does not divide an array, or this device has no `cpu_bfloat16`.
    """
    # Optimiser (section 5.3), and from the shapes of the state where each of its arrays lies.
    config = objective.model.config
    width_ratio = config.d_model / config.base_width
    tx = optimizer(cfg.optim, config.base_width, cfg.steps, width_ratio)
    init = partial(init_state, objective.init, tx)
    placed = placed_shapes(jax.eval_shape(init, jax.random.key(0)), mesh)

    accumulate = cfg.optim.accumulate
    options = cpu_matmuls.compiler_options(cfg, mesh.devices.flat[0].platform)
    return Program(
        placed=placed,
        init=jax.jit(init, out_shardings=shardings(placed)),
        train_step=make_train_step(objective, tx, accumulate, shardings(placed), options),
        diagnose=make_diagnosis(objective, tx, accumulate),
        eval_step=make_eval_step(objective, options),
        rate=partial(learning_rate, cfg.optim, config.base_width, cfg.steps),
    )

"""Trains a cell with a seed: its gradient by layer at the first update, its loss after the last."""

import math
from contextlib import closing
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from flax.traverse_util import flatten_dict

from lab.residuals.design import Cell, get_config
from vaswani.data.from_config import prepare_all
from vaswani.data.pipeline import TrainingBatches, evaluation_batches
from vaswani.run.folder import device, git
from vaswani.tasks import task_of
from vaswani.tasks.task import Batch
from vaswani.train.optim import optimizer
from vaswani.train.step import init_state, make_eval_step, make_train_step


class Measured:
    """What a cell trains, compiled once for all of its seeds."""

    def __init__(self, cell: Cell, folder: Path) -> None:
        """Prepares the corpus, in `folder` unless it is there."""
        cfg = get_config(cell, seed=0)
        cfg.data.cache = str(folder / "cache")
        task = task_of(cfg.task)
        tokenizer, self._data, valid = prepare_all(cfg.data, folder / "tokenizer.model")
        self._valid = list(evaluation_batches(valid, cfg.data.tokens_per_batch, cfg.data.buckets))
        self.cell = cell
        self._cfg = cfg
        self._objective = task.objective(cfg, task.config(cfg, tokenizer.vocab_size))
        self._tx = optimizer(cfg.optim, cfg.model.d_model, cfg.steps)
        self._update = make_train_step(self._objective, self._tx, 1)
        self._loss = make_eval_step(self._objective)
        self._gradient = jax.jit(jax.grad(self._mean_loss))

    def _mean_loss(self, params: dict, batch: Batch) -> Any:
        loss = self._objective.loss(params, batch, None)
        return loss.loss_sum / loss.tokens

    def run(self, seed: int) -> dict[str, Any]:
        """Trains with a seed.

        Returns a line of the record: the "gradient" is a norm for each layer; "nll", in nats a token of validation, is
        None of a run that has ended before the last update, with "updates" of how many were finite.
        """
        key, dropout_key = jax.random.split(jax.random.key(seed))
        state = init_state(self._objective.init, self._tx, key)
        norms: dict[str, float | None] = {}
        nll: float | None = None
        updates = 0
        with closing(TrainingBatches(self._data, self._cfg.data, seed=seed)) as endless:
            for _ in range(self._cfg.steps):
                batch = next(endless)
                if not norms:
                    norms = by_layer(self._gradient(state.params, batch))
                state, sums = self._update(state, batch, dropout_key)
                if not np.isfinite([sums.loss.loss_sum, sums.gradient_norm]).all():
                    break
                updates += 1
            else:
                nll = self._validate(state.params)
        about = {"git": git(), "device": device()}
        return {"cell": self.cell.name, "seed": seed, "updates": updates, "nll": nll, "gradient": norms, **about}

    def _validate(self, params: dict) -> float | None:
        losses = jax.device_get([self._loss(params, batch) for batch in self._valid])
        nll = sum(float(loss.nll_sum) for loss in losses) / sum(float(loss.tokens) for loss in losses)
        return nll if math.isfinite(nll) else None


def by_layer(gradient: dict) -> dict[str, float | None]:
    """Returns the norm of a gradient with respect to the parameters of each layer, as encoder/layer_0.

    One that is not finite is None: JSON has no word for it.
    """
    parts: dict[str, list[Any]] = {}
    for path, leaf in flatten_dict(gradient).items():
        if len(path) > 1 and path[1].startswith("layer"):
            parts.setdefault("/".join(path[:2]), []).append(leaf)
    norms = {name: float(optax.tree.norm(leaves)) for name, leaves in parts.items()}
    return {name: norm if math.isfinite(norm) else None for name, norm in norms.items()}

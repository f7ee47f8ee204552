"""Our side of training in lockstep with PyTorch: the loss of every update from the same parameters and sentences.

`tests.beside_torch` has the other side. Losses that agree prove the forward pass, the gradient and the optimiser
together: what is wrong in one of them shows in the next loss. Rounding shows as well, and grows as training goes on:
`Training.nudged` measures how fast.

As a program, `python -m tests.lockstep FOLDER MESHES` prints the losses on meshes of eight virtual devices, as JSON.
"""

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from absl import flags
from ml_collections import ConfigDict

from tests import mesh_losses
from vaswani.configs.common import default
from vaswani.data.from_config import prepare_all
from vaswani.data.pipeline import TrainingBatches
from vaswani.ids import EOS
from vaswani.model.config import ModelConfig
from vaswani.tasks import task_of
from vaswani.tasks.task import Batch, Objective
from vaswani.train.optim import optimizer
from vaswani.train.step import TrainState, make_train_step

NUDGE = 2.0**-22
Losses = list[float]  # of each update, in nats a token

# What differs from the paper, as keys of the config.
CASES: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "pre-norm": {"model.norm": "pre"},
    "untied, with biases": {"model.tie_embeddings": False, "model.biases": True, "model.output_bias": True},
    "4 microbatches": {"optim.accumulate": 4},
    "packed": {"data.batching": "pack"},
    "bfloat16": {"model.dtype": "bfloat16"},
    "GPT-2": {
        "task": "language_model",
        "data.train": "lines:grammar:train:2000:{en,de}",
        "data.valid": "lines:grammar:valid:10:{en,de}",
        "model.positions": "learned",
        "model.max_positions": 32,
        "model.norm": "pre",
        "model.norm_epsilon": 1e-5,
        "model.activation": "gelu_tanh",
        "model.biases": True,
        "model.scale_embeddings": False,
    },
}


def config(folder: Path, case: str) -> ConfigDict:
    """Returns the paper's recipe in small, without dropout; a batch is 24 sentences of the grammar, or packed rows."""
    cfg = default()
    cfg.steps = 40
    cfg.data.train, cfg.data.valid = "grammar:train:1000", "grammar:valid:10"
    cfg.data.update({"cache": str(folder / "cache"), "vocab_size": 800, "tokens_per_batch": 24 * 32})
    cfg.data.update({"max_length": 32, "buckets": (32,), "pack_length": 64})
    cfg.model.update({"N": 1, "d_model": 64, "d_ff": 64, "h": 8, "d_k": 8, "d_v": 8, "P_drop": 0.0})
    # With two layers and d_ff 256 rounding grows to 2e-4 within 40 updates; with GELU, to 2e-6.
    cfg.optim.warmup = 400
    cfg.update_from_flattened_dict(CASES[case])
    return cfg


class Training(NamedTuple):
    """A training of ours, before its first update."""

    cfg: ConfigDict
    model: ModelConfig
    objective: Objective
    tx: optax.GradientTransformation
    state: TrainState
    batches: list[Batch]

    @classmethod
    def of(cls, folder: Path, case: str) -> "Training":
        """Returns the training of a case as `train.loop` begins it; the folder keeps its data."""
        cfg = config(folder, case)
        task = task_of(cfg.task)
        tokenizer, data, _ = prepare_all(cfg.data, folder / f"{cfg.task}.model")
        with closing(TrainingBatches(data, cfg.data, seed=cfg.seed)) as endless:
            batches = [next(endless) for _ in range(cfg.steps)]
        model = task.config(cfg, tokenizer.vocab_size)
        objective = task.objective(cfg, model)
        tx = optimizer(cfg.optim, model.d_model, cfg.steps)
        init_key, _ = jax.random.split(jax.random.key(cfg.seed))
        params = objective.init(init_key)
        return cls(cfg, model, objective, tx, TrainState(jnp.int32(0), params, tx.init(params)), batches)

    def with_params(self, params: dict) -> "Training":
        """Returns this training from other parameters."""
        return self._replace(state=TrainState(jnp.int32(0), params, self.tx.init(params)))

    def nudged(self) -> "Training":
        """Returns this training with 2^-22 added to one row of the initial embeddings, that of EOS."""
        params = dict(self.state.params)
        (name,) = {"embed", "source_embed"} & params.keys()
        params[name] = params[name].at[EOS].add(NUDGE)
        return self.with_params(params)

    def losses(self) -> Losses:
        """Trains, and returns the loss of each update."""
        train_step = make_train_step(self.objective, self.tx, self.cfg.optim.accumulate)
        state = jax.tree.map(jnp.array, self.state)  # a copy, whose buffers the updates reuse
        found: Losses = []
        for batch in self.batches:
            state, sums = train_step(state, batch, jax.random.key(0))
            found.append(float(sums.loss.loss_sum / sums.loss.tokens))
        return found


def main(folder: Path, meshes: list[tuple[int, int, int]]) -> None:
    """Prints the losses of the paper's case on each mesh: of so many devices along data, fsdp and tensor."""
    found = [mesh_losses.train(config(folder, "the paper's"), folder, mesh, 1)["losses"] for mesh in meshes]
    print(json.dumps(found))


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    flags.FLAGS.mark_as_parsed()  # grain reads them
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))

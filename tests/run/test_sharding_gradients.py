"""Gradients of few rows on a mesh with all three axes, where XLA may confuse the rows of devices."""

import json
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest

from tests import tiny
from tests.conftest import ROOT
from vaswani.configs.common import default
from vaswani.model.config import ModelConfig
from vaswani.run.sharding import make_mesh, place_rows, placed_shapes, shardings
from vaswani.tasks import masked_lm, translation

WIDE = ModelConfig(304, N=1, d_model=64, d_ff=128, h=8, d_k=4, d_v=6, P_drop=0.0)
FAMILIES = {
    "masked": (masked_lm.objective, WIDE),
    "convolution": (translation.objective, replace(WIDE, mixer="convolution")),
}


def norms(family: str, sizes: tuple[int, int, int]) -> list[float]:
    """Returns the loss, and the norm of its gradient with respect to each parameter, on the mesh of these sizes."""
    cfg = default().mesh
    cfg.data, cfg.fsdp, cfg.tensor = sizes
    mesh = make_mesh(cfg, jax.devices()[: int(np.prod(sizes))])
    make, config = FAMILIES[family]
    goal = make(config, 0.1)
    placed = placed_shapes(jax.eval_shape(goal.init, jax.random.key(0)), mesh)
    params = jax.jit(goal.init, out_shardings=shardings(placed))(jax.random.key(0))
    with jax.set_mesh(mesh):
        batch = place_rows(mesh, tiny.batch(rows=8, length=11, vocab_size=300))
        loss_and_gradient = jax.value_and_grad(lambda params: goal.loss(params, batch, None).loss_sum)
        loss, gradient = jax.jit(loss_and_gradient, out_shardings=(None, shardings(placed)))(params)
    return [float(loss), *(float(np.linalg.norm(leaf)) for leaf in jax.tree.leaves(jax.device_get(gradient)))]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_few_rows_have_the_gradient_of_one_device_on_a_mesh_of_all_axes(family: str) -> None:
    command = [sys.executable, "-m", "tests.run.test_sharding_gradients", family]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    one, eight = json.loads(done.stdout)
    assert eight == pytest.approx(one, rel=1e-4)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)
    print(json.dumps([norms(sys.argv[1], (1, 1, 1)), norms(sys.argv[1], (2, 2, 2))]))

"""What each of several devices holds and computes in an update, and what its collectives move: compiled, not run."""

from collections.abc import Sequence
from typing import Any

import jax

from lab.benchmarks.process import in_fresh_process
from vaswani.configs.common import default
from vaswani.run.sharding import make_mesh
from vaswani.tasks.config import model_config
from vaswani.train.aot.programs import train_step, update_costs

COUNTS = (1, 2, 4, 8)
FORMS = ("data", "fsdp")  # axes of the mesh that all devices are on
SIZES = {"N": 2, "d_model": 256, "d_ff": 1_024, "h": 4, "d_k": 64, "d_v": 64, "dropout_bits": "hash"}
VOCABULARY, ROWS, LENGTH = 8_192, 64, 64  # one batch, however many devices share it


def measured(counts: Sequence[int] = COUNTS) -> dict[str, Any]:
    """Returns, for each form and number of devices, bytes of memory, FLOPs and bytes sent, of one device."""
    return in_fresh_process(_compiled, counts)


def _compiled(counts: Sequence[int]) -> dict[str, Any]:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(counts))
    sizes = SIZES | {"vocabulary": VOCABULARY, "rows": ROWS, "length": LENGTH}
    return {"counts": list(counts), "sizes": sizes, **{form: [_update(form, n) for n in counts] for form in FORMS}}


def _update(form: str, count: int) -> dict[str, Any]:
    cfg = default()
    cfg.model.update(SIZES)
    cfg.mesh.update({"data": 1, form: count})
    mesh = make_mesh(cfg.mesh, jax.devices()[:count])
    update = cfg, model_config(cfg, VOCABULARY), mesh, ROWS, LENGTH
    costs = update_costs(*update)
    return {
        "memory": train_step(*update).facts["memory"]["peak"],
        "flops": costs["flops_analytic"],
        "sent": sum(one["bytes"] for one in costs["collectives"]),
    }

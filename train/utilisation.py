"""The share of an accelerator's peak that the steps use (MFU, Chowdhery et al. 2022, appendix B)."""

import jax

from vaswani.tasks import TRANSLATION
from vaswani.tasks.task import Batch, Objective
from vaswani.train.aot.flops import update_flops
from vaswani.train.aot.hardware import CHIPS, Chip

# Cards, and slices of a card, with lower peaks than the SXM card's, the only one that we know.
_SLOWER = ("H100 PCIe", "H100 NVL", "H200 NVL", "MIG ")


def chip_of(kind: str) -> Chip | None:
    """Returns the accelerator that jax calls `kind` (`jax.Device.device_kind`); None for one without a known peak."""
    if any(form in kind for form in _SLOWER):
        return None
    return next((chip for chip in CHIPS.values() if chip.kind in kind), None)


def peak_flops() -> float:
    """Returns the peak of all devices together, in FLOPs a second; 0 if it is not known."""
    chip = chip_of(jax.devices()[0].device_kind)
    return chip.peak * jax.device_count() if chip else 0.0


def batch_flops(task: str, objective: Objective, batch: Batch) -> int:
    """Returns the FLOPs of a step on a batch of all processes, as `train.aot.flops` counts them.

    It is 0 for tasks whose models it does not count.
    """
    if task not in TRANSLATION:
        return 0
    source, target = jax.eval_shape(objective.tokens, batch)
    rows, source_length = source.ids_bt.shape
    return update_flops(objective.model.config, rows, source_length, target.ids_bt.shape[1])

"""What a run has cost: hours on a device, and operations counted in three ways that must not be mixed up.

- The paper's own (Table 2): training time x devices x the rate that a device is assumed to sustain. An upper bound,
  since waiting counts as work.
- Analytic: the matrix products of one update (`train.aot.flops`), times updates. What the model needs.
- XLA's: the compiler's count of every operation of the same update (`train.compile`), times updates.
"""

import re
import statistics
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from vaswani.data.row_lengths import row_lengths
from vaswani.paper.published import SUSTAINED, TIMES
from vaswani.paper.records import Records
from vaswani.paper.rows import ScoredRun, identity
from vaswani.run.folder import as_json
from vaswani.tasks.config import model_config
from vaswani.train.aot.flops import update_flops


def device_time_flops(hours: float, devices: int, rate: float) -> float:
    """Returns the paper's formula: hours x devices x operations a second that one device sustains."""
    return 3600 * hours * devices * rate


def paper_flops(name: str) -> float:
    """Returns the formula with the paper's own hours, for "base" or "big": the unrounded value of its Table 2."""
    time = TIMES[name]
    return device_time_flops(time.hours, time.devices, SUSTAINED[time.device])


def row_length(cfg: ConfigDict) -> int:
    """Returns the positions of a row in the middle bucket, for which operations are counted, as in `train.compile`."""
    lengths = row_lengths(cfg.data)
    return lengths[len(lengths) // 2]


def analytic_flops(cfg: ConfigDict) -> int:
    """Returns the operations of a whole run in matrix products, forward and backward, padding included."""
    length = row_length(cfg)
    rows = cfg.data.tokens_per_batch // length
    return cfg.steps * update_flops(model_config(cfg, cfg.data.vocab_size), rows, length, length)


def xla_flops(records: Records, cfg: ConfigDict) -> float | None:
    """Returns XLA's count of the operations of a whole run; None without a report of `train.compile` on the config."""
    wanted = identity(as_json(cfg))
    for report in records.compiled:
        program = report.get("train_middle", {})
        is_whole = program and "kernels" not in program  # a GPU's count leaves out what its library calls compute
        if is_whole and identity(report["config"]) == wanted:
            planned = cfg.data.tokens_per_batch // program["length"]  # without rows that only fill the mesh
            return cfg.steps * program["flops"] * report["devices"] * planned / program["rows"]
    return None


def run_flops(scored: ScoredRun) -> float | None:
    """Returns the paper's formula with a run's own time; None where the paper has no rate for its device."""
    device = scored.run.device
    # P1000 and K4000 are other cards than P100 and K40.
    rates = [rate for name, rate in SUSTAINED.items() if re.search(rf"\b{name}(?!\d)", device["kind"])]
    if not rates:
        return None
    return device_time_flops(scored.run.minutes / 60, device["count"], rates[0])


def cost(scored: Sequence[ScoredRun]) -> str:
    """Returns the mean time of a seed and its devices, as "0.05 h, 1 x cpu (2 cores)"; "" without a seed."""
    if not scored:
        return ""
    hours = statistics.fmean(seed.run.minutes for seed in scored) / 60
    if hours < 0.005:  # 0.00 h
        shown = f"{3600 * hours:.0f} s"
    elif hours < 10:
        shown = f"{hours:.2f} h"
    else:
        shown = f"{hours:.1f} h"
    names = sorted({devices(seed.run.device) for seed in scored})
    return f"{shown}, {'; '.join(names)}"


def devices(device: dict[str, Any]) -> str:
    """Returns the devices of a launch, as "1 x cpu (2 cores)"."""
    shown = f"{device['count']} x {device['kind']}"
    if device["kind"] != "cpu":
        return shown
    unit = "core" if device["cpus"] == 1 else "cores"
    return f"{shown} ({device['cpus']} {unit})"

"""Updates on AMX, the matrix unit of some Intel processors, which multiplies bfloat16 and nothing wider.

XLA's own products on a CPU leave the unit idle; those of oneDNN, which is part of jaxlib, use it. So `cfg.amx` has the
model compute in bfloat16, and has oneDNN multiply, in the programs of training alone: parameters, optimiser and softmax
stay in float32, and so does whatever reads the run.
"""

import dataclasses

import jax
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.model.config import CommonConfig
from vaswani.processors import described
from vaswani.run.folder import cpu_model
from vaswani.train.step import CompilerOptions

DTYPE = "bfloat16"
NEEDED = ("amx_tile", "amx_bf16")  # as Linux calls what a processor can do
# Nearly what XLA_FLAGS="--xla_cpu_use_onednn=true --xla_cpu_experimental_onednn_fusion_type=dot
# --xla_cpu_experimental_ynn_fusion_type=-dot" says of every program of a process. jax's options name whole sets.
_FUSION = "LIBRARY_FUSION_TYPE_"
OPTIONS: CompilerOptions = {
    "xla_cpu_use_onednn": True,
    "xla_cpu_experimental_onednn_fusion_type": f"{_FUSION}DOT",
    "xla_cpu_experimental_ynn_fusion_type": f"{_FUSION}REDUCE",
}


def compiler_options(amx: bool) -> CompilerOptions | None:
    """Returns the compiler options of a training's programs, by `cfg.amx`; None, the compiler's own, without it.

    Raises:
      UserError: the device is no CPU, or a CPU without AMX, on which bfloat16 is not faster than float32.
    """
    if not amx:
        return None
    device = jax.default_backend()
    if device != "cpu":
        raise UserError(f"config: amx is True; it must be False on this device ({device}), which is not a CPU")
    missing = [name for name in NEEDED if name not in abilities()]
    if missing:
        raise UserError(
            f"config: amx is True; it must be False on this processor ({cpu_model()}), which has no "
            f"{' and no '.join(missing)}: bfloat16 would not be faster than float32"
        )
    return OPTIONS


def trained(cfg: ConfigDict, config: CommonConfig) -> CommonConfig:
    """Returns the config that training computes with: with `cfg.amx`, that of the same model in bfloat16."""
    return dataclasses.replace(config, dtype=DTYPE) if cfg.amx else config


def choice() -> str:
    """Returns the line of the log that says that AMX is used, and why it can be."""
    return f"amx: {DTYPE} products by oneDNN, since this processor has {' and '.join(NEEDED)}; parameters stay float32"


def abilities() -> set[str]:
    """Returns the CPU flags that Linux lists for the first processor; none on other systems."""
    return set(described("flags").split())

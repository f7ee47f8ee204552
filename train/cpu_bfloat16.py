"""Trains in bfloat16 on CPUs that multiply it faster than float32: with AMX, or with AVX-512's bfloat16.

XLA's own matmuls on a CPU gain little or nothing there; oneDNN's, which are part of jaxlib, do. So `cfg.cpu_bfloat16`
has the model compute in bfloat16, with oneDNN's matmuls, but only while training: parameters, optimiser and softmax
stay in float32, and so does whatever reads the run.
"""

import dataclasses

import jax
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.machine import cpu_info
from vaswani.model.config import CommonConfig
from vaswani.run.folder import cpu_model
from vaswani.train.step import CompilerOptions

DTYPE = "bfloat16"
# Linux's names of CPU features.
AMX = ("amx_tile", "amx_bf16")
AVX512 = "avx512_bf16"
FIRST_JAX = (0, 12)  # whose oneDNN multiplies faster with avx512_bf16; jax 0.10's does not
# Nearly what XLA_FLAGS="--xla_cpu_use_onednn=true --xla_cpu_experimental_onednn_fusion_type=dot
# --xla_cpu_experimental_ynn_fusion_type=-dot" says of every program of a process. jax's options name whole sets.
_FUSION = "LIBRARY_FUSION_TYPE_"
OPTIONS: CompilerOptions = {
    "xla_cpu_use_onednn": True,
    "xla_cpu_experimental_onednn_fusion_type": f"{_FUSION}DOT",
    "xla_cpu_experimental_ynn_fusion_type": f"{_FUSION}REDUCE",
}


def compiler_options(is_on: bool) -> CompilerOptions | None:
    """Returns the compiler options of a training's programs, by `cfg.cpu_bfloat16`; None, the compiler's own, if off.

    Raises:
      UserError: the device is no CPU, or one on which bfloat16 is not faster than float32.
    """
    if not is_on:
        return None
    device = jax.default_backend()
    refused = "config: cpu_bfloat16 is True; it must be False on this"
    if device != "cpu":
        raise UserError(f"{refused} device ({device}), which is not a CPU; model.dtype=bfloat16 is for all devices")
    unit = faster_unit()
    if not unit:
        raise UserError(
            f"{refused} CPU ({cpu_model()}), which has neither {' with '.join(AMX)} nor {AVX512}: bfloat16 would not "
            "be faster than float32"
        )
    if unit == AVX512 and jax.__version_info__ < FIRST_JAX:
        raise UserError(
            f"{refused} CPU ({cpu_model()}) with jax {jax.__version__}: bfloat16 is faster with {AVX512} from jax "
            f"{'.'.join(map(str, FIRST_JAX))} on"
        )
    return OPTIONS


def faster_unit() -> str:
    """Returns the features of this CPU, in Linux's names, that multiply bfloat16 faster than float32; "" if none."""
    has = abilities()
    if has.issuperset(AMX):
        return " with ".join(AMX)
    return AVX512 if AVX512 in has else ""


def compute_config(cfg: ConfigDict, config: CommonConfig) -> CommonConfig:
    """Returns the config that training computes with: with `cfg.cpu_bfloat16`, the same model's in bfloat16."""
    return dataclasses.replace(config, dtype=DTYPE) if cfg.cpu_bfloat16 else config


def choice() -> str:
    """Returns the line of the log that says that bfloat16 is used, and why it can be."""
    return f"cpu_bfloat16: matmuls by oneDNN, since this CPU has {faster_unit()}; parameters stay float32"


def abilities() -> set[str]:
    """Returns the flags that Linux lists for the first CPU; none on other systems."""
    return set(cpu_info("flags").split())

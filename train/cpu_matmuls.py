"""Which matmuls training has on a CPU, and in what dtype.

jaxlib has two kinds, XLA's own and oneDNN's. Which is faster depends on the CPU, the dtype and jax's version, and
`FIRST_JAX` lists where oneDNN's were measured to be. With `cfg.cpu_bfloat16` the model computes in bfloat16, with
oneDNN's, but only while training: parameters, optimiser and softmax stay in float32, and so does whatever reads the
run. Otherwise a large model has them in its own dtype, unless `cfg.cpu_onednn` is False.
"""

import dataclasses
from pathlib import Path

import jax
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.machine import cpu_info
from vaswani.model.config import CommonConfig
from vaswani.read_json import read_json
from vaswani.run.folder import cpu_model
from vaswani.train.step import CompilerOptions

BFLOAT16 = "bfloat16"
# CPU features, in Linux's names.
AMX = "amx_tile with amx_bf16"
AVX512 = "avx512_bf16"
# From which version of jax on a step is faster with oneDNN's matmuls than with XLA's in float32. The ratios are of a
# step of base: on Intel Sapphire Rapids (AMX), and on AMD Zen 4 (avx512_bf16).
FIRST_JAX = {
    (BFLOAT16, AMX): (0, 10),  # 1.1 with 0.10.2, 2.4 with 0.12
    (BFLOAT16, AVX512): (0, 12),  # 1.8
    ("float32", AMX): (0, 12),  # 1.08 to 1.17; 0.10.2 does not compile it
    ("float32", AVX512): (0, 12),  # 1.11; with 0.10.2 a step ends the process by SIGILL
}
WIDTH = 512  # d_model of base. With 128, 1.05 on AMD pay for few of the compilations that each start repeats
# Nearly what XLA_FLAGS="--xla_cpu_use_onednn=true --xla_cpu_experimental_onednn_fusion_type=dot
# --xla_cpu_experimental_ynn_fusion_type=-dot" says of every program of a process. jax's options name whole sets.
_FUSION = "LIBRARY_FUSION_TYPE_"
OPTIONS: CompilerOptions = {
    "xla_cpu_use_onednn": True,
    "xla_cpu_experimental_onednn_fusion_type": f"{_FUSION}DOT",
    "xla_cpu_experimental_ynn_fusion_type": f"{_FUSION}REDUCE",
}


def compiler_options(cfg: ConfigDict, platform: str) -> CompilerOptions | None:
    """Returns the compiler options of a training's programs on devices of a platform; None for the compiler's own.

    Raises:
      UserError: `cpu_bfloat16` is True where this is no CPU, or one on which bfloat16 is not faster than float32.
    """
    if cfg.cpu_bfloat16:
        _check_bfloat16(platform)
        return OPTIONS
    may_gain = cfg.cpu_onednn and platform == "cpu" and cfg.model.d_model >= WIDTH
    return OPTIONS if may_gain and is_faster(cfg.model.dtype) else None


def choice(cfg: ConfigDict, platform: str) -> str:
    """Returns the matmuls that these options choose, for the log."""
    if compiler_options(cfg, platform) is None:
        return "matmuls=XLA"
    return f"matmuls=oneDNN (this CPU has {faster_unit()})"


def _check_bfloat16(platform: str) -> None:
    refused = "config: cpu_bfloat16 is True; it must be False on this"
    if platform != "cpu":
        raise UserError(f"{refused} device ({platform}), which is not a CPU; model.dtype=bfloat16 is for all devices")
    unit = faster_unit()
    if not unit:
        raise UserError(
            f"{refused} CPU ({cpu_model()}), which has neither {AMX} nor {AVX512}: bfloat16 would not be faster than "
            "float32"
        )
    if not is_faster(BFLOAT16):
        raise UserError(
            f"{refused} CPU ({cpu_model()}) with jax {jax.__version__}: bfloat16 is faster with {unit} from jax "
            f"{'.'.join(map(str, FIRST_JAX[BFLOAT16, unit]))} on"
        )


def is_faster(dtype: str) -> bool:
    """Returns whether this CPU and this jax are among those on which oneDNN is faster in `dtype`."""
    first = FIRST_JAX.get((dtype, faster_unit()))
    return first is not None and jax.__version_info__ >= first


def faster_unit() -> str:
    """Returns the features of this CPU, in Linux's names, that multiply bfloat16 faster than float32; "" if none."""
    has = abilities()
    if has.issuperset(AMX.split(" with ")):
        return AMX
    return AVX512 if AVX512 in has else ""


def abilities() -> set[str]:
    """Returns the flags that Linux lists for the first CPU; none on other systems."""
    return set(cpu_info("flags").split())


def compute_config(cfg: ConfigDict, config: CommonConfig) -> CommonConfig:
    """Returns the config that training computes with: with `cfg.cpu_bfloat16`, the same model's in bfloat16."""
    return dataclasses.replace(config, dtype=BFLOAT16) if cfg.cpu_bfloat16 else config


def may_use_onednn(workdir: Path) -> bool:
    """Returns `cpu_onednn` of the run in a folder: True if there is none yet, False if it is older than the key.

    So a resumed run keeps its matmuls, and with them its bits.
    """
    path = workdir / "config.json"
    return not path.is_file() or read_json(path, dict).get("cpu_onednn") is True

"""GPUs that this machine lacks: compiling for them needs jax's CUDA plugin and their description, but no GPU.

Without a device nothing is timed, so the compiler picks tiles and algorithms blindly: memory, FLOPs, collectives and
the calls of cuDNN are evidence, speed is not.
"""

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import jax
from jax._src.lib import _jax  # type: ignore[attr-defined]
from jax.experimental import topologies

from vaswani.errors import UserError, pip_install

PLUGIN = "jax_cuda13_plugin"
CUDNN = (9, 19, 0)  # the release that the compiler is told of
A_NODE = 8  # the most GPUs that NVLink connects
GRADIENT = "Backward"  # how the names of cuDNN's gradients end; they add in any order
_CHECKS = "jax._src.cudnn.fused_attention_stablehlo"


class Target(NamedTuple):
    """What XLA must know of a GPU to compile for it; bytes, bytes/s and GHz, as NVIDIA's `deviceQuery` prints them."""

    name: str
    capability: tuple[int, int]
    cores: int  # streaming multiprocessors
    shared_memory: int  # of one of them
    shared_memory_of_block: int  # the most that one block may ask for
    lanes: int  # float32 units of one of them
    memory: int
    bandwidth: int
    l2_cache: int
    clock: float


TARGETS = {
    "a100": Target(
        name="NVIDIA A100-SXM4-80GB",
        capability=(8, 0),
        cores=108,
        shared_memory=167_936,
        shared_memory_of_block=166_912,
        lanes=64,
        memory=85_094_825_984,
        bandwidth=2_039_000_000_000,
        l2_cache=41_943_040,
        clock=1.41,
    ),
    "h100": Target(
        name="NVIDIA H100 80GB HBM3",
        capability=(9, 0),
        cores=132,
        shared_memory=233_472,
        shared_memory_of_block=232_448,
        lanes=128,
        memory=84_942_979_072,
        bandwidth=3_352_320_000_000,
        l2_cache=52_428_800,
        clock=1.98,
    ),
}


def open_gpus(topology: str) -> list[Any]:
    """Returns the devices of one node of GPUs, such as "h100:8".

    Raises:
      UserError: there is no such node, or the compiler is not installed.
    """
    name, _, count = topology.partition(":")
    if not (count.isascii() and count.isdigit() and 1 <= int(count) <= A_NODE):
        raise UserError(f"--topology={topology}: a node has 1 to {A_NODE} GPUs; write, for example, {name}:8")
    if importlib.util.find_spec(PLUGIN) is None:
        raise UserError(f"the GPU compiler is not installed; {pip_install('aot-gpu')}")
    layout = f"1x1x{int(count)}"  # slices, hosts, GPUs of a host
    described = describe(TARGETS[name])
    return topologies.get_topology_desc(layout, "cuda", topology=layout, target_config=described).devices


def describe(target: Target) -> str:
    """Returns XLA's description of a GPU, a GpuTargetConfigProto as text."""
    major, minor = target.capability
    cudnn_major, cudnn_minor, cudnn_patch = CUDNN
    return f"""
    gpu_device_info {{
      name: "{target.name}"
      cuda_compute_capability {{ major: {major} minor: {minor} }}
      core_count: {target.cores}
      fpus_per_core: {target.lanes}
      clock_rate_ghz: {target.clock}
      device_memory_size: {target.memory}
      memory_bandwidth: {target.bandwidth}
      l2_cache_size: {target.l2_cache}
      shared_memory_per_core: {target.shared_memory}
      shared_memory_per_block: 49152
      shared_memory_per_block_optin: {target.shared_memory_of_block}
      registers_per_core_limit: 65536
      registers_per_block_limit: 65536
      threads_per_warp: 32
      threads_per_block_limit: 1024
      threads_per_core_limit: 2048
      thread_dim_limit_x: 1024
      thread_dim_limit_y: 1024
      thread_dim_limit_z: 64
      block_dim_limit_x: 2147483647
      block_dim_limit_y: 65535
      block_dim_limit_z: 65535
    }}
    platform_name: "CUDA"
    dnn_version_info {{ major: {cudnn_major} minor: {cudnn_minor} patch: {cudnn_patch} }}
    device_description_str: "{target.name}"
    """


def is_described(device: Any) -> bool:
    """Returns whether this is a GPU that is described, and not one of this machine's."""
    return device.platform == "gpu" and device not in jax.devices()


def available(device: Any) -> int:
    """Returns the bytes that jax would take: three quarters, unless XLA_CLIENT_MEM_FRACTION is set, or its old name.

    Raises:
      UserError: both are set, or it is no number.
    """
    names = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")
    given = [name for name in names if os.environ.get(name)]
    if len(given) == 2:
        raise UserError(f"{' and '.join(given)} are both set, which jax refuses; unset the second")
    share = 0.75
    if given:
        value = os.environ[given[0]]
        try:
            share = float(value)
        except ValueError as error:
            raise UserError(f"{given[0]}={value}: it must be a share of the memory, as 0.75") from error
    return int(share * _target(device).memory)


def cost_analysis(compiled: Any) -> dict[str, float]:
    """Returns the FLOPs of a GPU's program, among others; without a GPU the plugin does not count, but jaxlib does."""
    (module,) = compiled.runtime_executable().hlo_modules()
    return _jax.hlo_module_cost_analysis(jax.devices("cpu")[0].client, module)


def cudnn_calls(kernels: dict[str, int]) -> int:
    """Returns how many library calls of a program are cuDNN's; with jax 0.12 a matmul may be a cuBLAS call."""
    return sum(times for name, times in kernels.items() if name.startswith("__cudnn"))


def order_of_sums(kernels: dict[str, int], unordered_scatters: int) -> dict[str, Any]:
    """Returns the report's facts about a GPU's program: its calls, and whether two runs give the same bits."""
    gradients = any(name.endswith(GRADIENT) for name in kernels)
    fixed = _is_deterministic(os.environ.get("XLA_FLAGS", "")) or not gradients
    return {
        "kernels": kernels,
        "unordered_scatters": unordered_scatters,
        "deterministic": fixed and not unordered_scatters,
    }


def _is_deterministic(flags: str) -> bool:
    """Returns whether `flags`, the content of XLA_FLAGS, make XLA and cuDNN add in a fixed order."""
    values = re.findall(r"--xla_gpu_deterministic_ops(?:=(\w+))?(?:\s|$)", flags)
    return bool(values) and values[-1].lower() in ("", "true", "1")


@contextmanager
def cudnn_for(device: Any) -> Iterator[None]:
    """Lets jax lower cuDNN's attention for a described GPU: its checks ask this process's GPU, and there is none."""
    if not is_described(device):
        yield
        return
    target = _target(device)

    def is_at_least(capability: str) -> bool:
        return target.capability >= _version(capability)

    def is_equal(capability: str) -> bool:
        return target.capability == _version(capability)

    major, minor, patch = CUDNN
    with (
        mock.patch(f"{_CHECKS}.check_cudnn_version", lambda: 10_000 * major + 100 * minor + patch),
        mock.patch(f"{_CHECKS}.check_compute_capability", is_at_least),
        mock.patch(f"{_CHECKS}.is_cuda_compute_capability_equal", is_equal),
    ):
        yield


def _target(device: Any) -> Target:
    return next(target for target in TARGETS.values() if target.name == device.device_kind)


def _version(capability: str) -> tuple[int, int]:
    major, minor = capability.split(".")
    return int(major), int(minor)

"""The start of a run: whether this device will do, and a line each about config, device, model, data and memory."""

from collections.abc import Mapping
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict

from vaswani.data.other_corpora import other_corpora
from vaswani.errors import UserError, pip_install
from vaswani.keys import flat
from vaswani.machine import largest_resident
from vaswani.model.mixers.kernels import PLATFORMS
from vaswani.numbers import pluralize
from vaswani.run.folder import device
from vaswani.run.parameters import count_parameters
from vaswani.train import cpu_matmuls

# What configs/accelerator.py sets, and what anyone else may want to set for speed.
SPEED = (
    "model.dtype",
    "model.attention_impl",
    "model.dropout_bits",
    "loss.chunk",
    "data.batching",
    "checkpoint.every",
    "checkpoint.every_minutes",
    "eval.every",
)
EXTRAS = {"gpu": "cuda", "tpu": "tpu"}  # of pyproject.toml: what jax needs for a device
_MIB = 2**20


def check_device(cfg: ConfigDict) -> None:
    """Raises a `UserError` if `model.attention_impl` is a kernel that this process's devices cannot run."""
    impl = cfg.model.attention_impl
    found = jax.default_backend()
    needed = PLATFORMS.get(impl, found)
    if needed != found:
        raise UserError(
            f"config: model.attention_impl is {impl!r}, which needs a {needed.upper()}, and jax has found only a "
            f"{found.upper()}: use --config.model.attention_impl=auto, or {pip_install(EXTRAS[needed])} where "
            f"there is a {needed.upper()}"
        )


def config_line(file: str, overrides: Mapping[str, Any]) -> str:
    """Returns the line about the config: its file, and the keys that the command line sets."""
    if not overrides:
        return f"config: {file}"
    changes = ", ".join(f"{key}={value!r}" for key, value in sorted(overrides.items()))
    return f"config: {file}, but {changes}"


def description(cfg: ConfigDict, mesh: Mesh, params: Any, manifests: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns the lines about what is trained, on what, and from which data.

    Args:
      cfg: the whole config.
      mesh: of all devices.
      params: the parameters, or their shapes.
      manifests: of the data, by split, as `run.json` records them.
    """
    here = device()
    flat_config = flat(cfg.to_dict())
    axes = ", ".join(f"{axis} {size}" for axis, size in mesh.shape.items())
    named = ("N", "d_model", "d_ff", "h") if cfg.model.recurrent == "none" else ("N", "d_model")
    depths = [name for name in ("N_encoder", "N_decoder") if cfg.model[name]]
    sizes = ", ".join(f"{name}={cfg.model[name]}" for name in (*depths, *named))
    lines = [
        f"device: {here['count']} x {here['kind']}; {here['cpu']}, CPUs: {here['cpus']}; mesh: {axes}",
        f"model: {cfg.task}, {sizes}: {count_parameters(params):,} parameters",
    ]
    settings = [f"{key}={flat_config[key]}" for key in SPEED]
    lines.append("speed: " + ", ".join([*settings, cpu_matmuls.choice(cfg, mesh.devices.flat[0].platform)]))
    for split, fault in other_corpora(cfg.data).items():
        lines.append(f"warning: {fault}: give --config.data.{split} too")
    for split, manifest in manifests.items():
        lines.append(f"data.{split}: {_corpus_size(manifest)}")
    return lines


def _corpus_size(manifest: Mapping[str, Any]) -> str:
    """Returns how many records of a corpus were read, how many of them are used, and their tokens."""
    pairs = manifest["pairs"]
    tokens = manifest["tokens"]
    if not tokens:
        return pluralize(pairs["read"], "images")
    unit = "pairs" if "source" in tokens else "texts"
    sides = " and ".join(f"{count:,} {side}" for side, count in tokens.items())
    return f"{pairs['kept']:,} of {pluralize(pairs['read'], unit)}, {sides} tokens"


def compiled_memory(compiled: Any) -> str:
    """Returns the line about the memory that the compiler plans for a step, on each device."""
    sizes = memory_of(compiled)
    if not sizes:
        return "memory of a step: this device's compiler does not say"
    parts = f"{_mib(sizes['arguments'])} of state and batch, {_mib(sizes['temporaries'])} of temporaries"
    return f"memory of a step, by the compiler: {_mib(sizes['peak'])} a device, {parts}"


def memory_of(compiled: Any) -> dict[str, int]:
    """Returns a program's bytes of memory on each device, as the compiler counts them; {} if it does not say.

    The state is updated in place, so what is both argument and output counts once in the "peak".
    """
    analysis = compiled.memory_analysis()
    if analysis is None:
        return {}
    sizes = {
        "arguments": analysis.argument_size_in_bytes,
        "outputs": analysis.output_size_in_bytes,
        "aliased": analysis.alias_size_in_bytes,
        "temporaries": analysis.temp_size_in_bytes,
        "code": analysis.generated_code_size_in_bytes,
    }
    return sizes | {"peak": sum(sizes.values()) - 2 * sizes["aliased"]}


def peak_memory() -> str:
    """Returns the line about the most memory in use so far: of the device, or of the process if that is on the host."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        limit = f" of {_mib(stats['bytes_limit'])}" if "bytes_limit" in stats else ""
        return f"peak memory so far: {_mib(stats['peak_bytes_in_use'])}{limit} on the device"
    return f"peak memory so far: {_mib(largest_resident())} of this process"


def _mib(size: int) -> str:
    return f"{size / _MIB:,.1f} MiB"

"""What a record says of the machine: the device, its driver, and the versions of what computes."""

import importlib.metadata
import os
import platform
import subprocess

import jax

from vaswani.run.folder import cpu_model

PACKAGES = ("jax", "jaxlib", "flax", "torch", "ctranslate2", "jax-cuda13-plugin", "nvidia-cudnn-cu13", "nvidia-cublas")
MISSING = "not installed"
_STATE = ("clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw", "power.limit", "temperature.gpu")


def machine(context: object = None) -> dict[str, str]:
    """Returns the device and its driver, XLA's flags, and the versions of Python and of the packages."""
    device = jax.devices()[0]
    found = {
        "device": device.device_kind if is_gpu() else f"{device.device_kind}, {cpu_model()}",
        "platform": " ".join(device.client.platform_version.split()),  # of a GPU: CUDA's version
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
        "python": platform.python_version(),
    }
    if is_gpu():
        found["driver"] = _query(("driver_version",)).get("driver_version", "unknown")
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = MISSING
    return found


def state() -> dict[str, str]:
    """Returns the GPU's clocks, power and temperature now, as nvidia-smi writes them; nothing without a GPU."""
    return _query(_STATE) if is_gpu() else {}


def is_gpu() -> bool:
    """Returns whether jax computes on a GPU."""
    return jax.default_backend() == "gpu"


def peak_memory() -> int:
    """Returns the most bytes of the device that this process has had in use; 0 if the device does not count them."""
    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)


def _query(fields: tuple[str, ...]) -> dict[str, str]:
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader", "--id=0"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if answer.returncode or not answer.stdout.strip():
        return {}
    values = [value.strip() for value in answer.stdout.splitlines()[0].split(",")]
    return dict(zip(fields, values, strict=False))

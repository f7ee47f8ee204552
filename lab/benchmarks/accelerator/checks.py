"""What must be there before anything is begun: the packages, a GPU with enough memory, and the corpora."""

import json
import subprocess
import sys
from pathlib import Path

from lab.benchmarks.accelerator.record import CORPORA, MINUTES, read_record
from vaswani.errors import UserError

LEAST = 30 * 2**30  # bytes that JAX must be allowed to use, three quarters of the card's: big, unfused attention
_ASK = """import jax, json
device = jax.devices()[0]
print(json.dumps([device.platform, (device.memory_stats() or {}).get("bytes_limit", 0)]))"""

PACKAGES = {  # what rows import besides their own file, and the extra that brings it
    "step": {"torch": "bench"},
    "decoding": {"ctranslate2": "bench"},
    "multi30k": {"sacrebleu": "", "sacremoses": ""},
    "corpus": {"sacrebleu": "", "sacremoses": ""},
    "table3": {"sacrebleu": "", "sacremoses": ""},
    "tests": {"pytest": "dev", "beartype": "dev"},
}
_IMPORT = """import importlib, sys
for name in sys.argv[1:]:
    print(name, flush=True)
    importlib.import_module(name)"""


def check_packages(rows: list[str], environment: dict[str, str]) -> None:
    """Imports all that the rows use, in a process of its own: a package that is missing must not be found by training.

    Raises:
      UserError: one cannot be imported.
    """
    needed = {"jax": ""}  # before torch: the first of them loads its cuDNN for both
    for row in rows:
        needed |= {f"lab.benchmarks.accelerator.{row}": "", **PACKAGES.get(row, {})}
    asked = subprocess.run([sys.executable, "-c", _IMPORT, *needed], env=environment, capture_output=True, text=True)
    if asked.returncode:
        name = (asked.stdout.split() or ["Python"])[-1]
        reason = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        install = f"pip install -e '.[{needed[name]}]'" if needed.get(name) else "pip install -e ."
        raise UserError(f"{name} cannot be imported ({reason}); {install}, or leave its row out with --only")


def check_device(environment: dict[str, str]) -> None:
    """Asks a process of its own, so that this one holds no memory of the GPU.

    Raises:
      UserError: there is no GPU, or its memory is too small.
    """
    asked = subprocess.run([sys.executable, "-c", _ASK], env=environment, capture_output=True, text=True)
    if asked.returncode:
        reason = (asked.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"JAX finds no device ({reason}); this needs a GPU, or --tiny")
    platform, memory = json.loads(asked.stdout.splitlines()[-1])
    if platform != "gpu":
        raise UserError(f"JAX's backend is {platform}; this needs a GPU (pip install -e '.[cuda]'), or --tiny")
    if memory < LEAST:
        raise UserError(f"the GPU gives JAX {memory / 2**30:.0f} GiB; the big model needs {LEAST / 2**30:.0f}")


def check_output(output: Path, *, is_tiny: bool) -> None:
    """Raises a `UserError` if a record in the folder is of the other kind: its row would count as measured.

    Records of the miniature, and only these, are of a CPU.
    """
    for row in MINUTES:
        device = read_record(output / f"{row}.json").get("machine", {}).get("device", "")
        if device and device.startswith("cpu, ") != is_tiny:
            how = "without --tiny" if is_tiny else "with --tiny"
            raise UserError(f"--output={output}: {row}.json was measured {how}; name another folder")


def check_corpora(where: Path | None, rows: list[str]) -> None:
    """Raises a `UserError` that names the first file which the rows need and the folder lacks."""
    if where is None:
        return
    for row in rows:
        for name in CORPORA.get(row, ()):
            if not (where / name).is_file():
                raise UserError(f"--corpora={where}: {name} is missing, which row {row} needs")

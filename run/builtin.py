"""Bundled models: `builtin:NAME` is the folder of such a run, with one file of parameters.

Instead of checkpoints it has `model.safetensors`, in float16; all else is as in any run. It is read-only:
`infer.convert --to=builtin` makes it.
"""

from pathlib import Path
from typing import Any

from vaswani.errors import UserError
from vaswani.files import BUILTIN, folder
from vaswani.run.saved import Checkpoint

FOLDER = Path(__file__).with_name("models")
WEIGHTS = "model.safetensors"


def names() -> list[str]:
    """Returns the names of these models, as --workdir has them."""
    return sorted(f"{BUILTIN}{path.parent.name}" for path in FOLDER.glob(f"*/{WEIGHTS}"))


def run_folder(flag: str, path: str | Path) -> Path:
    """Returns the folder of a run that the flag `--FLAG` names, for reading; it need not exist.

    Raises:
      UserError: no model with this name is bundled, or as `vaswani.files.folder`.
    """
    if not str(path).startswith(BUILTIN):
        return folder(flag, path)
    if str(path) not in names():
        raise UserError(f"--{flag}={path}: no such model is bundled; there is {', '.join(names())}")
    return FOLDER / str(path).removeprefix(BUILTIN)


def is_builtin(workdir: Path) -> bool:
    """Returns whether this is the folder of a bundled model."""
    return workdir.parent == FOLDER


def checkpoint_of(workdir: Path) -> Checkpoint:
    """Returns the step of the model, and when it was saved; it has no metrics."""
    from safetensors import safe_open  # here, as below: every command imports this file, and this loads NumPy

    with safe_open(workdir / WEIGHTS, "numpy") as file:
        metadata = file.metadata()
    return Checkpoint(int(metadata["step"]), float(metadata["time"]), {})


def load_weights(workdir: Path, choice: str) -> tuple[list[int], dict[str, Any]]:
    """Returns the step of the model and its parameters, as float32.

    Raises:
      UserError: `choice` is a checkpoint that it does not have.
    """
    from flax.traverse_util import unflatten_dict
    from safetensors.numpy import load_file

    step = checkpoint_of(workdir).step
    if choice not in ("latest", str(step)):
        raise UserError(f"{BUILTIN}{workdir.name} has only checkpoint {step}, not {choice}")
    # Only the file is in float16: what is computed with them is in float32, as in any run.
    leaves = {name: leaf.astype("float32") for name, leaf in load_file(workdir / WEIGHTS).items()}
    return [step], unflatten_dict(leaves, sep="/")

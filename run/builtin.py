"""Models that come with the code: `builtin:NAME` is the folder of such a run, with one file of parameters.

In place of checkpoints it has `model.safetensors`, in float16; all else is as in any run. It is only read:
`infer.convert --to=builtin` makes it.
"""

from pathlib import Path

from vaswani.errors import UserError
from vaswani.files import BUILTIN, folder

FOLDER = Path(__file__).with_name("models")
WEIGHTS = "model.safetensors"


def names() -> list[str]:
    """Returns the names of these models, as --workdir has them."""
    return sorted(f"{BUILTIN}{path.parent.name}" for path in FOLDER.glob(f"*/{WEIGHTS}"))


def run_folder(flag: str, path: str | Path) -> Path:
    """Returns the folder of a run that the flag `--FLAG` names, for reading; it need not exist.

    Raises:
      UserError: no model with this name comes with the code, or as `vaswani.files.folder`.
    """
    if not str(path).startswith(BUILTIN):
        return folder(flag, path)
    if str(path) not in names():
        raise UserError(f"--{flag}={path}: no such model comes with the code; there is {', '.join(names())}")
    return FOLDER / str(path).removeprefix(BUILTIN)


def is_builtin(workdir: Path) -> bool:
    """Returns whether this is the folder of a model that comes with the code."""
    return workdir.parent == FOLDER

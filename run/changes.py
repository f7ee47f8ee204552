"""Refuses a run whose tokenizer or config is not the one that it was trained with, unless the change is accepted.

`run.json` records the tokenizer's SHA-256 at each launch, and each checkpoint holds the config that it was saved with.
A run without them, such as one that was never trained here, is opened as it is.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from absl import flags

from vaswani.errors import UserError, note
from vaswani.files import sha256
from vaswani.keys import flat
from vaswani.read_json import read_json
from vaswani.run.config import completed
from vaswani.run.records import read_launches

FLAG = "accept_changes"


def define_flag() -> None:
    """Defines --accept_changes, for every command that opens a run."""
    flags.DEFINE_bool(FLAG, False, "open a run whose tokenizer.model or config.json was changed after its training")


def _accepted() -> bool:
    return FLAG in flags.FLAGS and flags.FLAGS.is_parsed() and bool(flags.FLAGS[FLAG].value)


def check_unchanged(workdir: Path, step: int, accept: bool = False) -> None:
    """Compares a run's tokenizer and config with what was recorded of them; `step` is that of one of its checkpoints.

    Keys that a resumed run may change may have been changed (`run.folder.FREE_KEYS`).

    Raises:
      UserError: one differs, and neither `accept` nor --accept_changes is given; with them, a note on stderr says so.
    """
    for change in (_tokenizer_change(workdir), _config_change(workdir, step)):
        if change is None:
            continue
        if not (accept or _accepted()):
            raise UserError(f"{change}; restore the file, or give --{FLAG} if this is meant")
        note(f"{change}; accepted")


def _tokenizer_change(workdir: Path) -> str | None:
    path = workdir / "tokenizer.model"
    launches = read_launches(workdir)
    recorded = launches[-1]["data"]["train"].get("tokenizer_sha256") if launches else None
    if recorded is None or not path.is_file():
        return None
    current = sha256(path)
    if current == recorded:
        return None
    sums = f"its SHA-256 is {current[:12]}.., in run.json {recorded[:12]}.."
    return f"{path} has changed since the run was trained: {sums}"


def _saved_config(workdir: Path, step: int) -> dict[str, Any] | None:
    """Returns the config that a checkpoint was saved with, newer keys at their defaults; None if it holds none."""
    path = workdir / "checkpoints" / str(step) / "config" / "metadata"
    if not path.is_file():
        return None
    try:
        recorded = read_json(path, dict)
    except UserError:
        return None  # the parameters do not depend on this file
    if "model.N" not in flat(recorded):
        return None
    return completed(recorded)


def _config_change(workdir: Path, step: int) -> str | None:
    # Not at the top, since every command imports this file for its flag, and these load jax and NumPy.
    from vaswani.run.folder import differences
    from vaswani.run.moved import KEYS

    recorded = _saved_config(workdir, step)
    if recorded is None:
        return None
    path = workdir / "config.json"
    config = completed(read_json(path, dict))
    different = differences(recorded, config)
    different.pop("data.tokenizer", None)  # the run has a copy, which `_tokenizer_change` compares
    changes = [told for key, told in different.items() if not (key in KEYS and _is_moved(workdir, key, config))]
    if not changes:
        return None
    return f"{path} has changed since checkpoint {step} was saved: {'; '.join(changes)}"


def _is_moved(workdir: Path, key: str, config: dict[str, Any]) -> bool:
    from vaswani.run.moved import has_same_content

    with suppress(UserError):  # it is not on this machine
        return has_same_content(workdir, key, config)
    return False

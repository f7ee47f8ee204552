"""Tells whether a run still has the config, the tokenizer and the data that it was trained with.

`run.json` records the SHA-256 of the data and of the tokenizer at each launch, so that both may lie elsewhere, perhaps
on another machine; and each checkpoint holds the config that it was saved with. A run without them, such as one that
was never trained here, is opened as it is.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from absl import flags

from vaswani.data.lines import file_digest
from vaswani.errors import UserError, note
from vaswani.files import folder, sha256
from vaswani.keys import flat
from vaswani.read_json import read_json
from vaswani.run.config import with_defaults
from vaswani.run.records import read_launches

FLAG = "accept_changes"
PATHS = ("data.tokenizer", "data.train", "data.valid")  # keys that name files, which may lie elsewhere
# Keys that a resumed run may change: the parameters after n steps do not depend on them, except for rounding.
FREE_KEYS = (
    "checkpoint.",
    "cpu_onednn",
    "data.cache",
    "data.test",
    "decode.",
    "diagnose_every",
    "eval.",
    "log_every",
    "loss.chunk",
    "mesh.",
    "model.attention_impl",
    "model.remat",
    "model.scan_layers",
    "optim.accumulate",
)


def define_flag() -> None:
    """Defines --accept_changes, for every command that opens a run."""
    flags.DEFINE_bool(FLAG, False, "open a run whose tokenizer.model or config.json was changed after its training")


def _accepts_changes() -> bool:
    return FLAG in flags.FLAGS and flags.FLAGS.is_parsed() and bool(flags.FLAGS[FLAG].value)


def check_unchanged(workdir: Path, step: int, accept: bool = False) -> None:
    """Compares a run's tokenizer and config with their records, the config's in checkpoint `step`.

    Keys that a resumed run may change are not compared (`FREE_KEYS`).

    Raises:
      UserError: one differs, and neither `accept` nor --accept_changes is given; with them, a note on stderr says so.
    """
    for change in (_tokenizer_change(workdir), _config_change(workdir, step)):
        if change is None:
            continue
        if not (accept or _accepts_changes()):
            raise UserError(f"{change}; restore the file, or set {FLAG} if this is meant")
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
    checksums = f"its SHA-256 is {current[:12]}.., in run.json {recorded[:12]}.."
    return f"{path} has changed since the run was trained: {checksums}"


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
    return with_defaults(recorded)


def _config_change(workdir: Path, step: int) -> str | None:
    recorded = _saved_config(workdir, step)
    if recorded is None:
        return None
    path = workdir / "config.json"
    config = with_defaults(read_json(path, dict))
    different = differences(recorded, config)
    different.pop("data.tokenizer", None)  # the run has a copy, which `_tokenizer_change` compares
    changes = [told for key, told in different.items() if not (key in PATHS and _is_moved(workdir, key, config))]
    if not changes:
        return None
    return f"{path} has changed since checkpoint {step} was saved: {'; '.join(changes)}"


def _is_moved(workdir: Path, key: str, config: dict[str, Any]) -> bool:
    with suppress(UserError):  # it is not on this machine
        return has_same_content(workdir, key, config)
    return False


def differences(old: dict[str, Any], new: dict[str, Any]) -> dict[str, str]:
    """Returns each key that differs and affects the parameters, and a phrase with its name and both values.

    The number of updates is one of them only where every update depends on it: by its rate, or by AdEMAMix's slow mean.
    """
    old_flat = flat(old)
    new_flat = flat(new)
    depends_on_steps = new_flat.get("optim.schedule") == "cosine" or new_flat.get("optim.name") == "ademamix"
    free = FREE_KEYS if depends_on_steps else (*FREE_KEYS, "steps")
    changes = {}
    for key in sorted(old_flat.keys() | new_flat.keys()):
        before = old_flat.get(key)
        now = new_flat.get(key)
        if before != now and not key.startswith(free):
            changes[key] = f"{key} is {before!r} there and {now!r} here"
    return changes


def has_same_content(workdir: Path, key: str, config: dict[str, Any]) -> bool:
    """Returns whether the run in `workdir` has recorded what this one of `PATHS` names in `config`.

    Raises:
      UserError: that cannot be read, or `run.json` is damaged.
    """
    # Here, since every command imports this file for its flag, and these load jax and NumPy.
    from vaswani.data.images import open_images
    from vaswani.data.sources import open_corpus

    launches = read_launches(workdir)
    if not launches:
        return False
    name = key.removeprefix("data.")
    path = config["data"][name]
    latest = launches[-1]["data"]
    if name == "tokenizer":
        return bool(path) and file_digest(folder(f"config.{key}", path)) == latest["train"].get("tokenizer_sha256")
    recorded = latest[name]
    launched = [launch["data"][name] for launch in launches]
    # Each launch has read its data. They need not be on the machine that opens the run now.
    if any(data["sha256"] == recorded["sha256"] and data.get("spec") == path for data in launched):
        return True
    try:
        if config["task"] != "vision":
            return open_corpus(path).fingerprint == recorded.get("fingerprint")
        image = config["image"]
        images = open_images(path, (image["height"], image["width"]), image["classes"])
    except UserError as error:
        raise UserError(f"{key}: {error}") from error
    return images.manifest["sha256"] == recorded["sha256"]

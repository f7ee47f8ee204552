"""The folder of a run: its config (`config.json`), and the code and machine of each launch (`run.json`)."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.files import write_json
from vaswani.machine import cpu_info, cpus
from vaswani.run.config import read_config
from vaswani.run.distributed import is_main
from vaswani.run.lock import NAME as LOCK
from vaswani.run.lock import lock
from vaswani.run.records import read_launches
from vaswani.run.unchanged import PATHS, differences, has_same_content

_ROOT = Path(__file__).resolve().parent.parent  # the clone, or `vaswani` where it is installed
PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy", "sentencepiece", "ml_collections")


@contextmanager
def open_folder(cfg: ConfigDict, workdir: Path) -> Iterator[None]:
    """Makes `workdir` the folder of this config's run, or checks that it already is, and locks it for this process.

    A folder without a record of a step is reused, whatever its config, unless a conversion has put parameters there.
    In a run of several processes, process 0 locks and writes for all of them. A `UserError` inside the `with` statement
    and before `record_launch` removes a folder that was made here.

    Raises:
      UserError: the folder holds the run of another config or other files, another process is training in it, or it
        cannot be written to, which may also be raised inside the `with` statement.
    """
    try:
        if not is_main():
            yield
            return
        made = [folder for folder in (workdir, *workdir.parents) if not folder.exists()]
        workdir.mkdir(parents=True, exist_ok=True)
        unfinished = (LOCK, ".config.json.")  # prefixes of what a process killed at this point may have left
        foreign = [path for path in workdir.iterdir() if not path.name.startswith(unfinished)]
        if not (workdir / "config.json").exists() and foreign:
            raise UserError(f"--workdir={workdir}: this folder is not empty and not a run; use a new one")
        with lock(workdir):
            _take_over(as_json(cfg), workdir)
            try:
                yield
            except UserError:
                if made and not (workdir / "run.json").exists():
                    _remove_unstarted(workdir, made)
                raise
    except OSError as error:
        path = error.filename or f"--workdir={workdir}"
        raise UserError(
            f"{path}: cannot be written ({error.strerror or error}); fix that and "
            "run the same command, which resumes from the last checkpoint if there is one, or choose another folder"
        ) from error


def _remove_unstarted(workdir: Path, made: list[Path]) -> None:
    """Removes the files of a start that failed before training, and the empty ones among the folders `made`."""
    for name in ("config.json", "tokenizer.model", LOCK):
        (workdir / name).unlink(missing_ok=True)
    for folder in (workdir / "checkpoints", *made):
        with suppress(OSError):  # there is something else in it
            folder.rmdir()


def _take_over(config: dict[str, Any], workdir: Path) -> None:
    if (workdir / "config.json").exists():
        different = differences(as_json(read_config(workdir)), config)
        has_checkpoint = any((workdir / "checkpoints").glob("[0-9]*"))
        has_begun = _has_records(workdir) or has_checkpoint
        if different and has_begun:
            _check_moved(different, config, workdir)
        elif different:
            for name in ("run.json", "tracker.json"):
                (workdir / name).unlink(missing_ok=True)
        if not has_checkpoint:  # its training text may have been corrected since
            (workdir / "tokenizer.model").unlink(missing_ok=True)
    write_json(workdir / "config.json", config)


def _check_moved(different: dict[str, str], config: dict[str, Any], workdir: Path) -> None:
    """Raises a `UserError` if more differs between a run and `config` than the paths of the same files."""
    told = "; ".join(different.values())
    only_paths = different.keys() <= set(PATHS)
    if not (only_paths and all(has_same_content(workdir, key, config) for key in different)):
        cure = "use another --workdir, or the config that it was started with"
        if list(different) == ["steps"]:  # it differs only where every step depends on it
            cure = (
                "every update depends on it with optim.schedule=cosine or optim.name=ademamix: to train longer, start "
                f"a new run with --init={workdir}; with optim.schedule=inverse_sqrt it could be raised"
            )
        raise UserError(f"--workdir={workdir}: this folder holds the run of another config ({told}); {cure}")
    print(f"note: {told}; the content is the same", file=sys.stderr)


def _has_records(workdir: Path) -> bool:
    """Returns whether a run has recorded a step; before the first one its file of records is empty."""
    records = workdir / "metrics.jsonl"
    return records.is_file() and records.stat().st_size > 0


def record_launch(workdir: Path, manifests: dict[str, dict], step: int, init: dict[str, Any] | None = None) -> None:
    """Appends a launch to `run.json`: how and where training starts at `step`, and which data it reads.

    `init` describes the run whose parameters it starts with.

    Raises:
      UserError: some of the data has changed since the run began, or `run.json` is damaged.
    """
    launches = read_launches(workdir)
    if step and launches:
        for name, manifest in manifests.items():
            if launches[-1]["data"][name]["sha256"] != manifest["sha256"]:
                raise UserError(f"data.{name} has changed since {workdir} began: the run cannot be resumed")
    launch = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "step": step,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "git": git(),
        "versions": _versions(),
        "device": device(),
        "data": manifests,
    }
    if init:
        launch["init"] = init
    write_json(workdir / "run.json", {"launches": [*launches, launch]})


def _versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that the numbers may depend on."""
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        versions[name] = version(name)
    return versions


def device() -> dict[str, Any]:
    """Returns kind and number of the devices, and this machine's CPU, as `run.json` records them."""
    return {
        "kind": jax.devices()[0].device_kind,
        "count": jax.device_count(),
        "cpus": cpus(),
        "cpu": cpu_model(),
    }


def cpu_model() -> str:
    """Returns the CPU's model name, or its architecture if the system does not report one."""
    return cpu_info("model name") or platform.processor() or platform.machine()


def as_json(cfg: ConfigDict) -> dict[str, Any]:
    """Returns the config as plain JSON values; tuples become lists."""
    return json.loads(json.dumps(cfg.to_dict()))


def git() -> dict[str, Any] | None:
    """Returns the commit of the code and whether the code differs from it; None outside a git checkout."""
    # Without locks: `git status` may write the index, and one killed by a full disk would leave its lock there.
    git = ["git", "--no-optional-locks", "-C", str(_ROOT)]

    def output(*command: str) -> str:
        # Names of files may be in no encoding.
        done = subprocess.run([*git, *command], capture_output=True, text=True, errors="replace", check=True)
        return done.stdout.strip()

    try:
        # A repository around an installed copy, such as the project whose .venv it is in, has another commit.
        output("ls-files", "--error-unmatch", "run/folder.py")
        commit = output("rev-parse", "HEAD")
        status = output("status", "--porcelain")
    except OSError:  # there is no git
        return None
    except subprocess.CalledProcessError as error:
        if (_ROOT / ".git").exists():  # a clone, such as one of another user
            said = (error.stderr.splitlines() or [""])[0]
            print(f"note: the commit of the code is not recorded, since git says: {said}", file=sys.stderr)
        return None
    return {"commit": commit, "dirty": bool(status)}

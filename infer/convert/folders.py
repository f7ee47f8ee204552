"""The folders that a conversion writes, whole or not at all, and runs made of parameters from elsewhere."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError, pip_install
from vaswani.files import folder, in_bucket, write_bytes, write_json
from vaswani.run.checkpoint import Checkpoints
from vaswani.run.folder import as_json
from vaswani.run.parameters import named_shapes
from vaswani.tasks import task_of


class Imported(NamedTuple):
    """What becomes a run: a whole config, a tokenizer and float32 parameters, from `source`, after `step` updates.

    A classifier of images has no tokenizer.
    """

    source: Path
    config: ConfigDict
    tokenizer: Tokenizer | None
    params: dict[str, Any]
    step: int = 0


class State(NamedTuple):
    """The part of a training state that a run without an optimiser has."""

    step: Any
    params: dict[str, Any]


@contextmanager
def new_folder(flag: str, path: str | Path) -> Iterator[Path]:
    """Yields an empty folder, which becomes `path`, the value of `--FLAG`, unless an exception leaves the block.

    Raises:
      UserError: `path` is a file or has files in it, or cannot be written.
    """
    target = folder(flag, path)
    if in_bucket(target):
        with _sent(flag, target) as draft:
            yield draft
        return
    target = Path(os.path.realpath(target))  # a link stays; no folder can be renamed to it
    draft = target.with_name(f".converting-{uuid.uuid4().hex}")
    absent: list[Path] = []
    try:
        absent = [parent for parent in target.parents if not parent.exists()]
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise UserError(f"--{flag}={path}: it exists already; name a new folder, or an empty one")
        target.parent.mkdir(parents=True, exist_ok=True)
        draft.mkdir()
        yield draft
        if target.exists():
            target.rmdir()
        draft.replace(target)
    except OSError as error:
        raise UserError(f"--{flag}={path}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        for parent in absent:
            with suppress(OSError):  # there is something in it
                parent.rmdir()


@contextmanager
def _sent(flag: str, target: Path) -> Iterator[Path]:
    """Yields an empty folder of this machine, whose files are then copied to `target`, in a bucket."""
    if target.exists():
        raise UserError(f"--{flag}={target}: it exists already; name a new folder")
    with tempfile.TemporaryDirectory(prefix="vaswani-") as draft:
        yield Path(draft)
        for file in sorted(Path(draft).rglob("*")):
            if file.is_file():
                write_bytes(target / file.relative_to(draft), file.read_bytes())


@contextmanager
def requires_package(flag: str) -> Iterator[None]:
    """Turns the absence of an optional package into one line that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"{flag} needs the package {error.name}: {pip_install('convert')}") from error


def make_run(workdir: str | Path, imported: Imported) -> None:
    """Writes a new run with one checkpoint, and no optimiser's state.

    Raises:
      UserError: the parameters do not fit the config's model, or the folder cannot be made.
    """
    config = imported.config
    config.decode.checkpoint = "latest"
    if imported.tokenizer:
        config.data.vocab_size = imported.tokenizer.vocab_size
        if imported.tokenizer.source_vocab_size not in (None, imported.tokenizer.vocab_size):
            config.data.vocab_size = 0  # as many as each side has
    check_shapes(imported)
    with new_folder("workdir", workdir) as draft:
        write_json(draft / "config.json", as_json(config))
        if imported.tokenizer:
            imported.tokenizer.save(draft / "tokenizer.model")
        with closing(Checkpoints(draft / "checkpoints", config.checkpoint)) as checkpoints:
            state = State(np.int32(imported.step), imported.params)
            checkpoints.save(imported.step, state, {}, None, as_json(config), reason="import")


def check_shapes(imported: Imported) -> None:
    """Raises `UserError` unless the parameters' names and shapes fit the config's model."""
    expected = named_shapes(shapes(imported.config, imported.tokenizer))
    actual = named_shapes(imported.params)
    for name in sorted(expected.keys() | actual.keys()):
        if expected.get(name) != actual.get(name):
            raise UserError(
                f"{imported.source}: parameter {name} is {actual.get(name, 'absent')}; in the model of its config it "
                f"is {expected.get(name, 'absent')}"
            )


def shapes(config: ConfigDict, tokenizer: Tokenizer | None) -> Any:
    """Returns the parameters of the config's model without their values; a classifier of images has no tokenizer.

    Raises:
      UserError: there is no such model.
    """
    task = task_of(config.task)
    sizes = (tokenizer.vocab_size, tokenizer.source_vocab_size) if tokenizer else (0, None)
    model = task.config(config, *sizes)
    return jax.eval_shape(task.objective(config, model).init, jax.random.key(0))

"""The folders that a conversion writes, whole or not at all, and runs made of parameters from elsewhere."""

import shutil
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from base.errors import UserError
from base.files import folder, write_json
from data.tokenizer import Tokenizer
from infer.runs import initial
from infer.vision import image_config
from model import vision
from run.checkpoint import Checkpoints
from run.folder import as_json, model_config


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
    target = folder(flag, path).absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError(f"--{flag}={path}: this is there already; name a new folder, or an empty one")
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        draft.mkdir(parents=True)
        yield draft
        if target.exists():
            target.rmdir()
        draft.replace(target)
    except OSError as error:
        raise UserError(f"--{flag}={path}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def needed(flag: str) -> Iterator[None]:
    """Turns the absence of an optional package into one line that says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"{flag} needs the package {error.name}: pip install -e '.[convert]'") from error


def make_run(workdir: str | Path, imported: Imported) -> None:
    """Writes a new run with one checkpoint, and no optimiser's state.

    Raises:
      UserError: the parameters are not those of the config's model, or the folder cannot be made.
    """
    config = imported.config
    config.decode.checkpoint = "latest"
    if imported.tokenizer:
        config.data.vocab_size = imported.tokenizer.vocab_size
    check_shapes(imported)
    with new_folder("workdir", workdir) as draft:
        write_json(draft / "config.json", as_json(config))
        if imported.tokenizer:
            imported.tokenizer.save(draft / "tokenizer.model")
        with closing(Checkpoints(draft / "checkpoints", config.checkpoint)) as checkpoints:
            state = State(np.int32(imported.step), imported.params)
            checkpoints.save(imported.step, state, {}, None, as_json(config))


def check_shapes(imported: Imported) -> None:
    """Raises `UserError` unless names and shapes of the parameters are those of the config's model."""
    config = imported.config
    if imported.tokenizer:
        init = initial(config, model_config(config, imported.tokenizer.vocab_size))
    else:
        init = partial(vision.init_params, model_config(config, config.image.classes), image_config(config))
    wanted = {name: leaf.shape for name, leaf in named(jax.eval_shape(init, jax.random.key(0))).items()}
    given = {name: leaf.shape for name, leaf in named(imported.params).items()}
    for name in sorted(wanted.keys() | given.keys()):
        if wanted.get(name) != given.get(name):
            raise UserError(
                f"{imported.source}: parameter {name} is {given.get(name, 'absent')}; in the model of its config it is "
                f"{wanted.get(name, 'absent')}"
            )


def named(params: Any) -> dict[str, Any]:
    """Returns {"encoder/layer_0/feed_forward/w1": array, ...}."""
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def nested(leaves: dict[str, Any]) -> dict[str, Any]:
    """Returns the tree whose `named` these leaves are."""
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *above, last = name.split("/")
        inner = tree
        for key in above:
            inner = inner.setdefault(key, {})
        inner[last] = leaf
    return tree

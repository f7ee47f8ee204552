"""Opens the folder of a run: its config, its tokenizer, and the parameters of the chosen checkpoints."""

import json
import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from ml_collections import ConfigDict

from vaswani.data.imported import open_tokenizer
from vaswani.data.other_corpora import other_corpora
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError, is_library
from vaswani.files import folders
from vaswani.model.config import CommonConfig, ModelConfig
from vaswani.model.mixers.kernels import PLATFORMS, compiled_for
from vaswani.run.averaging import check_began, load_choice, named_steps
from vaswani.run.builtin import run_folder
from vaswani.run.config import SPLITS, read_config
from vaswani.run.distributed import check_same_params
from vaswani.run.parameters import count_parameters, named_shapes
from vaswani.run.unchanged import check_unchanged
from vaswani.tasks import TRANSLATION, task_of
from vaswani.tasks.task import Task


class Run(NamedTuple):
    """A trained model, ready to use. `step` is the newest of `checkpoints`, the steps averaged into `params`."""

    workdir: Path
    config: ConfigDict
    model_config: Any  # a `ModelConfig`, or of recurrent networks a `RecurrentConfig`
    text: Tokenizer | None  # None for a model of images
    params: Any
    step: int
    checkpoints: tuple[int, ...]

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of a model of texts."""
        assert self.text is not None, "a model of images has no tokenizer"
        return self.text


def open_run(
    workdir: str | Path,
    checkpoint: str | int | None = None,
    task: str | tuple[str, ...] | None = "translation",
    *,
    accept_changes: bool = False,
) -> Run:
    """Loads a run with the parameters that `checkpoint` names (see `run.averaging.choose`), as float32 numpy arrays.

    The default is the run's `config.decode.checkpoint`.

    Raises:
      UserError: the folder is not a run's, or one of another task (None: any); it has no such checkpoint, or the
        checkpoint is damaged or another model's; or its config or tokenizer was changed after its training, unless
        `accept_changes` (`run.unchanged`).
    """
    workdir = run_folder("workdir", workdir)
    config = read_config(workdir)
    allowed = (task,) if isinstance(task, str) else task
    if allowed and config.task not in allowed:
        raise UserError(f"workdir={workdir}: this run's task is {config.task}, not {' or '.join(allowed)}")
    check_began(workdir)
    run_task = task_of(config.task)
    text = None if run_task.images else open_tokenizer(workdir / "tokenizer.model")
    sizes = (text.vocab_size, text.source_vocab_size) if text else (0, None)
    model = _for_this_device(run_task.config(config, *sizes))
    choice = config.decode.checkpoint if checkpoint is None else checkpoint
    steps, params = load_choice(workdir, str(choice))
    check_unchanged(workdir, steps[-1], accept_changes)
    check_same_params(params)
    _check_model(run_task, config, model, params, f"{workdir}/checkpoints/{steps[-1]}")
    if not is_library():
        print(f"parameters of {workdir}: {named_steps(steps)}", file=sys.stderr)
    return Run(workdir, config, model, text, params, steps[-1], tuple(steps))


def _for_this_device(model: CommonConfig) -> CommonConfig:
    """Returns the model; instead of a kernel for another kind of device it has "auto", which computes the same."""
    platform = compiled_for()
    if not isinstance(model, ModelConfig) or PLATFORMS.get(model.attention_impl, platform) == platform:
        return model
    return replace(model, attention_impl="auto")


def _check_model(task: Task, config: ConfigDict, model: CommonConfig, params: Any, checkpoint: str) -> None:
    """Raises a `UserError` unless the parameters have the names and shapes of the config's model."""
    # All layers are alike, and one is traced sooner.
    one_layer: CommonConfig = replace(model, N=1)
    encoder_layers = decoder_layers = model.N
    if isinstance(model, ModelConfig):
        one_layer = replace(model, N=1, scan_layers=False, N_encoder=0, N_decoder=0)
        encoder_layers, decoder_layers = (1, 1) if model.share_layers else model.depths
    expected_shapes = _named_shapes(task, config.to_json(), one_layer)
    count = 0
    for name, shape in expected_shapes.items():
        copies = 1
        if "layer_0" in name:
            copies = encoder_layers if name.startswith("encoder/") else decoder_layers
        count += copies * math.prod(shape)
    if count_parameters(params) != count:
        raise UserError(
            f"{checkpoint} holds {count_parameters(params):,} parameters; the model of the run's config.json has "
            f"{count:,}: this checkpoint is of another model"
        )
    for name, shape in named_shapes(params).items():
        expected = expected_shapes.get(re.sub(r"layer_\d+", "layer_0", name))
        if expected != shape:
            raise UserError(
                f"{checkpoint} has {name} of shape {shape}; in the model of the run's config.json it is "
                f"{expected or 'absent'}: this checkpoint is of another model"
            )


@lru_cache
def _named_shapes(task: Task, config: str, model: CommonConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a model's parameters; the config is JSON, so that the runs of an ensemble share them."""
    objective = task.objective(ConfigDict(json.loads(config)), model)
    return named_shapes(jax.eval_shape(objective.init, jax.random.key(0)))


def finite(model_run: Run) -> Any:
    """Returns the parameters of a run, on the device; raises as `check_finite`."""
    check_finite(model_run)
    return jax.device_put(model_run.params)


def check_finite(model_run: Run) -> None:
    """Raises a `UserError` if the parameters of a run are not finite, so that nothing can be predicted with them."""
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(model_run.params)):
        raise UserError(f"{model_run.workdir}: the parameters of this run are not finite")


@contextmanager
def user_error_if_too_long() -> Iterator[None]:
    """Raises a `UserError` instead of the `ValueError` of a model that reads more tokens than its learned positions.

    It is to stand around calls of the model.
    """
    try:
        yield
    except ValueError as error:
        raise UserError(f"a sentence is too long for this model: {error}") from error


@contextmanager
def key_named(name: str, instead: str = "--corpus=SPEC") -> Iterator[None]:
    """Adds to the error of a corpus that cannot be read which key names it, if `name` is a split.

    `instead` is the flag that names another corpus.
    """
    try:
        yield
    except UserError as error:
        if name not in SPLITS:
            raise
        raise UserError(f"data.{name} of this run: {error}; {instead} reads another") from error


def corpus_named(config: ConfigDict, name: str, instead: str = "--corpus=SPEC") -> str:
    """Returns the corpus that `name` names: a split of the run's config, or else a corpus itself.

    `instead` is the flag that names a corpus.

    Raises:
      UserError: the config has none for that split, or one of another corpus than the run's.
    """
    if name not in SPLITS:
        return name
    wrong_splits = other_corpora(config.data)
    if name in wrong_splits:
        raise UserError(f"--split={name}: the run's {wrong_splits[name]}; name a corpus with {instead}")
    if not config.data[name]:
        raise UserError(f"--split={name}: the run's config has no data.{name}; name a corpus with {instead}")
    return config.data[name]


def as_one(runs: Sequence[Run]) -> tuple[CommonConfig | tuple[CommonConfig, ...], Any]:
    """Returns the config and the parameters of a run; of several their ensemble's, as tuples."""
    if len(runs) == 1:
        return runs[0].model_config, runs[0].params
    return tuple(run.model_config for run in runs), tuple(run.params for run in runs)


def open_runs(workdirs: str, checkpoint: str | int | None = None) -> list[Run]:
    """Loads the runs of an ensemble, whose folders are separated by commas; of one folder, that run.

    Raises:
      UserError: as `open_run`, a folder is named twice, or their tokenizers differ.
    """
    paths = folders("workdir", workdirs)
    if len({run_folder("workdir", path).resolve() for path in paths}) < len(paths):
        raise UserError(f"--workdir={workdirs}: a run is named twice; an ensemble needs different ones")
    runs = [open_run(path, checkpoint, TRANSLATION) for path in paths]
    first = runs[0]
    for run in runs[1:]:
        if run.tokenizer.sha256 != first.tokenizer.sha256:
            raise UserError(
                f"--workdir: {first.workdir} and {run.workdir} have different tokenizers; an ensemble must share one: "
                "train its runs on the same data.train, or in one sweep"
            )
    return runs

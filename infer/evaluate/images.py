"""Classifies images with a trained run: accuracy, and the negative log-likelihood of the classes."""

import time
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict

from base.errors import UserError
from base.files import folder
from data.images import ImageBatch, Images, evaluation_batches, open_images
from infer.evaluate.record import provenance
from infer.runs import corpus_named
from model.config import ModelConfig
from model.vision import ImageConfig, Vision, init_params
from run.averaging import load_choice
from run.changes import check_unchanged
from run.config import read_config
from run.folder import model_config
from run.sharding import data_mesh, own_share, place_params, place_rows

ROWS = 256  # of a batch


class VisionRun(NamedTuple):
    """A trained classifier of images; `step` is the newest of `checkpoints`, the steps averaged into `params`."""

    workdir: Path
    config: ConfigDict
    model_config: ModelConfig
    image: ImageConfig
    params: Any
    step: int
    checkpoints: tuple[int, ...]

    def images(self, split: str) -> Images:
        """Returns the images of a split of the run's config, or of a corpus; `UserError` if there are none."""
        return open_images(corpus_named(self.config, split), (self.image.height, self.image.width), self.image.classes)


def image_config(cfg: ConfigDict) -> ImageConfig:
    """Returns `config.image` as the model's own frozen type; its `ValueError`s become `UserError`s.

    So do learned positions that are too few for an image.
    """
    try:
        image = ImageConfig(**{key: value for key, value in cfg.image.to_dict().items() if key != "shift"})
    except ValueError as error:
        raise UserError(f"config: {error}") from error
    if cfg.model.positions == "learned" and cfg.model.max_positions < image.positions:
        raise UserError(f"config: model.max_positions is {cfg.model.max_positions}; it must be at least "
                        f"{image.positions}, as many as an image has")  # fmt: skip
    return image


def open_vision(workdir: str | Path, checkpoint: str | None = None) -> VisionRun:
    """Loads a run as `infer.runs.open_run` does.

    Raises:
      UserError: the folder is not that of such a run, or the checkpoint is not there, damaged or another model's.
    """
    workdir = folder("workdir", workdir)
    cfg = read_config(workdir)
    if cfg.task != "vision":
        raise UserError(f"--workdir={workdir}: this run's task is {cfg.task}; this command is for vision")
    config, image = model_config(cfg, cfg.image.classes), image_config(cfg)
    steps, params = load_choice(workdir, cfg.decode.checkpoint if checkpoint is None else checkpoint)
    check_unchanged(workdir, steps[-1])
    expected = jax.eval_shape(partial(init_params, config, image), jax.random.key(0))
    if jax.tree.map(np.shape, params) != jax.tree.map(lambda leaf: leaf.shape, expected):
        raise UserError(
            f"{workdir}/checkpoints/{steps[-1]} does not hold the model of {workdir}/config.json: this checkpoint is "
            "of another model"
        )
    return VisionRun(workdir, cfg, config, image, params, steps[-1], tuple(steps))


def log_likelihood(model: Vision, params: Any, batch: ImageBatch) -> tuple[Float[Array, ""], Int[Array, ""]]:
    """Returns the log-probability, in nats, of all classes of a batch, and how many are the likeliest."""
    logits_bv, _ = model.apply({"params": params}, batch.images_byx, batch.real_b)
    labels_b, real_b = jnp.asarray(batch.labels_b), jnp.asarray(batch.real_b) != 0
    found_b = jnp.take_along_axis(jax.nn.log_softmax(logits_bv), labels_b[:, None], axis=1)[:, 0]
    return jnp.sum(found_b, where=real_b), jnp.sum((logits_bv.argmax(-1) == labels_b) & real_b)


@cache
def _scorer(config: ModelConfig, image: ImageConfig) -> Any:
    return jax.jit(partial(log_likelihood, Vision(config, image)))


def accuracy(config: ModelConfig, image: ImageConfig, params: Any, images: Images) -> dict[str, float]:
    """Returns "accuracy", in [0, 1], and "nll", in nats an image."""
    mesh, rows = data_mesh(), min(ROWS, len(images.labels_n))
    score, placed = _scorer(config, image), place_params(mesh, params)
    total = np.zeros(2)
    with jax.set_mesh(mesh):
        for batch in evaluation_batches(images, rows, own_share(mesh)):
            total += np.asarray(jax.device_get(score(placed, place_rows(mesh, batch))), np.float64)
    log_probability, right = (total / len(images.labels_n)).tolist()
    return {"accuracy": right, "nll": -log_probability}


def evaluate(model_run: VisionRun, split: str) -> dict[str, Any]:
    """Returns the result record, of JSON values, of the images of `split`: one of the run's config, or a corpus.

    Raises:
      UserError: there are none, or they are at fault.
    """
    images, started = model_run.images(split), time.perf_counter()
    scores = accuracy(model_run.model_config, model_run.image, model_run.params, images)
    return {
        **scores,
        "signatures": {"accuracy": f"images:{len(images.labels_n)}|classes:{model_run.image.classes}|top:1"},
        "seconds": time.perf_counter() - started,
        **provenance(model_run, images.spec, split),
    }


def table(record: dict[str, Any]) -> str:
    """Returns the record as text."""
    head = f"{record['data']}, step {', '.join(map(str, record['checkpoints']))}"
    score = f"{'accuracy':<12} {record['accuracy']:8.4f}   {record['signatures']['accuracy']}"
    return "\n".join([head, "", score, f"{'nll':<12} {record['nll']:8.4f}   nats an image"])

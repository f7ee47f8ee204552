"""Image classification."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Float
from ml_collections import ConfigDict

from vaswani.data.images import ImageBatch, ImageBatches, Images, evaluation_batches
from vaswani.data.images import open_images as read_images
from vaswani.data.pipeline import OnePass
from vaswani.errors import UserError
from vaswani.model import vision
from vaswani.model.config import ModelConfig
from vaswani.model.noise import Noise
from vaswani.run.sharding import process_shard
from vaswani.tasks.config import model_config
from vaswani.tasks.loss import Loss, cross_entropy
from vaswani.tasks.task import Data, Evaluation, Example, Objective, Task
from vaswani.tokens import Tokens

ROWS = 256  # images of a batch for evaluation


def image_config(cfg: ConfigDict) -> vision.ImageConfig:
    """Returns `config.image` as the model's own frozen type.

    Raises:
      UserError: a field is out of its range, or there are fewer learned positions than an image needs.
    """
    fields = {key: value for key, value in cfg.image.to_dict().items() if key != "shift"}
    try:
        image = vision.ImageConfig(**fields)
    except ValueError as error:
        raise UserError(f"config: {error}") from error
    if cfg.model.positions == "learned" and cfg.model.max_positions < image.positions:
        raise UserError(
            f"config: model.max_positions is {cfg.model.max_positions}; it must be at least {image.positions}, as "
            "many as an image has"
        )
    return image


def open_images(cfg: ConfigDict, spec: str) -> Images:
    """Returns the images that `spec` names, for a run of `cfg`; `UserError` if there are none, or they do not fit."""
    image = image_config(cfg)
    return read_images(spec, (image.height, image.width), image.classes)


def make_example(batch: ImageBatch) -> Example:
    """Has the class of each image predicted, one a row."""
    target_b = jnp.asarray(batch.labels_b)
    weights_b = jnp.asarray(batch.real_b, jnp.float32)
    return Example((batch.images_byx, batch.real_b), target_b[:, None], weights_b[:, None])


@dataclass(frozen=True)
class ImageObjective(Objective):
    """A model of images and its loss: it has few classes, so it returns their logits, not the two factors of them."""

    model: vision.Vision

    def loss(self, params: dict, batch: ImageBatch, noise: Noise | None) -> Loss:
        """Returns the loss of a batch; without `noise`, the validation loss."""
        inputs, target_b1, weights_b1 = self.make_example(batch)
        logits_bv, _ = self.model.apply({"params": params}, *inputs, noise)
        return cross_entropy(logits_bv[:, None], target_b1, weights_b1, self.eps_ls)

    def logits(self, params: dict, batch: ImageBatch) -> Float[Array, "b 1 v"]:
        """Returns the logits of each image, without noise."""
        logits_bv, _ = self.model.apply({"params": params}, *self.make_example(batch).inputs)
        return logits_bv[:, None]

    def tokens(self, batch: ImageBatch) -> tuple[Tokens, ...]:
        """Returns the positions of the patches."""
        return (vision.tokens(self.model.image, jnp.asarray(batch.real_b)),)


def objective(config: ModelConfig, image: vision.ImageConfig, eps_ls: float) -> Objective:
    """Returns the classifier of images and its loss."""
    return ImageObjective(vision.Vision(config, image), make_example, eps_ls)


def _config(cfg: ConfigDict, vocab_size: int, source_vocab_size: int | None = None) -> ModelConfig:
    return model_config(cfg, cfg.image.classes)


def _objective(cfg: ConfigDict, config: ModelConfig) -> Objective:
    return objective(config, image_config(cfg), cfg.loss.eps_ls)


def _data(cfg: ConfigDict, workdir: Path, mesh: Mesh) -> Data:
    image = image_config(cfg)
    for key in ("train", "valid"):
        if not cfg.data[key]:
            raise UserError(f"data.{key} is empty: name images, as in digits:{key} or idx:IMAGES,LABELS")
    smaller_side = min(image.height, image.width)
    if cfg.image.shift >= smaller_side:
        raise UserError(
            f"image.shift is {cfg.image.shift}; for images of {image.height} x {image.width} pixels it must be below"
            f" {smaller_side}, or some of them would be moved out of sight"
        )
    train = open_images(cfg, cfg.data.train)
    valid = open_images(cfg, cfg.data.valid)
    # A batch has as many positions as one of texts: each patch is one, and so is a class token.
    rows = cfg.data.tokens_per_batch // image.positions
    if rows < 1:
        raise UserError(
            f"data.tokens_per_batch is {cfg.data.tokens_per_batch}: too few for an image of {image.positions} positions"
        )
    shard = process_shard(mesh, cfg.optim.accumulate)
    return Data(
        ImageBatches(train, rows, seed=cfg.seed, shift=cfg.image.shift, shard=shard),
        partial(evaluation_batches, valid, rows, process_shard(mesh)),
        {"train": train.manifest, "valid": valid.manifest},
    )


def _batches(cfg: ConfigDict, tokenizer: None, spec: str, mesh: Mesh) -> OnePass[ImageBatch]:
    images = open_images(cfg, spec)
    return evaluation_batches(images, min(ROWS, len(images.labels_n)), process_shard(mesh))


def _signatures(cfg: ConfigDict, tokenizer: None, count: int) -> dict[str, str]:
    return {"accuracy": f"images:{count}|classes:{cfg.image.classes}|top:1"}


TASK = Task(
    config=_config,
    objective=_objective,
    data=_data,
    evaluation=Evaluation(_batches, _signatures, unit="image"),
    images=True,
)

"""Image classification."""

from functools import partial
from pathlib import Path

import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from base.errors import UserError
from data.images import ImageBatch, ImageBatches, evaluation_batches, open_images
from infer.evaluate.images import accuracy, image_config
from model import vision
from model.config import ModelConfig
from model.noise import Noise
from model.tokens import Tokens
from run.folder import model_config
from run.sharding import own_share
from train.loss import Loss, cross_entropy
from train.task import Objective, Task


def objective(config: ModelConfig, image: vision.ImageConfig, eps_ls: float) -> Objective:
    """Returns the label-smoothed cross-entropy of the classes."""
    model = vision.Vision(config, image)

    def loss(params: dict, batch: ImageBatch, noise: Noise | None) -> Loss:
        logits_bv, _ = model.apply({"params": params}, batch.images_byx, batch.real_b, noise)
        weights_b = jnp.asarray(batch.real_b, jnp.float32)
        return cross_entropy(logits_bv[:, None], jnp.asarray(batch.labels_b)[:, None], weights_b[:, None], eps_ls)

    def tokens(batch: ImageBatch) -> tuple[Tokens]:
        return (vision.tokens(image, jnp.asarray(batch.real_b)),)

    return Objective(partial(vision.init_params, config, image), loss, tokens)


def task(cfg: ConfigDict, workdir: Path, mesh: Mesh) -> Task:
    """Returns the task of a config; `measure` returns {"accuracy"} of `data.valid`, in [0, 1].

    Raises:
      UserError: the config or the images are at fault.
    """
    config, image = model_config(cfg, cfg.image.classes), image_config(cfg)
    for key in ("train", "valid"):
        if not cfg.data[key]:
            raise UserError(f"data.{key} is empty: name images, as in digits:{key} or idx:IMAGES,LABELS")
    size = (image.height, image.width)
    train, valid = (open_images(spec, size, image.classes) for spec in (cfg.data.train, cfg.data.valid))
    rows = cfg.data.tokens_per_batch // image.positions
    if rows < 1:
        raise UserError(f"data.tokens_per_batch is {cfg.data.tokens_per_batch}: too few for an image of "
                        f"{image.positions} positions")  # fmt: skip
    share = own_share(mesh, cfg.optim.accumulate)
    return Task(
        objective(config, image, cfg.loss.eps_ls),
        ImageBatches(train, rows, seed=cfg.seed, shift=cfg.image.shift, share=share),
        partial(evaluation_batches, valid, rows, own_share(mesh)),
        lambda params: {"accuracy": accuracy(config, image, params, valid)["accuracy"]},
        {"train": train.manifest, "valid": valid.manifest},
    )

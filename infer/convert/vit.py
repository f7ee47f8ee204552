"""ViT of transformers as our classifier of images (Dosovitskiy et al. 2020)."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.infer.convert import bert, table
from vaswani.infer.convert.folders import Imported
from vaswani.infer.convert.settings import BOOL, LARGEST, SIZE, Rule, configure, obey, require
from vaswani.infer.convert.weights import Weights
from vaswani.model.config import ModelConfig
from vaswani.read_json import read_json
from vaswani.tasks.vision import image_config

_TABLE = """
embeddings.cls_token                                       token                                    1 1 d
embeddings.position_embeddings                             positions                                1 l d
encoder.layer.{n}.layernorm_before.{weight,bias}           encoder/layer_{n}/norm_1/{scale,bias}    d
encoder.layer.{n}.attention.attention.{query,key}.weight   encoder/layer_{n}/self_attention/w{q,k}  hk d
encoder.layer.{n}.attention.attention.{query,key}.bias     encoder/layer_{n}/self_attention/b{q,k}  hk
encoder.layer.{n}.attention.attention.value.weight         encoder/layer_{n}/self_attention/wv      he d
encoder.layer.{n}.attention.attention.value.bias           encoder/layer_{n}/self_attention/bv      he
encoder.layer.{n}.attention.output.dense.weight            encoder/layer_{n}/self_attention/wo      d he
encoder.layer.{n}.attention.output.dense.bias              encoder/layer_{n}/self_attention/bo      d
encoder.layer.{n}.layernorm_after.{weight,bias}            encoder/layer_{n}/norm_2/{scale,bias}    d
encoder.layer.{n}.intermediate.dense.weight                encoder/layer_{n}/feed_forward/w1        f d
encoder.layer.{n}.intermediate.dense.bias                  encoder/layer_{n}/feed_forward/b1        f
encoder.layer.{n}.output.dense.weight                      encoder/layer_{n}/feed_forward/w2        d f
encoder.layer.{n}.output.dense.bias                        encoder/layer_{n}/feed_forward/b2        d
layernorm.{weight,bias}                                    encoder/final_norm/{scale,bias}          d
classifier.weight                                          head                                     c d
classifier.bias                                            head_bias                                c
"""
_PROJECTION = "embeddings.patch_embeddings.projection"


def _is_pair(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) == 2 and all(map(SIZE.fits, value))
    return SIZE.fits(value)


def _is_mean(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= 1e3


def _are_means(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_mean, value))


def _are_deviations(value: Any) -> bool:
    return _are_means(value) and min(value, default=1) > 1e-6


_PAIR = Rule(_is_pair, "one number, or height and width")
_MEANS = Rule(_are_means, "a list of numbers, one for each channel")
_DEVIATIONS = Rule(_are_deviations, f"{_MEANS.described}, above 0")
_PIXELS = {"do_rescale": True, "rescale_factor": 1 / 255}


def read(folder: Path, sizes: dict[str, Any], weights: Weights) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    Our images are grey, of pixels in [0, 1]. A model of several channels is read as it is for grey images, whose
    channels are the same; how preprocessor_config.json normalises pixels becomes part of the projection of patches.

    Raises:
      UserError: a weight or a setting is missing or wrong, or the model has an unsupported setting.
    """
    path = folder / "config.json"
    cfg = configure(path, sizes, bert.KEYS, bert.DEPARTURES | {"norm": "pre"})
    cfg.task = "vision"
    obey(path, sizes, {"num_channels": SIZE})
    require(path, sizes, {"qkv_bias": True})
    cfg.image.height, cfg.image.width = _pair(path, sizes, "image_size")
    cfg.image.patch_height, cfg.image.patch_width = _pair(path, sizes, "patch_size")
    mean_c, deviation_c = _normalisation(folder, sizes["num_channels"])
    patch = (cfg.image.patch_height, cfg.image.patch_width)
    params = parameters(weights, cfg.model, patch, mean_c, deviation_c)
    cfg.image.classes = len(params["head_bias"])
    # Only `image_config` counts an image's positions, and it refuses more of them than the limit: so first the highest.
    cfg.model.max_positions = LARGEST
    cfg.model.max_positions = image_config(cfg).positions
    positions = len(params["positions"])
    expected = cfg.model.max_positions
    if positions != expected:
        raise UserError(f"{folder}: its weights are of {positions} positions; an image of its settings has {expected}")
    return Imported(folder, cfg, None, params)


def parameters(
    weights: Weights,
    config: ModelConfig | ConfigDict,
    patch: tuple[int, int],
    mean_c: np.ndarray,
    deviation_c: np.ndarray,
) -> dict[str, Any]:
    """Returns ViT's weights, by their names on disk, under our names and in our shapes.

    `patch` is height and width of one. Pixels are normalised there by the mean and the standard deviation of each
    channel, in ours not.

    Raises:
      UserError: a weight is missing, of another shape or not finite, or there is one more.
    """
    weights = weights.renamed(lambda name: name.removeprefix("vit."))
    d_model = config.d_model
    channels = len(mean_c)
    # (x - mean) / deviation, projected, is x times other weights, and another bias.
    kernel_dcyx = weights.take(f"{_PROJECTION}.weight", d_model, channels, *patch)
    kernel_dcyx = kernel_dcyx / deviation_c[:, None, None]
    shift_d = np.einsum("dcyx,c->d", kernel_dcyx, mean_c)
    bias_d = weights.take(f"{_PROJECTION}.bias", d_model) - shift_d
    # The channels of a grey image are the same: [d,c,y,x] -> [d,y,x] -> [d,p].
    kernel_dyx = kernel_dcyx.sum(axis=1)
    kernel_dp = kernel_dyx.reshape(d_model, -1)

    rows = table.rows(_TABLE, config.N)
    params = table.read(weights, rows, table.sizes_of(config))
    weights.check_all_read()
    tree = unflatten_dict(params, sep="/")
    tree["patch"] = kernel_dp.T.astype(np.float32)
    tree["patch_bias"] = bias_d.astype(np.float32)
    return tree


def _pair(path: Path, sizes: dict[str, Any], key: str) -> list[int]:
    """Returns height and width, which may be given as one number."""
    obey(path, sizes, {key: _PAIR})
    value = sizes[key]
    if isinstance(value, list):
        return value
    return [value, value]


def _normalisation(folder: Path, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean and the standard deviation of each channel: 0 and 1 where nothing is normalised."""
    path = folder / "preprocessor_config.json"
    as_they_are = np.zeros(channels), np.ones(channels)
    if not path.is_file():
        print(f"note: {folder} has no preprocessor_config.json, so pixels are not normalised", file=sys.stderr)
        return as_they_are
    settings = read_json(path, dict)
    settings.setdefault("do_normalize", True)
    obey(path, settings, {"do_normalize": BOOL})
    require(path, settings, _PIXELS)
    if not settings["do_normalize"]:
        return as_they_are
    obey(path, settings, {"image_mean": _MEANS, "image_std": _DEVIATIONS})
    mean_c = np.asarray(settings["image_mean"], np.float64)
    deviation_c = np.asarray(settings["image_std"], np.float64)
    if not len(mean_c) == len(deviation_c) == channels:
        raise UserError(f"{path}: image_mean and image_std must be of {channels} channels, the latter above 0")
    return mean_c, deviation_c

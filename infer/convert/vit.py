"""ViT of transformers as our classifier of images (Dosovitskiy et al. 2020)."""

from pathlib import Path
from typing import Any

import numpy as np

from base.errors import UserError
from base.files import check, read_json
from configs.common import default
from infer.convert import bert
from infer.convert.folders import Imported
from infer.convert.settings import activation, head_width, require, wrong_weights

_PIXELS = {"do_rescale": True, "rescale_factor": 1 / 255}


def read(folder: Path, sizes: dict[str, Any], weights: dict[str, np.ndarray]) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    Our images are grey, of pixels in [0, 1]. A model of several channels is read as it is for grey images, whose
    channels are the same; how preprocessor_config.json normalises pixels becomes part of the projection of patches.

    Raises:
      UserError: a weight is missing, or the model has a setting that ours has not.
    """
    path = folder / "config.json"
    numbers = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "num_channels")
    check(path, "", sizes, {**dict.fromkeys(numbers, int), "layer_norm_eps": float, "hidden_act": str})
    require(path, sizes, {"qkv_bias": True})
    cfg, d, h = default(), sizes["hidden_size"], sizes["num_attention_heads"]
    cfg.task, width = "vision", head_width(path, d, h)
    cfg.image.height, cfg.image.width = _pair(path, sizes, "image_size")
    cfg.image.patch_height, cfg.image.patch_width = _pair(path, sizes, "patch_size")
    cfg.model.update({"N": sizes["num_hidden_layers"], "d_model": d, "h": h, "d_k": width, "d_v": width})
    cfg.model.update({"d_ff": sizes["intermediate_size"], "activation": activation(path, sizes, "hidden_act")})
    cfg.model.update({"norm": "pre", "norm_epsilon": sizes["layer_norm_eps"], "biases": True, "positions": "learned"})
    mean_c, deviation_c = _normalisation(folder, sizes["num_channels"])
    try:
        params = parameters(weights, cfg.model.N, h, mean_c, deviation_c)
    except (KeyError, ValueError, IndexError) as error:
        raise wrong_weights(folder, error) from error
    cfg.model.max_positions, cfg.image.classes = len(params["positions"]), len(params["head_bias"])
    return Imported(folder, cfg, None, params)


def parameters(
    weights: dict[str, np.ndarray], N: int, h: int, mean_c: np.ndarray, deviation_c: np.ndarray
) -> dict[str, Any]:
    """Returns ViT's weights, by their names on disk, under our names and in our shapes.

    Pixels are normalised there by the mean and the standard deviation of each channel, in ours not.

    Raises:
      KeyError: a weight is missing.
      ValueError: one has another shape.
    """
    given = {name.removeprefix("vit."): weight for name, weight in weights.items()}
    projection = "embeddings.patch_embeddings.projection"
    kernel_dcyx = given[f"{projection}.weight"] / deviation_c[:, None, None]
    kernel_dp = kernel_dcyx.sum(axis=1).reshape(len(kernel_dcyx), -1)
    shift_d = np.einsum("dcyx,c->d", kernel_dcyx, mean_c)
    return {
        "patch": kernel_dp.T.astype(np.float32),
        "patch_bias": (given[f"{projection}.bias"] - shift_d).astype(np.float32),
        "token": given["embeddings.cls_token"][0, 0],
        "positions": given["embeddings.position_embeddings"][0],
        "encoder": bert.layers(given, N, h, "attention.attention", ("layernorm_before", "layernorm_after"))
        | {"final_norm": bert.norm(given, "layernorm")},
        "head": given["classifier.weight"].T,
        "head_bias": given["classifier.bias"],
    }


def _pair(path: Path, sizes: dict[str, Any], key: str) -> list[int]:
    """Returns height and width, which may be given as one number."""
    check(path, "", sizes, {key: object})
    pair = sizes[key] if isinstance(sizes[key], list) else [sizes[key]] * 2
    if len(pair) != 2:
        raise UserError(f"{path}: {key} is {pair}; it must be one number, or height and width")
    return check(path, "", {key: pair}, {key: [int]})[key]


def _normalisation(folder: Path, channels: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean and the standard deviation of each channel: 0 and 1 where nothing is normalised."""
    path = folder / "preprocessor_config.json"
    settings = read_json(path, dict) if path.is_file() else {"do_normalize": False}
    if settings.setdefault("do_normalize", True) is False:
        return np.zeros(channels), np.ones(channels)
    require(path, settings, _PIXELS)
    check(path, "", settings, {"image_mean": [float], "image_std": [float]})
    mean_c, deviation_c = (np.asarray(settings[key], np.float64) for key in ("image_mean", "image_std"))
    if not len(mean_c) == len(deviation_c) == channels or not (deviation_c > 0).all():
        raise UserError(f"{path}: image_mean and image_std must be of {channels} channels, the latter above 0")
    return mean_c, deviation_c

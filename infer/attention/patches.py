"""Weights of an image classifier's patches, and their drawing over the image."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from vaswani.infer.attention.drawing import save
from vaswani.infer.attention.maps import require_weights
from vaswani.infer.runs import Run, finite
from vaswani.model.vision import Vision
from vaswani.tasks.vision import image_config


def patch_weights(
    model_run: Run, image_yx: Float[np.ndarray, "y x"]
) -> tuple[int, Float[np.ndarray, "n h rows columns"]]:
    """Returns the likeliest class, and each patch's weight in every layer and head.

    Raises:
      UserError: the run's mixer has no weights, or its parameters are not finite.
    """
    require_weights(model_run.model_config)
    image = image_config(model_run.config)
    model = Vision(model_run.model_config, image)
    params = finite(model_run)
    images_byx = jnp.asarray(image_yx[None])
    real_b = jnp.ones(1, jnp.int32)
    logits_bv, blocks = model.apply({"params": params}, images_byx, real_b, return_weights=True)
    weights_nhtt = np.stack([np.asarray(block.self_bhtt[0], np.float32) for block in blocks])
    if image.pooling == "token":
        weights_nht = weights_nhtt[:, :, 0, 1:]
    else:
        weights_nht = weights_nhtt.mean(axis=2)
    layers, heads = weights_nht.shape[:2]
    likeliest = int(logits_bv[0].argmax())
    return likeliest, weights_nht.reshape(layers, heads, *image.grid)


def draw(model_run: Run, image_yx: Float[np.ndarray, "y x"], label: int, output: Path) -> None:
    """Draws the image, and the weights of its patches in every layer and head, with the outline of the ink.

    All have one scale, from 0 to the largest weight of any patch.

    Raises:
      UserError: the file cannot be written.
    """
    predicted, weights_nhyx = patch_weights(model_run, image_yx)
    layers, heads = weights_nhyx.shape[:2]
    height, width = image_yx.shape
    middle = (image_yx.min() + image_yx.max()) / 2  # between paper and ink
    figure = Figure(figsize=(1.2 * (heads + 1) + 1.2, 1.4 * layers + 0.5), layout="constrained")
    grid: Any = figure.subplots(layers, heads + 1, squeeze=False)
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    for (row, column), axes in np.ndenumerate(grid):
        axes.set(xticks=[], yticks=[], aspect="equal")
        if column == 0:
            axes.imshow(image_yx, cmap="gray_r", extent=extent)
            axes.set_title("the image", fontsize=7)
        else:
            weights_yx = weights_nhyx[row, column - 1]
            shown = axes.imshow(weights_yx, cmap="Reds", vmin=0, vmax=weights_nhyx.max(), extent=extent)
            if min(height, width) > 1 and np.ptp(image_yx):  # a single row, or one colour, has no outline
                axes.contour(image_yx, levels=[middle], colors="0.2", linewidths=0.7)
            axes.set_title(f"layer {row + 1}, head {column}", fontsize=7)
    colour_bar = figure.colorbar(shown, ax=grid, shrink=0.8, pad=0.02)
    colour_bar.set_label("attention weight of a patch", fontsize=7)
    colour_bar.ax.tick_params(labelsize=6)
    figure.suptitle(f"class {label}, classified as {predicted}", fontsize=9)
    save(figure, output, f"--output={output}", dpi=150)

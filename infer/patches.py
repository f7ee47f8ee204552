"""Draws what an image classifier attends to: the weight of every patch, in every layer and head, over the image.

python -m infer.patches --workdir=runs/digits --split=test --image=3 --output=patches.png

Weights are those of the class token as the query or, with image.pooling=mean, the mean over all patches as queries.
"""

from absl import flags

from base.errors import UserError
from base.files import output_file
from infer.options import SPLITS, define_run_flags, start


def main(argv: list[str]) -> None:
    """See the module's docstring."""
    from infer.attention.patches import draw  # only now: a mistyped flag is answered without jax
    from infer.vision import open_vision

    options = flags.FLAGS
    output = output_file("output", options.output)
    model_run = open_vision(options.workdir, options.checkpoint)
    images = model_run.images(options.split)
    if not 0 <= options.image < len(images.labels_n):
        raise UserError(f"--image={options.image}: {images.spec} has images 0 to {len(images.labels_n) - 1}")
    draw(model_run, images.images_nyx[options.image], int(images.labels_n[options.image]), output)


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_enum("split", "test", SPLITS, "split of the run's config to take the image from")
    flags.DEFINE_integer("image", 0, "number of the image, from 0")
    flags.DEFINE_string("output", None, "file to write: .png, .svg or .pdf")
    flags.mark_flag_as_required("output")
    start(main, stray="the run is given as --workdir=DIR")

"""Draws what an image classifier attends to: the weight of every patch, in every layer and head, over the image.

python -m infer.patches --workdir=runs/digits --split=test --image=3 --output=patches.png
python -m infer.patches --workdir=runs/vit --corpus=idx:IMAGES,LABELS --output=patches.png    # of an imported model

The weights have the class token as the query or, with image.pooling=mean, the mean over all patches as queries.
"""

from typing import Any

from absl import flags

from vaswani.errors import UserError
from vaswani.files import output_file
from vaswani.infer.attention.patches import draw
from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import corpus_named, open_run
from vaswani.run.config import SPLITS
from vaswani.tasks.vision import open_images

FORMATS = (".png", ".svg", ".pdf")


def check(options: Any) -> None:
    """Raises a `UserError` unless the flags name one source of images, and --output can be written."""
    if options.corpus is not None and options["split"].present:
        raise UserError("give --split or --corpus, not both")
    output_file("output", options.output, FORMATS)


def main(options: Any) -> None:
    """Draws what a classifier attends to in one image."""
    output = output_file("output", options.output)
    model_run = open_run(options.workdir, options.checkpoint, task="vision")
    corpus = options.corpus
    if corpus is None:
        corpus = corpus_named(model_run.config, options.split)
    images = open_images(model_run.config, corpus)
    if not 0 <= options.image < len(images.labels_n):
        raise UserError(f"--image={options.image}: {images.spec} has images 0 to {len(images.labels_n) - 1}")
    draw(model_run, images.images_nyx[options.image], int(images.labels_n[options.image]), output)


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_enum("split", "test", SPLITS, "split of the run's config to take the image from")
    flags.DEFINE_string("corpus", None, "images to read instead of a split, written as in data.test")
    flags.DEFINE_integer("image", 0, "number of the image, from 0")
    flags.DEFINE_string("output", None, "file to write: .png, .svg or .pdf")
    flags.mark_flag_as_required("output")
    start(main, hint="the run is given as --workdir=DIR", check=check)

"""Labelled images: one specification string names a set of them.

| specification | images |
|---|---|
| `digits:SPLIT` | scikit-learn's 1,797 handwritten digits of 8 x 8 pixels: a fifth is for test, a tenth for valid |
| `mnist1d:SPLIT` | MNIST-1D (Greydanus 2020), as the package mnist1d generates it: 4,000 and 1,000 rows of 40 numbers |
| `idx:IMAGES,LABELS` | two files in MNIST's IDX format, plain or .gz, of unsigned bytes |

SPLIT is train, valid or test. Of MNIST-1D valid is the last tenth of what the package calls train.
"""

import gzip
import hashlib
import importlib
import math
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, Int64

from vaswani.data.pipeline import ALL_ROWS, EndlessBatches, OnePass, ProcessShard
from vaswani.data.plans import PlannedBatch, row_by_row
from vaswani.errors import UserError, pip_install
from vaswani.files import local_path, open_regular
from vaswani.numbers import pluralize

SPLITS = ("train", "valid", "test")


class Images(NamedTuple):
    """Images of one size, and the class of each, from 0."""

    spec: str
    images_nyx: Float32[np.ndarray, "n y x"]
    labels_n: Int32[np.ndarray, " n"]

    @property
    def manifest(self) -> dict[str, Any]:
        """The name, the count and the SHA-256 of what was read, for the run's record."""
        hashes = {"images": self.images_nyx, "labels": self.labels_n}
        sha256 = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in hashes.items()}
        return {"spec": self.spec, "pairs": {"read": len(self.labels_n)}, "tokens": {}, "sha256": sha256}


class ImageBatch(NamedTuple):
    """Rows of a batch; `real_b` is 0 where there is no image, 1 elsewhere."""

    images_byx: Float32[np.ndarray, "b y x"]
    labels_b: Int32[np.ndarray, " b"]
    real_b: Int32[np.ndarray, " b"]


def open_images(spec: str, size: tuple[int, int], classes: int) -> Images:
    """Returns the images that `spec` names.

    Raises:
      UserError: there are none, they cannot be read, are not of `size` (height, width), or a label is not below
        `classes`.
    """
    scheme, _, rest = spec.partition(":")
    if scheme not in _SCHEMES or (scheme != "idx" and rest not in SPLITS):
        raise UserError(
            f"images {spec!r}: write digits:SPLIT, mnist1d:SPLIT or idx:IMAGES,LABELS; SPLIT is one of"
            f" {', '.join(SPLITS)}"
        )
    images_nyx, labels_n = _SCHEMES[scheme](spec, rest)
    if len(images_nyx) != len(labels_n) or not len(labels_n):
        raise UserError(
            f"images {spec!r}: {pluralize(len(images_nyx), 'images')} and {pluralize(len(labels_n), 'labels')}; both"
            " numbers must be the same, and at least one"
        )
    if images_nyx.shape[1:] != size:
        height, width = images_nyx.shape[1:]
        raise UserError(
            f"images {spec!r}: {height} x {width} pixels; image.height and image.width are {size[0]} and {size[1]}"
        )
    wrong = np.flatnonzero((labels_n < 0) | (labels_n >= classes))
    if wrong.size:
        raise UserError(
            f"images {spec!r}: the label of image {wrong[0]} is {labels_n[wrong[0]]}; with image.classes={classes}"
            f" it must be from 0 to {classes - 1}"
        )
    return Images(spec, np.ascontiguousarray(images_nyx, np.float32), labels_n.astype(np.int32))


def _import(spec: str, module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"images {spec!r} need the package {package}: {pip_install('vision')}") from error


def _digits(spec: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    digits = _import(spec, "sklearn.datasets", "scikit-learn").load_digits()
    # Neighbours are of one writer, so the parts are drawn at random, the same ones always.
    order = np.random.default_rng(0).permutation(len(digits.target))
    fifth = len(order) // 5
    tenth = len(order) // 10
    parts = {
        "test": order[:fifth],
        "valid": order[fifth : fifth + tenth],
        "train": order[fifth + tenth :],
    }
    part = parts[split]
    return digits.images[part] / 16, digits.target[part]


def _mnist1d(spec: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    mnist1d = _import(spec, "mnist1d.data", "mnist1d")
    dataset = mnist1d.make_dataset(mnist1d.get_dataset_args())
    if split == "test":
        return dataset["x_test"][:, None], dataset["y_test"]
    nine_tenths = len(dataset["x"]) * 9 // 10
    part = slice(nine_tenths)
    if split == "valid":
        part = slice(nine_tenths, None)
    return dataset["x"][part][:, None], dataset["y"][part]


def _idx(spec: str, rest: str) -> tuple[np.ndarray, np.ndarray]:
    names = rest.split(",")
    if len(names) != 2:
        raise UserError(f"images {spec!r}: name two files with a comma between them, as in idx:IMAGES,LABELS")
    images_path, labels_path = (local_path(name, f"images {spec!r}") for name in names)
    images_nyx = read_idx(images_path, 3)
    labels_n = read_idx(labels_path, 1)
    return images_nyx.astype(np.float32) / 255, labels_n.astype(np.int32)


_SCHEMES = {"digits": _digits, "mnist1d": _mnist1d, "idx": _idx}


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Returns the bytes of an IDX file, a uint8 array of `dimensions` dimensions.

    Raises:
      UserError: it cannot be read, is of another kind, or is shorter or longer than it says.
    """
    try:
        with open_regular(path) as file:
            content = file.read()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read ({reason})") from error
    magic = bytes([0, 0, 8, dimensions])
    head = len(magic) + 4 * dimensions  # bytes; a size of each dimension follows
    if content[:4] != magic or len(content) < head:
        beginning = content[:4].hex() or "nothing"
        raise UserError(
            f"{path}: no IDX file of unsigned bytes in {dimensions} dimensions; it begins with {beginning}, not"
            f" {magic.hex()}"
        )
    shape = [int.from_bytes(content[place : place + 4], "big") for place in range(4, head, 4)]
    size = head + math.prod(shape)
    if len(content) != size:
        raise UserError(
            f"{path}: {len(content):,} bytes; for {' x '.join(map(str, shape))} it must have {size:,}: it is truncated"
            " or damaged"
        )
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


class ImageBatches(EndlessBatches[ImageBatch]):
    """Endless batches of images; order and shifts follow from the seed, so it resumes exactly."""

    def __init__(self, images: Images, rows: int, *, seed: int, shift: int = 0, shard: ProcessShard = ALL_ROWS):
        """Keeps the images; an epoch is drawn when its first batch is asked for.

        Args:
          images: the training set.
          rows: images of a batch, over all processes.
          seed: decides the order of every epoch, and the shifts.
          shift: random shifts of up to `shift` pixels, zero-padded.
          shard: this process's part of every batch.
        """
        super().__init__(shard)
        self._images = images
        self._rows = rows
        self._seed = seed
        self._shift = shift
        self._drawn = lru_cache(maxsize=2)(self._draw)  # two: the next epoch is planned while one is read

    def _draw(self, epoch: int) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, "n 2"]]:
        """Returns the order of the images in an epoch, and the shift of each image, down and right."""
        count = len(self._images.labels_n)
        random = np.random.default_rng([self._seed, epoch])
        order_n = random.permutation(count)
        shifts_n2 = random.integers(-self._shift, self._shift + 1, (count, 2))
        return order_n, shifts_n2

    def plan(self, epoch: int) -> list[PlannedBatch]:
        """Returns the global batches of an epoch, in order."""
        order_n, _ = self._drawn(epoch)
        return row_by_row(order_n, self._rows, length=1)

    def read(self, planned: PlannedBatch, epoch: int) -> ImageBatch:
        """Returns the images of the rows of `planned`, a part of a batch of the epoch, shifted."""
        _, shifts_n2 = self._drawn(epoch)
        return _read(self._images, planned, shifts_n2)


def _read(images: Images, planned: PlannedBatch, shifts_n2: np.ndarray | None = None) -> ImageBatch:
    numbers_b = planned.rows_bc[:, 0]
    # An empty row has the number -1, which reads the last image; `real_b` then blanks it.
    real_b = (numbers_b >= 0).astype(np.int32)
    images_byx = images.images_nyx[numbers_b] * real_b[:, None, None].astype(np.float32)
    if shifts_n2 is not None and shifts_n2.any():
        images_byx = np.stack(list(map(_shift_image, images_byx, shifts_n2[numbers_b])))
    return ImageBatch(images_byx, images.labels_n[numbers_b] * real_b, real_b)


def _shift_image(image_yx: np.ndarray, shift_2: np.ndarray) -> np.ndarray:
    border = int(np.abs(shift_2).max())
    height, width = image_yx.shape
    padded_yx = np.pad(image_yx, border)
    top, left = border - shift_2
    return padded_yx[top : top + height, left : left + width]


def evaluation_batches(images: Images, rows: int, shard: ProcessShard = ALL_ROWS) -> OnePass[ImageBatch]:
    """Returns every image once, in order; the last batch may have empty rows."""
    numbers_n = np.arange(len(images.labels_n))
    plan = row_by_row(numbers_n, rows, length=1)
    return OnePass(plan, lambda planned: _read(images, shard.part_of(planned)))

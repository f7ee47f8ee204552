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
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32, Int32

from base.errors import UserError
from base.files import expanded, open_regular
from data.batching import PlannedBatch
from data.pipeline import ALL_ROWS, ProcessShard, State, checked_position

SPLITS = ("train", "valid", "test")


class Images(NamedTuple):
    """Images of one size, and the class of each, from 0."""

    spec: str
    images_nyx: Float32[np.ndarray, "n y x"]
    labels_n: Int32[np.ndarray, " n"]

    @property
    def manifest(self) -> dict[str, Any]:
        """The count and the SHA-256 of what was read, for the run's record."""
        hashes = {"images": self.images_nyx, "labels": self.labels_n}
        sha256 = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in hashes.items()}
        return {"pairs": {"read": len(self.labels_n)}, "tokens": {}, "sha256": sha256}


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
    if scheme not in ("digits", "mnist1d", "idx") or (scheme != "idx" and rest not in SPLITS):
        raise UserError(f"images {spec!r}: write digits:SPLIT, mnist1d:SPLIT or idx:IMAGES,LABELS; SPLIT is one of "
                        f"{', '.join(SPLITS)}")  # fmt: skip
    if scheme == "idx":
        images_nyx, labels_n = _idx(spec, rest)
    else:
        images_nyx, labels_n = (_digits if scheme == "digits" else _mnist1d)(spec, rest)
    if not len(images_nyx) == len(labels_n) > 0:
        raise UserError(f"images {spec!r}: {len(images_nyx)} images and {len(labels_n)} labels; there must be as many, "
                        "and at least one")  # fmt: skip
    if images_nyx.shape[1:] != size:
        height, width = images_nyx.shape[1:]
        raise UserError(f"images {spec!r}: {height} x {width} pixels; image.height and image.width are {size[0]} and "
                        f"{size[1]}")  # fmt: skip
    if (wrong := np.flatnonzero((labels_n < 0) | (labels_n >= classes))).size:
        raise UserError(f"images {spec!r}: the label of image {wrong[0]} is {labels_n[wrong[0]]}; with image.classes="
                        f"{classes} it must be from 0 to {classes - 1}")  # fmt: skip
    return Images(spec, np.ascontiguousarray(images_nyx, np.float32), labels_n.astype(np.int32))


def _imported(spec: str, module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"images {spec!r} need the package {package}: pip install -e '.[vision]'") from error


def _digits(spec: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    found = _imported(spec, "sklearn.datasets", "scikit-learn").load_digits()
    # Neighbours are of one writer, so the parts are drawn at random, the same ones always.
    order = np.random.default_rng(0).permutation(len(found.target))
    fifth, tenth = len(order) // 5, len(order) // 10
    parts = {"test": order[:fifth], "valid": order[fifth : fifth + tenth], "train": order[fifth + tenth :]}
    return found.images[parts[split]] / 16, found.target[parts[split]]


def _mnist1d(spec: str, split: str) -> tuple[np.ndarray, np.ndarray]:
    made = _imported(spec, "mnist1d.data", "mnist1d")
    found = made.make_dataset(made.get_dataset_args())
    if split == "test":
        return found["x_test"][:, None], found["y_test"]
    cut = len(found["x"]) * 9 // 10
    part = slice(cut) if split == "train" else slice(cut, None)
    return found["x"][part][:, None], found["y"][part]


def _idx(spec: str, rest: str) -> tuple[np.ndarray, np.ndarray]:
    names = rest.split(",")
    if len(names) != 2:
        raise UserError(f"images {spec!r}: name two files with a comma between them, as in idx:IMAGES,LABELS")
    images, labels = (
        read_idx(expanded(name, f"images {spec!r}"), sides) for name, sides in zip(names, (3, 1), strict=True)
    )
    return images.astype(np.float32) / 255, labels.astype(np.int32)


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """Returns the bytes of an IDX file, uint8 with so many dimensions.

    Raises:
      UserError: it cannot be read, is of another kind, or is shorter or longer than it says.
    """
    try:
        with open_regular(path) as file:
            content = file.read()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error
    magic, head = bytes([0, 0, 8, dimensions]), 4 + 4 * dimensions
    if content[:4] != magic or len(content) < head:
        raise UserError(f"{path}: no IDX file of unsigned bytes in {dimensions} dimensions; it begins with "
                        f"{content[:4].hex() or 'nothing'}, not {magic.hex()}")  # fmt: skip
    shape = [int.from_bytes(content[at : at + 4], "big") for at in range(4, head, 4)]
    if len(content) != head + math.prod(shape):
        raise UserError(f"{path}: {len(content):,} bytes; for {' x '.join(map(str, shape))} it must have "
                        f"{head + math.prod(shape):,}: it is truncated or damaged")  # fmt: skip
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


class ImageBatches:
    """Iterates over `ImageBatch`, epoch after epoch; order and shifts follow from the seed, so it resumes exactly."""

    def __init__(self, images: Images, rows: int, *, seed: int, shift: int = 0, share: ProcessShard = ALL_ROWS):
        """Checks nothing and reads nothing.

        Args:
          images: the training set.
          rows: images of a batch, over all processes.
          seed: decides the order of every epoch, and the shifts.
          shift: each image is moved by up to so many pixels in either direction; zeros come in.
          share: this process's part of every batch.
        """
        self._images, self._rows, self._seed, self._shift, self._share = images, rows, seed, shift, share
        self._state: State = {"epoch": 0, "batch": 0}

    def __next__(self) -> ImageBatch:
        epoch, batch, count = self._state["epoch"], self._state["batch"], len(self._images.labels_n)
        random = np.random.default_rng([self._seed, epoch])
        order_n, shifts_n2 = random.permutation(count), random.integers(-self._shift, self._shift + 1, (count, 2))
        first = batch * self._rows
        found = planned_batch(self._images, order_n[first : first + self._rows], self._rows, self._share, shifts_n2)
        last = first + self._rows >= count
        self._state = {"epoch": epoch + last, "batch": 0 if last else batch + 1}
        return found

    def get_state(self) -> State:
        """Returns the position of the batch that the next `next` returns, as values for JSON."""
        return dict(self._state)

    def set_state(self, state: State) -> None:
        """Moves to a position that `get_state` returned, for the same images, seed and settings.

        Raises:
          UserError: it is no position, or one beyond the last image.
        """
        position, batches = checked_position(state), -(-len(self._images.labels_n) // self._rows)
        if position["batch"] >= batches:
            raise UserError(
                f"data position: batch {position['batch']} of an epoch of {batches}; the run's data changed"
            )
        self._state = position

    def close(self) -> None:
        """Does nothing; there are no threads."""


def planned_batch(
    images: Images, numbers_b: np.ndarray, rows: int, share: ProcessShard, shifts_n2: np.ndarray | None = None
) -> ImageBatch:
    """Returns this process's share of a batch of `rows` rows, the first of which hold the images of these numbers."""
    rows_b1 = np.full((rows, 1), -1, np.int32)
    rows_b1[: len(numbers_b), 0] = numbers_b
    numbers_b = share.of(PlannedBatch(1, 1, rows_b1)).rows_bc[:, 0]
    real_b = (numbers_b >= 0).astype(np.int32)
    images_byx = images.images_nyx[numbers_b] * real_b[:, None, None].astype(np.float32)
    if shifts_n2 is not None and shifts_n2.any():
        images_byx = np.stack([_moved(*each) for each in zip(images_byx, shifts_n2[numbers_b], strict=True)])
    return ImageBatch(images_byx, images.labels_n[numbers_b] * real_b, real_b)


def _moved(image_yx: np.ndarray, shift_2: np.ndarray) -> np.ndarray:
    border = int(np.abs(shift_2).max())
    (height, width), (down, right) = image_yx.shape, shift_2
    wide_yx = np.pad(image_yx, border)
    return wide_yx[border - down : border - down + height, border - right : border - right + width]


def evaluation_batches(images: Images, rows: int, share: ProcessShard = ALL_ROWS) -> Iterator[ImageBatch]:
    """Yields every image once, in order."""
    for first in range(0, len(images.labels_n), rows):
        numbers_b = np.arange(first, min(first + rows, len(images.labels_n)))
        yield planned_batch(images, numbers_b, rows, share)

"""A prepared corpus on disk, as `data.cache` writes it: subword ids, read as training asks for them.

It is a folder with

    ids.bin        the pairs one after another: source ids, EOS, target ids, EOS; little-endian, 2 bytes per id, 4 for
                   a vocabulary of more than 65,536. For a text: each line's ids, EOS; for characters: only ids
    lengths.npy    int32 [pairs, 2]: source and target ids of each pair, EOS counted; for a text, [lines, 1]
    manifest.json  corpus, tokenizer hash, cleaning rules, what they dropped, token counts, SHA-256 of the files
"""

import itertools
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32

from vaswani.data.batching import Record
from vaswani.errors import UserError
from vaswani.files import sha256
from vaswani.read_json import read_json

FORMAT = 3  # increased when the files change, or the ids of a text; corpora are then prepared again
IDS = "ids.bin"
LENGTHS = "lengths.npy"
MANIFEST = "manifest.json"


class Prepared:
    """A prepared corpus: `prepared[i]` is (source ids, target ids), int32, EOS ending both; of a text, (ids,).

    Ids and lengths stay on disk, in files that are kept open, so they can be read even after the folder is removed;
    4 bytes a pair, or 8 beyond 2^32 ids, are in memory.
    """

    def __init__(self, folder: Path):
        """Opens a folder made by `prepare`; `UserError` if a file in it is missing or damaged."""
        self.folder = folder
        try:
            self.manifest: dict[str, Any] = read_json(folder / MANIFEST, {"format": int, "vocab_size": int})
            if self.manifest["format"] != FORMAT:
                raise ValueError(f"format {self.manifest['format']}")
            for name in (IDS, LENGTHS):
                if sha256(folder / name) != self.manifest["sha256"][name]:
                    raise ValueError(f"{name} has changed")
            self._file = os.open(folder / IDS, os.O_RDONLY)
            weakref.finalize(self, os.close, self._file)
            lengths = np.load(folder / LENGTHS, mmap_mode="r", allow_pickle=False)
            self.lengths: Int32[np.ndarray, "n sides"] = np.asarray(lengths)
            self._type = id_type(self.manifest["vocab_size"])
            count = int(self.lengths.sum(dtype=np.int64))
            if os.fstat(self._file).st_size != count * self._type.itemsize:
                raise ValueError(f"{MANIFEST} does not fit {IDS}")
        except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"prepared corpus {folder} is damaged ({error}); delete the folder") from error
        # In the smaller type if that is enough, and summed in place: there may be many millions of pairs.
        ends_type = np.uint32 if count < 1 << 32 else np.int64
        self._ends_n = self.lengths.sum(axis=1, dtype=ends_type)
        np.cumsum(self._ends_n, out=self._ends_n)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Record:
        return self.records([index])[0]

    def records(self, indices: Sequence[int] | np.ndarray, epoch: int = 0) -> list[Record]:
        """Returns the pairs with these numbers, in this order and the same in every epoch.

        Raises:
            UserError: the file can no longer be read.
        """
        indices = np.asarray(indices, np.int64)
        lengths_ik = self.lengths[indices]
        ids_i = lengths_ik.sum(axis=1, dtype=np.int64)
        texts = self._read(self._ends_n[indices] - ids_i, ids_i, lengths_ik)
        sides = lengths_ik.shape[1]
        return [tuple(texts[first : first + sides]) for first in range(0, len(texts), sides)]

    def windows(self, starts: Sequence[int] | np.ndarray, length: int) -> list[Record]:
        """Returns `length` ids, fewer at the end, from these places of the whole text on; raises as `records` does."""
        starts = np.asarray(starts, np.int64)
        ids_i = np.minimum(length, self._ends_n[-1] - starts)
        return [(ids,) for ids in self._read(starts, ids_i, ids_i)]

    def _read(self, starts_i: np.ndarray, ids_i: np.ndarray, lengths: np.ndarray) -> list[np.ndarray]:
        """Reads `ids_i` ids from each of `starts_i` on, and splits all of them into these lengths."""
        bytes_i = ids_i * self._type.itemsize
        offsets_i = starts_i * self._type.itemsize
        try:
            places = zip(bytes_i.tolist(), offsets_i.tolist(), strict=True)
            content = b"".join([os.pread(self._file, size, offset) for size, offset in places])
        except OSError as error:
            raise UserError(f"{self.folder / IDS}: cannot be read ({error.strerror})") from error
        if len(content) != bytes_i.sum():
            raise UserError(f"{self.folder / IDS}: shorter than it was when it was opened; start again")
        flat = np.frombuffer(content, self._type).astype(np.int32)
        ends = [0, *lengths.cumsum().tolist()]
        return [flat[start:end] for start, end in itertools.pairwise(ends)]


def id_type(vocab_size: int) -> np.dtype:
    """Returns the type of an id in the file."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")

"""Prepared corpora: tokenised once into subword ids on disk, in a cache keyed by content.

A prepared corpus is a folder of the cache, named by a hash of its text, tokenizer and cleaning rules:

    ids.bin        the pairs one after another: source ids, EOS, target ids, EOS; little-endian, 2 bytes per id, 4 for
                   a vocabulary of more than 65,536. For a text: each line's ids, EOS; for characters: ids alone
    lengths.npy    int32 [pairs, 2]: source and target ids of each pair, EOS counted; for a text, [lines, 1]
    manifest.json  corpus, tokenizer hash, cleaning rules, what they dropped, token counts, SHA-256 of the files

It is written to a temporary folder and renamed, so it is complete or absent, even if two processes prepare it at once.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32

from base.checked_json import read_json
from base.errors import UserError
from base.files import sha256, write_json
from base.ids import EOS, UNK
from base.progress import Progress
from data.batching import Record
from data.corpus import Corpus
from data.imported import encode_records
from data.sources import open_corpus
from data.tokenizer import Tokenizer

FORMAT = 2  # increased when the file format changes; corpora are then prepared again
_IDS = "ids.bin"
_LENGTHS = "lengths.npy"
_MANIFEST = "manifest.json"
_CHUNK = 8_192  # pairs encoded at a time
_ABANDONED = 24 * 3600.0  # seconds without a write after which a preparation is assumed killed


class Prepared:
    """A prepared corpus: `prepared[i]` is (source ids, target ids), int32, EOS ending both; of a text, (ids,).

    Ids and lengths stay on disk, in files that are kept open, so they can be read even after the folder is removed;
    4 bytes a pair, or 8 beyond 2^32 ids, are in memory.
    """

    def __init__(self, folder: Path):
        """Opens a folder made by `prepare`; `UserError` if a file in it is missing or damaged."""
        self.folder = folder
        try:
            self.manifest: dict[str, Any] = read_json(folder / _MANIFEST, {"format": int, "vocab_size": int})
            if self.manifest["format"] != FORMAT:
                raise ValueError(f"format {self.manifest['format']}")
            for name in (_IDS, _LENGTHS):
                if sha256(folder / name) != self.manifest["sha256"][name]:
                    raise ValueError(f"{name} has changed")
            self._file = os.open(folder / _IDS, os.O_RDONLY)
            weakref.finalize(self, os.close, self._file)
            lengths = np.load(folder / _LENGTHS, mmap_mode="r", allow_pickle=False)
            self.lengths: Int32[np.ndarray, "n sides"] = np.asarray(lengths)
            self._check_counts()
            self._type = _id_type(self.manifest["vocab_size"])
            count = int(self.lengths.sum(dtype=np.int64))
            if os.fstat(self._file).st_size != count * self._type.itemsize:
                raise ValueError(f"{_MANIFEST} does not fit {_IDS}")
        except (UserError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"prepared corpus {folder} is damaged ({error}); delete the folder") from error
        # In the smaller type if that is enough, and summed in place: there may be many millions of pairs.
        ends_type = np.uint32 if count < 1 << 32 else np.int64
        self._ends_n = self.lengths.sum(axis=1, dtype=ends_type)
        np.cumsum(self._ends_n, out=self._ends_n)

    def _check_counts(self) -> None:
        counts = self.manifest["pairs"]
        dropped = counts["empty"] + counts["too_long"] + counts["ratio"]
        pairs = len(self.lengths)
        tokens = self.lengths.sum(axis=0, dtype=np.int64).tolist()
        pairs_fit = counts["kept"] == pairs and counts["read"] == pairs + dropped
        tokens_fit = list(self.manifest["tokens"].values()) == tokens
        if not (pairs_fit and tokens_fit):
            raise ValueError(f"{_MANIFEST} does not fit {_LENGTHS}")

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
            raise UserError(f"{self.folder / _IDS}: cannot be read ({error.strerror})") from error
        if len(content) != bytes_i.sum():
            raise UserError(f"{self.folder / _IDS}: shorter than it was when it was opened; start again")
        flat = np.frombuffer(content, self._type).astype(np.int32)
        ends = [0, *lengths.cumsum().tolist()]
        return [flat[start:end] for start, end in itertools.pairwise(ends)]


def _id_type(vocab_size: int) -> np.dtype:
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<i4")


def prepare(
    spec: str,
    tokenizer: Tokenizer,
    *,
    cache: str | Path,
    max_length: int,
    max_ratio: float,
    clean: bool,
    progress: bool = True,
) -> Prepared:
    """Returns the prepared corpus, from the cache if an intact one is there.

    Args:
        spec: see `data.sources`.
        tokenizer: its hash is part of the cache's key.
        cache: folder of prepared corpora; made if absent.
        max_length: with `clean`, pairs with more tokens than this on a side, EOS counted, are dropped.
        max_ratio: with `clean`, pairs whose longer side has more than this times the shorter's subwords are dropped.
        clean: False keeps every pair, as scoring needs; True also drops pairs with an empty side. A text in characters
            is kept whole.
        progress: report on stderr.

    Raises:
        UserError: the corpus is faulty, cleaning leaves nothing, or the cache cannot be written.
    """
    corpus = open_corpus(spec)
    cleaning = {"max_length": max_length, "max_ratio": max_ratio} if clean and not corpus.characters else None
    key = key_of(FORMAT, corpus.fingerprint, tokenizer.sha256, cleaning)
    folder = Path(cache) / key
    if folder.exists():
        with contextlib.suppress(UserError):  # partial or damaged: made again below
            return _open_cached(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder.parent)
        building = Path(tempfile.mkdtemp(prefix=f".{key}-", dir=folder.parent))
        try:
            _write(building, corpus, tokenizer, cleaning, progress)
            _move(building, folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise UserError(f"data.cache {cache}: cannot be written ({error.strerror or error})") from error
    return Prepared(folder)


def _write(folder: Path, corpus: Corpus, tokenizer: Tokenizer, cleaning: dict[str, Any] | None, report: bool) -> None:
    """Writes the files of a prepared corpus."""
    counts, lengths_nk = _write_ids(folder, corpus, tokenizer, cleaning, report)
    if not counts["kept"]:
        raise UserError(
            f"corpus {corpus.spec!r}: cleaning dropped all {counts['read']} pairs ({counts}); raise"
            " data.max_length or data.max_ratio"
        )
    np.save(folder / _LENGTHS, lengths_nk, allow_pickle=False)
    tokens = lengths_nk.sum(axis=0, dtype=np.int64).tolist()
    sides = ("target",) if corpus.sides == 1 else ("source", "target")
    manifest = {
        "format": FORMAT,
        "spec": corpus.spec,
        "source_language": corpus.source_language,
        "target_language": corpus.target_language,
        "fingerprint": corpus.fingerprint,
        "tokenizer_sha256": tokenizer.sha256,
        "vocab_size": tokenizer.vocab_size,
        "cleaning": cleaning,
        "pairs": counts,
        "tokens": dict(zip(sides, tokens, strict=True)),
        "sha256": {name: sha256(folder / name) for name in (_IDS, _LENGTHS)},
    }
    write_json(folder / _MANIFEST, manifest)


def _write_ids(
    folder: Path, corpus: Corpus, tokenizer: Tokenizer, cleaning: dict[str, Any] | None, report: bool
) -> tuple[dict[str, int], Int32[np.ndarray, "n sides"]]:
    """Writes the ids of the pairs that cleaning keeps; returns the counts of the manifest and the pairs' lengths."""
    counts = {"read": 0, "kept": 0, "empty": 0, "too_long": 0, "ratio": 0}
    unknown = 0
    lengths = bytearray()
    end = [] if corpus.characters else [EOS]
    id_type = _id_type(tokenizer.vocab_size)
    total = corpus.size()
    shown = Progress(f"preparing {named(corpus, total)}", "pairs", total=total, enabled=report)
    with (folder / _IDS).open("wb") as file, shown as progress:
        for records in _encoded(corpus.pairs(), tokenizer):
            kept = []
            for record in records:
                fault = _fault([len(ids) for ids in record], cleaning)
                counts[fault or "kept"] += 1
                if not fault:
                    kept.append(record)
            # One array of many short texts, not one of each.
            file.write(np.array(_joined(kept, end), id_type).tobytes())
            lengths_nk = np.array([[len(ids) + len(end) for ids in record] for record in kept], np.int32)
            lengths += lengths_nk.tobytes()
            unknown += sum(ids.count(UNK) for record in records for ids in record)
            counts["read"] += len(records)
            progress.update(counts["read"])
        known = f", {unknown:,} symbols unknown" if unknown else ""
        progress.finish(", ".join(f"{count:,} {name}" for name, count in counts.items()) + known)
    return counts, np.frombuffer(lengths, np.int32).reshape(-1, corpus.sides)


def named(corpus: Corpus, count: int | None) -> str:
    """Returns the specification of a corpus, with the number of its records if that is known and not part of it."""
    return corpus.spec if count is None or str(count) in corpus.spec else f"{corpus.spec} ({count:,} records)"


def _joined(records: Iterable[tuple[list[int], ...]], end: list[int]) -> list[int]:
    """Returns the ids of all sides of all records one after another, each with `end` behind it."""
    joined: list[int] = []
    for record in records:
        for ids in record:
            joined += ids
            joined += end
    return joined


def _encoded(pairs: Iterator[tuple[str, ...]], tokenizer: Tokenizer) -> Iterator[list[tuple[list[int], ...]]]:
    """Yields the ids of many records at a time, and encodes the next in the background.

    Encoding holds the GIL to convert its result, and its threads do not all end at once: a second batch of texts keeps
    the other processors busy meanwhile.
    """
    with ThreadPoolExecutor(2) as encoders:
        waiting: deque[Future[list[tuple[list[int], ...]]]] = deque()
        while chunk := list(itertools.islice(pairs, _CHUNK)):
            waiting.append(encoders.submit(encode_records, tokenizer, chunk))
            if len(waiting) > 2:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _fault(lengths: list[int], cleaning: dict[str, Any] | None) -> str | None:
    """Returns the first cleaning rule that a pair breaks whose sides have these lengths."""
    if cleaning is None:
        return None
    shorter, longer = min(lengths), max(lengths)
    if shorter == 0:
        return "empty"
    if longer + 1 > cleaning["max_length"]:
        return "too_long"
    if longer > cleaning["max_ratio"] * shorter:
        return "ratio"
    return None


def _open_cached(folder: Path) -> Prepared:
    """Opens a corpus of the cache; raises `UserError` also if its manifest is that of another one."""
    prepared = Prepared(folder)
    key_parts = [prepared.manifest.get(name) for name in ("format", "fingerprint", "tokenizer_sha256", "cleaning")]
    if folder.name != key_of(*key_parts):
        raise UserError(f"prepared corpus {folder} is damaged ({_MANIFEST} is of another); delete the folder")
    return prepared


def _move(building: Path, folder: Path) -> None:
    """Renames a finished folder into place, unless another process has put an intact one there first."""
    for _ in range(2):
        try:
            building.rename(folder)
            return
        except OSError:
            if not folder.exists():
                raise
        try:
            _open_cached(folder)
            return
        except UserError:
            damaged = building.with_name(building.name + "-damaged")
            folder.rename(damaged)  # not deleted in place, since another process may be reading it
            shutil.rmtree(damaged, ignore_errors=True)


def _remove_abandoned(cache: Path) -> None:
    """Removes the remains of killed preparations: hidden names to which nothing has been written for a day."""
    for path in cache.iterdir():
        if re.fullmatch(r"\.[0-9a-f]{20}[-.].*", path.name):
            with contextlib.suppress(OSError):  # its owner, or another process, may be removing it too
                _remove_if_old(path)


def _remove_if_old(path: Path) -> None:
    written = max(entry.stat().st_mtime for entry in (path, *path.glob("*")))
    if time.time() - written <= _ABANDONED:
        return
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def key_of(*parts: Any) -> str:
    """Returns the name in the cache of what these JSON values decide."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]

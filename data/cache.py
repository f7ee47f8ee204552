"""The cache of prepared corpora: each is tokenised once, into a folder named by a hash of all that decides its content.

That is its text, the tokenizer and the cleaning rules; what the folder holds is in data/prepared.py. It is written to a
temporary folder and renamed, so it is complete or absent, even if two processes prepare it at once.
"""

import contextlib
import hashlib
import itertools
import json
import re
import shutil
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int32

from vaswani.data.corpus import Corpus
from vaswani.data.imported import encode_records
from vaswani.data.prepared import FORMAT, IDS, LENGTHS, MANIFEST, Prepared, id_type
from vaswani.data.sources import open_corpus
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.files import local_path, sha256, write_json
from vaswani.ids import EOS, UNK
from vaswani.numbers import pluralize
from vaswani.progress import Progress

_CHUNK = 8_192  # pairs encoded at a time
_ABANDONED = 24 * 3600.0  # seconds without a write after which a preparation is assumed killed


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
    """Returns the prepared corpus, from the cache if it has an intact copy.

    Args:
        spec: see `data.sources`.
        tokenizer: its hash is part of the cache's key.
        cache: folder of prepared corpora, with `~` for the user's home; made if absent.
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
    folder = local_path(cache, f"data.cache {cache}") / key
    if folder.exists():
        with contextlib.suppress(UserError):  # partial or damaged: made again below
            return _named_here(_open_cached(folder), corpus)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(folder.parent)
        building = folder.parent / f".{key}-{uuid.uuid4().hex}"
        building.mkdir()  # not by `tempfile`, whose folders nobody else can read: users may share a cache
        try:
            _write(building, corpus, tokenizer, cleaning, progress)
            _move(building, folder)
        finally:
            shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise UserError(f"data.cache {cache}: cannot be written ({error.strerror or error})") from error
    return _named_here(Prepared(folder), corpus)


def _named_here(prepared: Prepared, corpus: Corpus) -> Prepared:
    """Returns the prepared corpus under the name of this one: the same text may have been prepared under another."""
    prepared.manifest |= _name(corpus)
    return prepared


def _name(corpus: Corpus) -> dict[str, str]:
    return {
        "spec": corpus.spec,
        "source_language": corpus.source_language,
        "target_language": corpus.target_language,
    }


def _write(folder: Path, corpus: Corpus, tokenizer: Tokenizer, cleaning: dict[str, Any] | None, report: bool) -> None:
    """Writes the files of a prepared corpus."""
    counts, lengths_nk = _write_ids(folder, corpus, tokenizer, cleaning, report)
    if not counts["kept"]:
        cure = "raise data.max_length or data.max_ratio"
        if counts["empty"] == counts["read"]:
            cure = "each has an empty side; are these the right columns or files?"
        raise UserError(f"corpus {corpus.spec!r}: cleaning dropped all {counts['read']} pairs ({counts}); {cure}")
    np.save(folder / LENGTHS, lengths_nk, allow_pickle=False)
    tokens = lengths_nk.sum(axis=0, dtype=np.int64).tolist()
    sides = ("target",) if corpus.sides == 1 else ("source", "target")
    manifest = {
        "format": FORMAT,
        **_name(corpus),
        "fingerprint": corpus.fingerprint,
        "tokenizer_sha256": tokenizer.sha256,
        "vocab_size": _most_ids(tokenizer),
        "cleaning": cleaning,
        "pairs": counts,
        "tokens": dict(zip(sides, tokens, strict=True)),
        "sha256": {name: sha256(folder / name) for name in (IDS, LENGTHS)},
    }
    write_json(folder / MANIFEST, manifest)


def _write_ids(
    folder: Path, corpus: Corpus, tokenizer: Tokenizer, cleaning: dict[str, Any] | None, report: bool
) -> tuple[dict[str, int], Int32[np.ndarray, "n sides"]]:
    """Writes the ids of the pairs that cleaning keeps; returns the counts of the manifest and the pairs' lengths."""
    counts = {"read": 0, "kept": 0, "empty": 0, "too_long": 0, "ratio": 0}
    unknown = 0
    lengths = bytearray()
    # The ids that end each side of a pair, or a text.
    target_end = [] if corpus.characters else [EOS]
    ends = [list(tokenizer.source_end), target_end][-corpus.sides :]
    type_of_id = id_type(_most_ids(tokenizer))
    total = corpus.size()
    shown = Progress(f"preparing {describe_corpus(corpus, total)}", "pairs", total=total, enabled=report)
    with (folder / IDS).open("wb") as file, shown as progress:
        for records in _encode(corpus.pairs(), tokenizer):
            kept = []
            for record in records:
                fault = _fault([len(ids) for ids in record], cleaning)
                counts[fault or "kept"] += 1
                if not fault:
                    kept.append(record)
            # One array for many short texts, not one for each.
            file.write(np.array(_concatenate(kept, ends), type_of_id).tobytes())
            ended = [[len(ids) + len(end) for ids, end in zip(record, ends, strict=True)] for record in kept]
            lengths_nk = np.array(ended, np.int32)
            lengths += lengths_nk.tobytes()
            unknown += sum(ids.count(UNK) for record in records for ids in record)
            counts["read"] += len(records)
            progress.update(counts["read"])
        known = f", {pluralize(unknown, 'symbols')} unknown" if unknown else ""
        progress.finish(", ".join(f"{count:,} {name}" for name, count in counts.items()) + known)
    return counts, np.frombuffer(lengths, np.int32).reshape(-1, corpus.sides)


def _most_ids(tokenizer: Tokenizer) -> int:
    """Returns the size of the vocabulary, or of the larger of two."""
    return max(tokenizer.vocab_size, tokenizer.source_vocab_size or 0)


def describe_corpus(corpus: Corpus, count: int | None) -> str:
    """Returns the specification of a corpus, with the number of its records if that is known and not part of it."""
    return (
        corpus.spec if count is None or str(count) in corpus.spec else f"{corpus.spec} ({pluralize(count, 'records')})"
    )


def _concatenate(records: Iterable[tuple[list[int], ...]], ends: list[list[int]]) -> list[int]:
    """Returns the ids of all sides of all records one after another, each with its side's `ends` behind it."""
    joined: list[int] = []
    for record in records:
        for ids, end in zip(record, ends, strict=True):
            joined += ids
            joined += end
    return joined


def _encode(pairs: Iterator[tuple[str, ...]], tokenizer: Tokenizer) -> Iterator[list[tuple[list[int], ...]]]:
    """Yields the ids of many records at a time, and encodes the next in the background.

    Encoding holds the GIL to convert its result, and its threads do not all end at once: a second batch of texts keeps
    the other CPUs busy meanwhile.
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
    """Opens a cached corpus; raises `UserError` also if the manifest belongs to another corpus."""
    prepared = Prepared(folder)
    key_parts = [prepared.manifest.get(name) for name in ("format", "fingerprint", "tokenizer_sha256", "cleaning")]
    if folder.name != key_of(*key_parts):
        raise UserError(f"prepared corpus {folder} is damaged ({MANIFEST} is of another corpus); delete the folder")
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
    """Returns a cache key: a hash of these JSON values."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]

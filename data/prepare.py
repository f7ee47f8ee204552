"""Corpora into subword ids on disk, once: ArrayRecord, lengths and a manifest, found again by content.

A prepared corpus is a folder of the cache, named after what decides its content (text, tokenizer, cleaning rules):

    pairs.array_record  a record a pair, little-endian int32: number of source ids, source ids, target ids
    lengths.npy         int32 [pairs, 2]: source and target ids of each pair, EOS counted
    manifest.json       corpus, tokenizer hash, cleaning rules, what they dropped, token counts, SHA-256 of the files

It is written beside its place and renamed into it, so it is whole or absent, also when two processes prepare the same.
`python -m data.prepare --config=FILE` does ahead of time what training otherwise does at its start.
"""

import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from array_record.python.array_record_module import ArrayRecordWriter
from jaxtyping import Int32
from ml_collections import ConfigDict, config_flags

from base import errors
from base.errors import UserError
from base.ids import EOS
from base.progress import Progress
from data.batching import Record
from data.sources import Corpus, download, open_corpus
from data.tokenizer import Tokenizer

FORMAT = 1  # raised when the files change meaning; older folders are then prepared afresh
_RECORDS, _LENGTHS, _MANIFEST = "pairs.array_record", "lengths.npy", "manifest.json"
_CHUNK = 8_192  # pairs encoded at a time
_RESIDENT_BYTES = 1 << 29  # smaller corpora are held in memory, where a batch is gathered many times faster


class Prepared:
    """A prepared corpus: `prepared[i]` is (source ids, target ids), int32, EOS ending both."""

    def __init__(self, folder: Path):
        """Opens a folder that `prepare` made; `UserError` if any of it is missing or damaged."""
        self.folder = folder
        try:
            self.manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_text("utf-8"))
            if self.manifest["format"] != FORMAT:
                raise ValueError(f"format {self.manifest['format']}")
            for name in (_RECORDS, _LENGTHS):
                if _sha256(folder / name) != self.manifest["sha256"][name]:
                    raise ValueError(f"{name} has changed")
            self.lengths: Int32[np.ndarray, "n 2"] = np.load(folder / _LENGTHS, allow_pickle=False)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"prepared corpus {folder} is damaged ({error}); delete the folder") from error

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Record:
        return self.records([index])[0]

    def records(self, indices: Sequence[int] | np.ndarray) -> list[Record]:
        """The pairs of these numbers, in this order."""
        if self._resident is not None:
            flat, offsets = self._resident
            found = [flat[offsets[index] : offsets[index + 1]] for index in indices]
        else:
            found = [np.frombuffer(record, "<i4") for record in self._source.__getitems__([int(i) for i in indices])]
        return [(ids[1 : ids[0] + 1], ids[ids[0] + 1 :]) for ids in found]

    @cached_property
    def _source(self) -> Any:
        from grain.sources import ArrayRecordDataSource

        return ArrayRecordDataSource([str(self.folder / _RECORDS)])

    @cached_property
    def _resident(self) -> tuple[np.ndarray, list[int]] | None:
        sizes = self.lengths.sum(axis=1, dtype=np.int64) + 1
        if 4 * sizes.sum() > _RESIDENT_BYTES:
            return None
        numbers = range(len(self))
        chunks = [b"".join(self._source.__getitems__(numbers[i : i + _CHUNK])) for i in range(0, len(self), _CHUNK)]
        return np.frombuffer(b"".join(chunks), "<i4"), np.concatenate([[0], np.cumsum(sizes)]).tolist()


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
        clean: False keeps every pair, as scoring needs; True also drops pairs with an empty side.
        progress: report on stderr.

    Raises:
        UserError: the corpus is faulty, cleaning leaves nothing, or the cache cannot be written.
    """
    corpus = open_corpus(spec)
    cleaning = {"max_length": max_length, "max_ratio": max_ratio} if clean else None
    key = _key(FORMAT, corpus.fingerprint, tokenizer.sha256, cleaning)
    folder = Path(cache) / key
    if folder.exists():
        try:
            return Prepared(folder)
        except UserError:
            pass  # partial or damaged: made again below
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
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
    counts = {"read": 0, "kept": 0, "empty": 0, "too_long": 0, "ratio": 0}
    lengths: list[tuple[int, int]] = []
    try:
        writer = ArrayRecordWriter(str(folder / _RECORDS), "group_size:1,uncompressed")
        with Progress(f"preparing {corpus.spec}", "pairs", enabled=report) as progress:
            for chunk in _chunks(corpus.pairs()):
                encoded = tokenizer.encode_batch([text for pair in chunk for text in pair])
                for source, target in zip(encoded[::2], encoded[1::2], strict=True):
                    fault = _fault(len(source), len(target), cleaning)
                    counts[fault or "kept"] += 1
                    if not fault:
                        lengths.append((len(source) + 1, len(target) + 1))
                        writer.write(np.array([len(source) + 1, *source, EOS, *target, EOS], "<i4").tobytes())
                counts["read"] += len(chunk)
                progress.update(counts["read"])
            progress.finish(", ".join(f"{count:,} {name}" for name, count in counts.items()))
        writer.close()
    except RuntimeError as error:  # what ArrayRecord raises for a full or failing disk
        raise OSError(" ".join(str(error).split())) from error
    if not lengths:
        raise UserError(
            f"corpus {corpus.spec!r}: cleaning dropped all {counts['read']} pairs ({counts}); raise"
            " data.max_length or data.max_ratio"
        )
    np.save(folder / _LENGTHS, np.array(lengths, np.int32), allow_pickle=False)
    source_tokens, target_tokens = (int(total) for total in np.sum(lengths, axis=0))
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
        "tokens": {"source": source_tokens, "target": target_tokens},
        "sha256": {name: _sha256(folder / name) for name in (_RECORDS, _LENGTHS)},
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", "utf-8")


def _fault(source: int, target: int, cleaning: dict[str, Any] | None) -> str | None:
    """The first cleaning rule that a pair of so many subwords breaks."""
    if cleaning is None:
        return None
    shorter, longer = sorted((source, target))
    if shorter == 0:
        return "empty"
    if longer + 1 > cleaning["max_length"]:
        return "too_long"
    return "ratio" if longer > cleaning["max_ratio"] * shorter else None


def _chunks(pairs: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    while chunk := list(itertools.islice(pairs, _CHUNK)):
        yield chunk


def _move(building: Path, folder: Path) -> None:
    """Renames a finished folder into place, unless another process was first with an intact one."""
    for _ in range(2):
        try:
            building.rename(folder)
            return
        except OSError:
            if not folder.exists():
                raise
        try:
            Prepared(folder)
            return
        except UserError:
            damaged = building.with_name(building.name + "-damaged")
            folder.rename(damaged)  # not deleted in place: another process may be looking at it
            shutil.rmtree(damaged, ignore_errors=True)


def _key(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prepare_all(cfg_data: ConfigDict, tokenizer_path: str | Path | None = None) -> tuple[Tokenizer, Prepared, Prepared]:
    """Tokenizer, training and validation corpora of a config, made where they do not exist yet.

    Args:
        cfg_data: `config.data`; see `configs/common.py`.
        tokenizer_path: where a run keeps its tokenizer: read if it exists, else written. None: only in the cache.
    """
    for key in ("train", "valid"):
        if not cfg_data[key]:
            raise UserError(f"data.{key} is empty: name a corpus, as in grammar:{key} or text:PREFIX.{{en,de}}")
    path = Path(tokenizer_path) if tokenizer_path is not None else None
    if path is not None and path.exists():
        tokenizer = Tokenizer.from_file(path)
    elif cfg_data.tokenizer:
        tokenizer = Tokenizer.from_file(cfg_data.tokenizer)
    else:
        tokenizer = _trained_tokenizer(cfg_data)
    for key, wanted, found in (
        ("vocab_size", cfg_data.vocab_size, tokenizer.vocab_size),
        ("lowercase", cfg_data.lowercase, tokenizer.lowercase),
    ):
        if wanted != found:
            raise UserError(f"data.{key} is {wanted}, but the tokenizer's is {found}: they must agree")
    if path is not None and not path.exists():
        tokenizer.save(path)
    train, valid = (
        prepare(
            spec,
            tokenizer,
            cache=cfg_data.cache,
            max_length=cfg_data.max_length,
            max_ratio=cfg_data.max_ratio,
            clean=clean,
        )
        for spec, clean in ((cfg_data.train, True), (cfg_data.valid, False))
    )
    return tokenizer, train, valid


def _trained_tokenizer(cfg_data: ConfigDict) -> Tokenizer:
    """The cached tokenizer of the training corpus; learned first if need be."""
    corpus = open_corpus(cfg_data.train)
    if corpus.symbols and cfg_data.lowercase:
        raise UserError(f"data.lowercase is True, but the labels of {corpus.spec} have capitals: set it to False")
    key = _key(FORMAT, corpus.fingerprint, cfg_data.vocab_size, cfg_data.lowercase)
    path = Path(cfg_data.cache) / f"{key}.model"
    if path.exists():
        return Tokenizer.from_file(path)
    with Progress(f"learning {cfg_data.vocab_size:,} subwords from {corpus.spec}", "lines") as progress:
        lines = progress.count(text for pair in corpus.pairs() for text in pair)
        return Tokenizer.train(lines, cfg_data.vocab_size, path, lowercase=cfg_data.lowercase, symbols=corpus.symbols)


def main(argv: list[str]) -> None:
    """Prepares `data.train` and `data.valid`, downloading if need be; prints the manifests as JSON."""
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}; keys are set as --config.data.KEY=VALUE")
    cfg_data = flags.FLAGS.config.data
    for spec in (cfg_data.train, cfg_data.valid, cfg_data.test):
        download(spec)
    _, train, valid = prepare_all(cfg_data)
    manifests = {
        name: {"folder": str(prepared.folder), **prepared.manifest}
        for name, prepared in (("train", train), ("valid", valid))
    }
    print(json.dumps(manifests, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    config_flags.DEFINE_config_file("config", None, "configuration file; its data.* keys say what to prepare")
    flags.mark_flag_as_required("config")
    errors.run(main)

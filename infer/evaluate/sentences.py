"""Sentences to translate with their references: from a split, a corpus or two files."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.data.sources import open_corpus
from vaswani.errors import UserError
from vaswani.infer.runs import Run, as_one, corpus_named, key_named
from vaswani.infer.scores.pairs import language_of, read_pair
from vaswani.infer.translate.translator import Translation, Translator, note_unknown
from vaswani.numbers import pluralize
from vaswani.progress import Progress
from vaswani.run.averaging import named_steps
from vaswani.run.config import SPLITS
from vaswani.search.options import Decoding


class Sentences(NamedTuple):
    """Sentences to translate, their references, and where they come from."""

    name: str
    data: str
    language: str
    sources: list[str]
    references: list[str]


def open_split(model_run: Run, split: str, instead: str = "--corpus=SPEC") -> Sentences:
    """Returns the corpus that the run's config names for `split`; `instead` is the flag that names another.

    Raises:
      UserError: it names none, or its corpus cannot be read; the message names the key.
    """
    spec = corpus_named(model_run.config, split, instead)
    with key_named(split, instead):
        return open_sentences(split, spec)


def open_sentences(name: str, spec: str) -> Sentences:
    """Returns the corpus of a spec (`data.sources.open_corpus`), under a name.

    Raises:
      UserError: it cannot be read, or is a text.
    """
    corpus = open_corpus(spec)
    if corpus.sides == 1:
        raise UserError(f"{spec}: it is monolingual; only pairs can be translated, as in tsv:FILE")
    pairs = list(corpus.pairs())
    sources = [source for source, _ in pairs]
    references = [reference for _, reference in pairs]
    return Sentences(name, spec, corpus.target_language, sources, references)


def open_files(source: str, reference: str) -> Sentences:
    """Returns the sentences of two files that correspond line by line; their language is "" if no name has it."""
    sources, references = read_pair(source, reference)
    language = language_of(reference, otherwise="")
    return Sentences(name_of(source), f"{source} {reference}", language, sources, references)


def name_of(file: str) -> str:
    """Returns a name for the sentences of a file, never the name of a split."""
    name = Path(file).name
    return f"file-{name}" if name in SPLITS else name


def translate(
    runs: Sequence[Run],
    sentences: Sentences,
    decoding: Decoding,
    job: str,
    unit: str,
    batch_tokens: int | None = None,
) -> tuple[list[Translation], float]:
    """Returns the translations by a run, or by an ensemble of several, and the wall time in seconds.

    The time includes compilation; `job` and `unit` name the work.
    """
    model_config, params = as_one(runs)
    tokenizer = runs[0].tokenizer
    translator = Translator(model_config, tokenizer, decoding, batch_tokens=batch_tokens)
    started = time.perf_counter()
    with Progress(job, unit, total=len(sentences.sources)) as progress:
        translations = translator.translate(params, sentences.sources, progress=progress.update)
    note_unknown(tokenizer.unknown(sentences.sources))
    return translations, time.perf_counter() - started


def about(sentences: Sentences, decoding: Decoding) -> dict[str, Any]:
    """Returns a record's entries about the sentences and the search."""
    return {
        "sentences": len(sentences.sources),
        "language": sentences.language,
        "beam": decoding.beam,
        "alpha": decoding.alpha,
        "extra_length": decoding.extra_length,
        "length_penalty": decoding.length_penalty,
        "stopping": decoding.stopping,
    }


def headline(record: dict[str, Any]) -> str:
    """Returns one line: the data, the search options and the checkpoint steps."""
    search = f"beam {record['beam']}, alpha {record['alpha']:g}"
    if record["length_penalty"] != "gnmt":
        search += f", length penalty {record['length_penalty']}"
    if record["stopping"] != "exact":
        search += f", stopping {record['stopping']}"
    sentences = pluralize(record["sentences"], "sentences")
    return f"{record['data']}: {sentences}, {search}, {named_steps(record['checkpoints'])}"

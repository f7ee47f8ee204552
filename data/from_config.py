"""The tokenizer and the prepared corpora that a config asks for, made where they do not exist yet."""

import contextlib
from functools import partial
from pathlib import Path

from ml_collections import ConfigDict

from vaswani.data.cache import describe_corpus, key_of, prepare
from vaswani.data.corpus import Corpus
from vaswani.data.imported import open_tokenizer
from vaswani.data.pair import Pair
from vaswani.data.prepared import FORMAT, Prepared
from vaswani.data.sources import open_corpus
from vaswani.data.symbols import Symbols
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.files import as_path, folder, local_path, output_folder, read_bytes, sha256, write_text
from vaswani.progress import Progress


def prepare_all(
    cfg_data: ConfigDict, tokenizer_path: str | Path | None = None, *, sides: int | None = None
) -> tuple[Tokenizer, Prepared, Prepared]:
    """Returns a config's tokenizer, training corpus and validation corpus; makes the ones that do not exist yet.

    Args:
        cfg_data: `config.data`; see `configs/common.py`.
        tokenizer_path: where a run keeps its tokenizer: read if it exists, else written. None: only in the cache.
        sides: what the model reads: 2, pairs, or 1, a text. None: either.
    """
    local_path(cfg_data.cache, f"--config.data.cache={cfg_data.cache}")
    cache = output_folder("config.data.cache", cfg_data.cache)
    check_specs(cfg_data, sides)
    path = as_path(tokenizer_path) if tokenizer_path is not None else None
    if path is not None and path.exists():
        tokenizer = open_tokenizer(path)
    elif cfg_data.tokenizer:
        tokenizer = open_tokenizer(folder("config.data.tokenizer", cfg_data.tokenizer))
    else:
        tokenizer = _trained_tokenizer(cfg_data, cache)
    _check_tokenizer(cfg_data, tokenizer)
    if path is not None and not path.exists():
        tokenizer.save(path)

    # A class is shorter than its text, whatever the text: no ratio is above the longest length.
    max_ratio = float(cfg_data.max_length) if cfg_data.classes else cfg_data.max_ratio
    prepared = partial(prepare, tokenizer=tokenizer, cache=cache, max_length=cfg_data.max_length, max_ratio=max_ratio)
    train = prepared(cfg_data.train, clean=True)
    valid = prepared(cfg_data.valid, clean=False)
    return tokenizer, train, valid


def check_specs(cfg_data: ConfigDict, sides: int | None = None) -> None:
    """Raises a `UserError` unless `data.train` and `data.valid` name corpora that exist, with `sides` if given."""
    in_characters = []
    for key in ("train", "valid"):
        if not cfg_data[key]:
            raise UserError(f"data.{key} is empty: name a corpus, as in grammar:{key} or text:PREFIX.{{en,de}}")
        try:
            corpus = open_corpus(cfg_data[key])
        except UserError as error:
            raise UserError(f"data.{key}: {error}") from error
        if corpus.symbols and cfg_data.lowercase:
            raise UserError(f"data.lowercase is True, but the labels of {corpus.spec} have capitals: set it to False")
        if sides and corpus.sides != sides:
            needs = "a text: lines:FILE or chars:FILE" if sides == 1 else "pairs: text:PREFIX.{en,de} or tsv:FILE"
            raise UserError(f"data.{key} is {cfg_data[key]}, but this task needs {needs}")
        in_characters.append(corpus.characters)
    if len(set(in_characters)) > 1:
        raise UserError(
            f"data.train is {cfg_data.train}, and data.valid {cfg_data.valid}: chars:FILE is one long text, lines:FILE"
            " many short ones; take the same for both"
        )


def _check_tokenizer(cfg_data: ConfigDict, tokenizer: Tokenizer) -> None:
    """Raises `UserError` unless the tokenizer is of the kind that the config names."""
    vocab_size = cfg_data.vocab_size
    source_vocab_size = tokenizer.source_vocab_size
    shares = source_vocab_size is None
    if vocab_size == 0 and (tokenizer.units != "subwords" or not shares):
        vocab_size = tokenizer.vocab_size  # 0 takes all symbols, however many there are, and two given sizes
    elif source_vocab_size is not None and source_vocab_size != vocab_size:
        raise UserError(
            f"data.vocab_size is {vocab_size}, but the tokenizer's source has {source_vocab_size}: they must agree, or"
            " set it to 0, which takes what each side has"
        )
    normalisation = cfg_data.normalisation
    if normalisation == "nfkc":  # the default is of tokenizers that are learned here; a given one has its own
        normalisation = tokenizer.normalisation
    for key, wanted, actual in (
        ("share_vocabulary", cfg_data.share_vocabulary, shares),
        ("vocab_size", vocab_size, tokenizer.vocab_size),
        ("lowercase", cfg_data.lowercase, tokenizer.lowercase),
        ("units", _units(cfg_data, open_corpus(cfg_data.train)), tokenizer.units),
        ("joiner", cfg_data.joiner, tokenizer.joiner),
        ("normalisation", normalisation, tokenizer.normalisation),
    ):
        if wanted != actual:
            raise UserError(f"data.{key} is {wanted}, but the tokenizer's is {actual}: they must agree")


def _trained_tokenizer(cfg_data: ConfigDict, cache: Path) -> Tokenizer:
    """Returns the tokenizer of the training corpus, or one for each side, from the cache if it has intact ones."""
    corpus = open_corpus(cfg_data.train)
    units = _units(cfg_data, corpus)
    if units != "subwords" and cfg_data.lowercase:
        raise UserError(
            f"data.lowercase is True, but {units} are taken as they are: lower-case the files, or set it to False"
        )
    if cfg_data.share_vocabulary:
        return _cached_tokenizer(cfg_data, cache, corpus, units)
    source_units, _, target_units = units.partition(",")
    source = _cached_tokenizer(cfg_data, cache, _side(corpus, 0), source_units, "source")
    target = _cached_tokenizer(cfg_data, cache, _side(corpus, 1), target_units or source_units, "target")
    return Pair(source, target)


def _side(corpus: Corpus, side: int) -> Corpus:
    """Returns the corpus of only the sources, 0, or only the targets, 1."""
    return corpus._replace(source_language="", pairs=lambda: ((pair[side],) for pair in corpus.pairs()))


def _cached_tokenizer(cfg_data: ConfigDict, cache: Path, corpus: Corpus, units: str, side: str = "") -> Tokenizer:
    """Returns the tokenizer of all texts of a corpus, from the cache if it has an intact one.

    `side` is "source" or "target" if each side has its own vocabulary.
    """
    key_parts = [FORMAT, corpus.fingerprint, cfg_data.vocab_size, cfg_data.lowercase]
    if units != "subwords":
        key_parts += [units, cfg_data.joiner]
    elif cfg_data.normalisation != "nfkc":
        key_parts += [cfg_data.normalisation]
    if cfg_data.min_frequency > 1:
        key_parts += [cfg_data.min_frequency]
    if side:
        key_parts += [side]
    path = cache / f"{key_of(*key_parts)}.model"
    digest = path.with_suffix(".sha256")
    with contextlib.suppress(OSError, UnicodeDecodeError):  # absent or damaged: learned again below
        if sha256(path) == read_bytes(digest).decode():
            return open_tokenizer(path)
    if units == "subwords":
        tokenizer = _learned_subwords(cfg_data, corpus, path)
    else:
        tokenizer = _counted_symbols(cfg_data, corpus, units)
        tokenizer.save(path)
    with contextlib.suppress(OSError):  # it is then learned again next time
        write_text(digest, tokenizer.sha256)
    return tokenizer


def _learned_subwords(cfg_data: ConfigDict, corpus: Corpus, path: Path) -> Tokenizer:
    """Returns a tokenizer of subwords that are learned from all sides of a corpus; it is also written to `path`."""
    if not cfg_data.vocab_size:
        raise UserError(
            "data.vocab_size is 0: say how many subwords to learn (0, for all, is only for words and characters)"
        )
    count = corpus.size()
    total = None if count is None else corpus.sides * count
    job = f"learning {cfg_data.vocab_size:,} subwords from {describe_corpus(corpus, count)}"
    with Progress(job, "lines", total=total) as progress:
        lines = progress.count(text for pair in corpus.pairs() for text in pair)
        return Tokenizer.train(
            lines,
            cfg_data.vocab_size,
            path,
            normalisation=cfg_data.normalisation,
            lowercase=cfg_data.lowercase,
            symbols=corpus.symbols,
        )


def _counted_symbols(cfg_data: ConfigDict, corpus: Corpus, units: str) -> Tokenizer:
    """Returns the vocabulary of a corpus that is in words or characters."""
    with Progress(f"counting the {units} of {corpus.spec}", "records", total=corpus.size()) as progress:
        records = progress.count(corpus.pairs())
        return Symbols.of(records, cfg_data.vocab_size, units, cfg_data.joiner, cfg_data.min_frequency)


def _units(cfg_data: ConfigDict, corpus: Corpus) -> str:
    """Returns the units: the corpus's if it fixes them, else `data.units`; `UserError` if they contradict it."""
    if corpus.characters:
        if cfg_data.units not in ("subwords", "characters"):  # the default, and what they are
            raise UserError(f"data.units is {cfg_data.units}, but {corpus.spec} is read in characters")
        return "characters"
    if "," in cfg_data.units and corpus.sides == 1:
        raise UserError(f"data.units is {cfg_data.units}, but {corpus.spec} has one side; name one unit")
    return cfg_data.units

"""Data sets of tensorflow-datasets: sentence pairs, or texts and their classes.

The one file that imports tensorflow-datasets. Neither reading nor preparing WMT needs TensorFlow, which only some of
its other builders import.
"""

import contextlib
import importlib
import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from vaswani.data.archives import Archives
from vaswani.data.corpora import File, corpus_folder
from vaswani.data.corpus import Corpus, Pairs, digest, file_named, languages_of, not_empty
from vaswani.data.lines import file_digest
from vaswani.errors import UserError
from vaswani.files import local_path

AT_ONCE = 1_024  # examples: one at a time, each is a call to a pool of threads


def open_tfds(spec: str, rest: str) -> Corpus:
    """Returns the corpus of `tfds:REST`; a class is the text of its name.

    Raises:
        UserError: it is not on this machine, lacks the split or a language, or what bears that name is no text.
    """
    name, split, source, target = _parts(spec, rest)
    builder = _open_builder(spec, name)
    try:
        info = builder.info.splits[split]
    except (KeyError, ValueError) as error:
        known = ", ".join(builder.info.splits)
        raise UserError(f"corpus {spec!r}: no split {split!r}; the splits of {name} are {known}") from error
    missing = [language for language in (source, target) if language not in builder.info.features]
    if missing:
        known = ", ".join(builder.info.features)
        raise UserError(f"corpus {spec!r}: no language {missing[0]!r}; the languages of {name} are {known}")

    source_text, target_text = (_reader(spec, key, builder.info.features[key]) for key in (source, target))
    stored = builder.info.file_format.value
    if stored != "array_record":
        raise UserError(f"corpus {spec!r} is stored as {stored}: prepare it with file_format='array_record'")

    def pairs() -> Pairs:
        if not info.num_examples:
            return
        try:
            examples = builder.as_data_source(split)
            for first in range(0, len(examples), AT_ONCE):
                for example in examples.__getitems__(range(first, min(first + AT_ONCE, len(examples)))):
                    if example[source] is None:  # of pairs beyond the end of a truncated file; of others tfds raises
                        raise ValueError("it is truncated")
                    yield source_text(example[source]), target_text(example[target])
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"corpus {spec!r}: a file of it is damaged; prepare it again ({reason})") from error

    # A part of a split is told by its name, and whose part it is by the files.
    files = [file_digest(Path(file)) for file in info.filepaths]
    fingerprint = digest("tfds", builder.info.full_name, str(split), *files, source, target)
    return Corpus(
        spec,
        source,
        target,
        lambda: not_empty(spec, pairs()),
        fingerprint,
        size=lambda: info.num_examples,
    )


def _reader(spec: str, key: str, feature: Any) -> Callable[[Any], str]:
    """Returns a function from a value of this feature to a line of text."""
    kind = type(feature).__name__
    if kind == "ClassLabel":
        return partial(_class_name, spec, key, feature)
    if kind != "Text":
        raise UserError(f"corpus {spec!r}: {key} is no text, but what tfds calls {kind}")
    return _one_line


def _class_name(spec: str, key: str, feature: Any, number: int) -> str:
    """Returns a class's name; `UserError` where an example has none."""
    if number < 0:
        raise UserError(f"corpus {spec!r}: an example has no {key}; name another split")
    return feature.int2str(number)


def _one_line(text: bytes) -> str:
    """Decodes a sentence; a line feed inside it would become two lines in every file written from it."""
    return text.decode("utf-8", "replace").replace("\n", " ")


def _parts(spec: str, rest: str) -> tuple[str, str, str, str]:
    """Returns name, split, source and target. The direction is required: tfds names list languages in any order."""
    match = re.fullmatch(r"([^:{}]+)(?::([^{}]+?))?(?::(\{.*\}))?", rest)
    if not match:
        raise UserError(f"corpus {spec!r}: write tfds:NAME[:SPLIT]:{{en,de}}")
    return match[1], match[2] or "train", *languages_of(spec, match[3] or "")


def _open_builder(spec: str, name: str) -> Any:
    import tensorflow_datasets as tfds

    try:
        folder = file_named(spec, name)
        if folder.is_dir():
            return tfds.builder_from_directory(folder)
        return tfds.core.read_only_builder.builder_from_files(name)
    except (OSError, ValueError) as error:  # tfds's not-found errors are subclasses of these
        raise UserError(f"corpus {spec!r} is not on this machine: python -m data.prepare downloads it") from error


def download(spec: str) -> None:
    """Downloads and prepares a `tfds:` corpus if it is not on this machine; does nothing for other corpora.

    Archives that were downloaded stay in the folder of public corpora (`data.corpora.corpus_folder`); what was unpacked
    is deleted. A builder may import TensorFlow, so only `python -m data.prepare` calls this.

    Raises:
        UserError: an archive cannot be downloaded, or the set cannot be prepared.
    """
    scheme, _, rest = spec.partition(":")
    if scheme != "tfds":
        return
    name, *_ = _parts(spec, rest)
    with contextlib.suppress(UserError):
        _open_builder(spec, name)
        return
    try:
        _prepare(name)
    except UserError:
        raise
    except Exception as error:  # anything that archives or missing imports may raise
        _refuse(spec, name, error)


def _prepare(name: str) -> None:
    """Prepares a set from archives that `data.fetch` downloads, with the sizes and checksums that tfds pins."""
    import tensorflow_datasets as tfds

    # Without TensorFlow, tfds knows a builder only once its module is imported.
    module = name.split("/")[0].removesuffix("_translate")
    with contextlib.suppress(ImportError):
        importlib.import_module(f"tensorflow_datasets.translate.{module}")
    builder = tfds.builder(name, file_format="array_record")
    pinned = {url: File(url, info.size, info.checksum) for url, info in (builder.url_infos or {}).items()}
    folder = local_path(corpus_folder(builder.name), f"{name}: {corpus_folder(builder.name)}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="unpacked-", dir=folder) as unpacked:
        split_generators = builder._split_generators
        builder._split_generators = lambda dl_manager: split_generators(
            Archives(dl_manager, pinned, folder, Path(unpacked))
        )
        with contextlib.redirect_stdout(sys.stderr):  # tfds prints what it does
            builder.download_and_prepare()


def _refuse(spec: str, name: str, error: Exception) -> NoReturn:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    hint = ""
    if importlib.util.find_spec("tensorflow") is None:
        hint = "; some sets besides WMT's need TensorFlow: install the package tensorflow-cpu"
    raise UserError(f"corpus {spec!r}: tensorflow-datasets could not prepare {name} ({reason}){hint}") from error

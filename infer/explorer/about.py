"""What the explorer says of a model before anything is clicked: its training text, its score, and five sentences."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from vaswani.data.corpus import target_language
from vaswani.errors import UserError
from vaswani.infer.demo.training import EXAMPLES, MOST, examples, open_local
from vaswani.infer.runs import Run
from vaswani.read_json import read_json
from vaswani.run.parameters import count_parameters, params_sha256

ABOUT = "explorer.json"  # in a run folder: sentences to try and, if its training text is not shipped, what that was
_EXAMPLE = {"title": str, "source": str}


def about(model_run: Run, path: Path | None = None) -> dict[str, Any]:
    """Returns what the page says of a run: its languages, sentences to try, and what the model is and how good.

    `path` is a file such as `ABOUT`, which is read from the run folder by default. It lists `examples`, each with a
    title and a source; where the training corpus is not on this machine, it may also give its number of `pairs` and
    the name of the `corpus`. Without the file the examples are sentences of the run's own test corpus.

    Raises:
      UserError: the file or a record is damaged.
    """
    config = model_run.config
    told = _told(model_run, path)
    chosen = told.get("examples")
    if chosen is None:
        chosen = [{"title": _shortened(source), "source": source} for source in examples(config)]
    source, target, pairs = _corpus(config.data.train)
    return {
        "examples": chosen[:EXAMPLES],
        "languages": [source, target or target_language(config.data.train)],
        "told": describe(model_run, pairs or told.get("pairs", 0), told.get("corpus", "")),
    }


def describe(model_run: Run, pairs: int, corpus: str) -> list[tuple[str, str]]:
    """Returns what the model is, what it was trained on, and how good it is: texts, each with its HTML element."""
    parameters = count_parameters(model_run.params)
    size = f"{parameters / 1e6:.3g} million" if parameters >= 1e6 else f"{parameters:,}"
    is_grammar = model_run.config.data.train.startswith("grammar:")
    text = " that a small grammar made" if is_grammar else f" of {corpus}" if corpus else ""
    parts = [
        ("span", "The model of "),
        ("i", "Attention Is All You Need"),
        ("span", ", small enough for a page: "),
        ("b", f"{size} parameters"),
        ("span", ", trained on "),
        ("b", f"{pairs:,} sentence pairs" if pairs else "sentence pairs"),
        ("span", text),
    ]
    found = score(model_run)
    if found and is_grammar:
        right = f"{found['exact']:g} % of {found['sentences']:,} new sentences right to the letter"
        parts += [("span", "; it gets "), ("b", right), ("span", ", and outside that grammar it is lost")]
    elif found:
        sentences = f"{found['sentences']:,} {found['split']} sentences"
        parts += [("span", "; its translations of "), ("b", f"{sentences} have {found['bleu']:.1f} BLEU")]
    return [*parts, ("span", ".")]


def _told(model_run: Run, path: Path | None) -> dict[str, Any]:
    """Returns the content of the file about a run; {} if it has none."""
    where = path or model_run.workdir / ABOUT
    if path is None and not where.is_file():
        return {}
    content: dict[str, Any] = read_json(where, {"examples": [_EXAMPLE]})
    for key, kind in (("pairs", int), ("corpus", str)):
        if key in content and not isinstance(content[key], kind):
            raise UserError(f"{where}: {key} must be {'a whole number' if kind is int else 'text'}")
    return content


def _corpus(spec: str) -> tuple[str, str, int]:
    """Returns the languages and the number of pairs of a corpus; "" and 0 for what cannot be told on this machine."""
    try:
        corpus = open_local(spec)
        count = corpus.size()
        if count is None:
            counted = sum(1 for _ in islice(corpus.pairs(), MOST + 1))
            count = counted if counted <= MOST else 0
        return corpus.source_language, corpus.target_language, count
    except UserError:
        return "", "", 0


def _shortened(text: str, most: int = 28) -> str:
    """Returns the first words of a sentence, up to `most` characters."""
    if len(text) <= most:
        return text
    return f"{text[:most].rpartition(' ')[0] or text[:most]} …"


def score(model_run: Run) -> dict[str, Any] | None:
    """Returns a score of exactly these parameters from the run's records, preferably on the test split; None if none.

    Exact match counts the translations that equal the reference; BLEU comes with its signature.
    """
    digest = params_sha256(model_run.params)
    records = [record for record in _records(model_run.workdir) if record.get("params_sha256") == digest]
    records = [record for record in records if {"sacrebleu", "exact_match", "sentences"} <= record.keys()]
    if not records:
        return None
    best = max(records, key=lambda record: (record["split"] == "test", record["time"]))
    return {
        "bleu": best["sacrebleu"],
        "signature": best["signatures"]["sacrebleu"],
        "exact": best["exact_match"],
        "sentences": best["sentences"],
        "split": best["split"],
    }


def _records(workdir: Path) -> Iterator[dict[str, Any]]:
    """Yields the run's evaluations: a model that comes with the code has them in one file, another in a folder."""
    shipped = workdir / "record.json"
    if shipped.is_file():
        for record in json.loads(shipped.read_text(encoding="utf-8")).values():
            if isinstance(record, dict):
                yield record
    for path in sorted((workdir / "evaluations").glob("*.json")):
        yield read_json(path, dict)

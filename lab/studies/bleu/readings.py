"""Causes that need no training: one model's BLEU, read, decoded or averaged in another way. Each has its interval.

    python -m lab.studies.bleu.readings --output=FILE [--run=RUN]

The model is builtin:tatoeba, on the 3,242 pairs of Tatoeba's test split. RUN is a run of configs/tatoeba.py with its
checkpoints, for the last of them by itself and the average of ten; without it, these two are left out. FILE gets the
record, a line of JSON for records.jsonl. Nothing is chosen by these numbers.
"""

import collections
import functools
import json
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags
from sacrebleu.metrics import BLEU

from lab.studies.bleu.curve import source
from lab.studies.bleu.measure import MeanOfSentences, Reading, compare_readings
from vaswani.command import run
from vaswani.data.corpora import corpus_folder
from vaswani.files import write_text
from vaswani.infer.evaluate.sentences import Sentences, open_sentences, translate
from vaswani.infer.runs import Run, open_run
from vaswani.infer.scores.bleu import scorer, split_compounds, tokenise
from vaswani.infer.translate.options import make_decoding
from vaswani.run.folder import device, git

BUILTIN = "builtin:tatoeba"
COMMONEST = 10_000  # words that a vocabulary of words would have
SHORT = 20  # sentences of a short test set
_QUOTES = str.maketrans(dict.fromkeys("„“”«»", '"'))


Options = tuple[tuple[str, Any], ...]  # of the search, in the order of their names


class Output(NamedTuple):
    """The test sentences, and the runs that translate them: the model, and one with checkpoints if it was given."""

    sentences: Sentences
    model: Run
    checkpoints: str | None

    @property
    def references(self) -> list[str]:
        """The references as they are."""
        return self.sentences.references

    def lines(self, checkpoint: str | None = None, **options: Any) -> list[str]:
        """Returns the translations with these options of the search, by default the model's own."""
        return _translations(self.checkpoints if checkpoint else None, checkpoint, tuple(sorted(options.items())))


@functools.cache
def _translations(workdir: str | None, checkpoint: str | None, options: Options) -> list[str]:
    output = open_output()
    model_run = output.model if workdir is None else open_run(workdir, checkpoint)
    # The bundled model's options, whatever the other run's are.
    decoding = make_decoding(output.model.config.decode, **dict(options))
    found, _ = translate([model_run], output.sentences, decoding, "translating", "lines")
    return [translation.text for translation in found]


@functools.cache
def open_output() -> Output:
    """Opens the model and the test sentences."""
    folder = corpus_folder("tatoeba")
    sentences = open_sentences("test", f"text:{folder}/split.en-de.test.{{en,de}}.gz")
    return Output(sentences, open_run(BUILTIN), flags.FLAGS.run)


Readings = tuple[Reading, Reading]  # what is usual, and the other


def usual(output: Output) -> Reading:
    """Returns sacreBLEU of plain text, cased."""
    return Reading(scorer("de"), output.lines(), output.references)


def read(other: Callable[[Output], Reading]) -> Callable[[Output], Readings]:
    """Compares a reading with the usual one."""
    return lambda output: (usual(output), other(output))


def searched(**options: Any) -> Callable[[Output], Readings]:
    """Compares a search with the usual one."""
    return read(lambda output: usual(output)._replace(translations=output.lines(**options)))


def written(change: Callable[[str], str]) -> Callable[[Output], Readings]:
    """Changes each translation, but no reference."""
    return read(lambda output: usual(output)._replace(translations=[change(line) for line in output.lines()]))


def referred(change: Callable[[str], str]) -> Callable[[Output], Readings]:
    """Changes each reference, but no translation."""
    return read(lambda output: usual(output)._replace(references=[change(line) for line in output.references]))


def moses(split: bool, quotes: bool) -> Callable[[Output], Readings]:
    """Reads Moses' tokens as multi-bleu.perl does; as in `infer.scores.bleu.tokenised_bleu`."""

    def prepare(lines: Sequence[str]) -> list[str]:
        plain = [line.translate(_QUOTES) for line in lines] if quotes else list(lines)
        tokens = tokenise(plain, "de")
        return [split_compounds(line) for line in tokens] if split else tokens

    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    return read(lambda output: Reading(metric, prepare(output.lines()), prepare(output.references)))


def not_detokenised(output: Output) -> Readings:
    """Scores Moses' tokens against plain references."""
    return usual(output), usual(output)._replace(translations=tokenise(output.lines(), "de"))


def not_joined(output: Output) -> Readings:
    """Scores the subwords, as they are, against plain references."""
    target = output.model.tokenizer.target
    pieces = [" ".join(target.pieces(target.encode(line))) for line in output.lines()]
    return usual(output), usual(output)._replace(translations=pieces)


def common_words() -> set[str]:
    """Returns the commonest words of the training text's German."""
    counts: collections.Counter[str] = collections.Counter()
    for _, target in open_sentences_of_training():
        counts.update(scorer("de").tokenizer(target).split())
    return {word for word, _ in counts.most_common(COMMONEST)}


def open_sentences_of_training() -> list[tuple[str, str]]:
    """Returns the pairs of the training text."""
    sentences = open_sentences("train", source())
    return list(zip(sentences.sources, sentences.references, strict=True))


def unknown_as(symbol: str) -> Callable[[Output], Readings]:
    """Writes a symbol for words outside the commonest, as a vocabulary of words would have to."""

    def other(output: Output) -> Reading:
        common = common_words()
        tokenizer = scorer("de").tokenizer
        lines: list[str] = []
        for line in output.lines():
            words = [word if word in common else symbol for word in tokenizer(line).split()]
            lines.append(" ".join(words))
        return usual(output)._replace(translations=lines)

    return read(other)


def one_line_late(output: Output) -> Readings:
    """Scores each translation against the reference of the line after its own."""
    first, *others = output.references
    return usual(output), usual(output)._replace(references=[*others, first])


def on_short_set(method: str) -> Callable[[Output], Readings]:
    """Scores a short test set with another smoothing, beside the usual one of the same sentences."""

    def both(output: Output) -> Readings:
        base = usual(output)
        base = base._replace(translations=base.translations[:SHORT], references=base.references[:SHORT])
        return base, base._replace(metric=BLEU(smooth_method=method))

    return both


def mean_of_sentences(output: Output) -> Readings:
    """Takes the mean of the sentences' BLEU, not BLEU of all counts."""
    of_sentences = MeanOfSentences(scorer("de", effective_order=True), output.lines(), output.references)
    return usual(output), of_sentences


READINGS: dict[str, tuple[str, Callable[[Output], Readings]]] = {
    # How it is read.
    "lower-cased, both sides": (
        "`sacrebleu_lc`", read(lambda o: usual(o)._replace(metric=scorer("de", lowercase=True)))),
    "Moses' tokens, multi-bleu.perl": ("`bleu_tok`", moses(split=False, quotes=False)),
    "the same, compounds split, quotes made ASCII": ("`bleu_paper`", moses(split=True, quotes=True)),
    "no tokens: words by white space": ("python -m infer.score tokenises", read(
        lambda o: usual(o)._replace(metric=BLEU(tokenize="none", force=True)))),
    "output not detokenised": ("translations are plain text", not_detokenised),
    "subwords not joined": ("translations are plain text", not_joined),
    "words outside the 10,000 commonest as <unk>": ("data.units: subwords spell every word", unknown_as("<unk>")),
    "the same words left out": ("data.units: subwords spell every word", unknown_as("")),
    "output one line late": ("python -m infer.score counts lines, no more", one_line_late),
    "references with ASCII quotes": ("`bleu_paper` does so on both sides", referred(lambda t: t.translate(_QUOTES))),
    "references with no-break spaces": ("none needed", referred(lambda t: t.replace(" ", "\u00a0"))),
    "references with umlauts of two characters (NFD)": (
        "data.normalisation: text is NFKC", referred(lambda t: unicodedata.normalize("NFD", t))),
    "the first 20 sentences, not smoothed": ("the signature's smooth", on_short_set("none")),
    "the first 20 sentences, add-k": ("the signature's smooth", on_short_set("add-k")),
    "mean of the sentences' BLEU": ("never: all counts are added up", mean_of_sentences),
    # How it is decoded.
    "greedy": ("--beam=1", searched(beam=1, alpha=0.0)),
    "a beam of 16": ("--beam=16", searched(beam=16)),
    "no length penalty": ("--alpha=0", searched(alpha=0.0)),
    "a length penalty of 0.6": ("--alpha=0.6", searched(alpha=0.6)),
    "a length penalty of 3": ("--alpha=3", searched(alpha=3.0)),
    "the search ends with a full beam": ("--stopping=full", searched(stopping="full")),
    "output no longer than the source": ("--extra_length=0", searched(extra_length=0)),
    # Which parameters.
    "the last of ten checkpoints": ("--checkpoint=latest", searched(checkpoint="latest")),
    "the average of ten checkpoints": ("--checkpoint=average:10", searched(checkpoint="average:10")),
}  # fmt: skip


def main(argv: list[str]) -> None:
    output = open_output()
    found: dict[str, dict[str, float]] = {}
    for name, (_, compared) in READINGS.items():
        if "checkpoint" in name and output.checkpoints is None:
            continue
        base, other = compared(output)
        found[name] = {"bleu": other.bleu, **compare_readings(base, other)}
        print(name, found[name], flush=True)
    record = {
        "study": "bleu",
        "part": "readings",
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "git": git(),
        "device": device(),
        "usual": usual(output).bleu,
        "readings": found,
    }
    write_text(Path(flags.FLAGS.output), f"{json.dumps(record)}\n")


if __name__ == "__main__":
    flags.DEFINE_string("output", None, "file of the record", required=True)
    flags.DEFINE_string("run", None, "folder of a run of configs/tatoeba.py, with its checkpoints")
    run(main, hint="the file is given as --output=FILE")

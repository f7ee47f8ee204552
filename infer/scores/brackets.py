"""EVALB's labelled bracketing scores (Sekine and Collins 1997)."""

import difflib
import itertools
import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vaswani.data.lines import read_lines
from vaswani.errors import UserError
from vaswani.numbers import whole

Pairs = tuple[tuple[str, str], ...]
VALID = 0
ERROR = 1
SKIPPED = 2
Span = tuple[int, int, str]  # first word, one past the last word, label
# A tagged word, an opening bracket, a closing one, or text out of place.
_TOKENS = re.compile(r"\((?P<tag>[^\s()]*)\s++(?P<word>[^\s()]*)\)|\((?P<label>[^\s()]*)|\)|[^\s()]+", re.ASCII)


class Parameters(NamedTuple):
    """The contents of an EVALB parameter file; the defaults are EVALB's without one.

    `delete_labels` removes words by their tag, and brackets by their label but not their contents. `eq_labels` and
    `eq_words` are pairs that count as equal.
    """

    debug: int = 0
    cutoff_len: int = 40
    labeled: int = 1
    delete_labels: tuple[str, ...] = ()
    delete_labels_for_length: tuple[str, ...] = ()
    eq_labels: Pairs = ()
    eq_words: Pairs = ()

    def same_label(self, a: str, b: str) -> bool:
        """Returns whether two labels are equal or declared equal."""
        return a == b or (a, b) in self.eq_labels or (b, a) in self.eq_labels

    def equal_labels(self, label: str) -> set[str]:
        """Returns the label itself and those declared equal to it."""
        labels = {label}
        for pair in self.eq_labels:
            if label in pair:
                labels.update(pair)
        return labels

    def same_word(self, a: str, b: str) -> bool:
        """Returns whether two words are equal or declared equal."""
        return a == b or (a, b) in self.eq_words or (b, a) in self.eq_words

    def signature(self) -> str:
        """Returns every setting that affects a score."""
        lists = {
            "delete": self.delete_labels,
            "delete_for_length": self.delete_labels_for_length,
            "eq_label": ["=".join(pair) for pair in self.eq_labels],
            "eq_word": ["=".join(pair) for pair in self.eq_words],
        }
        parts = [f"{name}:{' '.join(values)}" for name, values in lists.items() if values]
        return "|".join(["evalb", f"labeled:{'yes' if self.labeled else 'no'}", *parts])


COLLINS = Parameters(
    delete_labels=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    delete_labels_for_length=("-NONE-",),
    eq_labels=(("ADVP", "PRT"),),
)
_NUMBERS = {name.upper(): name for name in ("debug", "cutoff_len", "labeled")}
_LABELS = {
    "DELETE_LABEL": "delete_labels",
    "DELETE_LABEL_FOR_LENGTH": "delete_labels_for_length",
}
_EQUAL = {"EQ_LABEL": "eq_labels", "EQ_WORD": "eq_words"}
_IGNORED = "MAX_ERROR"  # after how many errors EVALB gives up; here the summary has their number


def read_parameters(path: str | Path) -> Parameters:
    """Reads a parameter file.

    Raises:
      UserError: a keyword is unknown or its value does not fit; the message names the line.
    """
    fields: dict[str, Any] = {}
    known = {**_NUMBERS, **_LABELS, **_EQUAL}
    for number, line in enumerate(read_lines(Path(path)), 1):
        if line.startswith(("#", _IGNORED)) or not line.strip():
            continue
        keyword, *values = line.split()
        where = f"{path}, line {number}: {keyword}"
        if keyword not in known:
            near = difflib.get_close_matches(keyword, known, n=1)
            advice = f"did you mean {near[0]}?" if near else f"it must be one of {', '.join(known)}"
            raise UserError(f"{where} is not an EVALB parameter; {advice}")
        count = 2 if keyword in _EQUAL else 1
        is_number = keyword in _NUMBERS
        if len(values) != count or (is_number and whole(values[0]) is None):
            kind = "a whole number" if is_number else {1: "1 word", 2: "2 words"}[count]
            raise UserError(f"{where} has {' '.join(values) or 'no value'!r}; it must have {kind}")
        field = known[keyword]
        if is_number:
            fields[field] = int(values[0])
        else:
            value = values[0] if count == 1 else (values[0], values[1])
            fields[field] = (*fields.get(field, ()), value)
    return Parameters(**fields)


class SentenceScore(NamedTuple):
    """Counts for one sentence. `status` is 0 valid, 1 error (the words differ), 2 skipped (no word was parsed).

    `length` is EVALB's; `words` counts the gold tree's words that are not deleted. The counts after them are 0 unless
    the sentence is valid.
    """

    length: int
    words: int
    status: int = VALID
    matched: int = 0
    gold: int = 0
    parsed: int = 0
    crossing: int = 0
    tags: int = 0


class _Leaf(NamedTuple):
    tag: str
    word: str


class _Side:
    """The words and brackets of a line, by position among all its words, and which words are not deleted.

    Reads a line as EVALB does: only ASCII white space separates, and `(NP )` is an empty word tagged NP. A line with
    unmatched brackets `is_broken`; so is one with text outside brackets, at which EVALB itself stops.
    """

    def __init__(self, line: str, parameters: Parameters):
        self.leaves: list[_Leaf] = []
        self.brackets: list[Span] = []  # in the order in which they open
        self.is_broken = False
        still_open: list[int] = []
        for token in _TOKENS.finditer(line):
            if token["word"] is not None:
                self.leaves.append(_Leaf(token["tag"], token["word"]))
            elif token["label"] is not None:
                still_open.append(len(self.brackets))
                self.brackets.append((len(self.leaves), len(self.leaves), token["label"]))
            elif token[0] == ")" and still_open:
                place = still_open.pop()
                start, _, label = self.brackets[place]
                self.brackets[place] = (start, len(self.leaves), label)
            else:
                self.is_broken = True
        self.is_broken |= bool(still_open)
        self.kept = [leaf.tag not in parameters.delete_labels for leaf in self.leaves]

    def words(self) -> list[_Leaf]:
        """Returns the words that count."""
        return list(itertools.compress(self.leaves, self.kept))

    def spans(self, parameters: Parameters) -> list[Span]:
        """Returns the brackets that count (not empty, not deleted), by position among the words that count."""
        before = list(itertools.accumulate(self.kept, initial=0))
        spans = []
        for start, end, label in self.brackets:
            stem = re.split("[-=]", label, maxsplit=1)[0]
            deleted = any(parameters.same_label(stem, gone) for gone in parameters.delete_labels)
            if before[start] < before[end] and not deleted:
                spans.append((before[start], before[end], stem))
        return spans


def score_sentence(gold: str, parsed: str, parameters: Parameters, *, same_words: bool = False) -> SentenceScore:
    """Compares the trees on two lines, usually one on each.

    EVALB deletes words by each side's own tags, so a full stop tagged as a noun makes the sentence an error, which is
    left out of all figures. If the parser was given the words (`same_words`), the gold tags decide for both sides.
    """
    gold_side = _Side(gold, parameters)
    parsed_side = _Side(parsed, parameters)
    if same_words:
        parsed_side.kept = gold_side.kept
    length = sum(leaf.tag not in parameters.delete_labels_for_length for leaf in gold_side.leaves)
    result = SentenceScore(length, sum(gold_side.kept))
    if not any(parsed_side.kept):
        return result._replace(status=SKIPPED)
    gold_words = gold_side.words()
    parsed_words = parsed_side.words()
    is_broken = gold_side.is_broken or parsed_side.is_broken
    if is_broken or not _same_words(gold_words, parsed_words, parameters):
        return result._replace(status=ERROR)
    gold_spans = gold_side.spans(parameters)
    parsed_spans = parsed_side.spans(parameters)
    return result._replace(
        words=len(gold_words),
        matched=_matched(gold_spans, parsed_spans, parameters),
        gold=len(gold_spans),
        parsed=len(parsed_spans),
        crossing=_crossing(gold_spans, parsed_spans, len(gold_words)),
        tags=sum(parameters.same_label(a.tag, b.tag) for a, b in zip(gold_words, parsed_words, strict=True)),
    )


def _same_words(gold: list[_Leaf], parsed: list[_Leaf], parameters: Parameters) -> bool:
    """Returns whether both sides have the same words, or words declared equal."""
    if len(gold) != len(parsed):
        return False
    return all(parameters.same_word(a.word, b.word) for a, b in zip(gold, parsed, strict=True))


def _matched(gold: Iterable[Span], parsed: Iterable[Span], parameters: Parameters) -> int:
    """Returns how many brackets match, paired in the order in which they open: the same words and equal labels."""
    free: dict[Span, deque[int]] = {}
    for place, (start, end, label) in enumerate(parsed):
        name = label if parameters.labeled else ""
        free.setdefault((start, end, name), deque()).append(place)
    matched = 0
    for start, end, label in gold:
        labels = parameters.equal_labels(label) if parameters.labeled else {""}
        queues = [free[start, end, name] for name in labels if free.get((start, end, name))]
        if queues:
            first = min(queues, key=lambda places: places[0])
            first.popleft()
            matched += 1
    return matched


def _crossing(gold: Iterable[Span], parsed: Iterable[Span], words: int) -> int:
    """Returns how many parsed brackets cross a gold one: they overlap, and neither contains the other.

    A gold bracket crosses (start, end) if it begins inside and ends later, or ends inside and began earlier.
    """
    last_end = np.zeros(words + 1, int)  # of the gold brackets that begin at each word
    first_start = np.full(words + 1, words)  # of those that end there
    for start, end, _ in gold:
        last_end[start] = max(last_end[start], end)
        first_start[end] = min(first_start[end], start)
    crossing = 0
    for start, end, _ in parsed:
        inside = slice(start + 1, end)
        ends_later = last_end[inside].max(initial=0) > end
        began_earlier = first_start[inside].min(initial=words) < start
        crossing += bool(ends_later or began_earlier)
    return crossing


def score_lines(gold: Sequence[str], parsed: Sequence[str], parameters: Parameters) -> list[SentenceScore]:
    """Scores trees line by line."""
    pairs = zip(gold, parsed, strict=True)
    return [score_sentence(gold_line, parsed_line, parameters) for gold_line, parsed_line in pairs]


SUMMARY: dict[str, tuple[str, str]] = {  # key: EVALB's name, format
    "sentences": ("Number of sentence", "6d"),
    "errors": ("Number of Error sentence", "6d"),
    "skipped": ("Number of Skip  sentence", "6d"),
    "valid": ("Number of Valid sentence", "6d"),
    "recall": ("Bracketing Recall", "6.2f"),
    "precision": ("Bracketing Precision", "6.2f"),
    "f1": ("Bracketing FMeasure", "6.2f"),
    "complete_match": ("Complete match", "6.2f"),
    "average_crossing": ("Average crossing", "6.2f"),
    "no_crossing": ("No crossing", "6.2f"),
    "crossing_2_or_less": ("2 or less crossing", "6.2f"),
    "tagging_accuracy": ("Tagging accuracy", "6.2f"),
}


def summary(sentences: Iterable[SentenceScore]) -> dict[str, int | float]:
    """Returns EVALB's figures by the keys of `SUMMARY`: counts, percentages, and crossing brackets per sentence.

    All but the counts of sentences are over valid sentences only. A percentage of 0 items is 0.
    """
    sentences = list(sentences)
    valid = [s for s in sentences if s.status == VALID]
    matched = sum(s.matched for s in valid)
    recall = _percent(matched, sum(s.gold for s in valid))
    precision = _percent(matched, sum(s.parsed for s in valid))
    return {
        "sentences": len(sentences),
        "errors": sum(s.status == ERROR for s in sentences),
        "skipped": sum(s.status == SKIPPED for s in sentences),
        "valid": len(valid),
        "recall": recall,
        "precision": precision,
        "f1": 2 * recall * precision / (recall + precision) if matched else 0.0,
        "complete_match": _share(valid, lambda s: s.gold == s.parsed == s.matched),
        "average_crossing": sum(s.crossing for s in valid) / max(1, len(valid)),
        "no_crossing": _share(valid, lambda s: s.crossing == 0),
        "crossing_2_or_less": _share(valid, lambda s: s.crossing <= 2),
        "tagging_accuracy": _percent(sum(s.tags for s in valid), sum(s.words for s in valid)),
    }


def summaries(sentences: Sequence[SentenceScore], parameters: Parameters) -> dict[str, dict[str, int | float]]:
    """Returns the summary of all sentences and of those up to the cut-off length, under EVALB's headings."""
    cutoff = parameters.cutoff_len
    short = [sentence for sentence in sentences if sentence.length <= cutoff]
    return {"All": summary(sentences), f"len<={cutoff}": summary(short)}


def _percent(part: int, total: int) -> float:
    return 100 * part / total if total else 0.0


def _share(sentences: Sequence[SentenceScore], holds: Callable[[SentenceScore], bool]) -> float:
    return _percent(sum(map(holds, sentences)), len(sentences))


def report(blocks: dict[str, dict[str, int | float]]) -> str:
    """Returns the summaries as EVALB prints them."""
    lines = ["=== Summary ==="]
    for heading, figures in blocks.items():
        lines += ["", f"-- {heading} --"]
        lines += [f"{name:<25} = {figures[key]:{form}}" for key, (name, form) in SUMMARY.items()]
    return "\n".join(lines)


def rows(sentences: Iterable[SentenceScore]) -> str:
    """Returns a line for each sentence, as EVALB prints them."""
    line = "=" * 76
    lines = [
        "  Sent.                        Matched  Bracket   Cross        Correct Tag",
        " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
        line,
    ]
    for number, s in enumerate(sentences, 1):
        recall = _percent(s.matched, s.gold)
        precision = _percent(s.matched, s.parsed)
        tags = _percent(s.tags, s.words)
        lines.append(
            f"{number:4d}  {s.length:3d}    {s.status}  {recall:6.2f} {precision:6.2f}   {s.matched:3d}    "
            f"{s.gold:3d}  {s.parsed:3d}    {s.crossing:3d}   {s.words:4d}  {s.tags:4d}   {tags:6.2f}"
        )
    return "\n".join([*lines, line])

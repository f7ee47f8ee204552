"""Scores parse trees as EVALB does (Sekine and Collins 1997, with the quotes of Ellis's revision): labelled brackets.

python -m infer.brackets --gold=wsj23.mrg --parsed=parsed.mrg [--parameters=COLLINS.prm] [--json]

Both files have a sentence a line. Prints EVALB's summary; where the parameter file has DEBUG 1, first a line for each
sentence. Without a parameter file it scores as with COLLINS.prm, which parsers of the Wall Street Journal are compared
by: punctuation, traces and TOP do not count, and ADVP is as good as PRT.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from base.errors import UserError, run
from data.sources import read_lines
from data.trees.tree import Tree
from data.trees.treebank import BracketError, parse
from infer.score import read_pair

Pairs = tuple[tuple[str, str], ...]
VALID, ERROR, SKIPPED = 0, 1, 2
_QUOTES = ("'", '"', "/")  # the words that QUOTE_LABEL is about


class Parameters(NamedTuple):
    """What an EVALB parameter file says; the defaults are EVALB's where it has none.

    `delete_labels` removes words by their tag, and brackets by their label but not what is in them. `eq_labels` and
    `eq_words` are pairs held to be equal. `quote_labels` are tags of quotation marks: if the sides have unequal numbers
    of words, a mark deleted on one side alone is put back.
    """

    debug: int = 0
    max_error: int = 10
    cutoff_len: int = 40
    labeled: int = 1
    delete_labels: tuple[str, ...] = ()
    delete_labels_for_length: tuple[str, ...] = ()
    quote_labels: tuple[str, ...] = ()
    eq_labels: Pairs = ()
    eq_words: Pairs = ()

    def same_label(self, one: str, other: str) -> bool:
        """Whether two labels are equal, or declared to be."""
        return one == other or (one, other) in self.eq_labels or (other, one) in self.eq_labels

    def same_word(self, one: str, other: str) -> bool:
        """Whether two words are equal, or declared to be."""
        return one == other or (one, other) in self.eq_words or (other, one) in self.eq_words

    def signature(self) -> str:
        """Every setting that decides a score."""
        lists = {
            "delete": self.delete_labels,
            "delete_for_length": self.delete_labels_for_length,
            "quotes": self.quote_labels,
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
_NUMBERS = {name.upper(): name for name in ("debug", "max_error", "cutoff_len", "labeled")}
_LABELS = {
    "DELETE_LABEL": "delete_labels",
    "DELETE_LABEL_FOR_LENGTH": "delete_labels_for_length",
    "QUOTE_LABEL": "quote_labels",
}
_EQUAL = {"EQ_LABEL": "eq_labels", "EQ_WORD": "eq_words"}


def read_parameters(path: str | Path) -> Parameters:
    """Reads a parameter file; `UserError` names the line of an unknown keyword or a value that does not fit it."""
    found: dict[str, Any] = {}
    known = {**_NUMBERS, **_LABELS, **_EQUAL}
    for number, line in enumerate(read_lines(Path(path)), 1):
        if line.startswith("#") or not line.strip():
            continue
        keyword, *values = line.split()
        where, wanted = f"{path}, line {number}: {keyword}", 2 if keyword in _EQUAL else 1
        if keyword not in known:
            near = difflib.get_close_matches(keyword, known, n=1) or [", ".join(known)]
            raise UserError(f"{where} is no parameter of EVALB's; did you mean {near[0]}?")
        if len(values) != wanted or (keyword in _NUMBERS and not values[0].isdecimal()):
            kind = "a whole number" if keyword in _NUMBERS else f"{wanted} word{'s' * (wanted - 1)}"
            raise UserError(f"{where} has {' '.join(values) or 'no value'!r}; it must have {kind}")
        if keyword in _NUMBERS:
            found[known[keyword]] = int(values[0])
        else:
            value = values[0] if wanted == 1 else (values[0], values[1])
            found[known[keyword]] = (*found.get(known[keyword], ()), value)
    return Parameters(**found)


class Sentence(NamedTuple):
    """Counts of one sentence. `status` is 0 valid, 1 error (not the same words), 2 skipped (nothing was parsed).

    `length` is EVALB's; `words` are those of the gold tree that are not deleted. Counts of others than valid are 0.
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
    """Words and brackets of one side, by position among all of its words, and which words are not deleted."""

    def __init__(self, trees: Iterable[Tree], parameters: Parameters):
        self.leaves: list[_Leaf] = []
        self.brackets: list[tuple[int, int, str]] = []  # in the order in which they open
        for tree in trees:
            self._visit(tree)
        self.kept = [leaf.tag not in parameters.delete_labels for leaf in self.leaves]

    def _visit(self, tree: Tree) -> None:
        if isinstance(tree.children, str):
            self.leaves.append(_Leaf(tree.label, tree.children))
            return
        place, start = len(self.brackets), len(self.leaves)
        for child in tree.children:
            self._visit(child)
        self.brackets.insert(place, (start, len(self.leaves), tree.label))

    def words(self) -> list[_Leaf]:
        """The words that count."""
        return [leaf for leaf, kept in zip(self.leaves, self.kept, strict=True) if kept]

    def spans(self, parameters: Parameters) -> list[tuple[int, int, str]]:
        """The brackets that count, by position among the words that do: labelled, not empty, not deleted."""
        before = [sum(self.kept[:position]) for position in range(len(self.kept) + 1)]
        spans = []
        for start, end, label in self.brackets:
            stem = re.split("[-=]", label, maxsplit=1)[0]
            deleted = any(parameters.same_label(stem, gone) for gone in parameters.delete_labels)
            if before[start] < before[end] and not deleted:
                spans.append((before[start], before[end], stem))
        return spans

    def quotes(self, parameters: Parameters) -> list[int]:
        """Places of the quotation marks that may have been taken for something else."""
        return [
            place for place, (tag, word) in enumerate(self.leaves) if tag in parameters.quote_labels and word in _QUOTES
        ]


def score_sentence(
    gold: Iterable[Tree], parsed: Iterable[Tree], parameters: Parameters, *, same_words: bool = False
) -> Sentence:
    """Compares the trees of one sentence; usually there is one on either side.

    EVALB deletes words by the tags of each side, so a full stop tagged as a noun makes the sentence an error, which no
    figure counts. Where the parser cannot but have the `same_words`, the gold tags decide for both sides.
    """
    one, other = _Side(gold, parameters), _Side(parsed, parameters)
    if same_words:
        other.kept = one.kept
    length = sum(leaf.tag not in parameters.delete_labels_for_length for leaf in one.leaves)
    result = Sentence(length, sum(one.kept))
    if not any(other.kept):
        return result._replace(status=SKIPPED)
    if sum(one.kept) != sum(other.kept):
        _put_quotes_back(one, other, parameters)
    words, parsed_words = one.words(), other.words()
    if len(words) != len(parsed_words) or not all(
        parameters.same_word(a.word, b.word) for a, b in zip(words, parsed_words, strict=True)
    ):
        return result._replace(status=ERROR)
    gold_spans, parsed_spans = one.spans(parameters), other.spans(parameters)
    return result._replace(
        words=len(words),
        matched=_matched(gold_spans, parsed_spans, parameters),
        gold=len(gold_spans),
        parsed=len(parsed_spans),
        crossing=sum(any(_cross(span, against) for against in gold_spans) for span in parsed_spans),
        tags=sum(parameters.same_label(a.tag, b.tag) for a, b in zip(words, parsed_words, strict=True)),
    )


def _put_quotes_back(one: _Side, other: _Side, parameters: Parameters) -> None:
    for theirs in other.quotes(parameters):
        for ours in one.quotes(parameters):
            same_place = sum(one.kept[:ours]) == sum(other.kept[:theirs])
            if same_place and one.kept[ours] != other.kept[theirs]:
                one.kept[ours] = other.kept[theirs] = True


def _matched(gold: Sequence[tuple[int, int, str]], parsed: Iterable[tuple[int, int, str]], p: Parameters) -> int:
    """How many brackets can be paired, each with one of the same words and an equal label."""
    free = list(parsed)
    for start, end, label in gold:
        for place, (first, last, name) in enumerate(free):
            if (start, end) == (first, last) and (not p.labeled or p.same_label(label, name)):
                del free[place]
                break
    return len(list(parsed)) - len(free)


def _cross(one: tuple[int, int, str], other: tuple[int, int, str]) -> bool:
    """Whether two brackets share words, and each has words that the other has not."""
    return other[0] < one[0] < other[1] < one[1] or one[0] < other[0] < one[1] < other[1]


def score_lines(gold: Sequence[str], parsed: Sequence[str], parameters: Parameters) -> list[Sentence]:
    """Compares line by line; a line that is not bracketed in order makes its sentence an error, as in EVALB."""
    sentences = []
    for sides in zip(gold, parsed, strict=True):
        try:
            one, other = ([tree for _, tree in parse([line])] for line in sides)
            sentences.append(score_sentence(one, other, parameters))
        except BracketError:
            sentences.append(Sentence(0, 0, ERROR))
    return sentences


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


def summary(sentences: Iterable[Sentence]) -> dict[str, int | float]:
    """EVALB's figures by the keys of `SUMMARY`: counts, percentages, and crossing brackets a sentence.

    Only valid sentences count towards anything but the counts of sentences. A share of nothing is 0.
    """
    every = list(sentences)
    valid = [s for s in every if s.status == VALID]
    matched = sum(s.matched for s in valid)
    recall = _percent(matched, sum(s.gold for s in valid))
    precision = _percent(matched, sum(s.parsed for s in valid))
    return {
        "sentences": len(every),
        "errors": sum(s.status == ERROR for s in every),
        "skipped": sum(s.status == SKIPPED for s in every),
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


def summaries(sentences: Sequence[Sentence], parameters: Parameters) -> dict[str, dict[str, int | float]]:
    """The summary of all sentences, and of those up to the cut-off length, under the headings that EVALB gives them."""
    cutoff = parameters.cutoff_len
    short = [sentence for sentence in sentences if sentence.length <= cutoff]
    return {"All": summary(sentences), f"len<={cutoff}": summary(short)}


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _share(sentences: Sequence[Sentence], holds: Callable[[Sentence], bool]) -> float:
    return _percent(sum(map(holds, sentences)), len(sentences))


def report(blocks: dict[str, dict[str, int | float]]) -> str:
    """The summaries as EVALB prints them."""
    lines = ["=== Summary ==="]
    for heading, figures in blocks.items():
        lines += ["", f"-- {heading} --"]
        lines += [f"{name:<25} = {figures[key]:{layout}}" for key, (name, layout) in SUMMARY.items()]
    return "\n".join(lines)


def rows(sentences: Iterable[Sentence]) -> str:
    """A line for each sentence, as EVALB prints them."""
    line = "=" * 76
    lines = [
        "  Sent.                        Matched  Bracket   Cross        Correct Tag",
        " ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy",
        line,
    ]
    for number, s in enumerate(sentences, 1):
        recall, precision, tags = _percent(s.matched, s.gold), _percent(s.matched, s.parsed), _percent(s.tags, s.words)
        lines.append(
            f"{number:4d}  {s.length:3d}    {s.status}  {recall:6.2f} {precision:6.2f}   {s.matched:3d}    "
            f"{s.gold:3d}  {s.parsed:3d}    {s.crossing:3d}   {s.words:4d}  {s.tags:4d}   {tags:6.2f}"
        )
    return "\n".join([*lines, line])


def main(argv: list[str]) -> None:
    """Entry point; flags below."""
    options = flags.FLAGS
    if len(argv) > 1:
        raise UserError(f"unexpected argument {argv[1]!r}; files are given as --gold=FILE --parsed=FILE")
    parameters = read_parameters(options.parameters) if options.parameters else COLLINS
    sentences = score_lines(*read_pair(options.gold, options.parsed), parameters)
    blocks = summaries(sentences, parameters)
    if blocks["All"]["errors"] > parameters.max_error:
        first = [sentence.status for sentence in sentences].index(ERROR) + 1
        raise UserError(
            f"{options.parsed}: {blocks['All']['errors']} sentences, the first on line {first}, have not the words of "
            f"{options.gold}; MAX_ERROR, the most that may differ, is {parameters.max_error}"
        )
    if options.json:
        print(json.dumps({**blocks, "signature": parameters.signature()}, indent=2))
        return
    if parameters.debug:
        print(rows(sentences))
    print(report(blocks))


if __name__ == "__main__":
    flags.DEFINE_string("gold", None, "the right trees, one a line; plain text, or gzip if the name ends in .gz")
    flags.DEFINE_string("parsed", None, "the trees to score, line for line; an empty line is a sentence not parsed")
    flags.DEFINE_string("parameters", None, "EVALB's parameter file; default: as COLLINS.prm")
    flags.DEFINE_bool("json", False, "print JSON rather than a summary")
    flags.mark_flags_as_required(["gold", "parsed"])
    run(main)

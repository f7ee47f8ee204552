"""The variants of BLEU that papers quote, each with a signature that says how it was computed.

The same output has many BLEU scores. Today's (`sacrebleu`) does its own tokenisation and is comparable across papers.
The Transformer paper's (`bleu_paper`) is computed on quote-normalised, Moses-tokenised, compound-split text and is
about 0.7 to 1.5 higher on newstest2014 English-German; the two must never share a column. All scores are percentages.
Where a line has several references, `others` are lists of the further ones; the signature says how many there are.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sacrebleu.metrics import BLEU, CHRF, TER

if TYPE_CHECKING:
    from vaswani.infer.scores.moses import Moses

Others = Sequence[Sequence[str]]
# Those that the paper's tables show.
TABLED = (
    "sacrebleu",
    "sacrebleu_lc",
    "chrf",
    "bleu_tok",
    "bleu_tok_lc",
    "bleu_split",
    "bleu_paper",
    "exact_match",
)
METRICS = (*TABLED, "chrf_pp", "ter")
# Beside them, of text that is already in words: BLEU, the one to compare with fairseq's, and the rate of edits.
AS_IS = ("bleu_as_is", "edits_as_is")
# And if asked for, the one of `infer.scores.oracle_length`.
ORACLE = "oracle_match"

# sacreBLEU's tokenisers for two languages that put no spaces between words; all others have 13a. Its own for Japanese,
# ja-mecab, needs a package that is not installed here.
_UNSPACED = {"zh": "zh", "ja": "char"}
_LONG_CODES = {"zho": "zh", "chi": "zh", "jpn": "ja"}  # of ISO 639-2
_QUOTES = str.maketrans({**dict.fromkeys("„“”«»", '"'), **dict.fromkeys("‚‘’", "'")})
_LAST_PERIOD = re.compile(r"(?<=[^\s.])\.$")


class Score(NamedTuple):
    """A score: a percentage, and the settings needed to reproduce it."""

    value: float
    signature: str


def scorer(language: str = "", *, lowercase: bool = False, effective_order: bool = False) -> BLEU:
    """Returns sacreBLEU for a target language, as "zh" or "zh-CN", with the tokeniser that splits its words.

    It is 13a; for Chinese sacreBLEU's own, and for Japanese characters. With `effective_order` only n-grams
    that a text has count, as a single sentence needs.
    """
    return BLEU(lowercase=lowercase, tokenize=_UNSPACED.get(_code(language)), effective_order=effective_order)


def _code(language: str) -> str:
    """Returns a language without its country, "zh" of "zh-CN"; of those without spaces also "zh" of "zho"."""
    code = re.split("[-_]", language)[0]
    return _LONG_CODES.get(code, code)


def sacrebleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    language: str = "",
    others: Others = (),
) -> Score:
    """Computes sacreBLEU, the field's standard: the tokeniser of `scorer`, exponential smoothing (Post 2018)."""
    return _scored(scorer(language, lowercase=lowercase), hypotheses, references, others)


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, word_order: int = 0, others: Others = ()) -> Score:
    """Computes chrF2: the F-score of character n-grams up to 6, with recall weighted twice (Popović 2016).

    With word order 2 it is chrF2++, which counts n-grams of words up to 2 as well (Popović 2017).
    """
    return _scored(CHRF(word_order=word_order), hypotheses, references, others)


def ter(hypotheses: Sequence[str], references: Sequence[str], *, language: str = "", others: Others = ()) -> Score:
    """Computes TER: edits, moves of phrases among them, per word of the reference (Snover et al. 2006); 0 is best.

    For Chinese sacreBLEU's way is taken, which splits off characters and punctuation, and for Japanese, whose kana it
    would not split, each character is a word.
    """
    code = _code(language)
    if code == "ja":
        score = _scored(TER(), _spelled(hypotheses), _spelled(references), list(map(_spelled, others)))
        return score._replace(signature=f"{score.signature}|words:characters")
    return _scored(TER(normalized=code == "zh", asian_support=code == "zh"), hypotheses, references, others)


def _spelled(lines: Sequence[str]) -> list[str]:
    """Returns lines whose characters are words, without their white space."""
    return [" ".join("".join(line.split())) for line in lines]


def exact_match(hypotheses: Sequence[str], references: Sequence[str], *, others: Others = ()) -> Score:
    """Computes the percentage of lines equal to a reference of theirs, ignoring surrounding white space."""
    _check(hypotheses, references, others)
    equal = 0
    for hypothesis, *of_line in zip(hypotheses, references, *others, strict=True):
        equal += hypothesis.strip() in [reference.strip() for reference in of_line]
    signature = "case:mixed|space:stripped"
    if others:
        signature = f"nrefs:{1 + len(others)}|{signature}"
    return Score(100 * equal / len(references), signature)


def tokenised_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    *,
    lowercase: bool = False,
    split: bool = False,
    quotes: bool = False,
    others: Others = (),
) -> Score:
    """Computes what `tokenizer.perl -l language | multi-bleu.perl` prints: unsmoothed BLEU of XML-escaped Moses tokens.

    `quotes` first replaces „“”«» by " and ‚‘’ by '; `split` then splits compounds at hyphens; `lowercase` comes last.
    """

    def prepare(lines: Sequence[str]) -> Sequence[str]:
        if quotes:
            lines = [line.translate(_QUOTES) for line in lines]
        lines = tokenise(lines, language)
        if split:
            lines = [split_compounds(line) for line in lines]
        return lines

    _check(hypotheses, references, others)
    metric = BLEU(lowercase=lowercase, tokenize="none", smooth_method="none", force=True)
    value, signature = _scored(metric, prepare(hypotheses), prepare(references), list(map(prepare, others)))
    prepared = f"quotes:{'ascii' if quotes else 'kept'}|moses:{_code(language)}|escape:yes"
    steps = f"{prepared}|split:{'hyphen' if split else 'no'}"
    return Score(value, f"{steps}|{signature}|sacremoses:{_moses(language).version}")


def bleu_as_is(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Computes what `multi-bleu.perl` prints: unsmoothed BLEU of lines whose tokens white space separates already."""
    return _scored(BLEU(tokenize="none", smooth_method="none", force=True), hypotheses, references)


def scores_as_is(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, Score]:
    """Returns the scores of `AS_IS`."""
    return {"bleu_as_is": bleu_as_is(hypotheses, references), "edits_as_is": edits_as_is(hypotheses, references)}


def edits_as_is(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Computes the edits (insertions, deletions, replacements) per word of the reference; of phones, it is the PER."""
    _check(hypotheses, references)
    edits = 0
    words = 0
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        edits += _edits(hypothesis.split(), reference.split())
        words += len(reference.split())
    return Score(100 * edits / max(words, 1), "case:mixed|tok:none|moves:no")


def _edits(first: Sequence[str], second: Sequence[str]) -> int:
    """Returns the Levenshtein distance: the fewest edits that turn one sequence into the other."""
    row = list(range(len(second) + 1))  # edits from nothing to each beginning of `second`
    for count, word in enumerate(first, 1):
        above = row
        row = [count]
        for column, other in enumerate(second):
            replaced = above[column] + (word != other)
            row.append(min(replaced, above[column + 1] + 1, row[column] + 1))
    return row[-1]


def paper_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str, *, others: Others = ()) -> Score:
    """Computes the paper's BLEU (Tables 2 and 3): quotes normalised, tokenised, compounds split."""
    return tokenised_bleu(hypotheses, references, language, split=True, quotes=True, others=others)


def all_scores(
    hypotheses: Sequence[str], references: Sequence[str], language: str, *, others: Others = ()
) -> dict[str, Any]:
    """Returns every score by its JSON key, and `signatures` by the same keys; `language` is the target's, like "de".

    Raises:
      ValueError: if the sides differ in length or are empty.
    """
    # The same lines each time, which are tokenised once.
    tokenised = partial(tokenised_bleu, hypotheses, references, language, others=others)
    scores = {
        "sacrebleu": sacrebleu(hypotheses, references, language=language, others=others),
        "sacrebleu_lc": sacrebleu(hypotheses, references, lowercase=True, language=language, others=others),
        "chrf": chrf(hypotheses, references, others=others),
        "bleu_tok": tokenised(),
        "bleu_tok_lc": tokenised(lowercase=True),
        "bleu_split": tokenised(split=True),
        "bleu_paper": paper_bleu(hypotheses, references, language, others=others),
        "exact_match": exact_match(hypotheses, references, others=others),
        "chrf_pp": chrf(hypotheses, references, word_order=2, others=others),
        "ter": ter(hypotheses, references, language=language, others=others),
    }
    return {
        **{name: score.value for name, score in scores.items()},
        "signatures": {name: score.signature for name, score in scores.items()},
    }


def as_text(record: Mapping[str, Any]) -> str:
    """Returns the scores that `record` has (see `all_scores`), one per line: name, percent, signature."""
    shown = [name for name in (*METRICS, *AS_IS, ORACLE) if name in record]
    rows = [(name, record[name], record["signatures"][name]) for name in shown]
    return "\n".join(f"{name:<12} {value:6.2f}   {signature}" for name, value, signature in rows)


def tokenise(lines: Sequence[str], language: str) -> list[str]:
    """Returns the Moses tokens of each line, joined by single spaces, XML-escaped as by `tokenizer.perl`."""
    return list(_tokens(tuple(lines), language))


@lru_cache(maxsize=8)  # three scores tokenise the same hypotheses and references
def _tokens(lines: tuple[str, ...], language: str) -> list[str]:
    moses = _moses(language)
    # tokenizer.perl always splits the full stop off the last word ("Platz 24." -> "Platz 24 ."); sacremoses keeps it on
    # abbreviations, ordinals and domain names. 14 of the 6,006 lines of newstest2014 de differ, worth 0.01 BLEU.
    return [_LAST_PERIOD.sub(" .", moses.tokenize(line, return_str=True)) for line in lines]


def split_compounds(line: str) -> str:
    """Turns `E-Mail` into `E ##AT##-##AT## Mail`, without overlaps: `a-b-c` is split once, as by the Perl script."""
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line)


def _scored(
    metric: BLEU | CHRF | TER, hypotheses: Sequence[str], references: Sequence[str], others: Others = ()
) -> Score:
    _check(hypotheses, references, others)
    every = [list(lines) for lines in (references, *others)]
    return Score(metric.corpus_score(list(hypotheses), every).score, str(metric.get_signature()))


@lru_cache
def _moses(language: str) -> "Moses":
    from vaswani.infer.scores.moses import Moses

    return Moses(lang=_code(language))  # one that it does not know, such as "de-DE", it takes for English


def _check(hypotheses: Sequence[str], references: Sequence[str], others: Others = ()) -> None:
    for lines in (references, *others):
        if len(hypotheses) != len(lines):
            raise ValueError(f"{len(hypotheses)} hypotheses for {len(lines)} references: one is needed for each")
    if not references:
        raise ValueError("there is no sentence to score")

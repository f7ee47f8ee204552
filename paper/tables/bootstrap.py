"""sacreBLEU's paired bootstrap: is one of our systems better than another, or lucky in its test sentences?"""

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest, Result

from base.errors import UserError
from data.sources import open_corpus
from paper.records import RowRuns, ScoredRun

SAMPLES = 1000


class Comparison(NamedTuple):
    """sacreBLEU of two systems, percent, with half the width of the 95 % interval, and p of the second's difference."""

    scores: tuple[float, float]
    intervals: tuple[float, float]
    p: float
    signature: str


def compare(
    baseline: Sequence[str], system: Sequence[str], references: Sequence[str], *, samples: int = SAMPLES
) -> Comparison:
    """Tests `system` against `baseline`, line for line translations of the same sentences (Koehn 2004).

    `p` is the share of `samples` draws of sentences with a difference as large by chance. The generator's seed is
    sacreBLEU's and part of the signature.

    Raises:
      UserError: the three differ in length.
    """
    if not len(baseline) == len(system) == len(references):
        counts = f"{len(baseline)}, {len(system)} and {len(references)}"
        raise UserError(f"{counts} lines: a paired test needs two translations of each reference")
    named: list[tuple[str, Sequence[str]]] = [("baseline", list(baseline)), ("system", list(system))]
    test = PairedTest(named, {"BLEU": BLEU()}, [list(references)], test_type="bs", n_samples=samples)
    signatures, results = test()
    one, other = (result for result in results["BLEU"] if isinstance(result, Result))
    assert one.ci is not None and other.ci is not None and other.p_value is not None
    return Comparison((one.score, other.score), (one.ci, other.ci), other.p_value, str(signatures["BLEU"]))


def read_lines_of(one: ScoredRun) -> list[str] | None:
    """Returns the translations of an evaluation; None where they were not saved.

    Raises:
      UserError: the file is not UTF-8.
    """
    if not one.lines.is_file():
        return None
    try:
        return one.lines.read_text(encoding="utf-8").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise UserError(f"{one.lines}: damaged, not UTF-8 ({error})") from error


def compare_rows(baseline: RowRuns, system: RowRuns) -> Comparison | None:
    """Compares the first seed of each; None where one has not run, or its translations were not saved.

    Raises:
      UserError: the test set is not on this machine.
    """
    if not (baseline.scored and system.scored):
        return None
    one, other = (read_lines_of(row.scored[0]) for row in (baseline, system))
    if one is None or other is None:
        return None
    corpus = open_corpus(system.scored[0].scores["data"])
    return compare(one, other, [reference for _, reference in corpus.pairs()])

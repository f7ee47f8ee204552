"""Is one of our systems better than another, or was it lucky in its test sentences? sacreBLEU's paired bootstrap."""

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest, Result

from base.errors import UserError
from data.sources import open_corpus
from paper.records import Row, Scored

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

    `p` is how often a difference as large comes from `samples` draws of sentences alone. The generator's seed is
    sacreBLEU's, and stands in the signature.

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
    assert one.ci is not None and other.ci is not None and other.p_value is not None  # other tests leave them out
    return Comparison((one.score, other.score), (one.ci, other.ci), other.p_value, str(signatures["BLEU"]))


def read_lines_of(one: Scored) -> list[str] | None:
    """What an evaluation translated, line by line; None where it was not kept."""
    if not one.translations.is_file():
        return None
    return one.translations.read_text(encoding="utf-8").split("\n")[:-1]


def compare_rows(baseline: Row, system: Row) -> Comparison | None:
    """Compares the first seed of each; None where one has not run, or its translations were not kept.

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

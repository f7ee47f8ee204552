"""The paired test detects a real difference and not a random one."""

import pytest

from base.errors import UserError
from infer.scores.significance import METRICS, as_text, compare, compare_all

GERMAN = ["Der Hund schläft heute.", "Die Katze trinkt viel Milch.", "Das Kind lacht laut.", "Wir gehen nach Hause."]
REFERENCES = GERMAN * 16


def spoilt(every: int) -> list[str]:
    return [line if place % every else "Etwas ganz anderes steht hier." for place, line in enumerate(REFERENCES)]


def test_a_better_system_is_found_to_be_better() -> None:
    found = compare(spoilt(3), REFERENCES, REFERENCES, samples=200)
    assert found.scores[1] == pytest.approx(100)
    assert found.scores[0] < 80
    assert found.p < 0.05
    assert "bs:200|seed:12345" in found.signature


def test_equal_systems_are_not_told_apart() -> None:
    one = spoilt(4)
    other = [line if place % 4 != 1 else "Etwas ganz anderes steht hier." for place, line in enumerate(REFERENCES)]
    assert compare(one, other, REFERENCES, samples=200).p > 0.05


def test_unequal_lengths_are_an_error() -> None:
    with pytest.raises(UserError, match="63, 64 and 64 lines: a paired test needs two translations of each reference"):
        compare(REFERENCES[1:], REFERENCES, REFERENCES)


def test_every_metric_is_compared_and_lower_case_ignores_case() -> None:
    found = compare_all([line.lower() for line in REFERENCES], REFERENCES, REFERENCES)
    assert list(found) == list(METRICS)
    assert found["sacrebleu"]["scores"][0] < found["sacrebleu_lc"]["scores"][0] == pytest.approx(100)
    assert found["sacrebleu"]["p"] < 0.05 < found["sacrebleu_lc"]["p"]
    assert "chrF" not in found["sacrebleu"]["signature"] and "nc:6" in found["chrf"]["signature"]


def test_a_comparison_is_a_line_with_both_scores_the_difference_and_p() -> None:
    comparison = {"scores": (38.98, 39.9), "intervals": (1.68, 1.58), "p": 0.0321, "signature": "nrefs:1"}
    assert as_text({"chrf": comparison}) == "chrf          38.98 ± 1.68,  39.90 ± 1.58, +0.92, p 0.032   nrefs:1"

"""The paired test detects a real difference and not a random one, of either sign, however few lines differ."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest, Result

from vaswani.errors import UserError
from vaswani.infer.scores.significance import METRICS, as_text, compare, compare_all, randomised_p

GERMAN = ["Der Hund schläft heute.", "Die Katze trinkt viel Milch.", "Das Kind lacht laut.", "Wir gehen nach Hause."]
REFERENCES = GERMAN * 16


def spoilt(every: int) -> list[str]:
    return [line if place % every else "Etwas ganz anderes steht hier." for place, line in enumerate(REFERENCES)]


def test_a_better_system_is_found_to_be_better() -> None:
    found = compare(spoilt(3), REFERENCES, REFERENCES, samples=200)
    assert found.scores[1] == pytest.approx(100)
    assert found.scores[0] < 80
    assert found.p < 0.05
    assert "bs:1000|ar:200|seed:12345" in found.signature
    assert found.intervals[1] == 0 < found.intervals[0]  # a perfect system is so on whatever lines are drawn


def test_equal_systems_are_not_told_apart() -> None:
    one = spoilt(4)
    other = [line if place % 4 != 1 else "Etwas ganz anderes steht hier." for place, line in enumerate(REFERENCES)]
    assert compare(one, other, REFERENCES, samples=200).p > 0.05


def _noisy(rng: np.random.Generator, share: float) -> list[str]:
    """Returns `REFERENCES` with that share of words replaced."""
    return [" ".join("Haus" if rng.random() < share else word for word in line.split()) for line in REFERENCES]


def _told_apart(trials: int, differing: int) -> int:
    """Returns how many of `trials` pairs of systems that are random exchanges of each other have p < 0.05."""
    found, scorer = 0, BLEU()
    for trial in range(trials):
        rng = np.random.default_rng((differing, trial))
        one, other = _noisy(rng, 0.3), _noisy(rng, 0.3)
        for place in rng.permutation(len(one))[differing:]:
            other[place] = one[place]
        for place in np.flatnonzero(rng.integers(2, size=len(one))):
            one[place], other[place] = other[place], one[place]
        found += randomised_p(one, other, [REFERENCES], scorer, 199, trial) < 0.05
    return found


def test_of_systems_that_are_random_exchanges_of_each_other_few_are_told_apart() -> None:
    assert _told_apart(40, len(REFERENCES)) <= 8  # binomial: mean 2, P(more than 8) = 0.0002
    assert _told_apart(10, 4) == 0  # the least p of four lines is 1/8


@pytest.mark.slow
@pytest.mark.parametrize("differing", [len(REFERENCES), 8])
def test_of_systems_that_are_random_exchanges_of_each_other_a_twentieth_is_told_apart(differing: int) -> None:
    found = _told_apart(600, differing)
    assert found <= 48  # binomial: mean 30, deviation 5.3; one-sided it would be 60
    assert found >= (12 if differing > 8 else 1)  # p of 8 lines has few values, so it is conservative


def test_p_has_two_sides_and_is_that_of_sacrebleus_own_test_where_many_lines_differ() -> None:
    rng = np.random.default_rng(0)
    one, other = _noisy(rng, 0.3), _noisy(rng, 0.25)
    test = PairedTest([("one", one), ("other", other)], {"x": BLEU()}, [REFERENCES], test_type="ar", n_samples=2000)
    (theirs,) = (result.p_value for result in test()[1]["BLEU"] if isinstance(result, Result) and result.p_value)
    assert 0.02 < theirs < 0.5
    deviation = (2 * theirs * (1 - theirs) / 2000) ** 0.5
    for pair in ((one, other), (other, one)):
        assert compare(*pair, REFERENCES, samples=2000).p == pytest.approx(theirs, abs=5 * deviation)


def test_few_differing_lines_are_no_proof() -> None:
    one = [*REFERENCES]
    for differing, least in enumerate((1, 0.5, 0.25, 0.125), start=1):
        one[differing] = "Etwas ganz anderes steht hier."
        assert compare(one, REFERENCES, REFERENCES).p == pytest.approx(least)
    assert compare(REFERENCES, REFERENCES, REFERENCES).p == 1


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


def test_lines_without_spaces_are_compared_by_their_characters() -> None:
    references = ["他在公园里看一本旧书。", "我们昨天错过了去柏林的火车。", "医生写了一封很长的信。"] * 8
    worse = [line if place % 3 else "他在公园里睡觉。" for place, line in enumerate(references)]
    found = compare_all(worse, references, references, "zh")
    assert "tok:zh" in found["sacrebleu"]["signature"]
    assert 50 < found["sacrebleu"]["scores"][0] < found["sacrebleu"]["scores"][1] == pytest.approx(100)


def test_a_system_of_which_hardly_a_line_matches_has_an_interval() -> None:
    """In some resamples nothing matches."""
    references = [f"Der {name} schläft heute lange." for name in ("Hund", "Mann", "Junge", "Arzt") * 10]
    system = [references[0], *["x"] * 39]
    for metric in METRICS:
        found = compare(references, system, references, metric=metric)
        assert found.scores[1] < found.scores[0] and found.intervals[1] > 0


def test_a_p_below_what_is_shown_is_not_shown_as_nothing() -> None:
    comparison = {"scores": (1.0, 2.0), "intervals": (0.1, 0.1), "signature": "s"}
    assert "p < 0.001 " in as_text({"chrf": {**comparison, "p": 0.0001}})
    assert "p 0.001 " in as_text({"chrf": {**comparison, "p": 0.0006}})

"""Scores by the length of the source: which band a line is in, and what a band says."""

import pytest

from vaswani.infer.scores.bleu import sacrebleu
from vaswani.infer.scores.lengths import by_length


def test_a_band_has_the_scores_of_its_lines() -> None:
    sources = ["w " * n for n in (1, 5, 6, 60, 61, 300)]
    references = [
        "the dog sleeps in the park",
        "a cat",
        "five cats",
        "six",
        "the end is near",
        "seven eight nine ten",
    ]
    hypotheses = ["the dog sleeps in a park", "a cat", "five cats", "no", "the end is near", "eight nine ten seven"]
    found = by_length(sources, hypotheses, references)
    assert [(band["words"], band["lines"], band["exact_match"]) for band in found] == [
        ([1, 5], 2, 50.0),
        ([6, 10], 1, 100.0),
        ([56, 60], 1, 0.0),
        ([61, None], 2, 50.0),
    ]
    assert found[0]["sacrebleu"] == sacrebleu(hypotheses[:2], references[:2]).value
    assert found[-1]["sacrebleu"] == sacrebleu(hypotheses[4:], references[4:]).value


def test_an_empty_source_is_among_the_shortest() -> None:
    assert by_length([""], ["x"], ["x"])[0]["words"] == [1, 5]


def test_sides_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        by_length(["a", "b"], ["a"], ["a"])


def test_a_band_of_chinese_is_scored_by_its_words() -> None:
    (band,) = by_length(["a b"], ["他在公园里读一本旧书。"], ["他在公园里看一本旧书。"], "zh")
    assert band["sacrebleu"] > 50

"""Scores by the length of the source: what a long sentence costs."""

from collections.abc import Sequence
from typing import Any

from vaswani.infer.scores.bleu import exact_match, sacrebleu

WIDTH = 5  # words of a band
LAST = 60  # words; longer sources are one band


def by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], language: str = ""
) -> list[dict[str, Any]]:
    """Returns sacreBLEU and the share of exact matches, in per cent, for each band of `WIDTH` words of the source.

    `language` is the references' (`infer.scores.bleu.scorer`).
    A band is {"words": [1, 5], "lines": 3, "sacrebleu": 30.1, "exact_match": 33.3}; the last, of what is longer than
    `LAST` words, has no end: [61, null]. Words are what white space separates. A band without lines is left out.

    Raises:
      ValueError: the sides differ in length.
    """
    bands: dict[int, tuple[list[str], list[str]]] = {}
    for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True):
        words = min(max(len(source.split()), 1), LAST + 1)
        band_hypotheses, band_references = bands.setdefault((words - 1) // WIDTH, ([], []))
        band_hypotheses.append(hypothesis)
        band_references.append(reference)
    scored: list[dict[str, Any]] = []
    for band, (band_hypotheses, band_references) in sorted(bands.items()):
        before = band * WIDTH
        scored.append(
            {
                "words": [before + 1, None if before == LAST else before + WIDTH],
                "lines": len(band_hypotheses),
                "sacrebleu": sacrebleu(band_hypotheses, band_references, language=language).value,
                "exact_match": exact_match(band_hypotheses, band_references).value,
            }
        )
    return scored

"""Minimum Bayes risk: of several translations the one that agrees best with all, by sentence-level chrF or BLEU.

Samples stand for the model's distribution (Eikema and Aziz 2020), so each of them is a reference, repeats included.
"""

from collections import Counter
from collections.abc import Sequence

from sacrebleu.metrics import CHRF

from vaswani.infer.scores.bleu import scorer as bleu_of

METRICS = ("chrf", "bleu")


def consensus(texts: Sequence[str], metric: str, language: str = "") -> int:
    """Returns the place of the text whose mean score, with each text as the reference, is highest; the first of equals.

    `metric` is one of `METRICS`, of sacrebleu: chrF2, or BLEU with only the n-grams that a sentence has, and the
    tokeniser of the texts' language. Two empty texts agree.
    """
    scorer = CHRF() if metric == "chrf" else bleu_of(language, effective_order=True)
    counts = Counter(texts)  # a text that occurs twice is scored once

    def score(text: str, reference: str) -> float:
        if not text and not reference:
            return 100.0  # they agree, though there are no n-grams, for which sacrebleu gives 0
        return scorer.sentence_score(text, [reference]).score

    def utility(text: str) -> float:
        return sum(count * score(text, reference) for reference, count in counts.items())

    return texts.index(max(counts, key=utility))

"""Scores of translations, what is odd about them, and the difference of two systems with its interval."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from sacrebleu.metrics import BLEU

from vaswani.infer.evaluate.sentences import open_sentences, translate
from vaswani.infer.runs import Run
from vaswani.infer.scores.bleu import chrf, scorer
from vaswani.infer.scores.perplexity import perplexity
from vaswani.infer.translate.options import make_decoding
from vaswani.train.intervals import bootstrap


class Scored(NamedTuple):
    """Translations of a corpus, its references, and the measures of a record."""

    translations: list[str]
    references: list[str]
    measures: dict[str, Any]


class Reading(NamedTuple):
    """One way to score: a metric, and both texts as it reads them."""

    metric: BLEU
    translations: Sequence[str]
    references: Sequence[str]

    @property
    def bleu(self) -> float:
        """The score, in percent."""
        return float(self.metric.corpus_score(list(self.translations), [list(self.references)]).score)

    def counts(self) -> Float[np.ndarray, "n c"]:
        """Returns the statistics of each sentence, of whose sums the score is made."""
        found = self.metric._extract_corpus_statistics(list(self.translations), [list(self.references)])
        return np.array(found, np.float64)

    def of_sums(self, sums_c: Float[np.ndarray, " c"]) -> float:
        """Returns the score of sums of `counts`."""
        return float(self.metric._compute_score_from_stats(sums_c.tolist()).score)


class MeanOfSentences(Reading):
    """The mean of the sentences' scores, which is not the score of all of them."""

    @property
    def bleu(self) -> float:
        """The mean, in percent."""
        return self.of_sums(self.counts().sum(axis=0))

    def counts(self) -> Float[np.ndarray, "n c"]:
        """Returns each sentence's score, and 1."""
        pairs = zip(self.translations, self.references, strict=True)
        scores = [self.metric.sentence_score(line, [reference]).score for line, reference in pairs]
        return np.stack([scores, np.ones(len(scores))], axis=1)

    def of_sums(self, sums_c: Float[np.ndarray, " c"]) -> float:
        """Returns the mean."""
        total, count = sums_c
        return float(total / count)


def score(model_run: Run, spec: str) -> Scored:
    """Translates a corpus as the run's config says and scores it.

    Shares are of lines: `empty`, `copied` from the source, and `at_limit`, the longest that the search allows.
    `unigrams` is BLEU's precision of words, in percent; `nll` is that of the references, in nats a subword.
    """
    sentences = open_sentences("test", spec)
    decoding = make_decoding(model_run.config.decode)
    translations, _ = translate([model_run], sentences, decoding, "translating", "lines")
    hypotheses = [translation.text for translation in translations]
    of_language = scorer(sentences.language)
    whole = of_language.corpus_score(hypotheses, [sentences.references])

    tokenizer = model_run.tokenizer
    at_limit: list[bool] = []
    for source, translation in zip(sentences.sources, translations, strict=True):
        limit = len(tokenizer.source_ids(source)) + decoding.extra_length  # EOS included, on both sides
        at_limit.append(len(translation.hypotheses[0].tokens) + 1 >= limit)
    copied = [source == text for source, text in zip(sentences.sources, hypotheses, strict=True)]
    value = perplexity(model_run.model_config, model_run.params, tokenizer, sentences.sources, sentences.references)
    measures = {
        "sacrebleu": float(whole.score),
        "signature": str(of_language.get_signature()),
        "chrf": chrf(hypotheses, sentences.references).value,
        "nll": float(np.log(value)),
        "unigrams": float(whole.precisions[0]),
        "length_ratio": whole.sys_len / whole.ref_len,
        "empty": float(np.mean([not text.strip() for text in hypotheses])),
        "copied": float(np.mean(copied)),
        "at_limit": float(np.mean(at_limit)),
    }
    return Scored(hypotheses, sentences.references, measures)


def compare(base: Sequence[str], other: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Returns the sacreBLEU of `other` minus that of `base`, and its interval over the sentences."""
    return compare_readings(Reading(scorer(), base, references), Reading(scorer(), other, references))


def compare_readings(base: Reading, other: Reading) -> dict[str, float]:
    """Returns the BLEU of `other` minus that of `base`: "difference", "low" and "high".

    The interval is a paired bootstrap: each draw of sentences is scored by both (Koehn 2004).
    """
    base_nc = base.counts()
    width = base_nc.shape[1]

    def differences(sums_dc: Float[np.ndarray, "draws c"]) -> Float[np.ndarray, " draws"]:
        found = [other.of_sums(sums_c[width:]) - base.of_sums(sums_c[:width]) for sums_c in sums_dc]
        return np.array(found)

    low, high = bootstrap(np.concatenate([base_nc, other.counts()], axis=1), differences)
    return {"difference": other.bleu - base.bleu, "low": low, "high": high}

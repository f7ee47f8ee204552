"""How well a run translates: the record of an evaluation, with every score."""

from pathlib import Path
from typing import Any

from infer.decoding import Decoding
from infer.evaluation import Sentences, headline, provenance, score, translate
from infer.runs import Run
from infer.scores import bleu
from infer.scores.pairs import language_of, read_pair


def open_files(source: str, reference: str) -> Sentences:
    """Returns the sentences of two files that correspond line by line."""
    sources, references = read_pair(source, reference)
    return Sentences(Path(source).name, f"{source} {reference}", language_of(reference), sources, references)


def evaluate(model_run: Run, sentences: Sentences, decoding: Decoding) -> tuple[dict[str, Any], list[str]]:
    """Returns the result record, of JSON values, and the translations.

    `seconds` is the wall time of translation, compilation included; `tokens_per_second` counts output subwords, EOS
    included. `perplexity` is that of `infer.scores.perplexity`; the other scores are percentages.
    """
    translations, seconds = translate(model_run, sentences, decoding, "translating", "lines")
    hypotheses = [translation.text for translation in translations]
    record = {
        **score(model_run, sentences.sources, hypotheses, sentences.references, sentences.language),
        "seconds": seconds,
        "tokens_per_second": sum(len(translation.hypotheses[0].tokens) + 1 for translation in translations) / seconds,
        **provenance(model_run, sentences, decoding),
    }
    return record, hypotheses


def table(record: dict[str, Any]) -> str:
    """Returns the record as text: the data and the search, then every score."""
    speed = f"{record['seconds']:.1f} seconds, {record['tokens_per_second']:,.0f} subwords per second"
    perplexity_line = f"{'perplexity':<12} {record['perplexity']:6.3f}   {record['signatures']['perplexity']}"
    return "\n".join((headline(record), "", bleu.as_text(record), perplexity_line, "", speed))

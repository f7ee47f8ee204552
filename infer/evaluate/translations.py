"""How well a run translates: the record of an evaluation, with every score."""

from collections.abc import Sequence
from typing import Any

from infer.evaluate.record import provenance
from infer.evaluate.sentences import Sentences, about, headline, translate
from infer.runs import Run, as_one
from infer.scores import bleu, oracle_length
from infer.scores.forced import check_lengths
from infer.scores.lengths import by_length
from infer.scores.perplexity import perplexity
from infer.translate.options import FULL_BATCH, Decoding
from infer.translate.translator import note_unknown


def score(
    runs: Sequence[Run],
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
) -> dict[str, Any]:
    """Returns every score of `infer.scores.bleu`, the references' perplexity, and the `signatures` of all of them.

    Those of `bleu.AS_IS` are among them if the runs write words. The perplexity is that of one run, or of the ensemble
    of several.

    Raises:
      ValueError: if the sides differ in length or are empty.
    """
    tokenizer = runs[0].tokenizer
    joined = [tokenizer.joined(line) for line in references]
    scores = bleu.all_scores(hypotheses, joined, language)
    unit = tokenizer.units.rpartition(",")[2].removesuffix("s")
    values = {name: scores[name] for name in bleu.METRICS}
    signatures = dict(scores["signatures"])
    if unit == "word":
        for name, as_is in bleu.scores_as_is(hypotheses, joined).items():
            values[name] = as_is.value
            signatures[name] = as_is.signature
    model_config, params = as_one(runs)
    values["perplexity"] = perplexity(model_config, params, tokenizer, sources, references)
    signatures["perplexity"] = f"unit:{unit}|vocabulary:{tokenizer.vocab_size}|eos:yes|smoothing:none"
    return {**values, "signatures": signatures}


def evaluate(
    model_run: Run,
    sentences: Sentences,
    decoding: Decoding,
    others: Sequence[Run] = (),
    *,
    has_oracle_length: bool = False,
    batch_tokens: int = FULL_BATCH,
) -> tuple[dict[str, Any], list[str]]:
    """Returns the result record, of JSON values, and the translations; with `others`, those of an ensemble.

    `seconds` is the wall time of translation, compilation included; `tokens_per_second` counts output subwords, EOS
    included. `perplexity` is that of `infer.scores.perplexity`; the other scores are percentages. `by_length` is that
    of `infer.scores.lengths`. The record of an ensemble has `members`, the hash of each one's parameters. With
    `has_oracle_length` there is `oracle_match`, the exact match of `infer.scores.oracle_length`.

    Raises:
      UserError: a line is longer than the learned positions, so that it has no perplexity.
    """
    runs = [model_run, *others]
    sources = sentences.sources
    references = sentences.references
    # Checked first: an error after the search would throw its translations away.
    check_lengths([run.model_config for run in runs], model_run.tokenizer, sources, references)
    translations, seconds = translate(runs, sentences, decoding, "translating", "lines", batch_tokens)
    note_unknown(model_run.tokenizer.target.unknown(references), "references")  # which perplexity takes as they are
    hypotheses = [translation.text for translation in translations]
    best = [translation.hypotheses[0] for translation in translations]
    tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in best)
    joined = [model_run.tokenizer.joined(line) for line in references]
    scores = score(runs, sources, hypotheses, references, sentences.language)
    if has_oracle_length:
        model_config, params = as_one(runs)
        oracle = oracle_length.exact_match(model_config, params, model_run.tokenizer, sources, references)
        scores[bleu.ORACLE] = oracle.value
        scores["signatures"][bleu.ORACLE] = oracle.signature
    record = {
        **scores,
        "by_length": by_length(sources, hypotheses, joined, sentences.language),
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        **provenance(model_run, sentences.data, sentences.name, others),
        **about(sentences, decoding),
    }
    return record, hypotheses


def table(record: dict[str, Any]) -> str:
    """Returns the record as text: the data and the search, then every score."""
    speed = f"{record['seconds']:.1f} seconds, {record['tokens_per_second']:,.0f} subwords per second"
    perplexity_line = f"{'perplexity':<12} {record['perplexity']:6.3f}   {record['signatures']['perplexity']}"
    return "\n".join((headline(record), "", bleu.as_text(record), perplexity_line, "", speed))

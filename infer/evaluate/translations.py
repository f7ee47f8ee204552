"""How well a run translates: the record of an evaluation, with every score."""

from collections.abc import Sequence
from typing import Any

from vaswani.data.tokenizer import Tokenizer
from vaswani.infer.evaluate.record import provenance
from vaswani.infer.evaluate.sentences import Sentences, about, headline, translate
from vaswani.infer.runs import Run, as_one
from vaswani.infer.scores import bleu, oracle_length
from vaswani.infer.scores.bleu import Score
from vaswani.infer.scores.forced import check_lengths
from vaswani.infer.scores.lengths import by_length
from vaswani.infer.scores.perplexity import perplexity
from vaswani.infer.translate.translator import note_unknown
from vaswani.search.options import Decoding


def score(
    runs: Sequence[Run],
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
) -> dict[str, Any]:
    """Returns every score of `infer.scores.bleu`, the references' perplexity, and the `signatures` of all of them.

    They include `bleu.AS_IS` if the runs write words. The perplexity is of one run, or of the ensemble of several.

    Raises:
      ValueError: if the sides differ in length or are empty.
    """
    tokenizer = runs[0].tokenizer
    joined = [tokenizer.joined(line) for line in references]
    of_texts = _text_scores(tokenizer, hypotheses, joined, language)
    return _with_signatures(of_texts | _reference_scores(runs, sources, references))


def _text_scores(
    tokenizer: Tokenizer, hypotheses: Sequence[str], joined: Sequence[str], language: str
) -> dict[str, Score]:
    """Returns the scores that compare translations with references, which `Tokenizer.joined` has written."""
    scores = bleu.all_scores(hypotheses, joined, language)
    result = {name: Score(scores[name], scores["signatures"][name]) for name in bleu.METRICS}
    if _written_unit(tokenizer) == "word":
        result |= bleu.scores_as_is(hypotheses, joined)
    return result


def _reference_scores(
    runs: Sequence[Run], sources: Sequence[str], references: Sequence[str], *, has_oracle_length: bool = False
) -> dict[str, Score]:
    """Returns the scores of the references' own likelihood, which need no translation."""
    model_config, params = as_one(runs)
    tokenizer = runs[0].tokenizer
    signature = f"unit:{_written_unit(tokenizer)}|vocabulary:{tokenizer.vocab_size}|eos:yes|smoothing:none"
    value = perplexity(model_config, params, tokenizer, sources, references)
    result = {"perplexity": Score(value, signature)}
    if has_oracle_length:
        result[bleu.ORACLE] = oracle_length.exact_match(model_config, params, tokenizer, sources, references)
    return result


def _written_unit(tokenizer: Tokenizer) -> str:
    """Returns the units that a run writes: "subword", "word" or "character"."""
    return tokenizer.units.rpartition(",")[2].removesuffix("s")


def _with_signatures(scores: dict[str, Score]) -> dict[str, Any]:
    """Returns the values by name, and also all `signatures`."""
    values = {name: score.value for name, score in scores.items()}
    return {**values, "signatures": {name: score.signature for name, score in scores.items()}}


def evaluate(
    model_run: Run,
    sentences: Sentences,
    decoding: Decoding,
    others: Sequence[Run] = (),
    *,
    has_oracle_length: bool = False,
    batch_tokens: int | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Returns the result record, of JSON values, and the translations; with `others`, an ensemble's.

    `seconds` is the wall time of translation, compilation included; `tokens_per_second` counts output subwords, EOS
    included. `perplexity` comes from `infer.scores.perplexity`; the other scores are percentages. `by_length` comes
    from `infer.scores.lengths`. The record of an ensemble has `members`, the hash of each one's parameters. With
    `has_oracle_length` there is `oracle_match`, the exact match of `infer.scores.oracle_length`.

    Raises:
      UserError: a line is longer than the learned positions, so that it has no perplexity.
    """
    runs = [model_run, *others]
    sources = sentences.sources
    references = sentences.references
    # What may fail comes first: an error after the search would throw its translations away.
    check_lengths([run.model_config for run in runs], model_run.tokenizer, sources, references)
    of_references = _reference_scores(runs, sources, references, has_oracle_length=has_oracle_length)
    translations, seconds = translate(runs, sentences, decoding, "translating", "lines", batch_tokens)
    note_unknown(model_run.tokenizer.target.unknown(references), "references")  # which perplexity takes as they are
    hypotheses = [translation.text for translation in translations]
    best = [translation.hypotheses[0] for translation in translations]
    tokens = sum(len(hypothesis.tokens) + 1 for hypothesis in best)
    joined = [model_run.tokenizer.joined(line) for line in references]
    of_texts = _text_scores(model_run.tokenizer, hypotheses, joined, sentences.language)
    record = {
        **_with_signatures(of_texts | of_references),
        "by_length": by_length(sources, hypotheses, joined, sentences.language),
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        **provenance(model_run, sentences.data, sentences.name, others),
        **about(sentences, decoding),
    }
    return record, hypotheses


def table(record: dict[str, Any], *, lowercase: bool = False) -> str:
    """Returns the record as text: the data and the search, then three scores and those that only some records have.

    The other variants say much the same. BLEU is the lower-cased one if the run writes only `lowercase` letters.
    """
    names = ["sacrebleu_lc" if lowercase else "sacrebleu", "chrf", *bleu.AS_IS, bleu.ORACLE]
    printed = bleu.as_text({name: record[name] for name in (*names, "signatures") if name in record})
    signatures = record["signatures"]
    perplexity_line = f"{'perplexity':<12} {record['perplexity']:6.3f}   {signatures['perplexity']}"
    all_of_them = f"all {len(signatures)} scores: --json, or the record that the run keeps"
    speed = f"{record['seconds']:.1f} seconds, {record['tokens_per_second']:,.0f} subwords per second"
    return "\n".join((headline(record), "", printed, perplexity_line, all_of_them, "", speed))

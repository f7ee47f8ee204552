"""The object that `infer.load_run` returns: it translates, scores and returns attention maps."""

from collections.abc import Sequence
from typing import Any, overload

import jax

from base.errors import UserError
from data.corpus import target_language
from infer.attention.maps import AttentionMap, attention_maps
from infer.evaluate.translations import score
from infer.inside.lens import Lens, logit_lens
from infer.inside.trace import Patch, Trace, trace
from infer.runs import Run
from infer.scores.forced import check_lengths
from infer.translate.options import FULL_BATCH, Decoding, chosen
from infer.translate.translator import Hypothesis, Translation, Translator, translate_one
from run.averaging import named_steps
from run.parameters import count_parameters


class LoadedRun:
    """A trained model and its tokenizer; `run` has its config, parameters and step.

    A batch, whose sentences are searched together, has up to `batch_tokens` source positions, padding included.

    >>> model = load_run("runs/quickstart")
    >>> model.translate("The dog sleeps.")
    'Der Hund schläft.'
    >>> texts = [hypothesis.text for hypothesis in model.hypotheses("The dog sleeps.", nbest=2)[0]]
    """

    def __init__(self, run: Run, batch_tokens: int | None = None) -> None:
        if batch_tokens is not None and batch_tokens < 1:
            raise UserError(f"batch_tokens={batch_tokens}: at least 1, or None for the default of {FULL_BATCH:,}")
        self.run = run._replace(params=jax.device_put(run.params))  # once, not with each call
        self.batch_tokens = FULL_BATCH if batch_tokens is None else batch_tokens

    def __repr__(self) -> str:
        config = self.run.config
        steps = named_steps(self.run.checkpoints)
        count = count_parameters(self.run.params)
        return f"LoadedRun({str(self.run.workdir)!r}: {config.task}, {steps}, {count:,} parameters)"

    @overload
    def translate(  # type: ignore[overload-overlap]  # a string is a sequence of strings, and the first one counts
        self,
        lines: str,
        *,
        beam: int | None = None,
        alpha: float | None = None,
        extra_length: int | None = None,
        stopping: str | None = None,
    ) -> str: ...

    @overload
    def translate(
        self,
        lines: Sequence[str],
        *,
        beam: int | None = None,
        alpha: float | None = None,
        extra_length: int | None = None,
        stopping: str | None = None,
    ) -> list[str]: ...

    def translate(
        self,
        lines: str | Sequence[str],
        *,
        beam: int | None = None,
        alpha: float | None = None,
        extra_length: int | None = None,
        stopping: str | None = None,
    ) -> str | list[str]:
        """Returns the best translation of each line, or of one string; options default to the run's `config.decode`.

        Raises:
          UserError: an option is outside `infer.translate.options.LIMITS`, or unknown.
        """
        decoding = chosen(self.run.config.decode, beam=beam, alpha=alpha, extra_length=extra_length, stopping=stopping)
        translations = self._translations(lines, decoding)
        texts = [translation.text for translation in translations]
        return texts[0] if isinstance(lines, str) else texts

    def hypotheses(
        self,
        lines: str | Sequence[str],
        nbest: int = 1,
        *,
        beam: int | None = None,
        alpha: float | None = None,
        extra_length: int | None = None,
        stopping: str | None = None,
    ) -> list[tuple[Hypothesis, ...]]:
        """Returns up to `nbest` translations of each line, best first, each with `text`, `score` and `log_prob`.

        The beam is at least `nbest`. The score is log p, in nats and with EOS, over the length penalty (section 6.1).

        Raises:
          UserError: an option is outside `infer.translate.options.LIMITS`, or unknown.
        """
        if beam is None:
            beam = max(nbest, self.run.config.decode.beam)
        decoding = chosen(
            self.run.config.decode, beam=beam, alpha=alpha, extra_length=extra_length, stopping=stopping, nbest=nbest
        )
        return [translation.hypotheses for translation in self._translations(lines, decoding)]

    def _translations(self, lines: str | Sequence[str], decoding: Decoding) -> list[Translation]:
        config = self.run.model_config
        translator = Translator(config, self.run.tokenizer, decoding, batch_tokens=self.batch_tokens)
        return translator.translate(self.run.params, _as_lines(lines))

    def score(
        self, sources: str | Sequence[str], references: str | Sequence[str], language: str | None = None
    ) -> dict[str, Any]:
        """Translates `sources` and returns every variant of BLEU, chrF, exact match and perplexity, with `signatures`.

        All but perplexity are percentages. A string is one line. `language` is that of the references, for the
        tokenisers; it defaults to the target language that the run's training corpus names, or else to "de".

        Raises:
          UserError: the numbers of sources and references differ, or are 0; or a line is longer than the learned
            positions.
        """
        sources = _as_lines(sources)
        references = _as_lines(references)
        if len(sources) != len(references) or not sources:
            raise UserError(f"{len(sources)} sources and {len(references)} references: give one for each, at least one")
        check_lengths([self.run.model_config], self.run.tokenizer, sources, references)
        target = language or target_language(self.run.config.data.train) or "de"
        return score([self.run], sources, self.translate(sources), references, target)

    def attention_maps(self, source: str, target: str | None = None) -> dict[str, AttentionMap]:
        """Returns the weights of every layer and head as "encoder", "decoder" and "cross", with their tokens.

        `target` is the translation to use (teacher forcing); if None, the model's own.

        Raises:
          UserError: the model's mixer has no weights.
          ValueError: a sentence is longer than the model's learned positions.
        """
        translation = translate_one(self.run, source) if target is None else target
        return attention_maps(self.run.model_config, self.run.params, self.run.tokenizer, source, translation)

    def trace(self, source: str, target: str | None = None, patch: Patch | None = None) -> Trace:
        """Returns every named activation for a sentence and its translation; docs/inside.md lists the names.

        `target` is the translation to use (teacher forcing); if None, the model's own. `patch` replaces activations
        before anything is computed from them: `{name: {position: value}}`, with positions as in the trace's arrays.

        Raises:
          UserError: `patch` has an unknown name, a position that is not in the sentence, or a value of another shape;
            a sentence is longer than the model's learned positions; or the parameters are not finite.
        """
        translation = translate_one(self.run, source) if target is None else target
        return trace(self.run, source, translation, patch)

    def logit_lens(self, trace: Trace, stack: str = "decoder") -> Lens:
        """Returns what the model would predict from the output of each layer; `stack` is "encoder" or "decoder"."""
        return logit_lens(self.run, trace, stack)


def _as_lines(text: str | Sequence[str]) -> Sequence[str]:
    """Returns the lines given, or the one line that a string is: as a sequence it would be its letters."""
    return [text] if isinstance(text, str) else text

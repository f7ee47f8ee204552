"""The object that `infer.load_run` returns: it translates, scores and returns attention maps."""

from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from vaswani.data.corpus import target_language
from vaswani.errors import UserError, as_library, format_value
from vaswani.infer.attention.maps import AttentionMap, attention_maps
from vaswani.infer.evaluate.translations import score
from vaswani.infer.inside.lens import Lens, logit_lens
from vaswani.infer.inside.trace import Patch, Trace, trace
from vaswani.infer.runs import Run, open_run
from vaswani.infer.scores.forced import check_lengths
from vaswani.infer.translate.options import make_decoding
from vaswani.infer.translate.translator import (
    Hypothesis,
    Translation,
    Translator,
    count_several,
    note_several,
    translate_one,
)
from vaswani.numbers import pluralize
from vaswani.run.averaging import named_steps
from vaswani.run.parameters import count_parameters
from vaswani.run.sharding import data_mesh, place_params
from vaswani.search.options import Decoding, check


class SearchOptions(TypedDict, total=False):
    """Options of a search; one that is None or left out has the value of the run's `config.decode`."""

    beam: int | None
    alpha: float | None
    extra_length: int | None
    stopping: str | None


class LoadedRun:
    """A trained model and its tokenizer; `run` has its config, parameters and step.

    A batch, whose sentences are decoded together, has up to `batch_tokens` source positions, padding included.

    >>> model = load_run("runs/quickstart")
    >>> model.translate("The dog sleeps.")
    'Der Hund schläft.'
    >>> texts = [hypothesis.text for hypothesis in model.hypotheses("The dog sleeps.", nbest=2)[0]]
    """

    def __init__(self, run: Run, batch_tokens: int | None = None) -> None:
        # Once, not with each call: where all devices have them, as translating needs them.
        self.run = run._replace(params=place_params(data_mesh(), run.params))
        self.batch_tokens = batch_tokens

    def __repr__(self) -> str:
        config = self.run.config
        steps = named_steps(self.run.checkpoints)
        count = count_parameters(self.run.params)
        return f"LoadedRun({str(self.run.workdir)!r}: {config.task}, {steps}, {count:,} parameters)"

    @overload
    def translate(  # type: ignore[overload-overlap]  # a string is a sequence of strings, and the first one counts
        self, lines: str, *, split_sentences: bool = False, **options: Unpack[SearchOptions]
    ) -> str: ...

    @overload
    def translate(
        self, lines: Sequence[str], *, split_sentences: bool = False, **options: Unpack[SearchOptions]
    ) -> list[str]: ...

    @as_library()
    def translate(
        self, lines: str | Sequence[str], *, split_sentences: bool = False, **options: Unpack[SearchOptions]
    ) -> str | list[str]:
        """Returns the best translation of each line, or of one string.

        The options beam, alpha, extra_length and stopping default to the run's `config.decode`. With `split_sentences`
        the sentences of each line are translated one by one, and joined. Otherwise a warning says how many lines have
        several, of which many a model translates only the first.

        Raises:
          UserError: an option is outside `search.options.LIMITS`, or unknown; or there is a line feed within a line,
            which is allowed only with `split_sentences`.
        """
        decoding = make_decoding(self.run.config.decode, **options)
        translations = self._translations(_to_translate(lines, split_sentences), decoding, split_sentences)
        texts = [translation.text for translation in translations]
        return texts[0] if isinstance(lines, str) else texts

    @as_library()
    def hypotheses(
        self,
        lines: str | Sequence[str],
        nbest: int = 1,
        *,
        split_sentences: bool = False,
        **options: Unpack[SearchOptions],
    ) -> list[tuple[Hypothesis, ...]]:
        """Returns up to `nbest` translations of each line, best first, each with `text`, `score` and `log_prob`.

        The beam is at least `nbest`, unless it is given. The score is log p, in nats and with EOS, over the length
        penalty (section 6.1). The options are as in `translate`: with `split_sentences` the k-th best of each sentence
        are joined, and their scores added.

        Raises:
          UserError: as `translate`.
        """
        check("nbest", nbest)
        beam = max(nbest, self.run.config.decode.beam)
        decoding = make_decoding(self.run.config.decode, **{"beam": beam, **options}, nbest=nbest)
        translations = self._translations(_to_translate(lines, split_sentences), decoding, split_sentences)
        return [translation.hypotheses for translation in translations]

    def _translations(
        self, texts: Sequence[str], decoding: Decoding, split_sentences: bool = False
    ) -> list[Translation]:
        translator = Translator(
            self.run.model_config,
            self.run.tokenizer,
            decoding,
            batch_tokens=self.batch_tokens,
            split_sentences=split_sentences,
        )
        return translator.translate(self.run.params, texts)

    @as_library()
    def score(
        self, sources: str | Sequence[str], references: str | Sequence[str], language: str | None = None
    ) -> dict[str, Any]:
        """Translates `sources` and returns every variant of BLEU, chrF, exact match and perplexity, with `signatures`.

        All but perplexity are percentages. A string is one line. `language` is the references', for the
        tokenisers; it defaults to the target language that the run's training corpus names, or else to "de".

        Raises:
          UserError: the numbers of sources and references differ, or are 0; or a line is longer than the learned
            positions.
        """
        sources = _as_lines("sources", sources)
        references = _as_lines("references", references)
        if language is not None:
            _check_text("language", language)
        if len(sources) != len(references) or not sources:
            counts = f"{pluralize(len(sources), 'sources')} and {pluralize(len(references), 'references')}"
            raise UserError(f"{counts}: give one for each, at least one")
        check_lengths([self.run.model_config], self.run.tokenizer, sources, references)
        target = language or target_language(self.run.config.data.train) or "de"
        translations = self._translations(sources, make_decoding(self.run.config.decode))
        return score([self.run], sources, [translation.text for translation in translations], references, target)

    @as_library()
    def attention_maps(self, source: str, target: str | None = None) -> dict[str, AttentionMap]:
        """Returns the weights of every layer and head as "encoder", "decoder" and "cross", with their tokens.

        The last layer of "cross", averaged over its heads, shows best which word translates which (`infer.align`).
        `target` is the translation to use (teacher forcing); if None, the model's own.

        Raises:
          UserError: the model's mixer has no weights.
          ValueError: a sentence is longer than the model's learned positions.
        """
        translation = self._target(source, target)
        return attention_maps(self.run.model_config, self.run.params, self.run.tokenizer, source, translation)

    @as_library()
    def trace(self, source: str, target: str | None = None, patch: Patch | None = None) -> Trace:
        """Returns every named activation for a sentence and its translation; docs/inside.md lists the names.

        `target` is the translation to use (teacher forcing); if None, the model's own. `patch` replaces activations
        before anything is computed from them: `{name: {position: value}}`, with positions as in the trace's arrays.

        Raises:
          UserError: `patch` has an unknown name, a position that is not in the sentence, or a value of another shape;
            a sentence is longer than the model's learned positions; or the parameters are not finite.
        """
        translation = self._target(source, target)
        return trace(self.run, source, translation, patch)

    def _target(self, source: str, target: str | None) -> str:
        """Returns the target, or the model's own translation if there is none."""
        _check_text("source", source)
        if target is None:
            return translate_one(self.run, source)
        _check_text("target", target)
        return target

    def logit_lens(self, trace: Trace, stack: str = "decoder") -> Lens:
        """Returns the model's predictions from the output of each layer; `stack` is "encoder" or "decoder".

        Raises:
          UserError: `trace` is no result of `LoadedRun.trace`, or there is no such stack.
        """
        if not isinstance(trace, Trace):
            raise UserError(f"trace is {format_value(trace)}; it must be what `trace(source)` returns")
        return logit_lens(self.run, trace, stack)


def load(
    workdir: str | Path, checkpoint: str | int | None, batch_tokens: int | None, accept_changes: bool
) -> LoadedRun:
    """Loads a translator, as `infer.load_run` describes."""
    if not isinstance(workdir, (str, Path)):
        raise UserError(f"workdir is {format_value(workdir)}; it must be the folder of a run, a string or a Path")
    if batch_tokens is not None and (type(batch_tokens) is not int or batch_tokens < 1):
        raise UserError(
            f"batch_tokens is {format_value(batch_tokens)}; it must be a whole number, at least 1, or None for "
            "the default"
        )
    with as_library():
        return LoadedRun(open_run(workdir, checkpoint, accept_changes=accept_changes), batch_tokens)


def _to_translate(lines: str | Sequence[str], split_sentences: bool) -> list[str]:
    """Returns the lines given; warns of those with several sentences, unless these are split.

    Raises:
      UserError: these are no strings; or one has a line feed, other than the last one that reading a file leaves.
    """
    texts = _as_lines("lines", lines)
    if split_sentences:
        return texts
    for place, text in enumerate(texts):
        if "\n" in text.strip():
            name = "lines" if isinstance(lines, str) else f"lines[{place}]"
            raise UserError(f"{name} has a line feed in it: give a list of lines, or split_sentences=True")
    note_several(count_several(texts), len(texts), "split_sentences=True")
    return texts


def _as_lines(name: str, text: Any) -> list[str]:
    """Returns the lines given, or the one line that a string is: as a sequence it would be its letters.

    Raises:
      UserError: these are no strings; the message begins with the name of the argument.
    """
    if isinstance(text, str):
        return [text]
    has_no_order = isinstance(text, Mapping | Set)
    if isinstance(text, bytes) or has_no_order or not isinstance(text, Iterable):
        raise UserError(f"{name} is {format_value(text)}; it must be a string, or a list of strings")
    lines = list(text)
    for place, line in enumerate(lines):
        _check_text(f"{name}[{place}]", line)
    return lines


def _check_text(name: str, value: object) -> None:
    """Raises a `UserError` unless the argument of this name is a string."""
    if not isinstance(value, str):
        raise UserError(f"{name} is {format_value(value)}; it must be a string")

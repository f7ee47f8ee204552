"""Translates any number of lines of any length; translation i is that of line i.

Lines are sorted by length into a few static shapes: rows of 8, 16, 32, .. source subwords, each with one full and one
small batch size, so that little is compiled, and nothing again when the parameters change. The length of a row depends
only on its line, and each sentence is searched independently, so the other rows of a batch never change a translation.
"""

import dataclasses
import functools
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from base.errors import UserError
from base.ids import EOS
from data.batching import length_batches
from data.tokenizer import Tokenizer
from infer.runs import Run
from infer.translate.options import Decoding, chosen
from infer.translate.stages import find
from model.config import ModelConfig
from model.prefix_lm import translation_model
from model.search.beam import beam_search
from model.search.diverse import diverse_search
from model.search.ensemble import Ensemble
from model.search.rules import Rules
from model.search.sampling import sample
from model.search.state import Hypotheses, Search
from run.sharding import cut_rows, data_mesh, fetch, place_params, row_parts

SHORTEST_ROW = 8
MAX_INPUT = 512  # source subwords with EOS; longer lines are translated in pieces
FULL_BATCH = 2048  # source positions in one full batch
SMALL_SHARE = 8  # a small batch has 1 / SMALL_SHARE of the rows of a full one
WIDE_BEAM = 32  # the largest beam for a full batch: memory for attention over all beams' keys grows with the square

_BREAKS = (r"(?<=[.!?。！？])\s+", r"(?<=[,;:])\s+", r"\s+", r"(?=.)")


class Hypothesis(NamedTuple):
    """One translation. `log_prob` (natural) includes EOS; `score` decides the ranking; `tokens` exclude EOS."""

    text: str
    score: float
    log_prob: float
    tokens: tuple[int, ...]


class Required(NamedTuple):
    """What the translation of a line must be like: begin with `prefix`, and contain each of `phrases`."""

    prefix: str = ""
    phrases: tuple[str, ...] = ()


class Translation(NamedTuple):
    """The translations of one line, best first: at least one, at most `nbest`."""

    hypotheses: tuple[Hypothesis, ...]

    @property
    def text(self) -> str:
        """The text of the best translation."""
        return self.hypotheses[0].text


NOTHING = Hypothesis("", 0.0, 0.0, ())


class Translator:
    """Translates with a model's config, a tokenizer and decoding options; parameters are passed with each call.

    Args:
      model_config: sizes and variant of the model; of several, with a tuple of parameters, an ensemble searches.
      tokenizer: text to ids and back.
      decoding: options of beam search or sampling; line i's samples depend only on the seed, on i and on the line.
      max_input: source subwords (EOS included) beyond which a line is split; at most the model's learned positions.
      batch_tokens: source positions in a full batch; fewer for beams above `WIDE_BEAM`, to save memory.
      mesh: devices to shard batches over, by rows; None for all of them (`run.sharding.data_mesh()`). With several
        processes each translates its share, and each gets all translations.

    Raises:
      UserError: the beam is larger than the vocabulary.
    """

    def __init__(
        self,
        model_config: ModelConfig | tuple[ModelConfig, ...],
        tokenizer: Tokenizer,
        decoding: Decoding,
        *,
        max_input: int = MAX_INPUT,
        batch_tokens: int = FULL_BATCH,
        mesh: Mesh | None = None,
    ) -> None:
        if decoding.beam > tokenizer.vocab_size:
            raise UserError(f"beam is {decoding.beam}; it must be at most {tokenizer.vocab_size}, the vocabulary")
        self._mesh = data_mesh() if mesh is None else mesh
        self.tokenizer, self._sampling = tokenizer, decoding.sampling
        self._batch_tokens = batch_tokens * WIDE_BEAM**2 // max(WIDE_BEAM, decoding.rows) ** 2
        configs = model_config if isinstance(model_config, tuple) else (model_config,)
        self._max_input = min(max_input, *(config.encoding.limit or max_input for config in configs))
        powers = [SHORTEST_ROW << n for n in range(self._max_input.bit_length())]
        self._row_lengths = [*(length for length in powers if length < self._max_input), self._max_input]
        models = tuple(map(translation_model, configs))
        model: Any = models[0] if len(models) == 1 else Ensemble(models)
        nbest, extra_length = decoding.nbest, decoding.extra_length
        self._rules = Rules(min_length=decoding.min_length, no_repeat=decoding.no_repeat)
        self._extra_length, self._nbest, self._plain = extra_length, nbest, decoding.groups == 1
        options: dict[str, Any] = {"beam": decoding.beam, "alpha": decoding.alpha, "penalty": decoding.length_penalty}
        search: Callable[..., Search] = beam_search
        if decoding.groups > 1:
            search, options = diverse_search, options | {"groups": decoding.groups, "diversity": decoding.diversity}
        elif self._sampling is None:
            options |= {"nbest": nbest}
        else:
            search, options = sample, self._sampling._asdict() | {"samples": nbest}
            self._key = jax.random.key(options.pop("seed"))
        self._find = functools.partial(find, search, model, options | {"extra_length": extra_length})

    def translate(
        self,
        params: Any,
        texts: Sequence[str],
        *,
        required: Sequence[Required] = (),
        first_line: int = 1,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Translation]:
        """Returns the translations of `texts`, in order; a line without subwords gives the empty text.

        A line beyond the input limit is split, if possible between sentences, or else between words; the translations
        of its pieces are joined with spaces, their log-probabilities and scores are summed, and a warning goes to
        stderr. `first_line` numbers the first text, in warnings and for sampling. `required` has an item for each text,
        or none. `progress` is called with the number of rows (lines or pieces) done.

        Raises:
          UserError: something is required of a line that is split, or that has no room for it, or of samples.
        """
        given = {n: one for n, one in enumerate(required, first_line) if one != Required()}
        if given and (self._sampling is not None or not self._plain):
            raise UserError("a prefix or phrases can be required of plain search only, not of samples or groups")
        rows: list[list[int]] = []
        line_rows: list[range] = []
        for line, text in enumerate(texts, first_line):
            pieces = [ids for ids in self._cut(text) if ids]
            if len(pieces) > 1 and line in given:
                raise UserError(f"line {line} is too long for one piece, so nothing can be required of its translation")
            if len(pieces) > 1:
                print(
                    f"warning: line {line} has more than {self._max_input - 1} subwords; it is translated in"
                    f" {len(pieces)} pieces",
                    file=sys.stderr,
                )
            line_rows.append(range(len(rows), len(rows) + len(pieces)))
            rows += pieces
        numbers = [line for line, of_line in enumerate(line_rows, first_line) for _ in of_line]
        with jax.set_mesh(self._mesh):
            placed = (
                tuple(place_params(self._mesh, member) for member in params)
                if isinstance(params, tuple)
                else place_params(self._mesh, params)
            )
            found = self._translate_rows(placed, rows, numbers, given, progress)
        return [_join([found[row] for row in of_line]) for of_line in line_rows]

    def _cut(self, text: str) -> list[list[int]]:
        """Returns the ids of `text`, in pieces that fit the input limit with an EOS."""
        ids = self.tokenizer.encode(text)
        if len(ids) < self._max_input:
            return [ids]
        if len(text) < 2:
            return [ids[: self._max_input - 1]]
        middle, third = len(text) // 2, len(text) // 3
        for pattern in _BREAKS:
            places = [match.end() for match in re.finditer(pattern, text) if third <= match.end() <= len(text) - third]
            if places:
                middle = min(places, key=lambda place: abs(place - len(text) // 2))
                break
        return self._cut(text[:middle]) + self._cut(text[middle:])

    def _translate_rows(
        self,
        params: Any,
        rows: list[list[int]],
        numbers: list[int],
        required: dict[int, Required],
        progress: Callable[[int], None],
    ) -> list[list[Hypothesis]]:
        sources = [[*row, EOS] for row in rows]
        found: list[list[Hypothesis]] = [[] for _ in rows]
        done = 0
        for batch in length_batches(
            [*map(len, sources)],
            self._row_lengths,
            tokens=self._batch_tokens,
            multiple=row_parts(self._mesh),
            small=SMALL_SHARE,
        ):
            lines = [numbers[row] for row in batch.members]
            hypotheses = self._decode(params, batch.padded(sources), lines, required)
            for row, of_row in zip(batch.members, hypotheses, strict=True):
                found[row] = of_row
            done += len(batch.members)
            progress(done)
        return found

    def _decode(
        self, params: Any, source_bs: np.ndarray, numbers: list[int], required: dict[int, Required]
    ) -> list[list[Hypothesis]]:
        rules = self._rules_of([required.get(n, Required()) for n in numbers], numbers, source_bs)
        if rules is not None:
            found = self._find(params, inputs_bs=cut_rows(self._mesh, source_bs), rules=rules)
        elif self._sampling is None:
            found = self._find(params, inputs_bs=cut_rows(self._mesh, source_bs))
        else:
            line_b = np.array(numbers + [0] * (len(source_bs) - len(numbers)), np.uint32)
            keys_b = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(self._key, cut_rows(self._mesh, line_b))
            found = self._find(params, inputs_bs=cut_rows(self._mesh, source_bs), keys_b=keys_b)
        found = fetch(found)
        return [self._hypotheses(found, row)[: self._nbest] for row in range(len(numbers))]

    def _rules_of(self, required: list[Required], numbers: list[int], source_bs: np.ndarray) -> Rules | None:
        """Returns the rules of a batch; None if there are none, which is another, faster program."""
        encode = self.tokenizer.target.encode
        prefixes = [encode(one.prefix) for one in required]
        phrases = [[ids for phrase in one.phrases if (ids := encode(phrase))] for one in required]
        for row, (prefix, of_row) in enumerate(zip(prefixes, phrases, strict=True)):
            needed, room = len(prefix) + sum(map(len, of_row)) + 1, int((source_bs[row] > 0).sum()) + self._extra_length
            if needed > max(room, 1):
                raise UserError(
                    f"line {numbers[row]}: its translation may have {room} subwords, and what is required takes "
                    f"{needed}; raise --extra_length"
                )
        rules = self._rules
        if any(prefixes):
            prefix_bp = np.zeros((len(source_bs), _rounded(max(map(len, prefixes)))), np.int32)
            for row, prefix in enumerate(prefixes):
                prefix_bp[row, : len(prefix)] = prefix
            rules = dataclasses.replace(rules, prefix_bp=cut_rows(self._mesh, prefix_bp))
        if any(phrases):
            longest = max(len(ids) for of_row in phrases for ids in of_row)
            sizes = (_rounded(max(map(len, phrases)), 2), _rounded(longest, 4))
            phrases_bcl = np.zeros((len(source_bs), *sizes), np.int32)
            for row, of_row in enumerate(phrases):
                for number, ids in enumerate(of_row):
                    phrases_bcl[row, number, : len(ids)] = ids
            rules = dataclasses.replace(rules, phrases_bcl=cut_rows(self._mesh, phrases_bcl))
        return None if rules is self._rules and rules == Rules() else rules

    def _hypotheses(self, found: Hypotheses, row: int) -> list[Hypothesis]:
        """Returns the hypotheses of one row; an empty one if the parameters are not finite and none was found."""
        hypotheses = []
        for ids_t, length, log_prob, score in zip(*(field[row] for field in found), strict=True):
            if length > 0:
                tokens = tuple(int(token) for token in ids_t[: length - 1])
                hypotheses.append(Hypothesis(self.tokenizer.decode(tokens), float(score), float(log_prob), tokens))
        return hypotheses or [NOTHING._replace(score=-np.inf, log_prob=-np.inf)]


def _rounded(size: int, multiple: int = 8) -> int:
    """Returns the next multiple, so that few shapes are compiled."""
    return -(-size // multiple) * multiple


def _join(pieces: list[list[Hypothesis]]) -> Translation:
    """Joins the k-th best of each piece into the k-th best of the line; a piece with fewer repeats its last."""
    if not pieces:
        return Translation((NOTHING,))
    joined = []
    for k in range(max(len(piece) for piece in pieces)):
        parts = [piece[min(k, len(piece) - 1)] for piece in pieces]
        joined.append(
            Hypothesis(
                " ".join(part.text for part in parts if part.text) if len(parts) > 1 else parts[0].text,
                sum(part.score for part in parts),
                sum(part.log_prob for part in parts),
                tuple(token for part in parts for token in part.tokens),
            )
        )
    return Translation(tuple(joined))


def note_unknown(count: int) -> None:
    """Says on stderr how many symbols of what was read the vocabulary lacks, if any."""
    if count:
        print(f"note: {count:,} symbols of the text are not in the vocabulary and read as unknown", file=sys.stderr)


def translate_one(model_run: Run, text: str) -> str:
    """Returns the run's translation of one line, with the decoding options of its config.

    It is to be encoded again: words that `data.joiner` joins have their marks still.
    """
    translator = Translator(model_run.model_config, model_run.tokenizer, chosen(model_run.config.decode))
    best = translator.translate(model_run.params, [text])[0].hypotheses[0]
    return translator.tokenizer.marked(best.tokens) if translator.tokenizer.joiner else best.text

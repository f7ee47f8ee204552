"""Translates any number of lines of any length; translation i belongs to line i.

Lines are sorted by length into a few static shapes: rows of 32, 64, 128, .. source subwords, each with one full and one
small batch size, or a single row where a call has few lines, so that little is compiled, and nothing again when the
parameters change. The length of a row depends only on its line, and each sentence is decoded independently, so the
other rows of a batch never change a translation.
On a CPU several batches are translated at once, each in its own thread.
"""

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from vaswani.data.length_batches import LengthBatch, length_batches
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError, note
from vaswani.infer.runs import Run
from vaswani.infer.translate.breaks import break_of, joined_by_script, sentences_of
from vaswani.infer.translate.options import NARROW_BEAM, full_batch, make_decoding
from vaswani.infer.translate.required import NONE_REQUIRED, Required, required_ids, with_required
from vaswani.infer.translate.stages import find
from vaswani.model.config import CommonConfig
from vaswani.numbers import pluralize
from vaswani.run.sharding import data_mesh, place_params, row_parts, shard_rows
from vaswani.search.ensemble import model_or_ensemble
from vaswani.search.options import Decoding
from vaswani.search.rules import Rules
from vaswani.search.state import Hypotheses

SHORTEST_ROW = 32
MAX_INPUT = 512  # source subwords with EOS; longer lines are translated in pieces
SMALL_SHARE = 4  # a small batch has 1 / SMALL_SHARE of the rows of a full one, as a full one that has shrunk
AT_ONCE = 4  # batches on a CPU, whose cores one batch of a small model keeps busy only half of the time
WIDE_BEAM = 32  # the largest beam for a full batch: memory for attention over all beams' keys grows with the square


class Hypothesis(NamedTuple):
    """One translation. `log_prob` (natural) includes EOS; `score` decides the ranking; `tokens` exclude EOS."""

    text: str
    score: float
    log_prob: float
    tokens: tuple[int, ...]


class Translation(NamedTuple):
    """The translations of one line, best first: at least one, at most `nbest`."""

    hypotheses: tuple[Hypothesis, ...]

    @property
    def text(self) -> str:
        """The text of the best translation."""
        return self.hypotheses[0].text


class _Row(NamedTuple):
    """A line, or a piece of one that is too long, as the model reads it, mostly with EOS. `line` is its number."""

    line: int
    ids: list[int]


NOTHING = Hypothesis("", 0.0, 0.0, ())


def row_lengths(configs: Sequence[CommonConfig], max_input: int = MAX_INPUT) -> list[int]:
    """Returns the lengths of rows, shortest first; the last is the most that `max_input` and every model allow."""
    limits = [config.limit or max_input for config in configs]
    longest = min(max_input, *limits)
    powers = [SHORTEST_ROW << n for n in range(longest.bit_length())]
    return [*(length for length in powers if length < longest), longest]


class Translator:
    """Translates with a model's config, a tokenizer and decoding options; parameters are passed with each call.

    Args:
      model_config: sizes and variant of the model; of several, with a tuple of parameters, an ensemble searches.
      tokenizer: text to ids and back.
      decoding: options of beam search or sampling; line i's samples depend only on the seed, on i and on the line.
      max_input: source subwords (EOS included) beyond which a line is split; at most the model's learned positions.
      batch_tokens: source positions in a full batch, None for `full_batch`; fewer for beams above `WIDE_BEAM`.
      split_sentences: whether the sentences of a line are translated one by one, as if the line were too long.
      mesh: devices to shard batches over, by rows; None for all of them (`run.sharding.data_mesh()`). With several
        processes each translates its share, and each gets all translations.

    Raises:
      UserError: the beam is larger than the vocabulary, or samples or groups are to begin with a language.
    """

    def __init__(
        self,
        model_config: CommonConfig | tuple[CommonConfig, ...],
        tokenizer: Tokenizer,
        decoding: Decoding,
        *,
        max_input: int = MAX_INPUT,
        batch_tokens: int | None = None,
        split_sentences: bool = False,
        mesh: Mesh | None = None,
    ) -> None:
        if decoding.beam > tokenizer.vocab_size:
            raise UserError(f"beam is {decoding.beam}; it must be at most {tokenizer.vocab_size}, the vocabulary")
        self._mesh = data_mesh() if mesh is None else mesh
        self.tokenizer = tokenizer
        self._decoding = decoding
        configs = model_config if isinstance(model_config, tuple) else (model_config,)
        platform = self._mesh.devices.flat[0].platform
        caches = max(NARROW_BEAM, decoding.rows) * len(configs)
        tokens = full_batch(platform, caches) if batch_tokens is None else batch_tokens
        self._batch_tokens = tokens * WIDE_BEAM**2 // max(WIDE_BEAM, decoding.rows) ** 2
        on_one_cpu = self._mesh.size == 1 and platform == "cpu"
        self._at_once = max(1, AT_ONCE * NARROW_BEAM // caches) if on_one_cpu else 1
        limits = [config.limit for config in configs if config.limit]
        self._positions = min(limits, default=None)  # of the shortest table of learned positions
        self._row_lengths = row_lengths(configs, max_input)
        self._max_input = self._row_lengths[-1]
        self.split_sentences = split_sentences
        model = model_or_ensemble(model_config)
        given = len(tokenizer.target.begin)
        self._rules = Rules(min_length=decoding.min_length, no_repeat=decoding.no_repeat, given=given)
        if given and not self._is_plain:
            raise UserError("this model's translations begin with a language, which only plain search can require")
        if decoding.sampling is not None:
            self._key = jax.random.key(decoding.sampling.seed)
        self._find = functools.partial(find, model, decoding)

    def translate(
        self,
        params: Any,
        texts: Sequence[str],
        *,
        required: Sequence[Required] = (),
        first_line: int = 1,
        progress: Callable[[int], None] = lambda done: None,
    ) -> list[Translation]:
        """Returns the translations of `texts`, in order; a blank line or one without subwords gives the empty text.

        A line beyond the input limit is split, if possible between sentences, or else between words; the translations
        of its pieces are joined as their script is written, their log-probabilities and scores are summed, and a
        warning goes to stderr. `first_line` numbers the first text, in warnings and for sampling. `required` has an
        item for each text, or none. `progress` is called with the number of lines done, of those with subwords.

        Raises:
          UserError: something is required of a line that is split, or that has no room for it, or of samples.
        """
        required_of = {line: wish for line, wish in enumerate(required, first_line) if wish != Required()}
        if required_of and not self._is_plain:
            raise UserError("a prefix or phrases can be required of plain search only, not of samples or groups")
        # A line is a row of the search; one that is too long is several.
        rows: list[_Row] = []
        for line, text in enumerate(texts, first_line):
            pieces = self._pieces(line, text, must_be_whole=line in required_of)
            rows += [_Row(line, [*ids, *self.tokenizer.source_end]) for ids in pieces]

        # The parameters where the mesh has them, unless they already are; then all rows, by length.
        with jax.set_mesh(self._mesh):
            placed = params if _are_placed(params, self._mesh) else place_params(self._mesh, params)
            row_hypotheses = self._translate_rows(placed, rows, required_of, progress)

        # Back to lines: the pieces of each in their order.
        found: list[list[list[Hypothesis]]] = [[] for _ in texts]  # of each line the hypotheses of its pieces
        for row, hypotheses in zip(rows, row_hypotheses, strict=True):
            found[row.line - first_line].append(hypotheses)
        return [_join(pieces) for pieces in found]

    @property
    def _is_plain(self) -> bool:
        """Whether outputs are decoded as `search.beam` defines it: neither samples nor groups."""
        return self._decoding.sampling is None and self._decoding.groups == 1

    def _pieces(self, line: int, text: str, *, must_be_whole: bool) -> list[list[int]]:
        """Returns the ids of a line in pieces that fit the input limit: none of a blank line or one without subwords.

        A warning on stderr says if there are several.

        Raises:
          UserError: there are several, and the line `must_be_whole`.
        """
        if self.tokenizer.is_blank(text):
            return []
        sentences = source_sentences(self.tokenizer, text) if self.split_sentences else [text]
        pieces = [ids for sentence in sentences for ids in self._cut(sentence) if ids]
        if len(pieces) > 1 and must_be_whole:
            raise UserError(
                f"line {line} is not translated in one piece, so nothing can be required of its translation"
            )
        if len(pieces) > len(sentences):
            note(
                f"line {line} has more than {self._max_input - 1} subwords; it is translated in {len(pieces)} pieces",
                "warning",
            )
        return pieces

    def _cut(self, text: str) -> list[list[int]]:
        """Returns the ids of `text`, in pieces that fit the input limit with an EOS."""
        ids = self.tokenizer.encode(text)
        if len(ids) < self._max_input:
            return [ids]
        leading = self.tokenizer.leading(text)
        rest = text[len(leading) :]
        if len(rest) < 2:
            return [ids[: self._max_input - 1]]
        # Two halves, each of which may be too long again.
        place = break_of(rest)
        # A space between the pieces belongs to neither: a model of characters would read it, and write it twice.
        return self._cut(leading + rest[:place].rstrip()) + self._cut(leading + rest[place:])

    def _translate_rows(
        self,
        params: Any,
        rows: list[_Row],
        required_of: dict[int, Required],
        progress: Callable[[int], None],
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each row."""
        sources = [row.ids for row in rows]
        row_hypotheses: list[list[Hypothesis]] = [[] for _ in rows]
        # Rows of similar lengths share a batch, so that little of it is padding. A few are each decoded by themselves:
        # a batch of one row takes a fifth of the time of a small one.
        batches = length_batches(
            [len(source) for source in sources],
            self._row_lengths,
            tokens=1 if len(rows) <= self._at_once else self._batch_tokens,
            multiple=row_parts(self._mesh),
            small=SMALL_SHARE,
        )

        def decode(batch: LengthBatch) -> list[list[Hypothesis]]:
            members = [rows[member] for member in batch.members]
            with jax.set_mesh(self._mesh):  # the caller's mesh is not its threads'
                return self._decode(params, members, batch.padded(sources), required_of)

        # One batch at a time, or on one CPU several (`AT_ONCE`). A line is done with its last piece.
        pieces_left = Counter(row.line for row in rows)
        done = 0
        threads = ThreadPoolExecutor(self._at_once)  # which starts none before it is given work
        decoded = threads.map(decode, batches) if len(batches) > 1 else map(decode, batches)
        try:
            for batch, hypotheses in zip(batches, decoded, strict=True):
                for member, hypotheses_of_row in zip(batch.members, hypotheses, strict=True):
                    row_hypotheses[member] = hypotheses_of_row
                    line = rows[member].line
                    pieces_left[line] -= 1
                    if not pieces_left[line]:
                        done += 1
                progress(done)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # after an error no further batch is begun
        return row_hypotheses

    def _decode(
        self, params: Any, rows: list[_Row], source_bs: np.ndarray, required_of: dict[int, Required]
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of `rows`, the first of the batch `source_bs`, in which padding follows them."""
        arrays: dict[str, Any] = {"inputs_bs": shard_rows(self._mesh, source_bs)}
        rules = self._rules_of(rows, required_of, len(source_bs))
        if rules is not None:
            arrays["rules"] = rules
        elif self._decoding.sampling is not None:
            # A key for each line, by its number: its samples do not depend on the batch that it is in.
            padding = [0] * (len(source_bs) - len(rows))
            line_b = np.array([row.line for row in rows] + padding, np.uint32)
            fold_in_lines = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
            arrays["keys_b"] = fold_in_lines(self._key, shard_rows(self._mesh, line_b))
        outputs = self._find(params, **arrays)
        return [self._hypotheses(outputs, row)[: self._decoding.nbest] for row in range(len(rows))]

    def _rules_of(self, rows: list[_Row], required_of: dict[int, Required], size: int) -> Rules | None:
        """Returns the rules of a batch of `size` rows; None if there are none, which is another, faster program."""
        target = self.tokenizer.target
        required = []
        for row in rows:
            ids = required_ids(target, required_of.get(row.line, Required()), row.line)
            self._check_room(row, ids.size)
            required.append(ids)
        if any(ids != NONE_REQUIRED for ids in required):
            return with_required(self._rules, target, required, size, functools.partial(shard_rows, self._mesh))
        return None if self._rules == Rules() else self._rules

    def _check_room(self, row: _Row, needed: int) -> None:
        """Raises a `UserError` if a line's translation may not have the `needed` subwords, EOS among them."""
        room = len(row.ids) + self._decoding.extra_length
        cure = "raise --extra_length"
        if self._positions is not None and self._positions < room:
            room = self._positions
            cure = "the model has no more learned positions"
        if needed > max(room, 1):
            raise UserError(f"line {row.line}: the required text takes {needed} subwords; the limit is {room}: {cure}")

    def _hypotheses(self, outputs: Hypotheses, row: int) -> list[Hypothesis]:
        """Returns the hypotheses of one row; an empty one if the parameters are not finite and there is none."""
        hypotheses = hypotheses_of(outputs, row, self.tokenizer.decode)
        return hypotheses or [NOTHING._replace(score=-np.inf, log_prob=-np.inf)]


def _are_placed(params: Any, mesh: Mesh) -> bool:
    """Returns whether parameters are arrays of this mesh already; there is one way to shard them over it."""
    return all(
        isinstance(leaf, jax.Array) and getattr(leaf.sharding, "mesh", None) == mesh for leaf in jax.tree.leaves(params)
    )


def hypotheses_of(outputs: Hypotheses, row: int, text_of: Callable[[tuple[int, ...]], str]) -> list[Hypothesis]:
    """Returns the hypotheses of one row of a search's outputs, whose slots may be empty; `text_of` spells tokens."""
    hypotheses = []
    fields = [np.asarray(field[row]) for field in outputs]
    for ids_t, length, log_prob, score in zip(*fields, strict=True):
        if length > 0:
            tokens = tuple(int(token) for token in ids_t[: length - 1])
            hypotheses.append(Hypothesis(text_of(tokens), float(score), float(log_prob), tokens))
    return hypotheses


def _join(pieces: list[list[Hypothesis]]) -> Translation:
    """Joins the k-th best of each piece into the k-th best of the line; a piece with fewer repeats its last."""
    if not pieces:
        return Translation((NOTHING,))
    joined = []
    for k in range(max(len(piece) for piece in pieces)):
        parts = [piece[min(k, len(piece) - 1)] for piece in pieces]
        joined.append(
            Hypothesis(
                text=joined_by_script([part.text for part in parts if part.text]),
                score=sum(part.score for part in parts),
                log_prob=sum(part.log_prob for part in parts),
                tokens=tuple(token for part in parts for token in part.tokens),
            )
        )
    return Translation(tuple(joined))


def source_sentences(tokenizer: Tokenizer, text: str) -> list[str]:
    """Returns the sentences of one or more lines, each with what its line begins with: a language, or a task."""
    sentences = []
    for line in text.split("\n"):
        leading = tokenizer.leading(line)
        sentences += [leading + sentence for sentence in sentences_of(line[len(leading) :])]
    return sentences


def count_several(texts: Sequence[str]) -> int:
    """Returns how many of the texts have several sentences."""
    return sum(len(sentences_of(text)) > 1 for text in texts)


def note_several(several: int, lines: int, cure: str) -> None:
    """Warns of lines with several sentences, if there are any, and names the cure."""
    if several:
        note(
            f"several sentences in {several:,} of {pluralize(lines, 'lines')}: a model trained on single ones may "
            f"translate only the first; {cure} translates each",
            "warning",
        )


def note_unknown(count: int, what: str = "text") -> None:
    """Says on stderr how many symbols of what was read the vocabulary lacks, if any."""
    if count:
        symbols = pluralize(count, f"symbols of the {what}")
        note(f"not in the vocabulary, and so read as unknown: {symbols}")


def translate_one(model_run: Run, text: str) -> str:
    """Returns the run's translation of one line, with the decoding options of its config.

    It is to be encoded again: words that `data.joiner` joins have their marks still.
    """
    translator = Translator(model_run.model_config, model_run.tokenizer, make_decoding(model_run.config.decode))
    best = translator.translate(model_run.params, [text])[0].hypotheses[0]
    return translator.tokenizer.marked(best.tokens) if translator.tokenizer.joiner else best.text

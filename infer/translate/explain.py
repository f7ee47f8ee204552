"""Draws how beam search found the translations of a sentence: every candidate considered, kept, finished or pruned.

The search is `search.beam`'s, advanced one step at a time; `consider` there is what a step considers. The
page is one file that loads nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from vaswani.data.lines import is_blank
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.files import write_text, writing
from vaswani.ids import EOS
from vaswani.infer.attention.page import labels
from vaswani.infer.html import inline_scripts, read_template, script_json, script_policy
from vaswani.infer.translate.stream import chunks
from vaswani.infer.translate.translator import row_lengths
from vaswani.model.config import CommonConfig
from vaswani.search import state as states
from vaswani.search.beam import Extensions, beam_search, consider, length_penalty
from vaswani.search.ensemble import model_or_ensemble
from vaswani.search.options import Decoding
from vaswani.search.rules import Rules
from vaswani.search.state import Hypotheses, Model, SearchState

TEMPLATE = Path(__file__).with_name("explain.html")
MOST_LINES = 20
LONGEST = 100  # source subwords, beyond which no screen could show the tree

KEPT = "kept"  # extended in the next step
PRUNED = "pruned"  # less probable than the beam's
FINISHED = "finished"  # ends in EOS; if the stopping is full, it is also among the m most probable of its step
ABANDONED = "abandoned"  # alive when the search ended

Ids = tuple[int, ...]


class Node(NamedTuple):
    """A candidate: a hypothesis extended by one token; `text` is what the tokens up to it spell.

    `parent` is the place of the hypothesis among the nodes of the step before, -1 at the first. One that is finished
    has a score, and its `rank` from 1 if it is one of the translations returned, else 0.
    """

    token: int
    text: str
    parent: int
    log_prob: float
    state: str
    score: float | None
    rank: int


class BeamTree(NamedTuple):
    """The search of one sentence: the nodes of each step, most probable first, and the labels of their tokens."""

    source: str
    decoding: Decoding
    steps: list[list[Node]]
    pieces: dict[int, str]

    def leaves(self) -> list[tuple[list[int], Node]]:
        """Returns the translations, best first: the tokens of each, without EOS, and its last node."""
        found = []
        for step, nodes in enumerate(self.steps):
            for node in nodes:
                if node.rank:
                    found.append((self._tokens_before(step, node), node))
        return sorted(found, key=lambda leaf: leaf[1].rank)

    def _tokens_before(self, step: int, node: Node) -> list[int]:
        tokens = []
        while step > 0:
            step -= 1
            node = self.steps[step][node.parent]
            tokens.append(node.token)
        return tokens[::-1]

    def as_json(self) -> dict[str, Any]:
        """Returns the tree in the form that beam_tree.js draws."""
        steps = []
        for nodes in self.steps:
            steps.append([{**node._asdict(), "token": self.pieces[node.token]} for node in nodes])
        return {
            "source": self.source,
            "beam": self.decoding.beam,
            "alpha": self.decoding.alpha,
            "stopping": self.decoding.stopping,
            "steps": steps,
        }


def beam_tree(
    model_config: CommonConfig | tuple[CommonConfig, ...],
    params: Any,
    tokenizer: Tokenizer,
    decoding: Decoding,
    text: str,
) -> BeamTree:
    """Returns the search for the translations of one line; the arguments are as in `Translator`.

    Raises:
      UserError: the line has no subword, or too many.
    """
    assert decoding.sampling is None and decoding.groups == 1, "only a plain search is a beam"
    source_ids = tokenizer.source_ids(text)
    subwords = len(source_ids) - len(tokenizer.source_end)
    if not 1 <= subwords < LONGEST:
        raise UserError(f"a sentence of {subwords} subwords cannot be drawn, only one of 1 to {LONGEST - 1}")
    configs = model_config if isinstance(model_config, tuple) else (model_config,)
    model = model_or_ensemble(model_config)
    lengths = row_lengths(configs)  # as in `Translator`, so that little is compiled
    if len(source_ids) > lengths[-1]:
        raise UserError(f"the sentence has more than the {lengths[-1] - 1} subwords that the model can read")
    width = next(length for length in lengths if length >= len(source_ids))
    inputs_bs = np.zeros((1, width), np.int32)
    inputs_bs[0, : len(source_ids)] = source_ids
    rules = Rules(min_length=decoding.min_length, no_repeat=decoding.no_repeat)
    begin = tokenizer.target.begin
    if begin:  # with the token of a language
        rules = replace(rules, prefix_bp=jnp.asarray([begin]), given=len(begin))
    has_rules = begin or rules != Rules()
    arrays = {"inputs_bs": jnp.asarray(inputs_bs), "rules": rules if has_rules else None}
    return _recorded(model, params, arrays, tokenizer, decoding, text)


def _recorded(
    model: Model,
    params: Any,
    arrays: dict[str, Any],
    tokenizer: Tokenizer,
    decoding: Decoding,
    text: str,
) -> BeamTree:
    """Runs the search to its end and returns its tree."""
    state = _start(model, decoding, params, arrays)
    slots = min(states.FIRST_STEPS, state.steps)
    steps: list[list[Node]] = []
    places: dict[Ids, int] = {(): -1}  # of each kept hypothesis among the nodes of the step before
    ends: dict[Ids, tuple[int, int]] = {}  # of each finished one, its step and its place there
    while bool(states.are_alive(state).any()) and int(state.step) < state.steps:
        if int(state.step) == slots:
            slots = min(2 * slots, state.steps)
            state = state._replace(cache=state.cache.grow(slots * decoding.beam))
        weighed, state = _step(model, decoding, params, arrays, state)
        nodes = _nodes(weighed, state, places, tokenizer, decoding)
        places = {}
        for place, (ids, node) in enumerate(nodes):
            if node.state == KEPT:
                places[ids] = place
            elif node.state == FINISHED:
                ends[ids] = (len(steps), place)
        steps.append([node for _, node in nodes])
    returned = beam_search(model, decoding, params, **arrays).result(state.finished)
    _rank(steps, ends, returned)
    tokens = {node.token for nodes in steps for node in nodes}
    before = "\u2009" if tokenizer.units.endswith("words") else ""  # as `labels` has it where a word starts
    pieces = {token: before + labels(tokenizer.target.pieces([token]))[0] for token in tokens}
    return BeamTree(text, decoding, steps, pieces)


@partial(jax.jit, static_argnames=("model", "decoding"))
def _start(model: Model, decoding: Decoding, params: Any, arrays: dict[str, Any]) -> SearchState:
    return beam_search(model, decoding, params, **arrays).start()


@partial(jax.jit, static_argnames=("model", "decoding"))
def _step(
    model: Model, decoding: Decoding, params: Any, arrays: dict[str, Any], state: SearchState
) -> tuple[Extensions, SearchState]:
    """Returns the candidates of a step, most probable first, and the state after it."""
    limit_b, _ = model.output_limits(arrays["inputs_bs"], decoding.extra_length)
    weighed, _ = consider(model, params, state, limit_b, arrays["rules"])
    return weighed, beam_search(model, decoding, params, **arrays).advance(state)


def _rows(ids_bmt: Int[Array, "b m t"], length: int) -> list[Ids]:
    """Returns the tokens of each hypothesis of the one sentence."""
    return [tuple(ids) for ids in np.asarray(ids_bmt)[0, :, :length].tolist()]


def _nodes(
    weighed: Extensions, after: SearchState, places: dict[Ids, int], tokenizer: Tokenizer, decoding: Decoding
) -> list[tuple[Ids, Node]]:
    """Returns the candidates of a step, each with all of its tokens; `places` are the previous hypotheses' numbers."""
    length = int(after.step)
    penalty = float(length_penalty(jnp.array(length), decoding.alpha, decoding.length_penalty))
    log_probs_m = np.asarray(after.log_probs_bm)[0].tolist()
    kept = dict(zip(_rows(after.ids_bmt, length), log_probs_m, strict=True))
    nodes = []
    ids_k = _rows(weighed.ids_bkt, length)
    log_probs_k = np.asarray(weighed.log_probs_bk)[0].tolist()
    for place, (ids, log_prob) in enumerate(zip(ids_k, log_probs_k, strict=True)):
        if not np.isfinite(log_prob):
            continue
        state = PRUNED
        may_finish = decoding.stopping == "exact" or place < decoding.beam
        if ids[-1] == EOS and may_finish:
            state = FINISHED
        elif ids in kept:
            state = KEPT if np.isfinite(kept[ids]) else ABANDONED
        score = log_prob / penalty if state == FINISHED else None
        node = Node(ids[-1], tokenizer.decode(ids), places[ids[:-1]], log_prob, state, score, rank=0)
        nodes.append((ids, node))
    return nodes


def _rank(steps: list[list[Node]], ends: dict[Ids, tuple[int, int]], returned: Hypotheses) -> None:
    """Gives the nodes of the translations that were returned their ranks and their scores."""
    lengths_m = np.asarray(returned.lengths_bm)[0].tolist()
    scores_m = np.asarray(returned.scores_bm)[0].tolist()
    for slot, (length, score) in enumerate(zip(lengths_m, scores_m, strict=True)):
        if length:
            ids = _rows(returned.ids_bmt, length)[slot]
            step, place = ends[ids]
            steps[step][place] = steps[step][place]._replace(score=score, rank=slot + 1)


def explained(
    source: Iterable[bytes],
    model_config: CommonConfig | tuple[CommonConfig, ...],
    params: Any,
    tokenizer: Tokenizer,
    decoding: Decoding,
    path: Path,
) -> list[bytes]:
    """Writes the page of the searches of a few lines, and returns these lines; those without text have no search.

    Raises:
      UserError: there are more than `MOST_LINES`, one cannot be drawn, or the page cannot be written.
    """
    lines = list(islice(source, MOST_LINES + 1))
    if len(lines) > MOST_LINES:
        raise UserError(f"--explain={path}: draws at most {MOST_LINES} lines, and there are more")
    decoded = [text.removesuffix("\r") for chunk in chunks(lines, MOST_LINES) for text in chunk]
    trees: list[BeamTree] = []
    for number, text in enumerate(decoded, 1):
        if is_blank(text) or not tokenizer.encode(text):
            continue
        try:
            trees.append(beam_tree(model_config, params, tokenizer, decoding, text))
        except UserError as error:
            raise UserError(f"standard input, line {number}: {error}") from error
    with writing(f"--explain={path}"):
        write_text(path, page(trees))
    return lines


def page(trees: Sequence[BeamTree]) -> str:
    """Returns the page of one or more searches, as text."""
    template = read_template(TEMPLATE)
    before, after = template.replace("__SCRIPT__", script_policy(inline_scripts(template))).split("__DATA__")
    return f"{before}{script_json([tree.as_json() for tree in trees])}{after}"

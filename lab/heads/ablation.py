"""Head ablation: accuracy on the affected words with one head zeroed.

For a case of a relation these are the predicted token itself, in the decoder, and in the encoder the translations of
the token: all of their subwords must be the most probable ones after the true words before them (teacher forcing).
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from lab.heads.roles import AnnotatedPair
from lab.heads.sample import RARE, Sample
from lab.heads.text import relation_label
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS
from vaswani.infer.attention.kinds import KINDS, TITLES
from vaswani.infer.runs import Run
from vaswani.infer.scores.forced import forced_batches
from vaswani.model.config import ModelConfig
from vaswani.model.transformer import Transformer
from vaswani.paper.grammar_runs import owners
from vaswani.progress import Progress
from vaswani.tokens import Tokens
from vaswani.train.intervals import Interval, bootstrap
from vaswani.train.table import Table, as_text, number

FEW = 200  # sentences that common relations are measured on
WIDTH = 8  # rows are padded to a multiple of this
TOKENS = 4096  # positions of a batch
_PLACES = {  # of the heads of each kind, in the tree of parameters
    "encoder": ("encoder", "self_attention"),
    "decoder": ("decoder", "self_attention"),
    "cross": ("decoder", "cross_attention"),
}


def without(params: Any, kind: str, layer: int, head: int) -> Any:
    """Returns the parameters with one head's part of W^O zero, so that its output is; layers and heads from 0."""
    stack, attention = _PLACES[kind]
    name = f"layer_{layer}"
    block = params[stack][name]
    wo_hed = np.array(block[attention]["wo"])
    wo_hed[head] = 0
    changed = block | {attention: block[attention] | {"wo": wo_hed}}
    return params | {stack: params[stack] | {name: changed}}


class Predicted(NamedTuple):
    """The positions at which the subwords of each case are predicted, all cases one after another.

    `starts` are the first of each case's `places`, and `sentences` the sentence that each case is in.
    """

    places: Int[np.ndarray, " p"]
    starts: Int[np.ndarray, " c"]
    sentences: Int[np.ndarray, " c"]

    def right(self, right_p: Bool[np.ndarray, " t"]) -> Bool[np.ndarray, " c"]:
        """Returns whether each case is right, given whether each position of the text is."""
        return np.logical_and.reduceat(right_p[self.places], self.starts)


class Forced:
    """Sentence pairs, ready to be predicted again and again: one text, position after position."""

    def __init__(self, model_run: Run, pairs: Sequence[AnnotatedPair]) -> None:
        self.run = model_run
        self.pairs = pairs
        tokenizer = model_run.tokenizer
        self.sources = [[*tokenizer.encode(pair.source), EOS] for pair in pairs]
        self.targets = [[*tokenizer.target.encode(pair.target), EOS] for pair in pairs]
        self.target_inputs = [[BOS, *target[:-1]] for target in self.targets]
        self.owners = [owners(tokenizer.target, pair.target_tokens, pair.target) for pair in pairs]
        self.starts = np.cumsum([0, *map(len, self.targets)])

    def right(self, params: Any) -> Bool[np.ndarray, " t"]:
        """Returns for every position whether the true subword is the most probable one."""
        config = self.run.model_config
        most_probable = _compiled(config)
        params = jax.device_put(params)  # once, not with each batch

        def are_right(source_bs: np.ndarray, target_in_bt: np.ndarray, target_bt: np.ndarray) -> np.ndarray:
            return np.asarray(most_probable(params, source_bs, target_in_bt)) == target_bt

        sides = (self.sources, self.target_inputs, self.targets)
        batches = forced_batches(are_right, *sides, width=WIDTH, tokens=TOKENS, limit=config.limit)
        right_t = np.zeros(self.starts[-1], bool)
        for members, right_bt in batches:
            for row, member in enumerate(members):
                start, end = self.starts[member : member + 2]
                right_t[start:end] = right_bt[row, : end - start]
        return right_t

    def cases(self, kind: str, relation: str) -> Predicted | None:
        """Returns the cases of a relation, without those in the encoder that nothing translates; None if none is."""
        places: list[list[int]] = []
        sentences: list[int] = []
        for sentence, pair in enumerate(self.pairs):
            start = self.starts[sentence]
            for tokens in _affected(pair, kind, relation):
                places.append([start + place for place, token in enumerate(self.owners[sentence]) if token in tokens])
                sentences.append(sentence)
        if not places:
            return None
        starts = np.cumsum([0, *map(len, places[:-1])])
        return Predicted(np.concatenate(places), starts, np.array(sentences))


def _affected(pair: AnnotatedPair, kind: str, relation: str) -> Iterator[set[int]]:
    """Yields the target tokens whose prediction may depend on each case."""
    for query in pair.cases.get((kind, relation), {}):
        tokens = {t for t, s in pair.alignment if s == query} if kind == "encoder" else {query}
        if tokens:
            yield tokens


@cache
def _compiled(config: ModelConfig) -> Any:
    model = Transformer(config)

    @jax.jit
    def most_probable(params: dict, source_bs: Int[Array, "b s"], target_in_bt: Int[Array, "b t"]) -> Int[Array, "b t"]:
        logits_btv = model.apply({"params": params}, Tokens.of(source_bs), Tokens.of(target_in_bt))
        return jnp.argmax(logits_btv, axis=-1)

    return most_probable


def check_own_layers(model_run: Run) -> None:
    """Raises a `UserError` if layers share their parameters, so that a head cannot be left out of one of them."""
    if model_run.model_config.share_layers:
        raise UserError(f"{model_run.workdir}: its layers share parameters, so no head can be ablated in only one")


def ablate(model_run: Run, roles: dict[str, dict[str, Any]], pairs: Sample) -> dict[str, dict[str, Any]]:
    """Returns the effect of removing each relation's best head, according to `roles`, as JSON values.

    Every head of every kind is left out in turn, so this is as many passes over the sentences: all of `pairs` that hold
    rare relations, and a few of the first ones for the others.

    Returns:
      By kind and relation, the `layer` and `head`, from 1; the share of `cases` that are right in the `intact` model
      and `ablated`; the `change` between them, with its 95 % bootstrap interval over sentences, `low` to `high`; the
      mean change over all `others` of that kind, and their `lowest`, with its layer and head.
    """
    rare = [_with_rare_alone(pair) for pair in pairs.first[FEW:]]
    holding_rare = [pair for pair in rare if pair.cases]
    forced = Forced(model_run, pairs.first[:FEW] + holding_rare + pairs.more)
    shape = (model_run.model_config.N, model_run.model_config.h)
    intact_t = forced.right(model_run.params)
    changes: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    heads = [(kind, *place) for kind in KINDS for place in np.ndindex(shape)]
    with Progress("leaving out heads", "heads", total=len(heads)) as progress:
        right_without = {head: forced.right(without(model_run.params, *head)) for head in progress.count(heads)}
    for kind in KINDS:
        left_out = {place: right_without[kind, *place] for place in np.ndindex(shape)}
        for relation, role in roles[kind].items():
            cases = forced.cases(kind, relation)
            if cases is not None:
                best = (role["best"]["layer"] - 1, role["best"]["head"] - 1)
                changes[kind][relation] = _compared(cases, intact_t, left_out, best)
    return changes


def _with_rare_alone(pair: AnnotatedPair) -> AnnotatedPair:
    """Returns the pair with only its cases of rare relations."""
    rare = {name: cases for name, cases in pair.cases.items() if name[1] in RARE and cases}
    return pair._replace(cases=rare)


def _compared(
    cases: Predicted, intact_t: np.ndarray, left_out: dict[tuple[int, ...], np.ndarray], best: tuple[int, int]
) -> dict[str, Any]:
    """Returns an entry of `ablate`: for the cases of one relation, with its `best` head, which counts from 0."""
    intact_c = cases.right(intact_t)
    ablated_c = cases.right(left_out[best])
    changes = {place: float(np.mean(cases.right(right_t)) - intact_c.mean()) for place, right_t in left_out.items()}
    low, high = _interval_of_change(cases.sentences, intact_c, ablated_c)
    others = {place: change for place, change in changes.items() if place != best}
    lowest = min(others, key=others.__getitem__, default=best)
    return {
        "layer": best[0] + 1,
        "head": best[1] + 1,
        "cases": len(intact_c),
        "intact": float(intact_c.mean()),
        "ablated": float(ablated_c.mean()),
        "change": changes[best],
        "low": low,
        "high": high,
        "others": float(np.mean([*others.values()])) if others else 0.0,
        "lowest": {"layer": lowest[0] + 1, "head": lowest[1] + 1, "change": changes[lowest]},
    }


def _interval_of_change(sentences_c: np.ndarray, intact_c: np.ndarray, ablated_c: np.ndarray) -> Interval:
    """Returns the 95 % bootstrap interval, over sentences, of the change of the share that is right."""
    count = int(sentences_c.max()) + 1
    cases_i = np.bincount(sentences_c, np.ones(len(intact_c)), count)
    intact_i = np.bincount(sentences_c, intact_c, count)
    ablated_i = np.bincount(sentences_c, ablated_c, count)
    counts_i3 = np.stack([cases_i, intact_i, ablated_i], -1)
    with_cases = counts_i3[cases_i > 0]
    return bootstrap(with_cases, lambda sums_3: (sums_3[..., 2] - sums_3[..., 1]) / sums_3[..., 0])


def ablation_text(changes: dict[str, dict[str, Any]]) -> str:
    """Returns the result of `ablate` as text."""
    notes = [
        "without the best head: how often the affected words are predicted, in %, teacher forcing, and the change in "
        "points, with 95 % intervals",
        "*: the interval lies below the mean change over the other heads; lowest: the other head that costs most",
    ]
    tables = [_ablation_table(kind, relations) for kind, relations in changes.items()]
    return "\n\n".join(["\n".join(notes), *map(as_text, tables)])


def _ablation_table(kind: str, relations: dict[str, Any]) -> Table:
    """Returns the changes without the best head of each relation."""
    rows: list[tuple[str, ...]] = []
    for relation, change in relations.items():
        lowest = change["lowest"]
        interval = f"{100 * change['low']:+6.1f} to {100 * change['high']:+5.1f}"
        mark = " *" if change["high"] < change["others"] else ""
        rows.append(
            (
                relation_label(kind, relation),
                str(change["layer"]),
                str(change["head"]),
                number(100 * change["intact"], 1),
                number(100 * change["ablated"], 1),
                f"{100 * change['change']:+6.1f} {interval}{mark}",
                f"{100 * change['others']:+6.1f}",
                f"{100 * lowest['change']:+6.1f} ({lowest['layer']}.{lowest['head']})",
                f"{change['cases']:,}",
            )
        )
    head = ("relation", "layer", "head", "intact", "without", "change", "others", "lowest", "cases")
    return Table("", TITLES[kind], head, rows, [])

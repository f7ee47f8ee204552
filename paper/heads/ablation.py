"""What is lost without a head: how often the words concerned are still predicted when the head's output is zero.

For a case of a relation these are the predicted token itself, in the decoder, and in the encoder the translations of
the token: all of their subwords must be the most probable ones after the true words before them (teacher forcing).
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from base.ids import BOS, EOS
from base.intervals import bootstrap
from base.progress import Progress
from base.table import Table, as_text, number
from base.tokens import Tokens
from data.batching import length_batches
from infer.attention.kinds import KINDS, TITLES
from infer.runs import Run
from model.config import ModelConfig
from model.transformer import Transformer
from paper.heads.measure import owners
from paper.heads.roles import AnnotatedPair, label
from paper.heads.sample import RARE, Sample

FEW = 200  # sentences that common relations are judged on
WIDTH = 8  # rows are padded to a multiple of this
TOKENS = 4096  # positions of a batch
HEAD = (
    "relation",
    "head",
    "intact",
    "without",
    "change: points",
    "change: 95 %",
    "others",
    "lowest: points",
    "lowest: head",
    "cases",
    "stands out",
)
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
        """Returns which cases are right, given that for every position of the text."""
        return np.logical_and.reduceat(right_p[self.places], self.starts)


class Forced:
    """Sentence pairs, ready to be predicted again and again: one text, position after position."""

    def __init__(self, model_run: Run, pairs: Sequence[AnnotatedPair]) -> None:
        self.run = model_run
        self.pairs = pairs
        encode = model_run.tokenizer.encode
        sources = [[*encode(pair.source), EOS] for pair in pairs]
        targets = [[*encode(pair.target), EOS] for pair in pairs]
        read = [[BOS, *target[:-1]] for target in targets]
        longest = [max(map(len, sides)) for sides in zip(sources, targets, strict=True)]
        self.starts = np.cumsum([0, *map(len, targets)])
        row_lengths = range(WIDTH, max(longest) + WIDTH, WIDTH)
        limit = model_run.model_config.encoding.limit
        self.batches = [
            ([batch.padded(side) for side in (sources, read, targets)], batch.members)
            for batch in length_batches(longest, row_lengths, tokens=TOKENS, limit=limit)
        ]

    def right(self, params: Any) -> Bool[np.ndarray, " t"]:
        """Returns for every position whether the true subword is the most probable one."""
        right = np.zeros(self.starts[-1], bool)
        compiled = _compiled(self.run.model_config)
        for (source_bs, read_bt, target_bt), members in self.batches:
            right_bt = np.asarray(compiled({"params": params}, source_bs, read_bt)) == target_bt
            for row, member in enumerate(members):
                start, end = self.starts[member : member + 2]
                right[start:end] = right_bt[row, : end - start]
        return right

    def cases(self, kind: str, relation: str) -> Predicted | None:
        """Returns the cases of a relation, without those in the encoder that nothing translates; None if none is."""
        places: list[list[int]] = []
        sentences: list[int] = []
        for sentence, pair in enumerate(self.pairs):
            start = self.starts[sentence]
            for tokens in _concerned(pair, kind, relation):
                token_of = owners(self.run.tokenizer, pair.target_tokens, pair.target)
                places.append([start + place for place, token in enumerate(token_of) if token in tokens])
                sentences.append(sentence)
        if not places:
            return None
        starts = np.cumsum([0, *map(len, places[:-1])])
        return Predicted(np.concatenate(places), starts, np.array(sentences))


def _concerned(pair: AnnotatedPair, kind: str, relation: str) -> Iterator[set[int]]:
    """Yields the target tokens whose prediction may depend on each case."""
    for query in pair.cases.get((kind, relation), {}):
        tokens = {t for t, s in pair.alignment if s == query} if kind == "encoder" else {query}
        if tokens:
            yield tokens


@cache
def _compiled(config: ModelConfig) -> Any:
    model = Transformer(config)
    return jax.jit(lambda params, *sides: jnp.argmax(model.apply(params, *map(Tokens.of, sides)), axis=-1))


def ablate(model_run: Run, roles: dict[str, dict[str, Any]], pairs: Sample) -> dict[str, dict[str, Any]]:
    """Returns what becomes of each relation without the head that `roles` names as best for it, as JSON values.

    Every head of every kind is left out in turn, so this is as many passes over the sentences: those of `pairs` that
    hold rare relations, and a few of the first ones for the others.

    Returns:
      By kind and relation, the `layer` and `head`, from 1; the share of `cases` that are right in the `intact` model
      and `ablated`; the `change` between them, with its 95 % bootstrap interval over sentences, `low` to `high`; the
      mean change over all `others` of that kind, and their `lowest`, with its layer and head.
    """
    rare = [_of_rare(pair) for pair in pairs.first[FEW:]]
    forced = Forced(model_run, [*pairs.first[:FEW], *(pair for pair in rare if pair.cases), *pairs.more])
    n = model_run.model_config.N
    h = model_run.model_config.h
    intact_t = forced.right(model_run.params)
    compared: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    with Progress("leaving out heads", "heads") as progress:
        done = 0
        for kind in KINDS:
            left_out: dict[tuple[int, ...], np.ndarray] = {}
            for layer, head in np.ndindex(n, h):
                left_out[layer, head] = forced.right(without(model_run.params, kind, layer, head))
                done += 1
                progress.update(done)
            for relation, role in roles[kind].items():
                cases = forced.cases(kind, relation)
                if cases is not None:
                    best = (role["best"]["layer"] - 1, role["best"]["head"] - 1)
                    compared[kind][relation] = _compared(cases, intact_t, left_out, best)
    return compared


def _of_rare(pair: AnnotatedPair) -> AnnotatedPair:
    return pair._replace(cases={name: cases for name, cases in pair.cases.items() if name[1] in RARE and cases})


def _compared(
    cases: Predicted, intact_t: np.ndarray, left_out: dict[tuple[int, ...], np.ndarray], best: tuple[int, int]
) -> dict[str, Any]:
    intact = cases.right(intact_t)
    changes = {place: float(np.mean(cases.right(right_t)) - intact.mean()) for place, right_t in left_out.items()}
    ablated = cases.right(left_out[best])
    columns = (np.ones(len(intact)), intact, ablated)  # by case, to be summed by sentence
    sentences = int(cases.sentences.max()) + 1
    counts_ic = np.stack([np.bincount(cases.sentences, column, sentences) for column in columns], -1)
    low, high = bootstrap(counts_ic[counts_ic[:, 0] > 0], _change)
    others = {place: change for place, change in changes.items() if place != best}
    lowest = min(others, key=others.__getitem__, default=best)
    return {
        "layer": best[0] + 1,
        "head": best[1] + 1,
        "cases": len(intact),
        "intact": float(intact.mean()),
        "ablated": float(ablated.mean()),
        "change": changes[best],
        "low": low,
        "high": high,
        "others": float(np.mean([*others.values()])) if others else 0.0,
        "lowest": {"layer": lowest[0] + 1, "head": lowest[1] + 1, "change": changes[lowest]},
    }


def _change(sums_c: np.ndarray) -> np.ndarray:
    """Returns the change of the share that is right, from sums of (cases, right in the intact model, right without)."""
    return (sums_c[..., 2] - sums_c[..., 1]) / sums_c[..., 0]


def ablation_table(ablated: dict[str, dict[str, Any]]) -> str:
    """Returns the result of `ablate` as text."""
    return "\n\n".join(map(as_text, ablation_tables(ablated)))


def ablation_tables(ablated: dict[str, dict[str, Any]]) -> list[Table]:
    """Returns a table for each kind of attention."""
    made: list[Table] = []
    for kind, relations in ablated.items():
        rows = [_row(relation, kind, compared) for relation, compared in relations.items()]
        made.append(Table(f"heads-without-{kind}", f"{TITLES[kind]}, without the best head", HEAD, rows, []))
    made[-1].notes.extend(
        [
            "intact and without: how often the words concerned are predicted, in %, teacher forcing",
            "change: in points, with its 95 % interval; head: layer.head, from 1",
            "others: the mean change over the other heads; lowest: the other head that costs most",
            "stands out: the interval lies below the mean change over the other heads",
        ]
    )
    return made


def _row(relation: str, kind: str, compared: dict[str, Any]) -> tuple[str, ...]:
    lowest = compared["lowest"]
    return (
        label(relation, kind),
        f"{compared['layer']}.{compared['head']}",
        number(100 * compared["intact"], 1),
        number(100 * compared["ablated"], 1),
        _points(compared["change"]),
        f"{_points(compared['low'])} to {_points(compared['high'])}",
        _points(compared["others"]),
        _points(lowest["change"]),
        f"{lowest['layer']}.{lowest['head']}",
        f"{compared['cases']:,}",
        "yes" if compared["high"] < compared["others"] else "",
    )


def _points(change: float) -> str:
    return number(100 * change, 1, sign=True)

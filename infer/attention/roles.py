"""Which token a head should attend to, by relation, and how often it does; alignments and their error rate.

A case is a token (the query) and the tokens that the relation points to (the correct keys), all as positions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from data.grammar.sentences import Example
from infer.attention.page import KINDS

RELATIONS = {  # name: label
    "previous": "previous token",
    "next": "next token",
    "same": "same token",
    "relative": "relative pronoun → noun",
    "particle": "verb → its particle",
    "verb": "particle → its verb",
    "antecedent": "pronoun → antecedent",
    "it": "it → antecedent",  # er, sie or es: the only pronoun that depends on the German gender of its noun
}
Cases = dict[int, frozenset[int]]  # query: correct keys


class AnnotatedPair(NamedTuple):
    """A sentence pair, its tokens, its cases by (kind, relation), and its alignment {(target, source), ...}."""

    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    cases: dict[tuple[str, str], Cases]
    alignment: frozenset[tuple[int, int]]


def annotate(example: Example, reverse: bool = False) -> AnnotatedPair:
    """Returns a pair of the grammar with its cases, from English to German or in `reverse`.

    In decoder self-attention a row is the token being predicted, and only earlier tokens are visible: cases whose
    correct keys are not visible are omitted. In encoder-decoder attention a relation between target tokens points to
    the source tokens that the named one translates.
    """
    sides = {
        "english": (example.english, tuple(example.tree.leaves())),
        "german": (example.german, example.german_tokens),
    }
    source, target = ("german", "english") if reverse else ("english", "german")
    alignment = frozenset((s, t) if reverse else (t, s) for s, t in example.alignment)
    links = example.links._asdict()
    english_it = {i for i, token in enumerate(example.tree.leaves()) if token.lower() == "it"}
    its = {"english": english_it, "german": {j for i, j in example.alignment if i in english_it}}

    def between(language: str) -> dict[str, Cases]:
        count = len(sides[language][1])
        verbs = links[f"{language}_particles"]
        pairs: dict[str, Iterable[tuple[int, int]]] = {
            "previous": ((i, i - 1) for i in range(1, count)),
            "next": ((i, i + 1) for i in range(count - 1)),
            "same": ((i, i) for i in range(count)),
            "relative": links[f"{language}_relatives"],
            "particle": verbs,
            "verb": ((particle, verb) for verb, particle in verbs),
            "antecedent": links[f"{language}_pronouns"],
            "it": ((q, k) for q, k in links[f"{language}_pronouns"] if q in its[language]),
        }
        return {relation: _cases(found) for relation, found in pairs.items()}

    cases = {("encoder", relation): found for relation, found in between(source).items()}
    translated = _cases(alignment)
    for relation, found in between(target).items():
        cases["decoder", relation] = _cases((q, k) for q, keys in found.items() for k in keys if k < q)
        cases["cross", relation] = _cases(
            (q, s) for q, keys in found.items() for k in keys for s in translated.get(k, frozenset())
        )
    return AnnotatedPair(sides[source][0], sides[target][0], sides[source][1], sides[target][1], cases, alignment)


def _cases(pairs: Iterable[tuple[int, int]]) -> Cases:
    found: dict[int, set[int]] = {}
    for query, key in pairs:
        found.setdefault(query, set()).add(key)
    return {query: frozenset(keys) for query, keys in found.items()}


class RoleTally:
    """Counts over sentences, by (kind, relation)."""

    def __init__(self, n: int, h: int) -> None:
        self.shape = (n, h)
        self.cases: Counter[tuple[str, str]] = Counter()
        self.chance: defaultdict[tuple[str, str], float] = defaultdict(float)  # expected hits of a random head
        self.hits_nh: dict[tuple[str, str], np.ndarray] = {}
        self.distances: dict[tuple[str, str], Counter[int]] = {}  # cases that a fixed key - query would hit

    def add(self, pair: AnnotatedPair, kind: str, chosen_nht: Int[np.ndarray, "n h t"]) -> None:
        """Counts one sentence's attention of one kind: the key of each head's largest weight, -1 for no token."""
        for relation in RELATIONS:
            name = (kind, relation)
            for query, keys in pair.cases[name].items():
                visible = query if kind == "decoder" else len(pair.source_tokens)
                self.cases[name] += 1
                self.chance[name] += len(keys) / (visible + 1)  # with <s> or </s>
                hits_nh = self.hits_nh.setdefault(name, np.zeros(self.shape, np.int64))
                hits_nh += np.isin(chosen_nht[:, :, query], list(keys))
                self.distances.setdefault(name, Counter()).update(key - query for key in keys)


def role_report(valid: RoleTally, test: RoleTally) -> dict[str, dict[str, Any]]:
    """Returns the roles by kind and relation, as JSON values, without relations that have no case in either split.

    `accuracy` is that of each layer and head on the test sentences; `best` the head chosen on the validation sentences,
    its layer and its number from 1, with its test accuracy; `fixed` the most often correct distance key - query, chosen
    and scored in the same way; `chance` the accuracy of a random visible token; `cases` the number of cases in the test
    sentences.
    """
    report: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for kind, relation in test.hits_nh:
        name = (kind, relation)
        if name not in valid.hits_nh:
            continue
        cases = test.cases[name]
        accuracy_nh = test.hits_nh[name] / cases
        layer, head = np.unravel_index(valid.hits_nh[name].argmax(), test.shape)
        distance, _ = valid.distances[name].most_common(1)[0]
        report[kind][relation] = {
            "cases": cases,
            "accuracy": accuracy_nh.tolist(),
            "best": {"layer": int(layer) + 1, "head": int(head) + 1, "accuracy": float(accuracy_nh[layer, head])},
            "fixed": {"distance": distance, "accuracy": test.distances[name][distance] / cases},
            "chance": test.chance[name] / cases,
        }
    return {kind: {r: found[r] for r in RELATIONS if r in found} for kind, found in report.items()}


class AlignmentTally:
    """Counts of alignment links: predicted by each of [n,h] heads, correct among those, and in the gold alignment."""

    def __init__(self, n: int, h: int) -> None:
        self.made_nh, self.right_nh = np.zeros((n, h), np.int64), np.zeros((n, h), np.int64)
        self.true = 0
        self.diagonal_made = self.diagonal_right = 0

    def add(self, pair: AnnotatedPair, chosen_nht: Int[np.ndarray, "n h t"]) -> None:
        """Counts one sentence: each target token is linked to the source token of its largest weight, -1 for none."""
        t, s = len(pair.target_tokens), len(pair.source_tokens)
        true_ts = np.zeros((t, s + 1), bool)  # -1 indexes the last column, which is never true
        true_ts[tuple(zip(*pair.alignment, strict=True))] = True
        self.made_nh += (chosen_nht >= 0).sum(-1)
        self.right_nh += true_ts[np.arange(t), chosen_nht].sum(-1)
        self.true += len(pair.alignment)
        self.diagonal_made += t
        self.diagonal_right += int(true_ts[np.arange(t), diagonal(t, s)].sum())

    def error_nh(self) -> np.ndarray:
        """Returns the alignment error rate [n,h]: 1 - 2 right / (made + true), Och and Ney 2003 with all links sure."""
        return 1 - 2 * self.right_nh / (self.made_nh + self.true)

    def diagonal_error(self) -> float:
        """Returns the alignment error rate of the diagonal, for comparison."""
        return 1 - 2 * self.diagonal_right / (self.diagonal_made + self.true)


def diagonal(t: int, s: int) -> Int[np.ndarray, " t"]:
    """Returns, for each of t target tokens, the source token at the same relative position in a sentence of s."""
    return np.rint(np.arange(t) * (s - 1) / max(t - 1, 1)).astype(np.int64)


def alignment_report(valid: Sequence[AlignmentTally], test: Sequence[AlignmentTally]) -> dict[str, Any]:
    """Returns error rates on the test sentences, as JSON values, from each split's tallies of (heads, layer averages).

    `heads` [n,h] and `layers` [n]; `best_layer` and `best_head`, which count from 1, are chosen on the validation
    sentences; `diagonal` is the error of the diagonal; `links` the number of gold links.
    """
    heads_nh, layers_n = test[0].error_nh(), test[1].error_nh()[:, 0]
    layer, head = np.unravel_index(valid[0].error_nh().argmin(), heads_nh.shape)
    best = int(valid[1].error_nh()[:, 0].argmin())
    return {
        "heads": heads_nh.tolist(),
        "layers": layers_n.tolist(),
        "best_layer": {"layer": best + 1, "error": float(layers_n[best])},
        "best_head": {"layer": int(layer) + 1, "head": int(head) + 1, "error": float(heads_nh[layer, head])},
        "diagonal": test[0].diagonal_error(),
        "links": test[0].true,
    }

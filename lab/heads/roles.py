"""Which token a head should attend to, by relation, and how often it does; alignments and their error rate.

A case is a token (the query) and the tokens that the relation points to (the correct keys), all as positions.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Num

from vaswani.data.grammar.sentences import Example
from vaswani.infer.attention.kinds import KINDS
from vaswani.train.intervals import DRAWS, Interval, bootstrap, wilson

RELATIONS = {  # name: label
    "previous": "previous token",
    "next": "next token",
    "same": "same token",
    "relative": "relative pronoun → noun",
    "subject": "verb → its subject",
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
    source_text, source_tokens = sides[source]
    target_text, target_tokens = sides[target]
    if reverse:
        alignment = frozenset((english, german) for english, german in example.alignment)
    else:
        alignment = frozenset((german, english) for english, german in example.alignment)

    of_source = _cases_within(example, source, len(source_tokens))
    cases = {("encoder", relation): source_cases for relation, source_cases in of_source.items()}
    sources_of = _cases(alignment)
    for relation, target_cases in _cases_within(example, target, len(target_tokens)).items():
        visible: list[tuple[int, int]] = []
        translated: list[tuple[int, int]] = []
        for query, keys in target_cases.items():
            visible += [(query, key) for key in keys if key < query]
            for key in keys:
                translated += [(query, source_token) for source_token in sources_of.get(key, ())]
        cases["decoder", relation] = _cases(visible)
        cases["cross", relation] = _cases(translated)
    return AnnotatedPair(source_text, target_text, source_tokens, target_tokens, cases, alignment)


def _cases_within(example: Example, language: str, count: int) -> dict[str, Cases]:
    """Returns the cases of each relation between the `count` tokens of the sentence in one language."""
    links = example.links._asdict()
    verbs = links[f"{language}_particles"]
    pronouns = links[f"{language}_pronouns"]
    it = _it(example, language)
    pairs: dict[str, Iterable[tuple[int, int]]] = {
        "previous": ((i, i - 1) for i in range(1, count)),
        "next": ((i, i + 1) for i in range(count - 1)),
        "same": ((i, i) for i in range(count)),
        "relative": links[f"{language}_relatives"],
        "subject": links[f"{language}_subjects"],
        "particle": verbs,
        "verb": ((particle, verb) for verb, particle in verbs),
        "antecedent": pronouns,
        "it": ((q, k) for q, k in pronouns if q in it),
    }
    return {relation: _cases(linked) for relation, linked in pairs.items()}


def _it(example: Example, language: str) -> set[int]:
    """Returns the tokens "it" of the English sentence, or their translations in the German one."""
    english = {i for i, token in enumerate(example.tree.leaves()) if token.lower() == "it"}
    if language == "english":
        return english
    return {german for i, german in example.alignment if i in english}


def _cases(pairs: Iterable[tuple[int, int]]) -> Cases:
    """Returns the keys of each query."""
    keys_of: dict[int, set[int]] = {}
    for query, key in pairs:
        keys_of.setdefault(query, set()).add(key)
    return {query: frozenset(keys) for query, keys in keys_of.items()}


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
            for query, keys in pair.cases.get(name, {}).items():
                visible = query if kind == "decoder" else len(pair.source_tokens)
                self.cases[name] += 1
                self.chance[name] += len(keys) / (visible + 1)  # with <s> or </s>
                hits_nh = self.hits_nh.setdefault(name, np.zeros(self.shape, np.int64))
                hits_nh += (chosen_nht[:, :, query, None] == np.array([*keys])).any(-1)
                self.distances.setdefault(name, Counter()).update(key - query for key in keys)


def role_report(valid: RoleTally, test: RoleTally) -> dict[str, dict[str, Any]]:
    """Returns the roles by kind and relation, as JSON values, without relations that have no case in either split.

    `accuracy` is by layer and head on the test sentences; `best` the head chosen on the validation sentences,
    its layer and its number from 1, with its test accuracy; `fixed` the most often correct distance key - query, chosen
    and scored in the same way; `chance` the accuracy of a random visible token, and `luck` the null (`null_accuracy`);
    `cases` the number of cases in the test sentences. `low` and `high` bound the 95 % interval of an accuracy; it takes
    cases as independent, though cases in one sentence are not quite.
    """
    report: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for kind, relation in test.hits_nh:
        name = (kind, relation)
        if name not in valid.hits_nh:
            continue
        cases = test.cases[name]
        chance = test.chance[name] / cases
        hits_nh = test.hits_nh[name]
        layer, head = map(int, np.unravel_index(np.argmax(valid.hits_nh[name]), test.shape))
        distance, _ = valid.distances[name].most_common(1)[0]
        report[kind][relation] = {
            "cases": cases,
            "accuracy": (hits_nh / cases).tolist(),
            "best": {"layer": layer + 1, "head": head + 1, **_accuracy(int(hits_nh[layer, head]), cases)},
            "fixed": {"distance": distance, **_accuracy(test.distances[name][distance], cases)},
            "chance": chance,
            "luck": null_accuracy(chance, cases, hits_nh.size),
        }
    return {kind: {name: roles[name] for name in RELATIONS if name in roles} for kind, roles in report.items()}


def _accuracy(hits: int, cases: int) -> dict[str, float]:
    low, high = wilson(hits, cases)
    return {"accuracy": hits / cases, "low": low, "high": high}


def null_accuracy(chance: float, cases: int, heads: int) -> float:
    """Returns the 95th percentile of the best accuracy of as many random heads, each of accuracy `chance`.

    That best head is chosen on the cases that it is scored on, as one who searches a single set of sentences does.
    """
    hits_dh = np.random.default_rng(0).binomial(cases, chance, size=(DRAWS, heads))
    return float(np.quantile(hits_dh.max(1), 0.95) / cases)


class AlignmentTally:
    """Counts of alignment links, by sentence: predicted by each of [n,h] heads, correct among those, and true ones."""

    def __init__(self) -> None:
        self.made: list[np.ndarray] = []
        self.right: list[np.ndarray] = []
        self.links: list[int] = []
        self.diagonal_counts: list[tuple[int, int, int]] = []  # made, right, true

    @property
    def true(self) -> int:
        """The number of links in the gold alignments."""
        return sum(self.links)

    def add(self, pair: AnnotatedPair, chosen_nht: Int[np.ndarray, "n h t"]) -> None:
        """Counts one sentence: each target token is linked to the source token of its largest weight, -1 for none."""
        t = len(pair.target_tokens)
        s = len(pair.source_tokens)
        links = len(pair.alignment)
        true_ts = np.zeros((t, s + 1), bool)  # -1 indexes the last column, which is never true
        true_ts[tuple(zip(*pair.alignment, strict=True))] = True
        self.made.append((chosen_nht >= 0).sum(-1))
        self.right.append(true_ts[np.arange(t), chosen_nht].sum(-1))
        self.links.append(links)
        on_diagonal = int(true_ts[np.arange(t), diagonal(t, s)].sum())
        self.diagonal_counts.append((t, on_diagonal, links))

    def error_nh(self) -> np.ndarray:
        """Returns the alignment error rate [n,h]: 1 - 2 right / (made + true), Och and Ney 2003 with all links sure."""
        return 1 - 2 * np.sum(self.right, axis=0) / (np.sum(self.made, axis=0) + self.true)

    def interval(self, layer: int, head: int) -> Interval:
        """Returns the 95 % bootstrap interval of one head's error rate, over sentences."""
        made = [made_nh[layer, head] for made_nh in self.made]
        right = [right_nh[layer, head] for right_nh in self.right]
        return bootstrap(np.column_stack([made, right, self.links]), _error)

    def diagonal_error(self) -> float:
        """Returns the alignment error rate of the diagonal, for comparison."""
        return float(_error(np.sum(self.diagonal_counts, axis=0)))

    def diagonal_interval(self) -> Interval:
        """Returns its 95 % bootstrap interval, over sentences."""
        return bootstrap(np.array(self.diagonal_counts), _error)


def _error(counts: Num[np.ndarray, "*draws 3"]) -> Num[np.ndarray, "*draws"] | np.floating:
    """The alignment error rate of (links made, right ones, true links)."""
    return 1 - 2 * counts[..., 1] / (counts[..., 0] + counts[..., 2])


def diagonal(t: int, s: int) -> Int[np.ndarray, " t"]:
    """Returns, for each of t target tokens, the source token at the same relative position in a sentence of s."""
    return np.rint(np.arange(t) * (s - 1) / max(t - 1, 1)).astype(np.int64)


def alignment_report(valid: Sequence[AlignmentTally], test: Sequence[AlignmentTally]) -> dict[str, Any]:
    """Returns error rates on the test sentences, as JSON values, from each split's tallies of (heads, layer averages).

    `heads` [n,h] and `layers` [n]; `best_layer` and `best_head`, which count from 1, are chosen on the validation
    sentences; `diagonal` is the error of the diagonal; `links` the number of gold links. `low` and `high` bound the
    95 % interval of an error.
    """
    valid_heads, valid_layers = valid
    test_heads, test_layers = test
    heads_nh = test_heads.error_nh()
    layers_n = test_layers.error_nh()[:, 0]
    layer, head = map(int, np.unravel_index(np.argmin(valid_heads.error_nh()), heads_nh.shape))
    best = int(np.argmin(valid_layers.error_nh()[:, 0]))

    def bounds(interval: Interval) -> dict[str, float]:
        return {"low": interval[0], "high": interval[1]}

    return {
        "heads": heads_nh.tolist(),
        "layers": layers_n.tolist(),
        "best_layer": {"layer": best + 1, "error": float(layers_n[best]), **bounds(test_layers.interval(best, 0))},
        "best_head": {
            "layer": layer + 1,
            "head": head + 1,
            "error": float(heads_nh[layer, head]),
            **bounds(test_heads.interval(layer, head)),
        },
        "diagonal": {"error": test_heads.diagonal_error(), **bounds(test_heads.diagonal_interval())},
        "links": test_heads.true,
    }

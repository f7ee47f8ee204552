"""The paper's Figures 3 to 5 of a trained run, and what its sections 3.5 and 5.3 describe; as SVG files.

python -m paper.figures --workdir=runs/quickstart --output=figures [--sentence="The dog that we saw calls them."]

figure3          what a verb attends to in every head of one encoder layer: does it find its particle?
figure3_decoder  the same in the decoder, where it writes a particle long after its verb
figure4          two heads at a pronoun: all of their attention, and only the pronoun's
figure5          two heads of one layer that do different things
heads            which head follows which relation (see `paper.heads`)
alignment        encoder-decoder attention over the true word alignment
positions        the sinusoids of section 3.5, and how similar any two positions are
schedule         the learning rate of section 5.3

Sentences are the grammar's, unseen in training; --sentence uses another in Figures 3 to 5 and the alignment. Layers
and heads count from 1.
"""

import itertools
import textwrap
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from jaxtyping import Bool, Float
from ml_collections import ConfigDict

from vaswani.command import run
from vaswani.configs.common import default
from vaswani.data.grammar import sentences as grammar
from vaswani.errors import UserError
from vaswani.files import output_folder
from vaswani.infer.attention.kinds import KINDS, TITLES
from vaswani.infer.attention.maps import AttentionMap, attention_maps
from vaswani.infer.runs import Run, open_run
from vaswani.infer.translate.translator import translate_one
from vaswani.model.positions import sinusoids
from vaswani.paper import drawing
from vaswani.paper.heads.measure import BATCH, direction, load_or_measure, sentence_maps, spans_of
from vaswani.paper.heads.roles import RELATIONS, AnnotatedPair, annotate
from vaswani.run import unchanged
from vaswani.train.optim import learning_rate

PRONOUNS = {"he", "she", "it", "they", "him", "her", "them", "who", "its", "er", "sie", "es", "ihn", "ihm", "ihnen"}
SEARCHED = 500  # sentences of the test split
FIGURES = ("figure3", "figure3_decoder", "figure4", "figure5", "heads", "alignment", "positions", "schedule")


class Case(NamedTuple):
    """A word of a sentence, and another that it ought to look at, by the numbers of their tokens."""

    pair: AnnotatedPair
    query: int
    key: int

    @property
    def distance(self) -> int:
        """Tokens from one word to the other."""
        return abs(self.query - self.key)


class Focus(NamedTuple):
    """One kind of attention over a sentence, and a word in it to look at.

    `query` is the row of that word's first subword, `right` the columns that it ought to look at, none where that is
    not known.
    """

    kind: str
    queries: list[str]
    keys: list[str]
    weights_nhts: Float[np.ndarray, "n h t s"]
    query: int
    right: list[int]

    def towards_nh(self) -> Float[np.ndarray, "n h"]:
        """Returns the weight on what is right, or where that is not known the mean attention distance of the word."""
        weights_nhs = self.weights_nhts[:, :, self.query]
        if self.right:
            return weights_nhs[..., self.right].sum(-1)
        return weights_nhs @ np.abs(np.arange(len(self.keys)) - self.query)


def figures(workdir: str | Path, output: Path, sentence: str | None = None, sentences: int = 500) -> list[Path]:
    """Draws all figures of the run in `workdir` into the folder `output`, which is made; returns their files.

    `sentence` replaces the grammar's examples; `sentences` are those that head roles are measured on.

    Raises:
      UserError: the folder is no run's, the run is not one between English and German, or `output` cannot be written.
    """
    model_run = open_run(workdir)
    pairs = unseen_pairs(direction(model_run))
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output={output}: cannot be made ({error.strerror})") from error
    report = load_or_measure(model_run, sentences, cases=0)
    layer = report["alignment"]["best_layer"]["layer"] - 1
    if sentence is None:
        focus = partial(example, model_run, pairs)
        alignment = aligned(model_run, most_crossed(pairs), layer)
    else:
        maps = own_maps(model_run, sentence)
        focus = partial(given, maps)
        cross = maps["cross"]
        alignment = Alignment(cross.queries, cross.keys, cross.weights_nhts[layer].mean(0), None)
    verb = focus("encoder", "particle")  # which should look at its particle
    particle = focus("decoder", "verb")
    pronoun = focus("encoder", "antecedent")
    paths = {name: output / f"{name}.svg" for name in FIGURES}
    draw_word(verb, paths["figure3"])
    draw_word(particle, paths["figure3_decoder"])
    draw_anaphora(pronoun, paths["figure4"])
    draw_two(pronoun, paths["figure5"])
    draw_roles(report["roles"], paths["heads"])
    draw_alignment(alignment, layer, paths["alignment"])
    draw_positions(default().model.d_model, paths["positions"])
    draw_schedule(default().optim, paths["schedule"])
    return list(paths.values())


def unseen_pairs(reverse: bool) -> list[AnnotatedPair]:
    """Returns the unseen sentences among which examples are looked for."""
    return [annotate(grammar.pair("test", i), reverse) for i in range(SEARCHED)]


def example(model_run: Run, pairs: Sequence[AnnotatedPair], kind: str, relation: str) -> Focus:
    """Returns a case of the relation that shows it well, as the paper's examples were picked to.

    Of the longest cases of the test split, as many as are read at once, it is the one with the largest weight on the
    right token, times the distance to it.
    """
    cases: list[Case] = []
    for pair in pairs:
        for query, keys in pair.cases[kind, relation].items():
            cases += [Case(pair, query, key) for key in keys]
    longest = sorted(cases, key=lambda case: -case.distance)[:BATCH]
    read = [case.pair for case in longest]
    weights = {id(pair): maps[kind] for pair, maps in sentence_maps(model_run, read)}

    def shown(case: Case) -> float:
        weights_nh = weights[id(case.pair)][:, :, case.query, case.key]
        return float(weights_nh.max()) * case.distance

    best = max(longest, key=shown)
    drawn = spelled_maps(model_run, best.pair.source, best.pair.target)[kind]
    spans = spans_of(model_run.tokenizer, best.pair)[kind]
    query = spans.queries.index(best.query)
    right = [column for column, token in enumerate(spans.keys) if token == best.key]
    return Focus(kind, drawn.queries, drawn.keys, drawn.weights_nhts, query, right)


def given(maps: dict[str, AttentionMap], kind: str, relation: str) -> Focus:
    """Returns a sentence at its last pronoun where an antecedent is wanted, else at the word that looks farthest."""
    queries, keys, weights_nhts = maps[kind]
    pronouns = [i for i, piece in enumerate(queries) if piece.lower() in PRONOUNS]
    distance_ts = np.abs(np.subtract.outer(np.arange(len(queries)), np.arange(len(keys))))
    mean_distance_nht = (weights_nhts * distance_ts).sum(-1)
    farthest_t = mean_distance_nht.max((0, 1))
    of_words_t = farthest_t[:-1]  # </s> is no word
    query = int(np.argmax(of_words_t)) if len(of_words_t) else 0
    if pronouns and relation == "antecedent":
        query = pronouns[-1]
    return Focus(kind, queries, keys, weights_nhts, query, [])


def own_maps(model_run: Run, text: str) -> dict[str, AttentionMap]:
    """Returns attention over a sentence and the run's translation of it; `UserError` if the sentence is too long."""
    try:
        return spelled_maps(model_run, text, translate_one(model_run, text))
    except ValueError as error:
        raise UserError(f"--sentence: {error}") from error


def spelled_maps(model_run: Run, source: str, target: str) -> dict[str, AttentionMap]:
    """Returns attention over a pair of sentences, its subwords spelled as labels."""
    maps = attention_maps(model_run.model_config, model_run.params, model_run.tokenizer, source, target)
    return {
        kind: AttentionMap(drawing.spelled(queries), drawing.spelled(keys), weights_nhts)
        for kind, (queries, keys, weights_nhts) in maps.items()
    }


def draw_word(focus: Focus, path: Path) -> None:
    """Draws Figure 3: every head of the layer that looks most at what the word belongs to."""
    layer = int(np.argmax(focus.towards_nh().sum(-1)))
    h = focus.weights_nhts.shape[1]
    with drawing.figure_file(path, 4.2, _height(focus) + 0.2) as figure:
        axes = figure.subplots()
        drawing.columns(axes, focus.queries, focus.keys, focus.query, reach=0.09 * h)
        for head in range(h):
            weights_ts = focus.weights_nhts[layer, head]
            drawing.connect(axes, weights_ts, drawing.colour(head), [focus.query])
            drawing.draw_weights(axes, weights_ts[focus.query], 1.02 + 0.09 * head, 0.08, drawing.colour(head))
            axes.plot([], [], color=drawing.colour(head), label=f"head {head + 1}")
        figure.legend(loc="outside lower center", ncols=min(h, 4), frameon=False, fontsize=7)
        axes.set_title(f"{TITLES[focus.kind]}, layer {layer + 1}")


def draw_anaphora(focus: Focus, path: Path) -> None:
    """Draws Figure 4: the two heads that look most from the pronoun to its antecedent, in full and from it only."""
    order = focus.towards_nh().argsort(axis=None)[::-1][:2]
    heads = [np.unravel_index(place, focus.weights_nhts.shape[:2]) for place in order]
    with drawing.figure_file(path, 2.6 * (len(heads) + 1), _height(focus)) as figure:
        *full, single = figure.subplots(1, len(heads) + 1)
        for shade, (axes, (layer, head)) in enumerate(zip(full, heads, strict=True)):
            _all_of(axes, focus, layer, head, drawing.colour(shade))
        drawing.columns(single, focus.queries, focus.keys, focus.query, reach=0.1 * len(heads))
        for shade, (layer, head) in enumerate(heads):
            weights_ts = focus.weights_nhts[layer, head]
            drawing.connect(single, weights_ts, drawing.colour(shade), [focus.query])
            drawing.draw_weights(single, weights_ts[focus.query], 1.02 + 0.1 * shade, 0.09, drawing.colour(shade))
        single.set_title(f"only from {focus.queries[focus.query]!r}", parse_math=False)


def draw_two(focus: Focus, path: Path) -> None:
    """Draws Figure 5: the two heads of one layer whose weights differ most, by total variation, over the sentence."""
    layer, left, right = _most_different(focus.weights_nhts)
    with drawing.figure_file(path, 5.2, _height(focus)) as figure:
        left_axes, right_axes = figure.subplots(1, 2)
        _all_of(left_axes, focus, layer, left, "tab:green")
        _all_of(right_axes, focus, layer, right, "tab:red")


def _most_different(weights_nhts: Float[np.ndarray, "n h t s"]) -> tuple[int, int, int]:
    """Returns the layer, and two of its heads, whose weights differ most; of a single head, itself."""
    n, h = weights_nhts.shape[:2]
    differences: dict[tuple[int, int, int], float] = {}
    for layer in range(n):
        for left, right in itertools.combinations(range(h), 2):
            difference_ts = weights_nhts[layer, left] - weights_nhts[layer, right]
            differences[layer, left, right] = np.abs(difference_ts).sum()
    return max(differences, key=differences.__getitem__, default=(0, 0, 0))


def _height(focus: Focus) -> float:
    return drawing.ROW * max(len(focus.queries), len(focus.keys)) + 0.5


def _all_of(axes: Any, focus: Focus, layer: int, head: int, shade: Any) -> None:
    drawing.columns(axes, focus.queries, focus.keys)
    drawing.connect(axes, focus.weights_nhts[layer, head], shade)
    axes.set_title(f"layer {layer + 1}, head {head + 1}")


def draw_roles(roles: dict[str, dict[str, Any]], path: Path) -> None:
    """Draws how often each head follows each relation, with a frame around the head chosen on other sentences."""
    kinds = [kind for kind in KINDS if roles[kind]]
    relations = [len(roles[kind]) for kind in kinds]
    heads = max(np.size(role["accuracy"]) for kind in kinds for role in roles[kind].values())
    width = 2.4 + max(0.27 * heads, 2.5)
    height = 0.19 * sum(count + 4 for count in relations)
    with drawing.figure_file(path, width, height) as figure:
        grid = figure.subplots(len(kinds), 1, squeeze=False, height_ratios=relations)
        for axes, kind in zip(grid[:, 0], kinds, strict=True):
            _draw_roles_of(axes, roles[kind], numbers=heads <= 64)
            axes.set_title(f"{TITLES[kind]}{', to the translation' if kind == 'cross' else ''}: accuracy in %")
        grid[-1, 0].set_xlabel("layer.head")
        title = "How often each head looks most at the right token; framed: the best head on other sentences; (cases)"
        figure.suptitle(textwrap.fill(title, int(14 * width)), fontsize=9)


def _draw_roles_of(axes: Any, roles: dict[str, Any], *, numbers: bool) -> None:
    """Draws one kind of attention: a row for each relation, a column for each head."""
    n, h = np.shape(next(iter(roles.values()))["accuracy"])
    accuracy = np.array([np.ravel(role["accuracy"]) for role in roles.values()])
    names = [f"{RELATIONS[relation]} ({role['cases']:,})" for relation, role in roles.items()]
    labels = [f"{layer}.{head}" for layer in range(1, n + 1) for head in range(1, h + 1)]
    drawing.heat(axes, accuracy, names, labels, numbers=numbers)
    best = np.zeros(accuracy.shape, bool)
    for row, role in enumerate(roles.values()):
        layer = role["best"]["layer"] - 1
        head = role["best"]["head"] - 1
        best[row, layer * h + head] = accuracy[row, layer * h + head] > 0  # the best of none is no find
    drawing.mark(axes, best)


class Alignment(NamedTuple):
    """Encoder-decoder attention of a layer, the mean of its heads, and which links are true, None if not known."""

    rows: list[str]
    columns: list[str]
    weights_ts: Float[np.ndarray, "t s"]
    true_ts: Bool[np.ndarray, "t s"] | None


def aligned(model_run: Run, pair: AnnotatedPair, layer: int) -> Alignment:
    """Returns the alignment of a pair of the grammar, between tokens."""
    ((_, maps),) = sentence_maps(model_run, [pair])
    weights_ts = maps["cross"][layer].mean(0)
    true_ts = np.zeros(weights_ts.shape, bool)
    for target, source in pair.alignment:
        true_ts[target, source] = True
    return Alignment([*pair.target_tokens], [*pair.source_tokens, "</s>"], weights_ts, true_ts)


def most_crossed(pairs: Sequence[AnnotatedPair]) -> AnnotatedPair:
    """Returns the first pair of at most 16 tokens a side in which most links of the alignment cross."""

    def crossings(pair: AnnotatedPair) -> int:
        count = 0
        for (target, source), (later_target, earlier_source) in itertools.combinations(sorted(pair.alignment), 2):
            if target < later_target and source > earlier_source:
                count += 1
        return count

    short = [pair for pair in pairs if max(len(pair.source_tokens), len(pair.target_tokens)) <= 16]
    return max(short, key=crossings)


def draw_alignment(alignment: Alignment, layer: int, path: Path) -> None:
    """Draws the weights as a heat map, with frames around the true links."""
    width = 0.2 * len(alignment.columns) + 1.4
    height = 0.2 * len(alignment.rows) + 1.4
    with drawing.figure_file(path, width, height) as figure:
        axes = figure.subplots()
        drawing.heat(axes, alignment.weights_ts, alignment.rows, alignment.columns)
        title = f"decoder over encoder, layer {layer + 1}, mean of heads"
        if alignment.true_ts is not None:
            drawing.mark(axes, alignment.true_ts)
            title += "; framed: the true alignment"
        axes.set_title(textwrap.fill(title, 45))


def draw_positions(d_model: int, path: Path) -> None:
    """Draws the sinusoids of 100 positions, and dot products of positions k apart, over their squared length."""
    encodings_td = np.asarray(sinusoids(jnp.arange(101)[None], d_model))[0]
    with drawing.figure_file(path, 6.5, 2.8) as figure:
        table, products = figure.subplots(1, 2, width_ratios=(3, 2))
        image = table.imshow(encodings_td, cmap="RdBu", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
        table.set(xlabel="dimension", ylabel="position", title="PE(pos, i), $d_{model}$ = " + str(d_model))
        figure.colorbar(image, ax=table)
        for width, start in ((5, 0), (2.5, 25), (1, 50)):  # they lie on one another: only the distance counts
            distance_s = np.arange(len(encodings_td)) - start
            product_s = encodings_td @ encodings_td[start] / (d_model / 2)
            products.plot(distance_s, product_s, lw=width, label=f"pos = {start}")
        products.set(xlabel="distance k", title="PE(pos) · PE(pos + k) / (d/2)")
        products.legend(frameon=False)
        products.spines[["top", "right"]].set_visible(False)


def draw_schedule(optim: ConfigDict, path: Path) -> None:
    """Draws equation (3) for several widths and warm-ups; the solid line is the paper's base model."""
    with drawing.figure_file(path, 4.5, 2.8) as figure:
        axes = figure.subplots()
        steps = np.arange(1, 25_001, 50)
        for style, d_model, warmup in (("-", 512, 4000), ("--", 1024, 4000), ("-.", 512, 8000), (":", 256, 4000)):
            cfg = ConfigDict({**optim.to_dict(), "schedule": "paper", "warmup": warmup})
            rates = jax.vmap(partial(learning_rate, cfg, d_model, 0))(jnp.asarray(steps))
            axes.plot(steps, rates, style, label=f"$d_{{model}}$ = {d_model}, warmup = {warmup}")
        axes.set(xlabel="update", ylabel="learning rate", ylim=(0, None), xlim=(0, steps[-1]))
        axes.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    output = output_folder("output", options.output)
    for path in figures(options.workdir, output, options.sentence, options.sentences):
        print(path)


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "folder of the run")
    flags.DEFINE_string("output", None, "folder for the figures")
    flags.DEFINE_string("sentence", None, "a sentence of the source language; default: examples of the grammar")
    flags.DEFINE_integer("sentences", 500, "sentences on which head roles are measured", lower_bound=1)
    unchanged.define_flag()
    flags.mark_flags_as_required(["workdir", "output"])
    run(main, hint='put the sentence in quotes: --sentence="..."')

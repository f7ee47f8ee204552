"""The paper's Figures 3 to 5 of a trained run, as SVG files.

python -m paper.figures --workdir=runs/quickstart --output=figures [--sentence="The dog that we saw calls them."]

figure3   what a verb attends to in every head of one encoder layer: does it find its particle?
figure4   two heads at a pronoun: all of their attention, and only the pronoun's
figure5   two heads of one layer that do different things

Sentences are the grammar's, unseen in training; --sentence draws another. Layers and heads count from 1.
"""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags
from jaxtyping import Float

from vaswani.command import run
from vaswani.data.grammar.sentences import pair
from vaswani.errors import UserError
from vaswani.files import output_folder
from vaswani.infer.attention.kinds import TITLES
from vaswani.infer.attention.maps import AttentionMap, attention_maps
from vaswani.infer.runs import Run, open_run
from vaswani.paper import drawing
from vaswani.paper.grammar_runs import direction, owners
from vaswani.run import unchanged

PRONOUNS = {"he", "she", "it", "they", "him", "her", "them", "who", "its", "er", "sie", "es", "ihn", "ihm", "ihnen"}
SEARCHED = 500  # sentences of the test split
CANDIDATES = 32  # the longest cases in them, of which the clearest is drawn
FIGURES = ("figure3", "figure4", "figure5")


class Case(NamedTuple):
    """A word of a sentence, and another that it ought to look at, by the numbers of their tokens."""

    text: str
    tokens: tuple[str, ...]
    query: int
    key: int

    @property
    def distance(self) -> int:
        """Tokens from one word to the other."""
        return abs(self.query - self.key)


class Focus(NamedTuple):
    """Encoder self-attention over a sentence, and a word in it to look at.

    `query` is the row of that word's first subword, `right` the columns that it ought to look at, none where that is
    not known.
    """

    tokens: list[str]
    weights_nhts: Float[np.ndarray, "n h t s"]
    query: int
    right: list[int]

    def towards_nh(self) -> Float[np.ndarray, "n h"]:
        """Returns the weight on what is right, or where that is not known the mean attention distance of the word."""
        weights_nhs = self.weights_nhts[:, :, self.query]
        if self.right:
            return weights_nhs[..., self.right].sum(-1)
        return weights_nhs @ np.abs(np.arange(len(self.tokens)) - self.query)


def figures(workdir: str | Path, output: Path, sentence: str | None = None) -> list[Path]:
    """Draws the figures of the run in `workdir` into the folder `output`, which is made; returns their files.

    `sentence` replaces the grammar's examples.

    Raises:
      UserError: the folder is no run's, its model has no encoder with attention weights, it does not translate the
        grammar's languages and there is no sentence, the sentence is too long, or `output` cannot be written.
    """
    model_run = open_run(workdir)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output={output}: cannot be made ({error.strerror})") from error
    if sentence is None:
        verb = example(model_run, "particles")
        pronoun = example(model_run, "pronouns")
    else:
        drawn = encoder_map(model_run, sentence)
        verb = farthest(drawn)
        pronoun = last_pronoun(drawn)
    paths = {name: output / f"{name}.svg" for name in FIGURES}
    draw_word(verb, paths["figure3"])
    draw_anaphora(pronoun, paths["figure4"])
    draw_two(pronoun, paths["figure5"])
    return list(paths.values())


def example(model_run: Run, relation: str) -> Focus:
    """Returns a case of the relation that shows it well, as the paper's examples were picked to.

    The relations are those of the grammar's `Links`: "particles", from a verb to its particle, and "pronouns", from a
    pronoun to its antecedent. Of the longest cases it is the one with the largest weight on the right token, times the
    distance to it.
    """
    longest = sorted(_cases(relation, direction(model_run)), key=lambda case: -case.distance)[:CANDIDATES]
    on_device = model_run._replace(params=jax.device_put(model_run.params))  # once, not with each case
    focuses = [_focus(on_device, case) for case in longest]

    def clarity(place: int) -> float:
        return float(focuses[place].towards_nh().max()) * longest[place].distance

    return focuses[max(range(len(focuses)), key=clarity)]


def _cases(relation: str, reverse: bool) -> Iterator[Case]:
    """Yields the cases in the source sentences, English or in `reverse` German, of the test split's first pairs."""
    language = "german" if reverse else "english"
    for number in range(SEARCHED):
        unseen = pair("test", number)
        text = unseen.german if reverse else unseen.english
        tokens = unseen.german_tokens if reverse else tuple(unseen.tree.leaves())
        for query, key in getattr(unseen.links, f"{language}_{relation}"):
            yield Case(text, tokens, query, key)


def _focus(model_run: Run, case: Case) -> Focus:
    """Returns the attention over the sentence of a case, at the first subword of its word."""
    tokens_of = owners(model_run.tokenizer, case.tokens, case.text)
    right = [column for column, token in enumerate(tokens_of) if token == case.key]
    drawn = encoder_map(model_run, case.text)
    return Focus(drawn.queries, drawn.weights_nhts, tokens_of.index(case.query), right)


def encoder_map(model_run: Run, text: str) -> AttentionMap:
    """Returns the encoder's attention over a sentence, its subwords spelled as labels.

    Raises:
      UserError: the model has no encoder with attention weights, or the sentence is too long for it.
    """
    try:
        # No word of the encoder depends on the target.
        maps = attention_maps(model_run.model_config, model_run.params, model_run.tokenizer, text, "")
    except ValueError as error:
        raise UserError(f"--sentence: {error}") from error
    if "encoder" not in maps:
        raise UserError(f"--workdir={model_run.workdir}: its model has no self-attention in an encoder to draw")
    labels = drawing.spelled(maps["encoder"].queries)
    return AttentionMap(labels, labels, maps["encoder"].weights_nhts)


def farthest(drawn: AttentionMap) -> Focus:
    """Returns a sentence at the word that looks farthest in some head."""
    tokens = drawn.queries
    distance_ts = np.abs(np.subtract.outer(np.arange(len(tokens)), np.arange(len(tokens))))
    mean_distance_nht = (drawn.weights_nhts * distance_ts).sum(-1)
    of_words_t = mean_distance_nht.max((0, 1))[:-1]  # </s> is no word
    query = int(np.argmax(of_words_t)) if len(of_words_t) else 0
    return Focus(tokens, drawn.weights_nhts, query, [])


def last_pronoun(drawn: AttentionMap) -> Focus:
    """Returns a sentence at its last pronoun; without one, at the word that looks farthest."""
    pronouns = [place for place, piece in enumerate(drawn.queries) if piece.lower() in PRONOUNS]
    focus = farthest(drawn)
    return focus._replace(query=pronouns[-1]) if pronouns else focus


def draw_word(focus: Focus, path: Path) -> None:
    """Draws Figure 3: every head of the layer that looks most at what the word belongs to."""
    layer = int(np.argmax(focus.towards_nh().sum(-1)))
    h = focus.weights_nhts.shape[1]
    with drawing.figure_file(path, 4.2, _height(focus) + 0.2) as figure:
        axes = figure.subplots()
        drawing.columns(axes, focus.tokens, focus.query, reach=0.09 * h)
        for head in range(h):
            weights_ts = focus.weights_nhts[layer, head]
            drawing.connect(axes, weights_ts, drawing.colour(head), [focus.query])
            drawing.draw_weights(axes, weights_ts[focus.query], 1.02 + 0.09 * head, 0.08, drawing.colour(head))
            axes.plot([], [], color=drawing.colour(head), label=f"head {head + 1}")
        figure.legend(loc="outside lower center", ncols=min(h, 4), frameon=False, fontsize=7)
        axes.set_title(f"{TITLES['encoder']}, layer {layer + 1}")


def draw_anaphora(focus: Focus, path: Path) -> None:
    """Draws Figure 4: the two heads that look most from the pronoun to its antecedent, in full and from it only."""
    order = focus.towards_nh().argsort(axis=None)[::-1][:2]
    heads = [np.unravel_index(place, focus.weights_nhts.shape[:2]) for place in order]
    with drawing.figure_file(path, 2.6 * (len(heads) + 1), _height(focus)) as figure:
        *full, single = figure.subplots(1, len(heads) + 1)
        for shade, (axes, (layer, head)) in enumerate(zip(full, heads, strict=True)):
            _all_of(axes, focus, layer, head, drawing.colour(shade))
        drawing.columns(single, focus.tokens, focus.query, reach=0.1 * len(heads))
        for shade, (layer, head) in enumerate(heads):
            weights_ts = focus.weights_nhts[layer, head]
            drawing.connect(single, weights_ts, drawing.colour(shade), [focus.query])
            drawing.draw_weights(single, weights_ts[focus.query], 1.02 + 0.1 * shade, 0.09, drawing.colour(shade))
        single.set_title(f"only from {focus.tokens[focus.query]!r}", parse_math=False)


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
    return drawing.ROW * len(focus.tokens) + 0.5


def _all_of(axes: Any, focus: Focus, layer: int, head: int, shade: Any) -> None:
    drawing.columns(axes, focus.tokens)
    drawing.connect(axes, focus.weights_nhts[layer, head], shade)
    axes.set_title(f"layer {layer + 1}, head {head + 1}")


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    output = output_folder("output", options.output)
    for path in figures(options.workdir, output, options.sentence):
        print(path)


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "folder of the run")
    flags.DEFINE_string("output", None, "folder for the figures")
    flags.DEFINE_string("sentence", None, "a sentence of the source language; default: examples of the grammar")
    unchanged.define_flag()
    flags.mark_flags_as_required(["workdir", "output"])
    run(main, hint='put the sentence in quotes: --sentence="..."')

"""The figures: what is drawn is what was measured, and every sentence gives files that are SVG."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests import tiny
from tests.conftest import ROOT
from vaswani.data.grammar.sentences import pair
from vaswani.errors import UserError
from vaswani.infer.attention.maps import AttentionMap
from vaswani.infer.runs import Run, open_run
from vaswani.paper import drawing, figures

NASTY = '$x$ </svg> & it "sees" 🐕 \\broken{'


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_grammar_run(tmp_path_factory.mktemp("figures") / "run")


@pytest.fixture(scope="module")
def run(workdir: Path) -> Run:
    return open_run(workdir)


@pytest.fixture(autouse=True)
def few_sentences(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "SEARCHED", 60)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Collects the figures that are drawn instead of writing files."""
    made: list[Figure] = []

    @contextmanager
    def keep(path: Path, width: float, height: float) -> Iterator[Figure]:
        made.append(Figure(figsize=(width, height)))
        yield made[-1]

    monkeypatch.setattr(drawing, "figure_file", keep)
    return made


def texts(figure: Figure, axes: int = 0) -> list[str]:
    return [text.get_text() for text in figure.axes[axes].texts]


def planted(n: int, h: int, t: int) -> np.ndarray:
    """Makes every head attend to the token itself, and nowhere else."""
    return np.broadcast_to(np.eye(t), (n, h, t, t)).copy()


@pytest.mark.slow
@pytest.mark.parametrize("text", [None, NASTY])
def test_every_figure_is_an_svg_file(workdir: Path, text: str | None, tmp_path: Path):
    paths = figures.figures(workdir, tmp_path / "a" / "b", text)
    assert [path.stem for path in paths] == list(figures.FIGURES)
    for path in paths:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


@pytest.mark.slow
def test_the_same_figure_is_the_same_file(tmp_path: Path):
    focus = figures.Focus(list("ab"), planted(1, 1, 2), 1, [0])
    figures.draw_word(focus, tmp_path / "one.svg")
    figures.draw_word(focus, tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_place_that_cannot_be_written_is_named(workdir: Path, tmp_path: Path):
    with pytest.raises(UserError, match="cannot be written"):
        figures.draw_word(figures.Focus(list("ab"), planted(1, 1, 2), 1, [0]), tmp_path / "none" / "a.svg")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--output=.*cannot be made"):
        figures.figures(workdir, tmp_path / "file")


def test_subwords_are_spelled_with_hyphens_inside_words_only():
    pieces = ["▁The", "▁dog", "s", "▁ar", "en", "'", "t", "▁twenty", "-", "one", "▁", "<0x33>", ".", "</s>"]
    labels = ["The", "dog-", "s", "ar-", "en", "'", "t", "twenty", "-", "one", "▁", "<0x33>", ".", "</s>"]
    assert drawing.spelled(pieces) == labels


def test_lines_are_as_strong_as_weights():
    axes = Figure().subplots()
    drawing.connect(axes, np.array([[0.0, 0.25, 0.75], [0.5, 0.5, 0.0]]), "red", [0])
    lines = {(*map(int, line.get_ydata()), line.get_alpha()) for line in axes.lines}
    assert lines == {(0, 1, 0.25), (0, 2, 0.75)}
    drawing.connect(axes, np.array([[0.0, 0.25, 0.75], [0.5, 0.5, 0.0]]), "red")
    assert len(axes.lines) == 2 + 4


def test_a_word_is_drawn_in_the_layer_that_sees_what_is_right(drawn: list[Figure]):
    weights_nhts = planted(3, 2, 4)
    weights_nhts[1, 1, 2] = (0.9, 0.0, 0.1, 0.0)
    focus = figures.Focus(list("abcd"), weights_nhts, 2, [0])
    figures.draw_word(focus, Path("x"))
    (axes,) = drawn[0].axes
    assert axes.get_title() == "encoder self-attention, layer 2"
    bold = [text.get_text() for text in axes.texts if text.get_weight() == "bold"]
    assert bold == ["c"] and texts(drawn[0]) == [*"abcd", *"abcd"]
    assert (2, 0) in {tuple(map(int, line.get_ydata())) for line in axes.lines if len(line.get_ydata())}


def test_without_a_right_answer_the_head_that_looks_farthest_counts():
    weights_nhts = planted(1, 2, 4)
    weights_nhts[0, 1, 0] = (0.5, 0.0, 0.0, 0.5)
    focus = figures.Focus(list("abcd"), weights_nhts, 0, [])
    np.testing.assert_allclose(focus.towards_nh(), [[0, 1.5]])
    np.testing.assert_allclose(focus._replace(right=[0]).towards_nh(), [[1, 0.5]])


def test_anaphora_shows_the_two_heads_that_see_the_antecedent(drawn: list[Figure]):
    weights_nhts = planted(2, 2, 3)
    weights_nhts[0, 1, 2] = (0.8, 0.0, 0.2)
    weights_nhts[1, 0, 2] = (0.6, 0.0, 0.4)
    figures.draw_anaphora(figures.Focus(list("abc"), weights_nhts, 2, [0]), Path("x"))
    titles = [axes.get_title() for axes in drawn[0].axes]
    assert titles == ["layer 1, head 2", "layer 2, head 1", "only from 'c'"]
    assert {int(line.get_ydata()[0]) for line in drawn[0].axes[2].lines} == {2}


def test_one_head_alone_is_drawn_too(drawn: list[Figure]):
    focus = figures.Focus(list("ab"), planted(1, 1, 2), 1, [0])
    figures.draw_anaphora(focus, Path("x"))
    figures.draw_two(focus, Path("x"))
    assert [axes.get_title() for axes in drawn[0].axes] == ["layer 1, head 1", "only from 'b'"]


def test_two_heads_are_those_that_differ_most(drawn: list[Figure]):
    weights_nhts = planted(2, 3, 3)
    weights_nhts[1, 2] = np.roll(np.eye(3), 1, axis=1)
    weights_nhts[1, 0] = (np.eye(3) + np.full((3, 3), 1 / 3)) / 2
    figures.draw_two(figures.Focus(list("abc"), weights_nhts, 0, []), Path("x"))
    assert [axes.get_title() for axes in drawn[0].axes] == ["layer 2, head 2", "layer 2, head 3"]


def test_an_example_is_a_pronoun_and_what_it_ought_to_look_at(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "pair", lambda split, number: pair("test", 24))  # "The student .. before he .."
    focus = figures.example(run, "pronouns")
    assert focus.tokens[focus.query] == "he"
    assert "".join(focus.tokens[column] for column in focus.right).replace("-", "") == "student"
    np.testing.assert_allclose(focus.weights_nhts.sum(-1), 1, atol=1e-5)


def test_of_the_longest_cases_the_clearest_is_drawn(monkeypatch: pytest.MonkeyPatch):
    """At distance 3 with weight 0.5, not at distance 4 with 0.2, nor at distance 1 with 0.9."""
    cases = [figures.Case("abcde", tuple("abcde"), query, key) for query, key in ((4, 0), (4, 3), (3, 0))]
    weight = {(4, 0): 0.2, (4, 3): 0.9, (3, 0): 0.5}

    def focus(run: Any, case: figures.Case) -> figures.Focus:
        weights_nhts = np.zeros((1, 1, 5, 5))
        weights_nhts[0, 0, case.query, case.key] = weight[case.query, case.key]
        return figures.Focus(list("abcde"), weights_nhts, case.query, [case.key])

    monkeypatch.setattr(figures, "_cases", lambda relation, reverse: iter(cases))
    monkeypatch.setattr(figures, "_focus", focus)
    monkeypatch.setattr(figures, "direction", lambda run: False)
    best = figures.example(tiny.random_run(), "pronouns")
    assert (best.query, best.right) == (3, [0])


def test_a_given_sentence_is_read_at_its_last_pronoun():
    words = ["She", "sees", "that", "it", "sleeps", ".", "</s>"]
    weights_nhts = planted(1, 1, len(words))
    weights_nhts[0, 0, 4] = np.eye(len(words))[0]
    drawn = AttentionMap(words, words, weights_nhts)
    assert figures.last_pronoun(drawn).query == 3
    assert figures.farthest(drawn).query == 4
    assert figures.last_pronoun(AttentionMap(["a"] * 7, ["a"] * 7, weights_nhts)).query == 4


def test_a_model_without_an_encoder_is_refused():
    with pytest.raises(UserError, match="its model has no self-attention in an encoder to draw"):
        figures.encoder_map(tiny.random_run(prefix="causal"), "a dog")


def test_a_run_that_was_changed_can_be_drawn() -> None:
    """What refuses it advises a flag, which the command must have."""
    told = subprocess.run([sys.executable, "-m", "paper.figures", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert "--[no]accept_changes" in told.stdout

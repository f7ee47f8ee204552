"""The figures: what is drawn is what was measured, and every sentence gives files that are SVG."""

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests import tiny
from tests.conftest import ROOT
from vaswani.configs.common import default
from vaswani.data.grammar import sentences as grammar
from vaswani.data.symbols import Symbols
from vaswani.errors import UserError
from vaswani.infer.attention.maps import AttentionMap
from vaswani.infer.runs import Run, open_run
from vaswani.paper import drawing, figures
from vaswani.paper.heads.measure import measure_heads
from vaswani.paper.heads.roles import AnnotatedPair, annotate

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
def test_every_figure_is_an_svg_file(workdir: Path, text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(figures, "translate_one", lambda run, text: f"{text} {text}")
    paths = figures.figures(workdir, tmp_path / "a" / "b", text, sentences=2)
    assert [path.stem for path in paths] == list(figures.FIGURES)
    for path in paths:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")


@pytest.mark.slow
def test_the_same_figure_is_the_same_file(tmp_path: Path):
    figures.draw_positions(8, tmp_path / "one.svg")
    figures.draw_positions(8, tmp_path / "two.svg")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_a_place_that_cannot_be_written_is_named(workdir: Path, tmp_path: Path):
    with pytest.raises(UserError, match="cannot be written"):
        figures.draw_positions(8, tmp_path / "none" / "a.svg")
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
    focus = figures.Focus("encoder", list("abcd"), list("abcd"), weights_nhts, 2, [0])
    figures.draw_word(focus, Path("x"))
    (axes,) = drawn[0].axes
    assert axes.get_title() == "encoder self-attention, layer 2"
    bold = [text.get_text() for text in axes.texts if text.get_weight() == "bold"]
    assert bold == ["c"] and texts(drawn[0]) == [*"abcd", *"abcd"]
    assert (2, 0) in {tuple(map(int, line.get_ydata())) for line in axes.lines if len(line.get_ydata())}


def test_without_a_right_answer_the_head_that_looks_farthest_counts():
    weights_nhts = planted(1, 2, 4)
    weights_nhts[0, 1, 0] = (0.5, 0.0, 0.0, 0.5)
    focus = figures.Focus("encoder", list("abcd"), list("abcd"), weights_nhts, 0, [])
    np.testing.assert_allclose(focus.towards_nh(), [[0, 1.5]])
    np.testing.assert_allclose(focus._replace(right=[0]).towards_nh(), [[1, 0.5]])


def test_anaphora_shows_the_two_heads_that_see_the_antecedent(drawn: list[Figure]):
    weights_nhts = planted(2, 2, 3)
    weights_nhts[0, 1, 2] = (0.8, 0.0, 0.2)
    weights_nhts[1, 0, 2] = (0.6, 0.0, 0.4)
    figures.draw_anaphora(figures.Focus("encoder", list("abc"), list("abc"), weights_nhts, 2, [0]), Path("x"))
    titles = [axes.get_title() for axes in drawn[0].axes]
    assert titles == ["layer 1, head 2", "layer 2, head 1", "only from 'c'"]
    assert {int(line.get_ydata()[0]) for line in drawn[0].axes[2].lines} == {2}


def test_one_head_alone_is_drawn_too(drawn: list[Figure]):
    focus = figures.Focus("encoder", list("ab"), list("ab"), planted(1, 1, 2), 1, [0])
    figures.draw_anaphora(focus, Path("x"))
    figures.draw_two(focus, Path("x"))
    assert [axes.get_title() for axes in drawn[0].axes] == ["layer 1, head 1", "only from 'b'"]


def test_two_heads_are_those_that_differ_most(drawn: list[Figure]):
    weights_nhts = planted(2, 3, 3)
    weights_nhts[1, 2] = np.roll(np.eye(3), 1, axis=1)
    weights_nhts[1, 0] = (np.eye(3) + np.full((3, 3), 1 / 3)) / 2
    figures.draw_two(figures.Focus("encoder", list("abc"), list("abc"), weights_nhts, 0, []), Path("x"))
    assert [axes.get_title() for axes in drawn[0].axes] == ["layer 2, head 2", "layer 2, head 3"]


def test_roles_are_drawn_as_measured_and_the_chosen_head_is_framed(drawn: list[Figure]):
    role = {"cases": 1234, "accuracy": [[0.1, 0.2], [0.7, 0.4]], "best": {"layer": 2, "head": 2, "accuracy": 0.4}}
    figures.draw_roles({"encoder": {"next": role}, "decoder": {}, "cross": {"verb": role}}, Path("x"))
    axes, cross = drawn[0].axes
    assert [text.get_text() for text in axes.texts] == ["10", "20", "70", "40"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1.1", "1.2", "2.1", "2.2"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["next token (1,234)"]
    (frame,) = axes.lines
    assert np.mean(frame.get_xdata()[:4]) == 3 and "translation" in cross.get_title()


def test_no_frame_stands_round_a_head_that_never_finds_it(drawn: list[Figure]):
    role = {"cases": 7, "accuracy": [[0.0, 0.0]], "best": {"layer": 1, "head": 1, "accuracy": 0.1}}
    figures.draw_roles({"encoder": {"next": role}, "decoder": {}, "cross": {}}, Path("x"))
    (axes,) = drawn[0].axes
    assert not axes.lines and drawn[0].get_suptitle().startswith("How often each head looks most at the right")


def test_names_of_points_cover_neither_points_nor_each_other():
    figure = Figure(figsize=(4, 3))
    axes = figure.subplots()
    points = {f"C{place}": (0.01 * place, 0.01 * place) for place in range(8)}
    axes.set(xlim=(-1, 1), ylim=(-1, 1))
    drawing.name_points(axes, points, fontsize=7)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 8
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for point in points.values():
        assert not any(box.contains(*axes.transData.transform(point)) for box in boxes)


def test_an_example_is_the_longest_case_that_shows(run: Run):
    pair = annotate(grammar.pair("test", 24))  # "... ruft uns nie an, bevor er ..."
    particle = figures.example(run, [pair], "decoder", "verb")
    assert particle.queries[particle.query].startswith("an") and particle.right
    assert "".join(particle.keys[column] for column in particle.right).replace("-", "") == "ruft"
    pronoun = figures.example(run, [pair], "encoder", "antecedent")
    assert pronoun.queries[pronoun.query] == "he"
    assert "".join(pronoun.keys[column] for column in pronoun.right).replace("-", "") == "student"


def test_a_given_sentence_is_read_at_its_last_pronoun():
    words = ["She", "sees", "that", "it", "sleeps", ".", "</s>"]
    weights_nhts = planted(1, 1, len(words))
    weights_nhts[0, 0, 4] = np.eye(len(words))[0]
    maps = {"encoder": AttentionMap(words, words, weights_nhts)}
    assert figures.given(maps, "encoder", "antecedent").query == 3
    assert figures.given(maps, "encoder", "particle").query == 4
    nameless = {"encoder": AttentionMap(["a"] * 7, ["a"] * 7, weights_nhts)}
    assert figures.given(nameless, "encoder", "antecedent").query == 4


def test_the_most_crossed_pair_is_the_one_with_most_crossings():
    def pair(*links: tuple[int, int]) -> AnnotatedPair:
        return AnnotatedPair("", "", ("a",) * 3, ("b",) * 3, {}, frozenset(links))

    straight, crossed = pair((0, 0), (1, 1), (2, 2)), pair((0, 2), (1, 1), (2, 0))
    long = crossed._replace(source_tokens=("a",) * 17)
    assert figures.most_crossed([straight, pair((0, 1), (1, 0)), crossed, long]) is crossed


def test_the_true_alignment_is_framed(run: Run, drawn: list[Figure]):
    pair = annotate(grammar.pair("test", 24))
    found = figures.aligned(run, pair, 1)
    np.testing.assert_allclose(found.weights_ts.sum(-1), 1, atol=1e-5)
    figures.draw_alignment(found, 1, Path("x"))
    figures.draw_alignment(found._replace(true_ts=None), 1, Path("x"))
    (axes,), (unknown,) = drawn[0].axes, drawn[1].axes
    frames = [(round(np.mean(f.get_ydata()[:4])), round(np.mean(f.get_xdata()[:4]))) for f in axes.lines]
    assert sorted(frames) == sorted(pair.alignment) and not unknown.lines


def test_positions_depend_on_distance_alone(drawn: list[Figure]):
    figures.draw_positions(64, Path("x"))
    products = drawn[0].axes[1].lines
    curves = [dict(zip(line.get_xdata().tolist(), line.get_ydata(), strict=True)) for line in products]
    assert len(curves) == 3
    for curve in curves:
        assert curve[0] == pytest.approx(1)
        assert curve[7] == pytest.approx(curves[0][7], abs=1e-5)


def test_the_schedule_is_equation_3(drawn: list[Figure]):
    figures.draw_schedule(default().optim, Path("x"))
    lines = drawn[0].axes[0].lines
    assert len(lines) == 4
    for line in lines:
        d_model, warmup = (int(part.split("= ")[1]) for part in line.get_label().split(", "))
        step, rate = line.get_xdata(), line.get_ydata()
        np.testing.assert_allclose(rate, d_model**-0.5 * np.minimum(step**-0.5, step * warmup**-1.5), rtol=1e-5)


def test_a_run_of_words_is_refused_before_anything_is_measured(run: Run):
    words = run._replace(text=Symbols.of(tiny.PAIRS, 0, "words"))
    with pytest.raises(UserError, match=r"this run's units are words; heads are measured by subwords$"):
        measure_heads(words, sentences=1, cases=0)


def test_a_run_that_was_changed_can_be_drawn() -> None:
    """What refuses it advises a flag, which the command must have."""
    told = subprocess.run([sys.executable, "-m", "paper.figures", "--help"], cwd=ROOT, capture_output=True, text=True)
    assert "--[no]accept_changes" in told.stdout

"""The tree of a search: its leaves are the n-best list, and what it says was kept or pruned was."""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests import tiny
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.infer.runs import Run, open_run
from vaswani.infer.translate import __main__ as command
from vaswani.infer.translate.explain import (
    ABANDONED,
    FINISHED,
    KEPT,
    MOST_LINES,
    PRUNED,
    BeamTree,
    beam_tree,
    explained,
    page,
)
from vaswani.infer.translate.translator import Translator
from vaswani.search.options import Decoding

SOURCE = "The old cat sees the dog."
NASTY = "</script><script>alert(1)</script> The dog <img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(tiny.write_run(tmp_path_factory.mktemp("explain") / "run"), "latest")


def drawn(run: Run, decoding: Decoding, text: str = SOURCE) -> BeamTree:
    return beam_tree(run.model_config, run.params, run.tokenizer, decoding, text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(beam=1, alpha=0.6, extra_length=3),
        Decoding(beam=4, alpha=0.6, extra_length=3, nbest=4),
        Decoding(beam=3, alpha=1.0, extra_length=30, nbest=2, length_penalty="power"),
        Decoding(beam=3, alpha=0.0, extra_length=5, nbest=3, min_length=4, no_repeat=2),
        Decoding(beam=4, alpha=0.6, extra_length=30, nbest=4, stopping="full"),
    ],
    ids=["greedy", "beam", "long", "rules", "full"],
)
def test_the_leaves_are_the_n_best(run: Run, decoding: Decoding) -> None:
    leaves = drawn(run, decoding).leaves()
    translator = Translator(run.model_config, run.tokenizer, decoding)
    hypotheses = translator.translate(run.params, [SOURCE])[0].hypotheses
    assert [tuple(tokens) for tokens, _ in leaves] == [hypothesis.tokens for hypothesis in hypotheses]
    scores = [node.score for _, node in leaves]
    np.testing.assert_allclose(scores, [hypothesis.score for hypothesis in hypotheses], rtol=1e-6)
    log_probs = [node.log_prob for _, node in leaves]
    np.testing.assert_allclose(log_probs, [hypothesis.log_prob for hypothesis in hypotheses], rtol=1e-6)


@pytest.mark.slow
def test_with_full_stopping_only_the_most_probable_of_a_step_finish() -> None:
    run = tiny.ending_run()
    tree = drawn(run, Decoding(beam=4, alpha=0.6, extra_length=30, stopping="full"))
    finished = [[node.state == FINISHED for node in nodes] for nodes in tree.steps]
    ends = [[node.token == EOS for node in nodes] for nodes in tree.steps]
    assert [of_step[:4] for of_step in finished] == [of_step[:4] for of_step in ends]
    assert not any(any(of_step[4:]) for of_step in finished) and any(any(of_step[4:]) for of_step in ends)
    count = sum(map(sum, finished))
    assert count >= 4 and count - sum(finished[-1]) < 4, "it ended with the fourth"


@pytest.mark.slow
def test_every_step_keeps_the_most_probable_and_prunes_the_rest(run: Run) -> None:
    tree = drawn(run, Decoding(beam=3, alpha=0.6, extra_length=3, nbest=1))
    before = None
    for nodes in tree.steps:
        log_probs = [node.log_prob for node in nodes]
        assert log_probs == sorted(log_probs, reverse=True) and len(nodes) <= 6
        alive = [node.log_prob for node in nodes if node.state in (KEPT, ABANDONED)]
        pruned = [node.log_prob for node in nodes if node.state == PRUNED]
        assert len(alive) <= 3 and (not pruned or (len(alive) == 3 and max(pruned) <= min(alive)))
        for node in nodes:
            assert (node.score is not None) == (node.state == FINISHED)
            parent = before[node.parent] if before else None
            assert (parent is None) == (node.parent == -1)
            assert parent is None or (parent.state == KEPT and node.log_prob <= parent.log_prob)
        before = nodes
    states = {node.state for nodes in tree.steps for node in nodes}
    assert {KEPT, PRUNED, FINISHED} <= states
    assert not [node for node in tree.steps[-1] if node.state == KEPT], "the search had ended"


@pytest.mark.slow
def test_what_could_not_have_scored_better_is_abandoned_when_the_search_ends(run: Run) -> None:
    """With an end of the sentence that is probable from the start, the search stops long before its limit."""
    embed = np.array(run.params["embed"])
    embed[EOS] *= 20.0
    tree = drawn(run._replace(params=run.params | {"embed": embed}), Decoding(beam=3, alpha=0.6, extra_length=20))
    assert len(tree.steps) < 10
    states = [node.state for node in tree.steps[-1]]
    assert ABANDONED in states and KEPT not in states


@pytest.mark.slow
def test_a_page_holds_the_trees_as_data_and_asks_the_network_for_nothing(run: Run) -> None:
    tree = drawn(run, Decoding(beam=2, alpha=0.6, extra_length=3), NASTY)
    text = page([tree])
    data = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    (found,) = json.loads(data)
    assert found["source"] == NASTY and [len(step) for step in found["steps"]] == [len(step) for step in tree.steps]
    assert "<" not in data and "<script>alert" not in text and text.count("</script>") == 2
    assert not re.search(r"https?:|//[a-z]|url\(|@import|src=|href=|fetch\(|import\(|innerHTML", text.replace(data, ""))
    assert "default-src 'none'" in text


@pytest.mark.slow
def test_the_lines_go_on_and_those_without_text_have_no_tree(run: Run, tmp_path: Path) -> None:
    decoding = Decoding(beam=2, alpha=0.6, extra_length=3)
    given = (run.model_config, run.params, run.tokenizer, decoding)
    source = "The dog sleeps.\r\n\n\u200b\n\xad\nThe cat".encode()
    lines = explained(io.BytesIO(source), *given, tmp_path / "beam.html")
    assert b"".join(lines) == source
    text = (tmp_path / "beam.html").read_text(encoding="utf-8")
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert [tree["source"] for tree in data] == ["The dog sleeps.", "The cat"]
    with pytest.raises(UserError, match=rf"^--explain=.*: draws at most {MOST_LINES} lines, and there are more$"):
        explained(io.BytesIO(b"a\n" * (MOST_LINES + 1)), *given, tmp_path / "many.html")
    with pytest.raises(UserError, match=r"^--explain=.*cannot be written \(Is a directory\)$"):
        explained(io.BytesIO(b"a\n"), *given, tmp_path)
    too_long = r"^standard input, line 2: a sentence of \d+ subwords cannot be drawn, only one of 1 to 99$"
    with pytest.raises(UserError, match=too_long):
        explained(io.BytesIO(b"\n" + b"a dog " * 99), *given, tmp_path / "long.html")
    assert not (tmp_path / "many.html").exists() and not (tmp_path / "long.html").exists()


class Options(SimpleNamespace):
    """Flags of which none is on the command line."""

    split_sentences = False

    def __getitem__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(present=0)


@pytest.mark.parametrize("change", [{"sample": True}, {"groups": 2}, {"require": "prefix"}, {"columns": ["1"]}])
def test_what_is_no_plain_search_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    plain = {"sample": False, "groups": 1, "require": "", "columns": [], "nbest": 1, "scores": False, "mbr": ""}
    options = Options(**plain, explain=str(tmp_path / "beam.html"))
    command.check(options)
    vars(options).update(change)
    with pytest.raises(UserError, match="--explain draws a plain search"):
        command.check(options)
    options.explain = str(tmp_path / "beam.txt")
    with pytest.raises(UserError, match=r"--explain=.*\.html"):
        command.check(options)


def test_a_line_that_may_be_cut_has_no_one_tree(tmp_path: Path) -> None:
    class Cut(Options):
        def __getitem__(self, name: str) -> SimpleNamespace:
            return SimpleNamespace(present=int(name == "max_input"))

    plain = {"sample": False, "groups": 1, "require": "", "columns": [], "nbest": 1, "scores": False, "mbr": ""}
    command.check(Cut(**plain, explain=None))
    with pytest.raises(UserError, match=r"^--explain draws the search of a whole line, which --max_input may cut"):
        command.check(Cut(**plain, explain=str(tmp_path / "beam.html")))


@pytest.mark.slow
def test_a_hypothesis_is_told_as_its_text_whatever_the_tokens_are() -> None:
    run = tiny.random_run()
    tree = drawn(run, Decoding(beam=4, alpha=0.6, extra_length=3))

    def tokens(step: int, place: int) -> list[int]:
        node = tree.steps[step][place]
        before = tokens(step - 1, node.parent) if step else []
        return [*before, node.token]

    for step, nodes in enumerate(tree.as_json()["steps"]):
        for place, node in enumerate(nodes):
            assert node["text"] == run.tokenizer.decode(tokens(step, place))

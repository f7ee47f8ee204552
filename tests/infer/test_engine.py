"""Ensembles, required text, minimum Bayes risk, forced scores, word alignments and tables, on a tiny run."""

import copy
import dataclasses
import io
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from tests import tiny
from tests.infer.test_translate_cli import Echo
from vaswani.data.lines import read_lines
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.infer import align as align_command
from vaswani.infer.attention import alignment
from vaswani.infer.attention.alignment import align, links_of, words_of
from vaswani.infer.attention.maps import attention_maps
from vaswani.infer.rescore import parse_lists
from vaswani.infer.runs import Run, open_run, open_runs
from vaswani.infer.scores import bleu
from vaswani.infer.scores.perplexity import line_log_probs
from vaswani.infer.translate.consensus import METRICS, consensus
from vaswani.infer.translate.nbest import SEPARATOR, entry
from vaswani.infer.translate.required import Required
from vaswani.infer.translate.spelling import SPACE, allowed_at, beginning_of, spellings
from vaswani.infer.translate.stream import Columns, Lines, _with_required, formatted, translate_stream
from vaswani.infer.translate.translator import Hypothesis, Translation, Translator
from vaswani.model.transformer import Transformer
from vaswani.search.options import Decoding, Sampling
from vaswani.search.scoring import forced_log_probs

LINES = [english for english, _ in tiny.PAIRS]
BEAM = Decoding(beam=2, alpha=0.6, extra_length=16, nbest=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(tiny.write_run(tmp_path_factory.mktemp("engine") / "run"), "latest")


@pytest.fixture(scope="module")
def translator(run: Run) -> Translator:
    return Translator(run.model_config, run.tokenizer, BEAM)


@pytest.mark.slow
def test_an_ensemble_of_a_run_and_its_copy_is_the_run(run: Run, translator: Translator, tmp_path: Path) -> None:
    copied = shutil.copytree(run.workdir, tmp_path / "copy")
    runs = open_runs(f"{run.workdir},{copied}", "latest")
    both = Translator(tuple(one.model_config for one in runs), run.tokenizer, BEAM)
    found, alone = both.translate(tuple(one.params for one in runs), LINES), translator.translate(run.params, LINES)
    assert [one.text for one in found] == [one.text for one in alone]
    np.testing.assert_allclose(
        [t.hypotheses[1].score for t in found], [t.hypotheses[1].score for t in alone], rtol=1e-5
    )


def test_runs_of_an_ensemble_have_one_tokenizer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = copy.copy(run.tokenizer)
    tokenizer.sha256 = "x"
    other = run._replace(text=tokenizer, workdir=Path("other"))
    monkeypatch.setattr(
        "vaswani.infer.runs.open_run", lambda workdir, checkpoint, task: other if workdir == "other" else run
    )
    with pytest.raises(UserError, match="other have different tokenizers; an ensemble must share one"):
        open_runs(f"{run.workdir},other")


@pytest.mark.slow
def test_what_is_required_is_there_and_other_lines_are_as_before(run: Run, translator: Translator) -> None:
    required = [Required(prefix="Der"), Required(), Required(phrases=("Katze", "Hund")), Required("Du", ("E-Mail",))]
    found, before = translator.translate(run.params, LINES, required=required), translator.translate(run.params, LINES)
    assert found[0].text.startswith("Der") and found[1].text == before[1].text
    for word in ("Katze", "Hund"):
        assert all(word in hypothesis.text for hypothesis in found[2].hypotheses)
    assert found[3].text.startswith("Du") and "E-Mail" in found[3].text


@pytest.mark.parametrize("beginning", ["Der Hu", "D", "Die alte Ka", "Wir lesen ", "Die schönen Zü"])
def test_a_translation_begins_with_the_characters_that_are_required(
    beginning: str, run: Run, translator: Translator
) -> None:
    required = [Required(beginning, may_go_on=True), Required()]
    found = translator.translate(run.params, LINES[:2], required=required)
    assert len(found[0].hypotheses) == 2
    for hypothesis in found[0].hypotheses:
        assert f"{hypothesis.text} ".startswith(beginning)
        # The whole words are the subwords that they are anywhere.
        words = run.tokenizer.encode(beginning.rpartition(" ")[0])
        assert list(hypothesis.tokens[: len(words)]) == words
    assert found[1] == translator.translate(run.params, LINES[:2])[1]


def test_the_last_word_may_go_on_in_the_same_subword(run: Run) -> None:
    """Here `Hund` is `Hu` and `nd`: after `Der H` it may be said as it is said anywhere, not only in letters."""
    tokenizer = run.tokenizer
    ids, rest = beginning_of(tokenizer, "Der H", 1)
    assert (ids, rest) == (tokenizer.encode("Der"), "▁H".encode())
    allowed_v = allowed_at(spellings(tokenizer), rest)[0]
    hu, nd = tokenizer.encode("Hund")
    assert allowed_v[hu]
    assert not allowed_v[nd]
    assert beginning_of(tokenizer, "Der Hund ", 1) == (tokenizer.encode("Der Hund"), SPACE)


def test_what_cannot_be_required_is_refused(run: Run, translator: Translator) -> None:
    with pytest.raises(UserError, match=r"line 7: the required text takes \d+ subwords; the limit is \d+: "):
        translator.translate(run.params, ["The dog."], required=[Required("Hund " * 40)], first_line=7)
    learned = dataclasses.replace(run.model_config, positions="learned", max_positions=20)
    few = Translator(learned, run.tokenizer, Decoding(1, 0.6, 1000))
    with pytest.raises(UserError, match=r"^line 1: .* the limit is 20: the model has no more learned positi"):
        few.translate(run.params, ["The dog."], required=[Required("Hund " * 40)])
    sampler = Translator(run.model_config, run.tokenizer, Decoding(1, 0.6, 3, sampling=Sampling()))
    with pytest.raises(UserError, match="not of samples or groups"):
        sampler.translate(run.params, ["The dog."], required=[Required("Hund")])
    with pytest.raises(UserError, match="groups is 3; it must divide the beam of 8"):
        Decoding(8, 0.6, 3, groups=3)
    with pytest.raises(UserError, match="min_length and no_repeat are for searching"):
        Decoding(1, 0.6, 3, sampling=Sampling(), min_length=1)


def test_tab_separated_requirements_and_consensus_reach_the_translator() -> None:
    class Recorder(Echo):
        def translate(self, params, texts, *, first_line, progress, required=()):
            self.asked.append(list(required))
            return super().translate(params, texts, first_line=first_line, progress=progress)

    recorder, source = Recorder(), io.BytesIO(b"a\tb c\td\ne\n")
    work = Lines(recorder, {}, nbest=1, scores=False, require="phrases", mbr="chrf")
    assert b"".join(translate_stream(work, source, chunk=9)) == b"A\nE\n"
    assert recorder.asked == [[Required(phrases=("b c", "d")), Required()], (1, ["a", "e"])]


@pytest.mark.parametrize("metric", METRICS)
def test_consensus_is_the_definition_and_of_one_sample_the_sample(metric: str) -> None:
    texts = ["the dog sleeps now", "a dog sleeps now", "the cat sees", "a dog sleeps now", "dogs"]
    score = (CHRF() if metric == "chrf" else BLEU(effective_order=True)).sentence_score
    means = [np.mean([score(text, [reference]).score for reference in texts]) for text in texts]
    assert consensus(texts, metric) == int(np.argmax(means)) == 1
    assert consensus(["alone"], metric) == 0


def test_consensus_by_bleu_reads_chinese_in_its_own_words() -> None:
    samples = ["你好吗", "我们今天去学校读书", "我们今天去学校看书", "我们今天去学校写书", "我们明天去学校读书"]
    assert consensus(samples, "bleu", "zh") != 0  # by whole lines every sample has the same score, and the first wins
    assert consensus(samples, "bleu") == 0


def test_consensus_by_bleu_tells_sentences_apart_that_are_too_short_for_four_words() -> None:
    assert consensus(["no, never", "the dog sleeps", "the dog sleeps", "the dog barks"], "bleu") == 1


@pytest.mark.parametrize(("layers", "asked", "expected"), [(1, None, 0), (2, None, 1), (6, None, 5), (6, 5, 4)])
def test_alignments_are_of_the_decoders_last_layer_unless_asked(
    monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path, layers: int, asked: int | None, expected: int
) -> None:
    (tmp_path / "text").write_text("The dog sleeps.\n")
    files = dict.fromkeys(("source", "target"), str(tmp_path / "text"))
    options = {**files, "workdir": "run", "checkpoint": "latest", "layer": asked}
    deep = run._replace(model_config=dataclasses.replace(run.model_config, N=layers))
    chosen = []
    monkeypatch.setattr("vaswani.infer.align.open_run", lambda workdir, checkpoint: deep)
    monkeypatch.setattr("vaswani.infer.align.align", lambda run, pairs, layer: chosen.append(layer) or [])
    align_command.main(SimpleNamespace(**options))
    assert chosen == [expected]


@pytest.mark.slow
def test_forced_scores_are_the_models_sentence_by_sentence(run: Run) -> None:
    model, sides = Transformer(run.model_config), list(zip(*tiny.PAIRS, strict=True))
    params = jax.tree.map(jnp.asarray, run.params)
    forced = line_log_probs(run.model_config, run.params, run.tokenizer, *sides, tokens=64)
    for log_prob, pair in zip(forced, tiny.PAIRS, strict=True):
        ids = (jnp.array([[*run.tokenizer.encode(text), EOS]], jnp.int32) for text in pair)
        assert log_prob == pytest.approx(float(forced_log_probs(model, params, *ids).sum()), rel=1e-5)


def test_nbest_lists_are_read_and_faults_named() -> None:
    assert parse_lists("x", ["0 ||| a b ||| -1", "2 ||| c"], 3) == ([0, 2], ["a b", "c"])
    for wrong in ("3 ||| a", "a ||| b", "0 a", "-1 ||| a"):
        with pytest.raises(UserError, match="x, line 2: it must be LINE"):
            parse_lists("x", ["0 ||| a", wrong], 3)


def test_a_text_with_unescaped_bars_is_not_read_as_its_first_part() -> None:
    moses = "0 ||| a ||| LM0= -1.5 .5e-3 Dist0= 0 ||| -4.25 ||| 0-0 1=2"
    assert parse_lists("x", [moses, "0 ||| b ||| F0=-3 ||| -inf"], 1) == ([0, 0], ["a", "b"])
    with pytest.raises(
        UserError, match=r"^x, line 1: the field 'b ' has no numbers, .* is written &#124;&#124;&#124;$"
    ):
        parse_lists("x", ["0 ||| a ||| b  ||| -10.25"], 1)


_TEXTS = st.lists(
    st.sampled_from(["|||", " ||| ", "|", " ", "-1.000000", "7", "\t", "&", "amp;", "#124;", "&#124;", "\r", "\u2028"])
    | st.characters(exclude_categories=("Cs",), exclude_characters="\n")
).map("".join)


@given(texts=st.lists(_TEXTS, min_size=1))
def test_whatever_is_translated_is_read_back_from_its_nbest_list(
    texts: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also once `infer.rescore` has added its number; no text has a line feed (`Tokenizer.decode`)."""
    path = tmp_path_factory.getbasetemp() / "lists"
    translation = Translation(tuple(Hypothesis(text, -0.25, -0.5, ()) for text in texts))
    for added in ("", f"{SEPARATOR}-1.500000"):
        written = formatted(translation, 3, max(2, len(texts)), scores=False).replace("\n", f"{added}\n")
        path.write_text(written, newline="")
        assert parse_lists("x", list(read_lines(path)), 4) == ([3] * len(texts), texts)


def test_what_a_translation_replaces_in_a_list_are_bars_and_what_spells_them() -> None:
    assert (
        entry(0, "a ||| b &#124; &amp; | c", -1.0) == "0 ||| a &#124;&#124;&#124; b &amp;#124; &amp; | c ||| -1.000000"
    )


def test_links_sum_the_subwords_of_each_word() -> None:
    weights_ts = np.array([[0.4, 0.35, 0.25], [0.1, 0.2, 0.7], [0.6, 0.2, 0.2]], np.float32)
    assert links_of(weights_ts, [0, 1, 1], [0, 1, 1]) == [(1, 0), (1, 1)]
    assert links_of(weights_ts, [], [0]) == []


def test_every_target_word_is_aligned_to_a_word_of_its_source(run: Run) -> None:
    pairs = [*tiny.PAIRS, ("", "Hund")]
    for (source, target), links in zip(pairs, align(run, pairs, 0), strict=True):
        assert [t for _, t in links] == (list(range(len(target.split()))) if source else [])
        assert all(0 <= s < len(source.split()) for s, _ in links)
    assert words_of(run.tokenizer, run.tokenizer.encode("The dog sleeps."))[-1] == 2


def test_columns_are_translated_and_the_others_kept(capsys: pytest.CaptureFixture) -> None:
    table = b"id\ta\tb\n2\tc\td\n"
    translator = Quiet()
    translator.tokenizer = SimpleNamespace(unknown=len)
    columns = Columns(translator, {}, [3, 2])
    found = b"".join(translate_stream(columns, io.BytesIO(table), chunk=1, interactive=True))
    assert found == b"id\tA\tB\n2\tC\tD\n"
    note = "note: not in the vocabulary, and so read as unknown: 4 symbols of the text\n"
    assert capsys.readouterr().err == note, "where lines are typed there is no bar"
    with pytest.raises(UserError, match="standard input, line 2: 1 column; --columns names 2"):
        list(translate_stream(Columns(Quiet(), {}, [2]), io.BytesIO(b"a\tb\nc\n"), chunk=9))


def test_a_tab_in_a_translation_makes_no_column() -> None:
    class Tabs(Quiet):
        def translate(self, params, texts, *, first_line, progress=lambda done: None):
            spaced = [text.replace(" ", "\t") for text in texts]
            return super().translate(params, spaced, first_line=first_line)

    found = b"".join(translate_stream(Columns(Tabs(), {}, [2]), io.BytesIO(b"1\ta b c\tx\n"), chunk=1))
    assert found == b"1\tA B C\tx\n"


class Quiet(Echo):
    def translate(self, params, texts, *, first_line, progress=lambda done: None):
        return super().translate(params, texts, first_line=first_line, progress=progress)


def test_chrf_weighs_recall_twice() -> None:
    """Of the n-grams of "abcd" a system that writes "ab" has 2 of 4 and 1 of 3, and writes no other."""
    recall = np.mean([2 / 4, 1 / 3])
    assert bleu.chrf(["ab"], ["abcd"]).value == pytest.approx(100 * 5 * recall / (4 + recall))


def test_ter_and_chrf_of_words_by_hand() -> None:
    assert bleu.ter(["a b c x"], ["a b c d"]).value == pytest.approx(25)
    assert bleu.ter(["c d a b"], ["a b c d"]).value == pytest.approx(25), "one move"
    assert bleu.chrf(["ab"], ["ab"], word_order=2).value == pytest.approx(100)
    # Of n-grams of characters, without spaces, 5 of 6 agree, 4 of 5, .. 0 of 1; of words 1 of 2, and no pair.
    agree = np.mean([5 / 6, 4 / 5, 3 / 4, 2 / 3, 1 / 2, 0, 1 / 2, 0])
    assert bleu.chrf(["abcd ef"], ["abcd eg"], word_order=2).value == pytest.approx(100 * agree, abs=1e-6)


def test_an_empty_cell_requires_no_phrase() -> None:
    texts, required = _with_required(["a\t", "b\tc\t\td"], "phrases")
    assert texts == ["a", "b"] and required == [Required(), Required(phrases=("c", "d"))]


def test_nothing_is_aligned_by_parameters_that_are_not_finite(run: Run) -> None:
    broken = run._replace(params=jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), run.params))
    with pytest.raises(UserError, match=r"the parameters of this run are not finite$"):
        align(broken, [("The dog sleeps.", "Der Hund schläft.")], 0)


@pytest.mark.parametrize("wish", [Required(prefix="eine Katze"), Required(phrases=("Hund", "Katze"))])
def test_a_word_that_the_vocabulary_lacks_cannot_be_required(wish: Required, run: Run) -> None:
    from vaswani.data.symbols import Symbols

    words = Symbols.of([("the dog", "eine Hund")], 0, "words")
    config = dataclasses.replace(run.model_config, vocab_size=words.vocab_size)
    searching = Translator(config, words, Decoding(1, 0.6, 9))
    with pytest.raises(UserError, match=r"^line 3: what is required of its translation has a symbol that is not in "):
        searching.translate(tiny.perturbed(config), ["the dog"], required=[wish], first_line=3)
    wish = Required("eine Hu", may_go_on=True)
    with pytest.raises(UserError, match=r"^line 3: the pieces of this vocabulary do not spell 'eine Hu', so no word "):
        searching.translate(tiny.perturbed(config), ["the dog"], required=[wish], first_line=3)


def test_words_are_linked_by_the_mean_over_a_layers_heads_where_they_are_predicted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights: list[np.ndarray] = []

    def numbered(weights_ts: np.ndarray, *words: list[int]) -> list[tuple[int, int]]:
        weights.append(weights_ts)
        return [(len(weights) - 1, 0)]

    monkeypatch.setattr(alignment, "links_of", numbered)
    for (source, target), ((number, _),) in zip(tiny.PAIRS, align(run, tiny.PAIRS, 1), strict=True):
        cross = attention_maps(run.model_config, run.params, run.tokenizer, source, target)["cross"]
        mean_ts = cross.weights_nhts[1].mean(0)
        t, s = mean_ts.shape
        np.testing.assert_allclose(weights[number][:t, :s], mean_ts, atol=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_consensus_of_samples_that_are_mostly_empty_is_empty(metric: str) -> None:
    assert consensus(["x", "", "", ""], metric) == 1


def test_links_count_the_words_of_the_line_not_those_that_nfkc_makes_of_them() -> None:
    (links,) = align(tiny.random_run(), [("a dog", "Wie geht´s dir?")], 0)
    assert [target for _, target in links] == [0, 1, 2]


def test_the_first_word_is_one_of_its_own_without_a_space_before_it() -> None:
    tokenizer = tiny.given_tokenizer(add_dummy_prefix=False)
    ids = tokenizer.encode("The old dog.")
    assert tokenizer.pieces(ids)[0].startswith("T")
    assert sorted(set(words_of(tokenizer, ids))) == [0, 1, 2]

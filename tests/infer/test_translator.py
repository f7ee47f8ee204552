"""Lines of every kind are translated in order, and other rows of the batch never change a translation."""

import io
import random
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import sentencepiece
from jax.sharding import Mesh

from tests import tiny
from vaswani.data.imported import Unigram
from vaswani.data.symbols import Symbols
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.infer.translate import stages
from vaswani.infer.translate.breaks import break_of, sentences_of
from vaswani.infer.translate.options import full_batch
from vaswani.infer.translate.required import Required, required_ids
from vaswani.infer.translate.translator import Hypothesis, Translator, _join, source_sentences
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.run.sharding import data_mesh, place_params
from vaswani.search.options import Decoding, Sampling
from vaswani.search.state import Hypotheses

TEXT = "the a dog cat sleeps sees and not old house in front of green who barks loudly"
WORDS = TEXT.split()
LINES = [" ".join(random.Random(i).choices(WORDS, k=1 + i % 6)) for i in range(30)]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return Tokenizer.train(LINES, 330, tmp_path_factory.mktemp("tokenizer") / "tokenizer.model")


@pytest.fixture(scope="module")
def config(tokenizer):
    return ModelConfig(tokenizer.vocab_size, N=1, d_model=16, d_ff=16, h=2, d_k=8, d_v=8)


@pytest.fixture(scope="module")
def params(config):
    fresh = init_params(Transformer(config), jax.random.key(0))
    return fresh | {"embed": fresh["embed"] * 3}


def make(config, tokenizer, **options):
    sizes = {name: options.pop(name) for name in ("max_input", "batch_tokens", "split_sentences") if name in options}
    decoding = Decoding(**{"beam": 2, "alpha": 0.6, "extra_length": 2} | options)
    return Translator(config, tokenizer, decoding, **{"batch_tokens": 64} | sizes)


@pytest.mark.slow
def test_order_and_batch_size_change_nothing(config, tokenizer, params):
    expected = make(config, tokenizer).translate(params, LINES)
    assert len({translation.text for translation in expected}) > 15
    order = random.Random(0).sample(range(len(LINES)), len(LINES))
    for tokens in (64, 16):
        found = make(config, tokenizer, batch_tokens=tokens).translate(params, [LINES[i] for i in order])
        assert [t.text for t in found] == [expected[i].text for i in order]
        scores = [[t.hypotheses[0].score for t in found], [expected[i].hypotheses[0].score for i in order]]
        np.testing.assert_allclose(*scores, rtol=1e-5)


@pytest.mark.parametrize(("options", "expected"), [({}, 4), ({"beam": 8}, 2), ({"beam": 16}, 1), ({"beam": 99}, 1)])
def test_a_cpu_translates_several_batches_at_once(config, tokenizer, params, options, expected):
    translator = make(config, tokenizer, batch_tokens=1, **options)
    together = threading.Barrier(expected)  # which fewer at once break
    running: list[int] = []
    seen: list[int] = []

    def find(_, inputs_bs):
        running.append(0)
        seen.append(len(running))
        together.wait(60)
        running.pop()
        return Hypotheses(inputs_bs[:, None], *(inputs_bs[:, :1] for _ in range(3)))

    translator._find = find
    translator.translate(params, LINES[:28])  # a batch each: a multiple of 4, of 2 and of 1
    assert len(seen) == 28 and max(seen) == expected


@pytest.mark.parametrize(("lines", "sizes"), [(1, {1}), (4, {1}), (5, {8})])
def test_a_few_lines_are_a_batch_each_and_placed_parameters_are_taken_as_they_are(
    config, tokenizer, params, monkeypatch, lines, sizes
):
    translator = make(config, tokenizer, batch_tokens=1_024)
    seen = set()

    def find(given, inputs_bs):
        assert given["embed"] is placed["embed"]
        seen.add(len(inputs_bs))
        return Hypotheses(inputs_bs[:, None], *(inputs_bs[:, :1] for _ in range(3)))

    placed = place_params(data_mesh(), params)
    monkeypatch.setattr("vaswani.infer.translate.translator.place_params", None)
    translator._find = find
    translator.translate(placed, LINES[:lines])
    assert seen == sizes
    with pytest.raises(TypeError):
        translator.translate(jax.tree.map(np.asarray, params), LINES[:lines])


def test_devices_that_work_together_translate_one_batch_at_a_time(config, tokenizer):
    decoding = Decoding(beam=2, alpha=0.6, extra_length=2)
    two = Mesh(np.array(jax.devices() * 2)[:2].reshape(2, 1, 1), ("data", "fsdp", "tensor"))
    assert Translator(config, tokenizer, decoding, mesh=two)._at_once == 1


def test_after_an_error_no_further_batch_begins(config, tokenizer, params):
    translator = make(config, tokenizer, batch_tokens=1)
    at_once = translator._at_once
    together = threading.Barrier(at_once)
    told = threading.Event()
    begun = []

    def find(_, inputs_bs):
        begun.append(inputs_bs)
        if len(begun) > at_once:
            told.wait(60)
        else:
            together.wait(60)
        raise UserError("no")

    translator._find = find
    others = set(threading.enumerate())
    with pytest.raises(UserError, match=r"^no$"):
        translator.translate(params, LINES * 20)
    threads = set(threading.enumerate()) - others
    told.set()
    for thread in threads:
        thread.join(60)
    assert at_once <= len(begun) <= 2 * at_once, "each thread may have begun another before the error was told"


def test_new_parameters_and_new_lines_compile_nothing(config, tokenizer, params):
    translate = make(config, tokenizer, beam=1).translate
    first = translate(params, LINES)
    compiled = stages._stage._cache_size()
    other = jax.tree.map(lambda w: w * 1.1, params)
    assert [t.text for t in translate(other, LINES)] != [t.text for t in first]
    make(config, tokenizer, beam=1).translate(params, LINES[::-1])
    assert stages._stage._cache_size() == compiled


def test_blank_lines_and_those_without_a_subword_stay_empty(config, tokenizer, params):
    blank = ["", "   \t ", "\x01\x02", "\x00", "\xad", "\u200b", "\u200d", "\u2060\u200e", "\ufeff", "\ufffd"]
    found = make(config, tokenizer).translate(params, [*blank, "the\xad dog\x00"])
    assert [bool(t.text) for t in found] == [False] * len(blank) + [True]
    assert found[0].hypotheses == (("", 0.0, 0.0, ()),)
    assert make(config, tokenizer).translate(params, []) == []


def test_strange_lines_come_back_as_one_line_each(config, tokenizer, params):
    lines = ["🙂" * 9, "a\x00b\x07\x85", "zu\u2028viel\rdog", "\ufeffdog", "𓀀\u202e٣", "\ud800"]
    found = make(config, tokenizer, max_input=64).translate(params, lines)
    assert len(found) == len(lines)
    assert not any(set(t.text) & {"\n", "\r"} for t in found)


def test_long_lines_are_translated_in_pieces(config, tokenizer, params, capsys):
    sentence = "the old dog sleeps in front of the green house ."
    limit = len(tokenizer.encode(sentence)) + 8
    translate = make(config, tokenizer, max_input=limit, batch_tokens=256).translate
    line = " ".join([sentence] * 4)
    found, alone = translate(params, [line, sentence], first_line=7)
    assert found.text == " ".join([alone.text] * 4)
    np.testing.assert_allclose(found.hypotheses[0].log_prob, 4 * alone.hypotheses[0].log_prob, rtol=1e-5)
    assert capsys.readouterr().err == (
        f"warning: line 7 has more than {limit - 1} subwords; it is translated in 4 pieces\n"
    )


@pytest.mark.parametrize(
    "sentences",
    [
        ["The dog sleeps.", "We read."],
        ["It is 3.5 m long, i.e. short."],
        ["Dr. Smith saw J. S. Bach on the 3. May."],
        ["Wait ... and go."],
        ['"Go!"', "Then (as he said.)", "¿Qué?", "Really?!", "Yes. no"],
        ["它好。", "你呢？」", "再见"],
        [],
    ],
)
def test_a_line_is_split_where_sentences_end(sentences: list[str]) -> None:
    line = " ".join(sentences)
    assert sentences_of(f" {line} ") == sentences
    assert sentences_of(line.replace("。 ", "。").replace("」 ", "」")) == sentences


def test_each_sentence_has_the_task_of_its_line() -> None:
    t5 = Unigram.__new__(Unigram)
    text = "summarize: It is. Old.\n\nA dog. A cat."
    assert source_sentences(t5, text) == ["summarize: It is.", "summarize: Old.", "A dog.", "A cat."]


def test_split_sentences_are_translated_one_by_one(config, tokenizer, params, capsys):
    sentences = ["the old dog sleeps.", "A cat sees the house.", "the dog"]
    line = f"{sentences[0]} {sentences[1]}\n{sentences[2]}"
    translator = make(config, tokenizer, nbest=2, split_sentences=True)
    (found,) = translator.translate(params, [line])
    alone = make(config, tokenizer, nbest=2).translate(params, sentences)
    for k in range(2):
        parts = [translation.hypotheses[k] for translation in alone]
        assert found.hypotheses[k].text == " ".join(part.text for part in parts)
        np.testing.assert_allclose(found.hypotheses[k].score, sum(part.score for part in parts), rtol=1e-5)
    assert capsys.readouterr().err == ""
    with pytest.raises(UserError, match="line 1 is not translated in one piece"):
        translator.translate(params, [line], required=[Required(prefix="a")])


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("我们今天喝茶。大家都回家看书吧！", "我们今天喝茶。"),
        ("他说：「好。」然后他走了", "他说：「好。」"),
        ("我们今天喝茶，大家都回家看书", "我们今天喝茶，"),
        ("One two three. Four five, six", "One two three. "),
        ("one two three, four five six", "one two three, "),
        ("1.5 and 2.5 are numbers", "1.5 and 2.5 "),
    ],
)
def test_a_line_is_cut_at_the_end_of_a_sentence_if_there_is_one(text: str, first: str) -> None:
    assert text[: break_of(text)] == first


def test_pieces_are_joined_as_their_script_is_written() -> None:
    def joined(*texts: str) -> str:
        return _join([[Hypothesis(text, -1.0, -1.0, ())] for text in texts]).text

    assert joined("你好。", "再见。") == "你好。再见。"
    assert joined("One.", "", "Two.") == "One. Two."
    assert joined("（你好。）", "再见。") == "（你好。）再见。"
    assert joined("He said “yes.”", "Two.") == "He said “yes.” Two."


@pytest.mark.parametrize(
    ("text", "leading"),
    [
        ("translate English to German: A dog. A cat.", "translate English to German: "),
        ("summarize: A dog. A cat.", "summarize: "),
        ("We translate English to German: well.", ""),
        ("cola sentence: A dog.", ""),
    ],
)
def test_each_piece_of_a_line_for_t5_has_its_task(text: str, leading: str) -> None:
    assert Unigram.__new__(Unigram).leading(text) == leading


def test_ten_thousand_words_and_no_spaces_are_cut_without_loss(config, tokenizer):
    cut = make(config, tokenizer, max_input=64)._cut
    for text in (" ".join(random.Random(1).choices(WORDS, k=10_000)), "x" * 5_000, "語" * 999):
        pieces = cut(text)
        assert max(len(ids) for ids in pieces) < 64
        assert "".join(tokenizer.decode(ids) for ids in pieces).replace(" ", "") == text.replace(" ", "")


def test_a_long_text_is_cut_where_a_sentence_ends_in_its_middle_third(config, tokenizer):
    def first_cut(*sentences):
        """Returns the pieces of the text that the sentences make, as text, of which each fits."""
        limit = max(len(tokenizer.encode(sentence)) for sentence in sentences) + 3
        text = " ".join(sentences)
        assert len(tokenizer.encode(text)) >= limit
        return [tokenizer.decode(ids) for ids in make(config, tokenizer, max_input=limit)._cut(text)]

    short, long = "the old dog sees the cat.", "the green house in front of the old cat."
    assert first_cut(short, long) == [short, long]
    assert first_cut(long, short) == [long, short]
    tiny, rest = "no.", "the old dog sleeps in front of the green house, and the cat sees the dog."
    assert first_cut(tiny, rest)[0] == "no. the old dog sleeps in front of the green house,"


@pytest.mark.slow
def test_rows_fit_learned_positions(tokenizer):
    config = ModelConfig(
        tokenizer.vocab_size, N=1, d_model=16, d_ff=16, h=2, d_k=8, d_v=8, positions="learned", max_positions=20
    )
    params = init_params(Transformer(config), jax.random.key(0))
    (found,) = make(config, tokenizer, beam=1).translate(params, [" ".join(WORDS)])
    assert found.text


def test_nbest_are_distinct_and_sorted(config, tokenizer, params):
    for translation in make(config, tokenizer, beam=4, nbest=3).translate(params, LINES[:6]):
        scores = [hypothesis.score for hypothesis in translation.hypotheses]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True)
        assert len({hypothesis.tokens for hypothesis in translation.hypotheses}) == 3
        for hypothesis in translation.hypotheses:
            length = len(hypothesis.tokens) + 1
            np.testing.assert_allclose(hypothesis.score, hypothesis.log_prob / ((5 + length) / 6) ** 0.6, rtol=1e-5)
            assert hypothesis.text == tokenizer.decode(hypothesis.tokens)


@pytest.mark.slow
def test_nbest_of_a_line_in_pieces_joins_the_kth_best_of_each(config, tokenizer, params):
    sentence = "the old dog sleeps in front of the green house ."
    limit = len(tokenizer.encode(sentence)) + 8
    translator = make(config, tokenizer, beam=4, nbest=3, max_input=limit, batch_tokens=256)
    found, alone = translator.translate(params, [f"{sentence} {sentence}", sentence])
    assert len(found.hypotheses) == len({hypothesis.tokens for hypothesis in alone.hypotheses}) == 3
    for both, one in zip(found.hypotheses, alone.hypotheses, strict=True):
        assert both.text == f"{one.text} {one.text}" and both.tokens == one.tokens * 2
        np.testing.assert_allclose([both.score, both.log_prob], [2 * one.score, 2 * one.log_prob], rtol=1e-5)


def test_a_piece_with_fewer_translations_gives_its_last_again():
    first = [Hypothesis("a", -1.0, -2.0, (5,)), Hypothesis("b", -3.0, -4.0, (6, 7))]
    joined = _join([first, [Hypothesis("c", -0.5, -0.5, (8,))]])
    assert joined.hypotheses == (("a c", -1.5, -2.5, (5, 8)), ("b c", -3.5, -4.5, (6, 7, 8)))
    three = [Hypothesis(letter, -1.0, -1.0, ()) for letter in "xyz"]
    assert [both.text for both in _join([first, three]).hypotheses] == ["a x", "b y", "b z"]


def test_line_ends_that_the_model_spells_in_bytes_do_not_end_the_line(config, tokenizer, params):
    """`<0x0D>` and `<0x0A>` are subwords like others: their text must not make two lines of one."""
    ids = {tokenizer.pieces([number])[0]: number for number in range(tokenizer.vocab_size)}
    written = [*tokenizer.encode("dog"), ids["<0x0D>"], ids["<0x0A>"], *tokenizer.encode("cat"), ids["<0x0D>"], EOS]
    translator = make(config, tokenizer)

    def find(params, inputs_bs):
        rows = len(inputs_bs)
        ids_bmt, scores_bm = np.tile(np.array(written), (rows, 1, 1)), np.zeros((rows, 1))
        return Hypotheses(ids_bmt, np.full((rows, 1), len(written)), scores_bm, scores_bm)

    translator._find = find
    (found,) = translator.translate(params, ["the dog"])
    assert not set(found.text) & {"\r", "\n"} and found.text.split() == ["dog", "cat"]


def test_a_wide_beam_takes_smaller_batches_and_none_exceeds_the_vocabulary(config, tokenizer):
    sizes = [make(config, tokenizer, beam=beam, batch_tokens=256)._batch_tokens for beam in (4, 32, 64, 128, 256)]
    assert sizes == [256, 256, 64, 16, 4]
    with pytest.raises(UserError, match=f"beam is 900; it must be at most {tokenizer.vocab_size}, the vocabulary"):
        make(config, tokenizer, beam=900)


@pytest.mark.parametrize(
    ("platform", "caches", "positions"),
    [
        ("cpu", 4, 2_048),
        ("cpu", 32, 2_048),
        ("gpu", 1, 16_384),
        ("gpu", 4, 16_384),  # 512 rows of 32
        ("tpu", 8, 8_192),
        ("tpu", 100, 2_048),
    ],
)
def test_an_accelerator_searches_more_at_a_time_unless_a_sentence_needs_much_memory(platform, caches, positions):
    assert full_batch(platform, caches) == positions


def test_without_a_size_of_batches_the_device_and_the_caches_of_a_sentence_decide(config, tokenizer, monkeypatch):
    monkeypatch.setattr("vaswani.infer.translate.translator.full_batch", lambda platform, caches: 1_000 + caches)
    assert make((config,) * 2, tokenizer, beam=5, batch_tokens=None)._batch_tokens == 1_010
    assert make(config, tokenizer, beam=5, batch_tokens=1)._batch_tokens == 1


def test_samples_depend_on_seed_and_line_only(config, tokenizer, params):
    def draw(seed, lines, first_line=1):
        return make(config, tokenizer, nbest=2, sampling=Sampling(seed)).translate(params, lines, first_line=first_line)

    def texts(translations):
        return [[hypothesis.text for hypothesis in translation.hypotheses] for translation in translations]

    all_lines = draw(0, LINES[:12])
    assert texts(draw(0, LINES[4:12], first_line=5)) == texts(all_lines)[4:]
    assert texts(draw(1, LINES[:12])) != texts(all_lines)
    twice = texts(draw(0, [LINES[0], LINES[0]]))
    assert twice[0] != twice[1]


def test_parameters_that_are_not_finite_give_empty_text(config, tokenizer, params):
    broken = jax.tree.map(lambda w: w * np.nan, params)
    assert [t.text for t in make(config, tokenizer).translate(broken, ["the dog", "a cat"])] == ["", ""]


def test_progress_counts_every_line(config, tokenizer, params):
    seen = []
    make(config, tokenizer).translate(params, [*LINES, ""], progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == len(LINES)


def test_a_line_in_pieces_counts_once_all_of_them_are_done(config, tokenizer, params):
    seen = []
    long = " ".join(20 * WORDS)
    make(config, tokenizer, max_input=64, batch_tokens=64).translate(params, [long, "the dog"], progress=seen.append)
    assert seen[-1] == 2 and seen == sorted(seen) and len(seen) > 2


def test_a_character_of_many_subwords_is_cut_from_the_space_behind_it(config, tokenizer):
    pieces = make(config, tokenizer, max_input=16)._cut("\ufdfa \ufdfa")
    assert [len(piece) for piece in pieces if piece] == [15, 15]


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        (("他在公园里", "读一本旧书"), "他在公园里读一本旧书"),
        (("你好!", "再见"), "你好!再见"),
        (("犬が", "「はい」と言う"), "犬が「はい」と言う"),
        (("你好 Tom", "再见"), "你好 Tom 再见"),
        (("你好", "Tom"), "你好 Tom"),
        (("나는 책을", "읽는다"), "나는 책을 읽는다"),
    ],
)
def test_pieces_cut_within_a_sentence_are_joined_as_their_script_is_written(pieces: tuple[str, ...], line: str) -> None:
    assert _join([[Hypothesis(text, -1.0, -1.0, ())] for text in pieces]).text == line


def test_pieces_of_characters_are_joined_by_one_space() -> None:
    line = "The old dog sleeps, and the cat sees it. A man walks. The dog sees the old cat."
    tokenizer = Symbols.of([(line, line)], 0, "characters")
    config = ModelConfig(tokenizer.vocab_size, N=1, d_model=8, d_ff=8, h=1, d_k=8, d_v=8)
    translator = Translator(config, tokenizer, Decoding(beam=1, alpha=0.0, extra_length=1), max_input=64)

    def echo(params: object, inputs_bs: jax.Array) -> Hypotheses:
        lengths_bm = np.sum(np.asarray(inputs_bs) > 0, axis=1, keepdims=True)
        scores_bm = np.zeros(lengths_bm.shape)
        return Hypotheses(np.asarray(inputs_bs)[:, None], lengths_bm, scores_bm, scores_bm)

    translator._find = echo
    assert len(translator._cut(line)) == 2
    assert translator.translate({}, [line])[0].text == line


@pytest.mark.parametrize("normalisation", ["none", "nfkc"])
def test_a_phrase_that_is_required_in_chinese_has_no_space_before_it(normalisation: str, tmp_path: Path) -> None:
    lines = ["他在公园里读一本旧书。", "我们昨天去柏林。", "公园里有很多人，我们在公园里见面。", "the dog"]
    tokenizer = Tokenizer.train(lines * 3, 330, tmp_path / "tokenizer.model", normalisation=normalisation)
    config = ModelConfig(tokenizer.vocab_size, N=1, d_model=8, d_ff=8, h=1, d_k=8, d_v=8)
    translator = Translator(config, tokenizer, Decoding(beam=1, alpha=0.0, extra_length=20))
    asked = []

    def nothing(params: object, inputs_bs: jax.Array, rules: Any) -> Hypotheses:
        asked.append(np.asarray(rules.phrases_bcl)[0])
        empty_bm = np.zeros((len(inputs_bs), 1))
        return Hypotheses(np.zeros((len(inputs_bs), 1, 1)), empty_bm, empty_bm, empty_bm)

    translator._find = nothing
    translator.translate({}, ["the dog"], required=[Required(phrases=("公园", "dog"))])
    written = [tokenizer.decode([*tokenizer.encode("他在"), *ids[ids > 0]]) for ids in asked[0] if ids.any()]
    assert written == ["他在公园", "他在 dog"]


def test_a_phrase_in_chinese_that_the_vocabulary_lacks_is_refused() -> None:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["我们昨天去柏林。", "the dog sleeps"] * 20), model_writer=model, model_type="unigram",
        vocab_size=40, hard_vocab_limit=False, pad_id=0, bos_id=1, eos_id=2, unk_id=3, minloglevel=2,
    )  # fmt: skip
    tokenizer = Tokenizer(model.getvalue())
    config = ModelConfig(tokenizer.vocab_size, N=1, d_model=8, d_ff=8, h=1, d_k=8, d_v=8)
    translator = Translator(config, tokenizer, Decoding(beam=1, alpha=0.0, extra_length=20))
    for phrase in ("公园", "公园柏林"):
        with pytest.raises(UserError, match=r"line 1"):
            translator.translate({}, ["the dog"], required=[Required(phrases=(phrase,))])


@pytest.mark.parametrize("prefix", [True, False])
def test_a_phrase_that_is_required_is_a_word_of_its_own(prefix: bool) -> None:
    tokenizer = tiny.given_tokenizer(add_dummy_prefix=prefix)
    before = tokenizer.encode("Wir sehen den")
    for phrase, written in {"Hund": "Wir sehen den Hund", "犬": "Wir sehen den犬", "": "Wir sehen den"}.items():
        (ids,) = required_ids(tokenizer, Required(phrases=(phrase,)), line=1).phrases or [[]]
        assert tokenizer.decode([*before, *ids]) == written

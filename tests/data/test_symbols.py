"""Words and characters as units: the vocabulary, marks of segmentation, unknown symbols, and a run of them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_collections import ConfigDict

from tests import tiny
from vaswani.configs.common import default
from vaswani.data.from_config import prepare_all
from vaswani.data.imported import open_tokenizer
from vaswani.data.symbols import SPECIALS, Symbols
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, PAD, UNK
from vaswani.infer import rescore
from vaswani.infer.attention.alignment import align, words_of
from vaswani.infer.attention.maps import run_maps
from vaswani.infer.convert.check import check_tokenizer
from vaswani.infer.evaluate.sentences import Sentences
from vaswani.infer.evaluate.translations import evaluate, score
from vaswani.infer.runs import Run, open_run
from vaswani.infer.scores.bleu import Score
from vaswani.infer.scores.perplexity import line_log_probs
from vaswani.infer.translate.explain import beam_tree
from vaswani.infer.translate.required import Required
from vaswani.infer.translate.stream import Lines, translate_stream
from vaswani.infer.translate.translator import Translator, translate_one
from vaswani.search.options import Decoding
from vaswani.train import job, loop
from vaswani.train.check import check

PAIRS = [("the b@@ oat", "das b@@ oot"), ("the  the  sea ", " das meer"), ("b@@ oat", "b@@ oot")]


@pytest.fixture
def words() -> Symbols:
    return Symbols.of(PAIRS, 0, "words", "@@")


def test_a_joint_vocabulary_has_the_most_frequent_first_and_equal_ones_by_text(words: Symbols) -> None:
    assert words.pieces(range(words.vocab_size)) == [*SPECIALS, "b@@", "the", "das", "oat", "oot", "meer", "sea"]
    assert Symbols.of(PAIRS, 7, "words").pieces([4, 5, 6]) == ["b@@", "the", "das"]
    assert Symbols.of(PAIRS, 7, "words").vocab_size == 7
    with pytest.raises(UserError, match=r"^data.vocab_size is 12; with data.units words it must be at most 11: all"):
        Symbols.of(PAIRS, 12, "words")
    with pytest.raises(UserError, match=r"^the training text is empty"):
        Symbols.of([(" ", "")], 0, "words")


def test_words_there_and_back(words: Symbols) -> None:
    assert words.encode("the sea") == [words.encode("the")[0], words.encode("sea")[0]]
    assert words.decode(words.encode("the b@@ oat")) == words.normalise("the b@@ oat") == "the boat"
    assert words.encode("") == words.encode("  \t ") == [] and words.decode([]) == ""
    ids = words.encode("das meer")
    assert words.decode([BOS, PAD, *ids, UNK, EOS, *ids]) == "das meer"
    assert words.encode_batch(["das", "sea das"]) == [words.encode("das"), words.encode("sea das")]


def test_an_empty_segment_is_no_word(words: Symbols) -> None:
    assert words.encode("the  sea") == words.encode(" the sea ") == words.encode("the sea\r") == words.encode("the sea")


def test_a_symbol_that_training_has_not_seen_is_unknown_and_counted(words: Symbols) -> None:
    assert words.encode("the lake") == [*words.encode("the"), UNK]
    assert words.unknown(["the lake", "sea", "a <unk> the"]) == 3
    assert words.encode("<s> </s> <pad> <unk>") == [UNK] * 4  # text is never a special symbol


@pytest.mark.parametrize(
    ("marked", "joined"),
    [
        ("ein b@@ oot .", "ein boot ."),
        ("b@@ oo@@ t", "boot"),
        ("das b@@", "das b"),  # a stray one at the end
        ("@@ das", "das"),
        ("das @@ meer", "das meer"),
        ("das @@", "das"),
        ("x@@y z", "x@@y z"),  # within a word it is text
        ("", ""),
    ],
)
def test_marks_are_undone_as_by_subword_nmt(marked: str, joined: str) -> None:
    tokenizer = Symbols.of([(marked or "a",)], 0, "words", "@@")
    assert tokenizer.joined(marked) == joined
    assert tokenizer.decode(tokenizer.encode(marked)) == joined
    plain = Symbols.of([(marked or "a",)], 0, "words")
    assert plain.joined(marked) == " ".join(marked.split())


def test_each_side_has_its_units(tmp_path: Path) -> None:
    both = Symbols.of([("gut", "g uː t"), ("tu", "t uː")], 0, "characters,words")
    both.save(tmp_path / "tokenizer.model")
    read = open_tokenizer(tmp_path / "tokenizer.model")
    assert (read.sha256, read.units, read.joiner) == (both.sha256, "characters,words", "")
    assert read.pieces(read.encode("tug")) == ["t", "u", "g"]
    assert read.pieces(read.target.encode("t uː g")) == ["t", "uː", "g"]
    assert read.target.encode("tug") == [UNK]
    assert read.decode(read.target.encode("t uː g")) == read.target.decode(read.target.encode("t uː g")) == "t uː g"
    lines = (tmp_path / "tokenizer.model").read_text(encoding="utf-8").splitlines()
    assert '"uː"' in lines or '"uː",' in lines  # one symbol a line


def test_words_begin_where_they_do(words: Symbols) -> None:
    assert words_of(words, words.encode("the b@@ oat b@@ oat sea")) == [0, 1, 1, 2, 2, 3]
    characters = Symbols.of([("ab cd",)], 0, "characters")
    assert words_of(characters, characters.encode("ab cd a")) == [0, 0, 0, 1, 1, 1, 2]
    assert characters.decode(characters.encode("b  dc")) == "b  dc"


@pytest.mark.parametrize(
    "damage",
    [{"units": ["syllables"]}, {"units": []}, {"pieces": [*SPECIALS, "a", "a"]}, {"pieces": ["a"]}, {"joiner": None}],
)
def test_a_damaged_file_is_refused_in_one_line(words: Symbols, tmp_path: Path, damage: dict) -> None:
    words.save(tmp_path / "tokenizer.model")
    fields = json.loads((tmp_path / "tokenizer.model").read_text()) | damage
    (tmp_path / "tokenizer.model").write_text(json.dumps(fields))
    with pytest.raises(UserError, match=f"^{tmp_path}/tokenizer.model") as caught:
        open_tokenizer(tmp_path / "tokenizer.model")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"data.units": "syllables"}, "data.units is 'syllables'; it must be one of subwords, words, characters"),
        ({"data.units": "subwords,words"}, "data.units is 'subwords,words'; it must be one of"),
        ({"data.joiner": "@@"}, "data.joiner=@@ needs data.units to be words or characters,words; it is 'subwords'"),
        ({"data.joiner": "@@", "data.units": "words,characters"}, "data.joiner=@@ needs data.units to be words or"),
        ({"data.normalisation": "NFC"}, "data.normalisation is 'NFC'; it must be one of nfkc, plain_nfkc, none"),
        (
            {"data.normalisation": "none", "data.lowercase": True},
            "data.lowercase=True needs data.normalisation to be nfkc or plain_nfkc; it is 'none'",
        ),
        ({"data.units": "words", "task": "masked_lm"}, "data.units=words needs task to be .*; it is 'masked_lm'"),
    ],
)
def test_a_wrong_config_is_refused(keys: dict, line: str) -> None:
    cfg = default()
    cfg.update_from_flattened_dict(keys)
    with pytest.raises(UserError, match=f"^config: {line}"):
        check(cfg, default())
    right = default()
    right.update_from_flattened_dict({"data.units": "characters,words", "data.joiner": "@@"})
    check(right, default())


def test_a_text_has_one_side_and_a_tokenizer_one_kind(tmp_path: Path) -> None:
    cfg = default().data
    cfg.update({"train": "lines:grammar:train:20", "valid": "lines:grammar:valid:5", "cache": str(tmp_path)})
    cfg.update({"units": "characters,words", "vocab_size": 300})
    with pytest.raises(UserError, match=r"^data\.units is characters,words, but lines:grammar:train:20 has one side"):
        prepare_all(cfg)
    cfg.update({"units": "subwords", "vocab_size": 0})
    with pytest.raises(UserError, match=r"^data\.vocab_size is 0: say how many subwords to learn"):
        prepare_all(cfg)
    Symbols.of([("a b",)], 0, "words").save(tmp_path / "words.model")
    cfg.update({"units": "characters", "vocab_size": 6, "tokenizer": f"{tmp_path}/words.model"})
    with pytest.raises(UserError, match=r"^data.units is characters, but the tokenizer's is words: they must agree"):
        prepare_all(cfg)
    cfg.update({"units": "words", "vocab_size": 0, "tokenizer": "", "lowercase": True})
    with pytest.raises(UserError, match=r"^data\.lowercase is True, but words are taken as they are"):
        prepare_all(cfg)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[ConfigDict, Run, list[str]]:
    """A run that spells, characters in and marked words out, with the references that it was validated against."""
    folder = tmp_path_factory.mktemp("symbols")
    cfg = tiny.training_config(folder)
    for split in ("train", "valid"):
        english = (folder / f"{split}.en").read_text().replace(" ", "").splitlines()
        (folder / f"{split}.en").write_text("".join(f"{line}\n" for line in english))
        (folder / f"{split}.de").write_text("".join(f"{'@@ '.join(line[:3])}\n" for line in english))
    cfg.data.update({"units": "characters,words", "joiner": "@@"})
    cfg.data.vocab_size = 0
    cfg.steps, cfg.eval.bleu_sentences = 2, 2
    cfg.decode.update({"beam": 2, "alpha": 0.0, "extra_length": 3})
    references: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "sacrebleu", lambda hypotheses, given, **_: references.extend(given) or Score(0.0, ""))
        assert loop.train(cfg, folder / "run") == 0
    return cfg, open_run(folder / "run", "latest"), references


def english(run: Run, split: str) -> list[str]:
    """Returns the source side of a split of the run's."""
    return (run.workdir.parent / f"{split}.en").read_text().splitlines()


@pytest.mark.slow
def test_validation_joins_the_references_as_it_does_hypotheses(trained: tuple[ConfigDict, Run, list[str]]) -> None:
    _, run, references = trained
    assert references == [line[:3] for line in english(run, "valid")[:2]]


@pytest.mark.slow
def test_the_vocabulary_is_that_of_the_training_text(trained: tuple[ConfigDict, Run, list[str]]) -> None:
    _, run, _ = trained
    pairs = [(line, "@@ ".join(line[:3])) for line in english(run, "train")]
    assert run.tokenizer.vocab_size == Symbols.of(pairs, 0, "characters,words").vocab_size


@pytest.mark.slow
def test_symbols_are_counted_once_and_again_if_the_cached_vocabulary_is_damaged(
    trained: tuple[ConfigDict, Run, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg, run, _ = trained

    def counting(*arguments: Any) -> Symbols:
        raise RuntimeError("counted again")

    with monkeypatch.context() as patched:
        patched.setattr(Symbols, "of", counting)
        assert prepare_all(cfg.data)[0].sha256 == run.tokenizer.sha256
        for path in Path(cfg.data.cache).glob("*.model"):
            path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(RuntimeError, match="counted again"):
            prepare_all(cfg.data)
    assert prepare_all(cfg.data)[0].sha256 == run.tokenizer.sha256


@pytest.mark.slow
def test_a_run_of_symbols_is_resumed(trained: tuple[ConfigDict, Run, list[str]]) -> None:
    cfg, run, _ = trained
    cfg = cfg.copy_and_resolve_references()
    cfg.steps = 3
    assert loop.train(cfg, run.workdir) == 0
    assert open_run(run.workdir, "latest").step == 3
    assert run.tokenizer.sha256 == open_tokenizer(run.workdir / "tokenizer.model").sha256
    _, _, valid = prepare_all(cfg.data)
    source, target = valid[0]
    text = Path(cfg.data.valid.removeprefix("text:").replace("{en,de}", "en")).read_text().splitlines()[0]
    assert run.tokenizer.pieces(source.tolist()) == [*text, "</s>"]
    assert run.tokenizer.decode(target) == text[:3]


@pytest.mark.slow
def test_a_run_of_symbols_is_evaluated_translated_and_scored(
    trained: tuple[ConfigDict, Run, list[str]], capsys: pytest.CaptureFixture
) -> None:
    _, run, _ = trained
    sentences = Sentences("x", "x", "de", ["thedog", "th🐕"], ["t@@ h@@ e", "t@@ h"])
    decoding = Decoding(beam=2, alpha=0.0, extra_length=3)
    record, hypotheses = evaluate(run, sentences, decoding)
    assert "note: not in the vocabulary, and so read as unknown: 1 symbol of the text" in capsys.readouterr().err
    assert record["signatures"]["perplexity"].startswith("unit:word|")
    assert record["signatures"]["bleu_as_is"].startswith("nrefs:1|case:mixed|eff:no|tok:none|smooth:none")
    assert not any("@@ " in text for text in hypotheses)
    marked = [" ".join("@@ ".join(word) for word in line.split()) or "x" for line in hypotheses]
    same, _ = evaluate(run, sentences._replace(references=marked), decoding)
    assert same["exact_match"] == 100 * np.mean([text != "" for text in hypotheses])  # "x" stands for an empty one

    capsys.readouterr()
    translator = Translator(run.model_config, run.tokenizer, decoding)
    work = Lines(translator, run.params, nbest=1, scores=False)
    out = translate_stream(work, [b"thedog\n", b"th\xf0\x9f\x90\x95\n"], chunk=1)
    assert b"".join(out).decode().splitlines() == hypotheses
    assert capsys.readouterr().err.count("and so read as unknown: 1 symbol of the text\n") == 1
    forced = translator.translate(run.params, ["thedog"], required=[Required(prefix="t@@ h")])[0].hypotheses[0]
    assert run.tokenizer.pieces(forced.tokens[:1]) == ["t@@"]

    (log_prob,) = line_log_probs(run.model_config, run.params, run.tokenizer, ["thedog"], ["t@@ h@@ e"])
    assert -100 < log_prob < 0
    title, maps = run_maps(run, "thedog", "t@@ h@@")
    assert maps["cross"].keys == [*"thedog", "</s>"] and maps["cross"].queries[0] == "t@@"
    assert title == "thedog → t@@ h@@"
    own = translator.translate(run.params, ["thedog"])[0].hypotheses[0]
    assert run.tokenizer.target.encode(translate_one(run, "thedog")) == [*own.tokens]  # with its marks
    assert align(run, [("thedog", "t@@ h@@ e")], 0) == [[(0, 0)]]
    assert score([run], ["thedog"], ["the"], ["t@@ h@@ e"], "de")["exact_match"] == 100  # the reference is joined, too
    tree = beam_tree(run.model_config, run.params, run.tokenizer, decoding, "thedog")
    assert all(label.startswith("\u2009") for label in tree.pieces.values())  # words, which a page writes apart


@pytest.mark.slow
def test_translations_without_their_marks_are_scored_with_a_note(
    trained: tuple[ConfigDict, Run, list[str]], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    _, run, _ = trained
    (tmp_path / "in").write_text("thedog\n")
    given = {"workdir": str(run.workdir), "checkpoint": None, "nbest": None, "source": str(tmp_path / "in")}
    for text, noted in [("t@@ h", False), ("th", True)]:
        (tmp_path / "out").write_text(f"{text}\n")
        rescore.main(SimpleNamespace(**given, target=str(tmp_path / "out")))
        assert ("no translation has the marks (@@)" in capsys.readouterr().err) is noted


@pytest.mark.slow
def test_exports_of_other_formats_are_refused_in_one_line(trained: tuple[ConfigDict, Run, list[str]]) -> None:
    with pytest.raises(UserError, match=r"its tokenizer is not a sentencepiece model, which ONNX exports need$"):
        check_tokenizer("ONNX", trained[1])


@pytest.mark.parametrize("vocab_size", [1, 4])
def test_a_vocabulary_of_special_symbols_alone_is_too_small(vocab_size: int) -> None:
    with pytest.raises(UserError, match=rf"vocab_size is {vocab_size}; with data.units words it must be above 4, the"):
        Symbols.of([("a b", "c")], vocab_size, "words")

"""Classification: properties of sentences, fine-tuning a masked language model, resuming, scores, mistakes."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests import commands
from tests.tiny import TINY, shrink
from tests.trainings import assert_resumes_to_the_same_bits, refusal
from vaswani.configs.classification import get_config
from vaswani.configs.common import default
from vaswani.data.batching import Batch
from vaswani.data.classes import Classified, classes_of
from vaswani.data.from_config import prepare_all
from vaswani.data.properties import PROPERTIES
from vaswani.data.sources import open_corpus
from vaswani.data.trees.treebank import read_trees
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.infer.evaluate import predictions as evaluation
from vaswani.infer.runs import Run, open_run
from vaswani.infer.texts.classes import classify, classify_stream, probabilities
from vaswani.model.masked_lm import MaskedLM
from vaswani.run.records import read_metrics
from vaswani.tasks.classification import make_example
from vaswani.tokens import Tokens
from vaswani.train import loop
from vaswani.train.check import check

SENTENCES = {
    "(S (NP (PRP They)) (VP (VBP think) (SBAR (IN that) (S (NP (PRP he)) (VP (VBD slept))))) (. .))":
        ("present", "plural", "subordinate"),
    "(S (S (NP (NP (NNP Eva) (POS 's)) (NNS dogs)) (VP (VBD ran))) (, ,) (CC and) (S (NP (PRP I)) (VP (VBP eat))))":
        ("past", "plural", "coordinate"),
    "(S (NP (NP (DT The) (NN bank)) (PP (IN of) (NP (NNS rivers)))) (VP (MD will) (VP (VB wait))) (. .))":
        ("modal", "singular", "simple"),
    "(SQ (VBZ Is) (NP (DT a) (NN dog)) (ADJP (JJ old)) (NP (DT all) (NNS days)) (. ?))":
        ("present", "singular", "polar"),
    "(SBARQ (WHNP (WP Who)) (SQ (VP (VBD saw) (NP (PRP them)))) (. ?))": ("past", "singular", "wh"),
    "(S (NP (EX There)) (VP (VBD were) (NP (CD two) (NNS cats)) (PP (IN in) (NP (DT the) (NN house)))) (. .))":
        ("past", "plural", "simple"),
    "(S (NP (NNP Eva)) (, ,) (NP (PRP you)) (VP (MD can) (VP (VB go))) (. .))": ("modal", "plural", "simple"),
    "(S (NP (NP (NNP Eva)) (CC and) (NP (DT a) (NN dog))) (VP (VBP wait)) (. .))": ("present", "plural", "simple"),
    "(S (NP (NP (NNS Dogs)) (SBAR (WHNP (WP who)) (S (VP (VBD slept))))) (VP (VBP wait)) (. .))":
        ("present", "plural", "subordinate"),
}  # fmt: skip


@pytest.mark.parametrize(("tree", "expected"), SENTENCES.items())
def test_properties_of_a_sentence(tree: str, expected: tuple[str, ...]) -> None:
    ((_, (one,)),) = read_trees(iter([tree]), "test")
    assert tuple(PROPERTIES[name](one) for name in ("tense", "number", "clause")) == expected


def tiny(folder: Path, of: str = "number") -> ConfigDict:
    """The config, small."""
    cfg = get_config(of)
    cfg.data.train, cfg.data.valid = f"grammar:train:64:{{en,{of}}}", f"grammar:valid:16:{{en,{of}}}"
    cfg.data.test = ""
    shrink(cfg, folder, length=96, vocab_size=400)
    cfg.model.max_positions = 96
    cfg.steps, cfg.eval.every, cfg.log_every, cfg.checkpoint.every = 8, 8, 8, 5
    return cfg


# Training takes long; masked_lm and vision train in `make test`, with the same loop.
@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A classifier fine-tuned from a masked language model."""
    folder = tmp_path_factory.mktemp("classification")
    cfg = tiny(folder)
    before = tiny(folder)
    before.task, before.steps = "masked_lm", 1
    before.data.train = before.data.valid = "lines:grammar:train:64"
    assert loop.train(before, folder / "masked_lm") == 0
    cfg.data.tokenizer = str(folder / "masked_lm" / "tokenizer.model")
    assert loop.train(cfg, folder / "run", str(folder / "masked_lm")) == 0
    return open_run(folder / "run", "latest", task="classification")


@pytest.mark.slow
def test_the_encoder_is_taken_and_the_head_is_new(trained: Run) -> None:
    init = json.loads((trained.workdir / "run.json").read_text())["launches"][0]["init"]
    assert init["new"] == ["classes", "classes_b"] and init["unused"] == ["softmax_b"]


@pytest.mark.slow
def test_the_class_is_at_the_eos(trained: Run) -> None:
    tokenizer, text, _ = prepare_all(trained.config.data, trained.workdir / "tokenizer.model", sides=2)
    pairs = Classified(text, tokenizer, ("singular", "plural"))
    corpus = list(open_corpus(trained.config.data.train).pairs())
    assert {label for _, label in corpus} == {"singular", "plural"}
    for (ids, hidden), (line, label) in zip(pairs.records(range(len(text))), corpus, strict=True):
        assert ids.tolist() == [*tokenizer.encode(line), EOS]
        assert hidden.tolist() == [0] * (len(ids) - 1) + [label == "plural"]


def test_the_class_is_asked_at_the_last_eos_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two texts in a row, the first of which has an EOS within, as BERT's [SEP] is; and of a line."""
    ids_bt = np.array([[1, 5, 2, 6, 2, 1, 7, 2, 0]], np.int32)
    segments_bt = np.array([[1, 1, 1, 1, 1, 2, 2, 2, 0]], np.int32)
    source = Tokens(ids_bt, segments_bt, ids_bt)
    example = make_example(Batch(source, source, ids_bt))
    assert np.flatnonzero(example.weights_bt[0]).tolist() == [4, 7]
    place_btc = np.stack([np.arange(9.0), np.zeros(9)], axis=-1)[None].astype(np.float32)
    monkeypatch.setattr(MaskedLM, "apply", lambda model, params, tokens: jnp.asarray(place_btc))
    expected = np.exp(7) / (np.exp(7) + 1)
    assert probabilities(MaskedLM(TINY), {}, jnp.asarray(ids_bt))[0, 0] == pytest.approx(expected)


@pytest.mark.slow
def test_scores_are_those_of_training_and_of_each_line(trained: Run) -> None:
    record = evaluation.evaluate(trained, "valid")
    validated = [one for one in read_metrics(trained.workdir) if one["kind"] == "valid"]
    assert record["nll"] == pytest.approx(validated[-1]["nll"], rel=1e-5)
    assert record["texts"] == 16
    params = jax.device_put(trained.params)
    pairs = list(open_corpus(trained.config.data.valid).pairs())
    found = [classify(trained, params, line) for line, _ in pairs]
    right = [one == label for (one, _), (_, label) in zip(found, pairs, strict=True)]
    assert record["accuracy"] == pytest.approx(np.mean(right))
    certain = [p if well else 1 - p for (_, p), well in zip(found, right, strict=True)]
    assert record["nll"] == pytest.approx(-np.mean(np.log(certain)), rel=1e-4)
    output = list(classify_stream(trained, [f"{line}\n".encode() for line, _ in pairs[:2]]))
    assert output == [f"{one}\t{p:.4f}\n".encode() for one, p in found[:2]]
    with pytest.raises(UserError, match=r"line 1: a line of 40\d subwords, EOS counted; only 96 positions are learned"):
        list(classify_stream(trained, [b"x" * 400]))


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits(trained: Run, tmp_path: Path) -> None:
    cfg = tiny(trained.workdir.parent)
    cfg.data.tokenizer = trained.config.data.tokenizer
    assert_resumes_to_the_same_bits(cfg, trained.workdir, tmp_path)


@pytest.mark.slow
def test_the_command_classifies_standard_input(trained: Run) -> None:
    lines = "The dogs sleep.\nA dog sleeps.\n"
    done = commands.run("infer.classify", f"--workdir={trained.workdir}", "--checkpoint=latest", text=lines)
    assert done.returncode == 0, done.stderr
    expected = classify_stream(trained, lines.encode().splitlines(keepends=True))
    assert done.stdout == b"".join(expected).decode()


@pytest.mark.slow
def test_the_command_scores_a_split(trained: Run) -> None:
    done = commands.run("infer", f"--workdir={trained.workdir}", "--split=valid", "--checkpoint=latest", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nll"] == evaluation.evaluate(trained, "valid")["nll"]


@pytest.mark.parametrize("names", ["", "one", "one,one", "one,,two"])
def test_classes_are_two_or_more(names: str) -> None:
    with pytest.raises(UserError, match=r"^data\.classes is '.*'; it must be two classes or more"):
        classes_of(names)


def test_corpora_that_do_not_fit_are_one_line(tmp_path: Path) -> None:
    def said(**data: str | int) -> str:
        return refusal(tiny(tmp_path), tmp_path / "run", data)

    (tmp_path / "bare.tsv").write_text("One dog sleeps.\n")
    (tmp_path / "empty.tsv").write_text("Dogs sleep.\tplural\nOne dog sleeps.\t\n")
    assert said(classes="singular,dual").endswith("class 'plural' is not in data.classes, which are singular, dual")
    assert said(valid=f"tsv:{tmp_path}/empty.tsv").endswith(
        "class '' is not in data.classes, which are singular, plural"
    )
    assert said(classes="singular,plural,dual").startswith("data.classes has 'dual', which is the class of no text")
    (tmp_path / "long.tsv").write_text("Dogs sleep.\tplural\n" + "One dog sleeps. " * 20 + "\tsingular\n")
    too_long = said(train=f"tsv:{tmp_path}/long.tsv", max_length=20, vocab_size=300)
    assert too_long.endswith(f"of no text of tsv:{tmp_path}/long.tsv of at most 20 tokens (data.max_length)")
    assert said(train="grammar:train:9:{en,mood}").endswith("PROPERTY one of tense, number, clause")
    assert "data.train is lines:grammar:train:9, but this task needs pairs" in said(train="lines:grammar:train:9")
    assert "bare.tsv, line 1: no tab" in said(train=f"tsv:{tmp_path}/bare.tsv")
    assert "data.batching is window, for monolingual text" in said(batching="window")


@pytest.mark.parametrize(("task", "classes"), [("classification", ""), ("translation", "a,b")])
def test_classes_are_those_of_a_classification(task: str, classes: str) -> None:
    cfg = default()
    cfg.task, cfg.data.classes = task, classes
    with pytest.raises(UserError, match=r"^config: .*data\.classes.*; it is '(translation)?': "):
        check(cfg, default())


def test_classes_that_the_tokenizer_cannot_tell_apart_are_said(tmp_path: Path) -> None:
    from vaswani.data.cache import prepare
    from vaswani.data.tokenizer import Tokenizer

    (tmp_path / "c.tsv").write_text("a b\tYes\na\tyes\n")
    tokenizer = Tokenizer.train(["a b", "yes"], 270, tmp_path / "t.model", lowercase=True)
    limits = {"max_length": 9, "max_ratio": 9.0}
    prepared = prepare(f"tsv:{tmp_path}/c.tsv", tokenizer, cache=tmp_path / "cache", clean=True, **limits)
    with pytest.raises(UserError, match=r"^data\.classes is Yes,yes: two of them are the same subwords"):
        Classified(prepared, tokenizer, ("Yes", "yes"))


def test_classes_are_read_as_the_target_side_is(tmp_path: Path) -> None:
    from vaswani.data.cache import prepare
    from vaswani.data.symbols import Symbols

    (tmp_path / "c.tsv").write_text("on\tno\noff\tyes\n")
    tokenizer = Symbols.of([("on", "no"), ("off", "yes")], 0, "characters,words")
    prepared = prepare(
        f"tsv:{tmp_path}/c.tsv", tokenizer, cache=tmp_path / "cache", clean=False, max_length=9, max_ratio=9.0
    )
    assert Classified(prepared, tokenizer, ("yes", "no")).class_n.tolist() == [1, 0]
    with pytest.raises(UserError, match=r"class 'yes' is not in data\.classes, which are maybe, no$"):
        Classified(prepared, tokenizer, ("maybe", "no"))

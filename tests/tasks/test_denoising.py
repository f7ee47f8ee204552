"""Span denoising: what is left out and that it can be put back, training, resuming, scores, fine-tuning, mistakes."""

import itertools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests.tiny import shrink
from tests.trainings import assert_resumes_to_the_same_bits
from vaswani.configs.denoising import get_config
from vaswani.data.cache import prepare
from vaswani.data.corrupt import Corrupted, Masking, Spans, corruption
from vaswani.data.from_config import prepare_all
from vaswani.data.pipeline import TrainingBatches
from vaswani.data.sources import open_corpus
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS
from vaswani.infer.evaluate import predictions as evaluation
from vaswani.infer.runs import Run, open_run
from vaswani.run.records import read_metrics
from vaswani.tasks.texts import masked, without_spans
from vaswani.train import loop

SENTINELS = tuple(range(90, 98))


def tiny(folder: Path, of: str = "denoising") -> ConfigDict:
    """The config of a task, small."""
    cfg = get_config(of)
    cfg.data.train = cfg.data.train.replace("40000", "60")
    cfg.data.valid, cfg.data.test = cfg.data.train.replace("train", "valid").replace("60", "8"), ""
    shrink(cfg, folder, length=96, vocab_size=400)
    cfg.optim.update({"schedule": "paper", "lr": 1.0, "warmup": 20})
    cfg.steps, cfg.eval.every, cfg.log_every, cfg.checkpoint.every, cfg.eval.bleu_sentences = 10, 10, 10, 7, 0
    return cfg


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("denoising")
    assert loop.train(tiny(folder), folder / "run") == 0
    return open_run(folder / "run", "latest", task="denoising")


def put_back(source: np.ndarray, target: np.ndarray) -> list[int]:
    """Returns the text, from its pair: each sentinel of the source gives way to what follows it in the target."""
    spans: dict[int, list[int]] = {}
    for token in target[:-1]:
        if token in SENTINELS:
            spans[int(token)] = []
        else:
            spans[max(spans)].append(int(token))
    assert list(spans) == list(SENTINELS[: len(spans)]) and not spans[max(spans)]
    return [part for token in source for part in (spans[token] if token in spans else [int(token)])]


@pytest.mark.parametrize("rate", [0.15, 0.6, 0.99])
def test_the_text_can_be_put_back_and_the_lengths_are_as_planned(rate: float) -> None:
    spans, rng = Spans(rate, 3.0, SENTINELS), np.random.default_rng(0)
    for length in (*range(1, 30), 150):
        ids = np.array([*rng.integers(4, 90, length - 1), EOS], np.int32)
        for _ in range(10):
            source, target = spans.corrupt(ids, rng)
            assert (source[-1], target[-1]) == (EOS, EOS)
            assert put_back(source, target) == ids.tolist()
            assert [[len(source), len(target)]] == spans.lengths(np.array([length])).tolist()
            hidden = len(ids) - sum(token not in SENTINELS for token in source)
            assert hidden == (0 if length < 3 else min(max(1, round(rate * (length - 1))), length - 2))


def test_the_config_says_how_much_is_hidden_and_in_what_spans(tmp_path: Path) -> None:
    cfg = tiny(tmp_path)
    tokenizer, _, _ = prepare_all(cfg.data, sides=1)
    cfg.data.mask_rate = 0.3
    cfg.data.mean_span = 2.0
    assert corruption("denoising", cfg.data, tokenizer) == Spans(0.3, 2.0, tokenizer.sentinels)
    assert corruption("masked_lm", cfg.data, tokenizer) == Masking(0.3, tokenizer.vocab_size)
    tokenizer.sentinels = tokenizer.sentinels[:1]  # none would be left for the end of the target
    with pytest.raises(UserError, match=r"^config: task is denoising, and the vocabulary of '' lacks sentinels$"):
        corruption("denoising", cfg.data, tokenizer)


@pytest.mark.parametrize("words", range(2, 9))
def test_there_are_as_many_spans_as_fit_where_each_is_of_one_token(words: int) -> None:
    """Against all ways of leaving tokens out: spans are apart, and the text may begin and end with one."""
    for rate in (0.15, 0.3, 0.5, 0.6, 0.8):
        (hidden,), (spans,) = Spans(rate, 1.0, tuple(range(20))).counts(np.array([words + 1]))
        ways = itertools.combinations(range(words), int(hidden))
        assert spans == max(sum(place - 1 not in way for place in way) for way in ways)


def test_spans_are_of_many_lengths() -> None:
    spans, rng, ids = Spans(0.15, 3.0, SENTINELS), np.random.default_rng(0), np.arange(101) % 80 + 4
    lengths = set()
    for _ in range(50):
        _, target = spans.corrupt(np.array([*ids[:-1], EOS], np.int32), rng)
        starts = np.flatnonzero(np.isin(target, SENTINELS))
        lengths |= set(np.diff(starts).tolist())
    assert len(lengths) > 4


def test_spans_have_three_tokens_on_average_and_are_anywhere() -> None:
    spans, rng, ids = Spans(0.15, 3.0, SENTINELS), np.random.default_rng(0), np.arange(101) % 80 + 4
    assert [int(count[0]) for count in spans.counts(np.array([101]))] == [15, 5]
    hidden = np.zeros(100)
    for _ in range(400):
        source, _ = spans.corrupt(ids, rng)
        hidden += ~np.isin(np.arange(100), _places(ids, source))
    assert hidden[0] > 0 and hidden[-1] > 0
    np.testing.assert_allclose(hidden.mean() / 400, 0.15)
    assert np.all(hidden[5:-5] / 400 > 0.05) and np.all(hidden / 400 < 0.3)


def _places(ids: np.ndarray, source: np.ndarray) -> list[int]:
    """Returns where the tokens of `source` are in `ids`, each taken at its first place after those before it."""
    found, place = [], 0
    for token in source[:-1]:
        if token not in SENTINELS:
            place += int(np.argmax(ids[place:] == token))
            found.append(place)
            place += 1
    return found


def test_the_decoder_reads_the_target_shifted(tmp_path: Path) -> None:
    cfg = tiny(tmp_path)
    tokenizer, text, _ = prepare_all(cfg.data, sides=1)
    assert len(tokenizer.sentinels) == 13
    assert not set(tokenizer.sentinels) & {token for record in text.records(range(len(text))) for token in record[0]}
    spans = Spans(0.15, 3.0, tokenizer.sentinels)
    batches = TrainingBatches(Corrupted(text, spans), cfg.data, seed=0)
    batch = next(batches)
    batches.close()
    first = batch.target.positions_bt == 0
    first &= batch.target.segments_bt != 0
    assert np.all(batch.target.ids_bt[first] == BOS)
    assert np.all(batch.labels_bt[first] == tokenizer.sentinels[0])
    assert np.isin(batch.source.ids_bt, tokenizer.sentinels).sum() > first.sum() / 2


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits_and_scores_are_those_of_training(trained: Run, tmp_path: Path) -> None:
    assert_resumes_to_the_same_bits(tiny(trained.workdir.parent), trained.workdir, tmp_path)
    validated = [one for one in read_metrics(trained.workdir) if one["kind"] == "valid"]
    assert evaluation.evaluate(trained, "valid")["nll"] == pytest.approx(validated[-1]["nll"], rel=1e-5)


@pytest.mark.slow
def test_it_can_be_fine_tuned_to_translate(trained: Run, tmp_path: Path) -> None:
    cfg = tiny(trained.workdir.parent, "translate")
    cfg.data.tokenizer = str(trained.workdir / "tokenizer.model")
    cfg.steps = 1
    assert loop.train(cfg, tmp_path / "run", str(trained.workdir)) == 0
    init = json.loads((tmp_path / "run" / "run.json").read_text())["launches"][0]["init"]
    assert (init["taken"], init["new"], init["unused"]) == (len(jax.tree.leaves(trained.params)), [], [])
    assert open_run(tmp_path / "run").step == 1


def test_both_sides_of_the_grammar_are_a_text() -> None:
    both = [text for (text,) in open_corpus("lines:grammar:valid:3:{en,de}").pairs()]
    assert both == [text for pair in open_corpus("grammar:valid:3").pairs() for text in pair]
    english = [text for (text,) in open_corpus("lines:grammar:valid:3").pairs()]
    assert english == both[::2]


def test_characters_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 20)
    cfg = tiny(tmp_path)
    cfg.data.train = cfg.data.valid = f"chars:{tmp_path}/text.txt"
    cfg.data.vocab_size = 4 + len(set("to be or not to be\n"))
    with pytest.raises(UserError, match=r"task is denoising, which reads lines in subwords; data\.train is in chara"):
        loop.train(cfg, tmp_path / "run")


def test_a_text_without_a_span_to_leave_out_is_refused(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["the dog sleeps", "the cat sees the dog"] * 20, 290, tmp_path / "tokenizer.model")
    assert len(tokenizer.encode("the")) == 1
    (tmp_path / "words.txt").write_text("the\nthe\n")
    spec = f"lines:{tmp_path}/words.txt"
    prepared = prepare(spec, tokenizer, cache=tmp_path / "cache", max_length=9, max_ratio=9.0, clean=False)
    cfg = get_config()
    assert len(masked(cfg, prepared, tokenizer, 0).lengths) == 2
    with pytest.raises(UserError, match=r"whose lines are all empty or of one subword: there is nothing to restore$"):
        without_spans(cfg, prepared, tokenizer, 0)

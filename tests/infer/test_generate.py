"""A language model trained, resumed, scored and made to write: in Python, and as a user meets the commands."""

import dataclasses
import json
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests.infer.test_translate_cli import command
from tests.trainings import assert_resumes_to_the_same_bits
from vaswani.configs.char_lm import get_config
from vaswani.data.sources import open_corpus
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, UNK
from vaswani.infer.evaluate import texts as evaluation
from vaswani.infer.runs import Run, open_run
from vaswani.infer.texts.continuation import generate
from vaswani.model.config import ModelConfig
from vaswani.model.language_model import LanguageModel
from vaswani.model.parameter_count import parameter_count
from vaswani.run.records import read_metrics
from vaswani.search.options import Decoding, Sampling
from vaswani.tasks import task_of
from vaswani.tokens import Tokens
from vaswani.train import loop

ROW = 16


def tiny(folder: Path, **data: object) -> ConfigDict:
    """The character model's config, small, on a text of its own in `folder`."""
    rng = np.random.default_rng(0)
    lines = [" ".join(rng.choice(["to", "be", "or", "not", "that"], size=rng.integers(2, 7))) for _ in range(150)]
    (folder / "text.txt").write_text("\n".join(lines))
    cfg = get_config(f"{folder}/text.txt")
    cfg.data.vocab_size = 4 + len(set("\n".join(lines)))
    cfg.data.update({"cache": str(folder / "cache"), "pack_length": ROW, "tokens_per_batch": 8 * ROW, **data})
    cfg.model.update({"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "d_k": 8, "d_v": 8, "P_drop": 0.1})
    cfg.optim.update({"schedule": "paper", "lr": 1.0, "warmup": 30})
    cfg.steps, cfg.eval.every, cfg.log_every = 60, 60, 20
    cfg.checkpoint.every = 37  # within an epoch
    return cfg


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("language_model")
    assert loop.train(tiny(folder), folder / "run") == 0
    return open_run(folder / "run", task="language_model")


def logits_of(run: Run, ids: list[int]) -> np.ndarray:
    """Compiles once, for the longest row: what is after a token does not change its logits."""
    row = np.pad(np.array(ids, np.int32), (0, 3 * ROW - len(ids)))
    return np.asarray(_logits(run.model_config)(run.params, row[None])[0, : len(ids)], np.float64)


@cache
def _logits(config: ModelConfig) -> Callable:
    return jax.jit(lambda params, ids_bt: LanguageModel(config).apply({"params": params}, Tokens.of(ids_bt)))


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits(trained: Run, tmp_path: Path) -> None:
    assert_resumes_to_the_same_bits(tiny(trained.workdir.parent), trained.workdir, tmp_path)


@pytest.mark.slow
def test_it_learns_and_its_nll_is_that_of_the_whole_text(trained: Run) -> None:
    (text,) = next(open_corpus(trained.config.data.valid).pairs())
    ids, total = trained.tokenizer.encode(text), 0.0
    for start in range(0, len(ids), ROW):
        row = ids[start : start + ROW]
        logits = logits_of(trained, [BOS, *row[:-1]])
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        total -= log_probs[np.arange(len(row)), row].sum()
    record = evaluation.evaluate(trained, "valid")
    assert record["nll"] == pytest.approx(total / len(ids), rel=1e-5)
    assert record["perplexity"] == record["perplexity_byte"] == pytest.approx(math.exp(total / len(ids)), rel=1e-5)
    assert (record["row"], len(record["nll_by_position"])) == (ROW, ROW)
    assert record["tokens"] == record["bytes"] == len(text)
    assert record["nll"] < 0.8 * math.log(trained.tokenizer.vocab_size)
    validated = [one for one in read_metrics(trained.workdir) if one["kind"] == "valid"]
    assert validated[-1]["nll"] == pytest.approx(record["nll"], rel=1e-5)


@pytest.mark.slow
def test_longer_rows_are_read_position_by_position(trained: Run) -> None:
    (text,) = next(open_corpus(trained.config.data.valid).pairs())
    ids, row = trained.tokenizer.encode(text), 3 * ROW
    nll = []
    for start in range(0, len(ids), row):
        expected = np.array(ids[start : start + row])
        logits = logits_of(trained, [BOS, *ids[start : start + row - 1]])[: len(expected)]
        log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        nll.append(-log_probs[np.arange(len(expected)), expected])
    record = evaluation.evaluate(trained, "valid", row)
    by_position = [np.mean([one[place] for one in nll if place < len(one)]) for place in range(row)]
    np.testing.assert_allclose(record["nll_by_position"], by_position, rtol=1e-4)
    assert record["nll"] == pytest.approx(sum(map(np.sum, nll)) / len(ids), rel=1e-5)
    assert (record["row"], record["signatures"]["perplexity"].endswith(f"|row:{row}")) == (row, True)


def test_row_lengths_that_cannot_be_are_said(trained: Run) -> None:
    with pytest.raises(
        UserError, match=r"^--row_length=0: it must be at least 1, for a run with data.batching=window$"
    ):
        evaluation.evaluate(trained, "valid", 0)
    config = _learned(trained)
    table_ld = np.zeros((config.max_positions, config.d_model), np.float32)
    learned = trained._replace(model_config=config, params={**trained.params, "positions": table_ld})
    with pytest.raises(UserError, match=r"too long for this model: "):
        evaluation.evaluate(learned, "valid")


@pytest.mark.slow
def test_perplexity_a_byte_counts_line_feeds(tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("to be\nor not\näh\n" * 30)
    cfg = tiny(tmp_path, batching="pack", vocab_size=280, max_length=ROW)
    cfg.data.train = cfg.data.valid = f"lines:{tmp_path}/lines.txt"
    cfg.steps = 1
    assert loop.train(cfg, tmp_path / "run") == 0
    run = open_run(tmp_path / "run", task="language_model")
    record = evaluation.evaluate(run, "valid")
    assert record["bytes"] == len("to be\nor not\näh\n".encode()) * 30
    assert record["tokens"] == 30 * sum(len(run.tokenizer.encode(line)) + 1 for line in ("to be", "or not", "äh"))
    assert math.log(record["perplexity_byte"]) * record["bytes"] == pytest.approx(record["nll"] * record["tokens"])
    texts = generate(run, "to", Decoding(2, 0.6, 6, 2))
    assert [one.text.split()[0][:2] for one in texts] == ["to", "to"]
    with pytest.raises(UserError, match=r"^--split=test: the run's config has no data\.test; name a corpus"):
        evaluation.evaluate(run, "test")


@pytest.mark.parametrize("prompt", ["", "to be\nor "])
def test_greedy_takes_the_likeliest_token_each_time(trained: Run, prompt: str) -> None:
    (found,) = generate(trained, prompt, Decoding(1, 0.0, 12))
    ids = [BOS, *trained.tokenizer.encode(prompt)]
    for token in found.tokens:
        logits = logits_of(trained, ids)[-1]
        logits[[0, BOS]] = -np.inf
        assert int(logits.argmax()) == token != EOS
        ids.append(token)
    assert len(found.tokens) == 11
    assert found.text == prompt + trained.tokenizer.decode(found.tokens)


@pytest.mark.slow
def test_samples_follow_their_seed(trained: Run) -> None:
    def texts(**options: float) -> list[str]:
        drawn = generate(trained, "that ", Decoding(1, 0.0, 30, 3, Sampling(**options)))
        return [one.text for one in drawn]

    assert texts(seed=1) == texts(seed=1) != texts(seed=2)
    assert len(set(texts(seed=1))) == 3
    assert all(text.startswith("that ") and len(text) == len("that ") + 29 for text in texts(seed=1))
    (greedy,) = generate(trained, "that ", Decoding(1, 0.0, 30))
    assert set(texts(seed=1, top_k=1)) == {greedy.text}


def test_a_special_symbol_in_a_prompt_is_said(trained: Run) -> None:
    class Special(Tokenizer):
        vocab_size = 70

        def __init__(self) -> None:
            pass

        def encode(self, text: str) -> list[int]:
            return [5, UNK]

    with pytest.raises(UserError, match=r"^prompt: the vocabulary lacks one of its symbols, or one is special"):
        generate(trained._replace(text=Special()), "dog<|endoftext|>", Decoding(1, 0.0, 5))


def test_what_cannot_be_written_is_said(trained: Run) -> None:
    with pytest.raises(UserError, match=r"^prompt: the vocabulary has no 'Q'; it comes from the training text$"):
        generate(trained, "to Que", Decoding(1, 0.0, 5))
    with pytest.raises(UserError, match=r"^beam is 70; it must be at most \d+, the vocabulary$"):
        generate(trained, "to", Decoding(70, 0.0, 5))
    learned = trained._replace(model_config=_learned(trained))
    with pytest.raises(UserError, match=r"^prompt, length: a prompt of 6 tokens and 5 more: .*only 8 are learned$"):
        generate(learned, "to be", Decoding(1, 0.0, 5))
    broken = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), trained.params)
    with pytest.raises(UserError, match=r"/run: the parameters of this run are not finite$"):
        generate(trained._replace(params=broken), "to", Decoding(1, 0.0, 5))
    with pytest.raises(UserError, match=r"this run's task is language_model, not translation"):
        open_run(trained.workdir)


def _learned(run: Run):
    return dataclasses.replace(run.model_config, positions="learned", max_positions=8)


def test_the_formula_counts_the_parameters(trained: Run) -> None:
    assert sum(leaf.size for leaf in jax.tree.leaves(trained.params)) == parameter_count(
        trained.model_config, decoder_only=True
    )


@pytest.mark.slow
def test_the_commands(trained: Run) -> None:
    done = command("infer", f"--workdir={trained.workdir}", "--split=valid", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["nll"] == pytest.approx(evaluation.evaluate(trained, "valid")["nll"], rel=1e-5)
    (kept,) = (trained.workdir / "evaluations").glob("valid-*-row16.json")
    assert json.loads(kept.read_text())["nll"] == json.loads(done.stdout)["nll"]
    written = command("infer.generate", f"--workdir={trained.workdir}", "--prompt=to be", "--greedy", "--length=9")
    (greedy,) = generate(trained, "to be", Decoding(1, 0.0, 10))
    assert (written.returncode, written.stdout) == (0, greedy.text + "\n"), written.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beam=2", "--greedy"], "error: give --greedy or --beam, not both"),
        (["--beam=2", "--seed=1"], "error: --seed is for drawing at random; it has no effect with --greedy or --beam"),
        (
            ["--samples=2", "--greedy"],
            "error: --samples=2: --greedy returns one text, and --beam=N at most N",
        ),
        (
            ["--temperature=0"],
            "error: flag --temperature=0.0: it must be from 1e-06 to 1000000.0; --help lists the flags",
        ),
    ],
)
def test_wrong_options_are_one_line(trained: Run, arguments: list[str], message: str) -> None:
    done = command("infer.generate", f"--workdir={trained.workdir}", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert [line for line in done.stderr.splitlines() if "error" in line] == [message]
    assert "Traceback" not in done.stderr


def test_the_signature_says_how_many_symbols_are_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines.txt").write_text("to be\nor not\nto be\n" * 30)
    cfg = tiny(tmp_path, batching="pack", units="words", vocab_size=5, max_length=ROW)  # "be" is the only word
    cfg.data.train = cfg.data.valid = f"lines:{tmp_path}/lines.txt"
    cfg.steps = 1
    assert loop.train(cfg, tmp_path / "run") == 0
    run = open_run(tmp_path / "run", task="language_model")
    capsys.readouterr()
    signatures = evaluation.evaluate(run, "valid")["signatures"]
    assert signatures["perplexity_byte"] == "unit:byte|vocabulary:5|smoothing:none|unknown:120"
    assert "note: not in the vocabulary, and so read as unknown: 120 symbols of the text" in capsys.readouterr().err


def test_perplexity_a_byte_is_of_the_bytes_that_are_predicted(tmp_path: Path) -> None:
    lines = ["the dog sleeps", "the cat sees the dog", "to be or not to be"]
    (tmp_path / "plain.txt").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "spaced.txt").write_text("".join(f"    {line}\n".replace("the", "the   ") for line in lines))
    tokenizer = Tokenizer.train(lines * 9, 290, tmp_path / "tokenizer.model")
    cfg = tiny(tmp_path, batching="pack", train=f"lines:{tmp_path}/plain.txt", vocab_size=290)
    task = task_of(cfg.task)
    config = task.config(cfg, tokenizer.vocab_size)
    params = jax.device_get(task.objective(cfg, config).init(jax.random.key(0)))
    run = Run(tmp_path, cfg, config, tokenizer, params, 1, (1,))
    plain, spaced = (evaluation.evaluate(run, f"lines:{tmp_path}/{name}.txt") for name in ("plain", "spaced"))
    assert plain["nll"] == spaced["nll"] and plain["tokens"] == spaced["tokens"]
    assert plain["bytes"] == (tmp_path / "plain.txt").stat().st_size
    assert (spaced["bytes"], spaced["perplexity_byte"]) == (plain["bytes"], plain["perplexity_byte"])

"""The whole training loop on a tiny corpus: what a run writes, what it rejects, and how it stops."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests import tiny
from vaswani.configs.common import default
from vaswani.data.imported import open_tokenizer
from vaswani.errors import UserError
from vaswani.infer.inspect import summary
from vaswani.infer.runs import open_run
from vaswani.model.noise import Noise
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.run import saved
from vaswani.run.checkpoint import load_params
from vaswani.run.sharding import make_mesh
from vaswani.tasks.config import model_config
from vaswani.tasks.loss import Loss, cross_entropy
from vaswani.train import loop, program
from vaswani.train.check import check
from vaswani.train.job import open_job
from vaswani.train.metrics import NotFiniteError, Reporter
from vaswani.train.step import Sums


def records(workdir: Path) -> list[dict]:
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


def steps(workdir: Path) -> list[int]:
    return sorted(saved.steps(workdir / "checkpoints"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[ConfigDict, Path]:
    folder = tmp_path_factory.mktemp("loop")
    cfg = tiny.training_config(folder)
    cfg.steps, cfg.eval.every, cfg.eval.bleu_sentences, cfg.decode.extra_length = 10, 8, 4, 3
    assert loop.train(cfg, folder / "run") == 0
    return cfg, folder / "run"


def test_a_run_leaves_what_the_contract_says(trained: tuple[ConfigDict, Path]) -> None:
    _, workdir = trained
    assert steps(workdir) == [4, 8, 10]
    assert json.loads((workdir / "config.json").read_text())["model"]["d_model"] == 16
    assert (workdir / "tokenizer.model").is_file()
    assert list((workdir / "tensorboard").iterdir())
    launch = json.loads((workdir / "run.json").read_text())["launches"][0]
    assert launch["step"] == 0
    assert launch["versions"]["jax"] == jax.__version__
    assert launch["data"]["train"]["pairs"]["kept"] == 200
    assert {"git", "device", "command", "started"} <= launch.keys()


def test_the_records_have_the_keys_and_the_values_they_promise(trained: tuple[ConfigDict, Path]) -> None:
    _, workdir = trained
    train = [record for record in records(workdir) if record["kind"] == "train"]
    valid = [record for record in records(workdir) if record["kind"] == "valid"]
    assert [record["step"] for record in train] == [4, 8, 10]
    assert [record["step"] for record in valid] == [8, 10]
    assert valid[0].keys() == {"step", "kind", "loss", "nll", "perplexity", "bleu"}
    for record in train + valid:
        assert record["perplexity"] == pytest.approx(np.exp(record["nll"]))
    assert train[-1]["learning_rate"] == pytest.approx(16**-0.5 * 10**-0.5)
    assert 0.1 < train[0]["non_pad_share"] < 1
    assert train[0]["seconds"] < train[1]["seconds"]
    assert train[2]["loss"] < train[0]["loss"]


def test_the_same_run_is_not_trained_again(trained: tuple[ConfigDict, Path]) -> None:
    cfg, workdir = trained
    before = (workdir / "metrics.jsonl").read_text()
    assert loop.train(cfg, workdir) == 0
    assert (workdir / "metrics.jsonl").read_text() == before


@pytest.mark.parametrize(
    ("key", "value"), [("model.d_ff", 32), ("seed", 1), ("optim.warmup", 5), ("data.batching", "pack")]
)
def test_another_config_is_refused_by_name_and_both_values(
    trained: tuple[ConfigDict, Path], key: str, value: object
) -> None:
    cfg, workdir = trained
    other = cfg.copy_and_resolve_references()
    old = other[key] if "." not in key else other[key.split(".")[0]][key.split(".")[1]]
    other.update_from_flattened_dict({key: value})
    with pytest.raises(UserError, match=f"{key} is {old!r} there and {value!r} here"):
        loop.train(other, workdir)


def test_keys_that_do_not_change_the_parameters_may_change(trained: tuple[ConfigDict, Path], tmp_path: Path) -> None:
    cfg, original = trained
    workdir = shutil.copytree(original, tmp_path / "run")
    other = cfg.copy_and_resolve_references()
    other.log_every, other.checkpoint.every, other.eval.bleu_sentences, other.decode.beam = 3, 100, 0, 2
    assert loop.train(other, workdir) == 0
    assert json.loads((workdir / "config.json").read_text())["decode"]["beam"] == 2
    other.optim.schedule = "cosine"
    with pytest.raises(UserError, match=r"optim\.schedule is 'paper' there and 'cosine' here"):
        loop.train(other, workdir)


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    cfg = tiny.training_config(tmp_path)
    with pytest.raises(UserError, match="not empty and not a run"):
        loop.train(cfg, tmp_path)
    assert not (tmp_path / "config.json").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        loop.train(cfg, tmp_path / "file")


def test_a_start_that_failed_on_its_data_can_be_mended_and_changed_data_are_not_the_same_run(tmp_path: Path) -> None:
    cfg = tiny.training_config(tmp_path)
    good, cfg.data.train = cfg.data.train, f"text:{tmp_path}/absent.{{en,de}}"
    (tmp_path / "run").mkdir()  # a folder that is new would be removed
    with pytest.raises(UserError, match="absent"):
        loop.train(cfg, tmp_path / "run")
    for opened in (open_run, summary):
        with pytest.raises(UserError, match="training never began in this folder"):
            opened(tmp_path / "run")
    cfg.data.train, cfg.steps, cfg.checkpoint.every = good, 1, 100
    assert loop.train(cfg, tmp_path / "run") == 0
    assert steps(tmp_path / "run") == [1]  # the last update is saved whatever checkpoint.every says

    for language in ("en", "de"):
        path = tmp_path / f"train.{language}"
        path.write_text(path.read_text() + "the dog\n")
    cfg.steps = 2
    with pytest.raises(UserError, match=r"data\.train has changed"):
        loop.train(cfg, tmp_path / "run")


@pytest.mark.parametrize("bad", [6, pytest.param(8, marks=pytest.mark.slow)])
def test_a_loss_that_is_not_finite_stops_the_run_and_is_never_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: int
) -> None:
    make = program.make_train_step

    def poisoned(*args: object) -> Callable:
        train_step = make(*args)

        def step(state: object, batch: object, key: object) -> tuple:
            state, sums = train_step(state, batch, key)
            loss = sums.loss._replace(loss_sum=sums.loss.loss_sum * jnp.where(state.step == bad, jnp.nan, 1.0))
            return state, sums._replace(loss=loss)

        return jax.jit(step)

    monkeypatch.setattr(program, "make_train_step", poisoned)
    cfg = tiny.training_config(tmp_path)
    with pytest.raises(UserError, match=rf"^step {bad}: the loss is nan .*; checkpoint 4 was saved before it"):
        loop.train(cfg, tmp_path / "run")
    assert steps(tmp_path / "run") == [4]


def sums(loss: float = 2.0, gradient_norm: float = 1.0) -> Sums:
    return Sums(Loss(np.float32(loss * 10), np.float32(10.0), np.float32(10)), np.int32(18), np.float32(gradient_norm))


def test_records_beyond_the_restored_step_and_half_lines_are_dropped(tmp_path: Path) -> None:
    with Reporter(tmp_path, lambda step: 0.5 * step, first=1, last=9, every=1) as reporter:
        for step in (1, 2, 3):
            reporter.update(step, sums(loss=step), positions=40)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "ki')
    before = records_but_the_last(tmp_path)
    with Reporter(tmp_path, lambda step: 0.5 * step, first=3, last=9, every=1) as reporter:
        reporter.update(3, sums(loss=30), positions=40)
    after = records(tmp_path)
    assert [record["step"] for record in after] == [1, 2, 3]
    assert after[:2] == before[:2]
    assert after[2]["loss"] == pytest.approx(30)
    assert after[2]["seconds"] > after[1]["seconds"]
    assert after[2]["learning_rate"] == 1.5
    assert after[2]["non_pad_share"] == pytest.approx(18 / 40)


def records_but_the_last(workdir: Path) -> list[dict]:
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()[:-1]]


def test_a_record_is_the_mean_over_tokens_and_goes_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with Reporter(tmp_path, lambda step: 0.1, first=1, last=9, every=2) as reporter:
        reporter.update(1, sums(loss=1), positions=20)
        reporter.update(2, sums(loss=3), positions=20)
        with pytest.raises(NotFiniteError, match="step 3"):
            reporter.update(3, sums(gradient_norm=np.inf), positions=20)
    (record,) = records(tmp_path)
    assert record["loss"] == pytest.approx(2.0)
    assert record["tokens_per_second"] * record["seconds"] == pytest.approx(2 * float(sums(loss=1).loss.tokens))
    out, err = capsys.readouterr()
    assert out == ""
    assert "step 2/9 train: loss 2.0000  nll 1.0000  perplexity 2.72  lr 1.00e-01" in err
    assert "padding 10.0%" in err


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("data.batching", "buckets", "data.batching is 'buckets'; it must be one of bucket, pack"),
        ("optim.schedule", "linear", "optim.schedule is 'linear'; it must be one of paper, cosine"),
        ("steps", 0, "steps is 0; it must be at least 1"),
        ("optim.accumulate", 0, "optim.accumulate is 0; it must be at least 1"),
        ("decode.beam", 0, "decode.beam is 0; it must be from 1 to 1000"),
        ("decode.alpha", 11.0, "decode.alpha is 11.0; it must be from 0 to 10"),
        ("decode.length_penalty", "gmnt", "decode.length_penalty is 'gmnt'; it must be one of gnmt, power"),
        ("decode.stopping", "early", "decode.stopping is 'early'; it must be one of exact, full"),
        ("decode.checkpoint", "averge:5", "decode.checkpoint is 'averge:5'; it must be one of latest, STEP, best, ema"),
        ("decode.checkpoint", "average-best:5@3", "decode.checkpoint is 'average-best:5@3'; it must be one of"),
        ("loss.eps_ls", 1.0, "loss.eps_ls is 1.0; it must be at least 0 and below 1"),
        ("data.buckets", (8, 4), r"data.buckets is \(8, 4\); it must be positive lengths in ascending order"),
        ("data.buckets", ("8",), "data.buckets is .*; it must be whole numbers"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: object, message: str) -> None:
    cfg = default()
    cfg.update_from_flattened_dict({key: value})
    with pytest.raises(UserError, match=message):
        check(cfg, default())


@pytest.mark.parametrize(
    ("key", "value", "used_with", "message"),
    [
        (
            "optim.warmup_from",
            1e-4,
            {"optim.schedule": "inverse_sqrt"},
            "=0.0001 needs optim.schedule to be inverse_sqrt; it is 'paper'",
        ),
        (
            "model.cell",
            "gru",
            {"task": "recurrent_translation", "model.recurrent": "dot", "model.positions": "none"},
            "=gru needs model.recurrent to be fixed, additive or dot; it is",
        ),
        ("decode.checkpoint", "ema", {"optim.ema": 0.9}, "=ema needs optim.ema to be above 0; it is 0.0"),
    ],
)
def test_a_key_that_another_one_switches_off_is_refused(key: str, value: object, used_with: dict, message: str) -> None:
    cfg = default()
    cfg.update_from_flattened_dict({key: value})
    with pytest.raises(UserError, match=rf"^config: {re.escape(key)}{message}"):
        check(cfg, default())
    cfg.update_from_flattened_dict(used_with)
    check(cfg, default())


def test_ademamix_needs_a_fast_mean() -> None:
    cfg = default()
    cfg.optim.b1 = 0.0
    check(cfg, default())
    cfg.optim.name = "ademamix"
    with pytest.raises(UserError, match=r"optim.name=ademamix needs optim\.b1 to be above 0; it is 0\.0"):
        check(cfg, default())


def test_muon_needs_hidden_matrices() -> None:
    cfg = default()
    cfg.task, cfg.model.recurrent, cfg.model.positions = "recurrent_translation", "dot", "none"
    check(cfg, default())
    cfg.optim.name = "muon"
    message = r"optim\.name=muon needs model\.recurrent to be none; it is 'dot': there are none of the matrices"
    with pytest.raises(UserError, match=message):
        check(cfg, default())


@pytest.mark.parametrize(
    ("mixer", "key", "value", "right"),
    [
        ("linear", "P_drop_attention", 0.1, "0.0"),
        ("linear", "softmax_one", True, "False"),
        ("recurrent", "scale_attention", False, "True"),
        ("convolution", "qk_norm", True, "False"),
        ("recurrent", "biases", True, "False"),
    ],
)
def test_what_a_model_without_attention_would_ignore_is_refused(mixer: str, key: str, value: float, right: str) -> None:
    cfg = default()
    cfg.model[key] = value
    cfg.task = "language_model"
    check(cfg, default())
    cfg.model.mixer = mixer
    message = (
        f"config: task=language_model with model.mixer={mixer} needs model.{key} to be {right}; it is {value}: "
        "nothing in this model has "
    )
    with pytest.raises(UserError, match=f"^{re.escape(message)}"):
        check(cfg, default())
    cfg.task = "translation"  # its encoder-decoder attention uses them
    check(cfg, default())


def test_unknown_and_missing_keys_are_named() -> None:
    cfg = default()
    check(cfg, default())
    cfg.model.dmodel = 4
    with pytest.raises(UserError, match=r"there is no key model\.dmodel; did you mean model\.d_model\?"):
        check(cfg, default())
    del cfg.model.dmodel
    del cfg.model.N
    with pytest.raises(UserError, match=r"model\.N is missing"):
        check(cfg, default())


@pytest.mark.parametrize(
    ("task", "key", "value"),
    [
        ("masked_lm", "output_bias", True),
        ("classification", "tie_embeddings", False),
        ("vision", "scale_embeddings", False),
    ],
)
def test_what_the_model_of_a_task_would_ignore_is_refused(task: str, key: str, value: bool) -> None:
    cfg = default()
    cfg.task, cfg.model[key] = task, value
    cfg.data.classes = "a,b" if task == "classification" else ""
    said = rf"^config: task={task} needs model\.{key} to be {not value}; it is {value}: "
    with pytest.raises(UserError, match=said):
        check(cfg, default())


def test_the_first_update_is_the_one_that_the_config_describes(tmp_path: Path) -> None:
    """Written out: the seed's parameters and dropout, the smoothed loss of a token, Adam's first step, the rate."""
    cfg = tiny.training_config(tmp_path)
    cfg.seed, cfg.steps, cfg.loss.eps_ls, cfg.model.d_ff = 3, 1, 0.3, 24
    cfg.optim.accumulate = 3  # does not divide the four rows, to which empty ones are added
    assert loop.train(cfg, tmp_path / "run") == 0

    def first_batch() -> Any:
        job = open_job(cfg, tmp_path / "run", make_mesh(cfg.mesh))
        batch = next(job.batches)
        job.batches.close()
        return jax.tree.map(jnp.asarray, batch)

    source, target, labels_bt = first_batch()
    model = model_config(cfg, cfg.data.vocab_size)
    init_key, dropout_key = jax.random.split(jax.random.key(3))
    begun = init_params(Transformer(model), init_key)
    noise = Noise(jax.random.fold_in(dropout_key, 0), jnp.arange(len(labels_bt)))
    weights_bt = jnp.asarray(labels_bt != 0, jnp.float32)

    def mean_loss(params: dict) -> jax.Array:
        logits_btv = Transformer(model).apply({"params": params}, source, target, noise)
        loss = cross_entropy(logits_btv, labels_bt, weights_bt, 0.3)
        return loss.loss_sum / loss.tokens

    loss, gradient = jax.jit(jax.value_and_grad(mean_loss))(begun)
    (record,) = (record for record in records(tmp_path / "run") if record["kind"] == "train")
    assert record["loss"] == pytest.approx(float(loss), rel=1e-5)
    rate = 16**-0.5 * 8**-1.5  # of update 1, with d_model 16 and a warm-up of 8

    def check_step(old: jax.Array, new: np.ndarray, g: jax.Array) -> None:
        """Adam's first step is the rate against the gradient's sign, where that is no rounding error."""
        g, moved = np.asarray(g), new - np.asarray(old)
        clear = np.abs(g) > 1e-5
        assert clear.any()
        np.testing.assert_allclose(moved[clear], -rate * np.sign(g)[clear], rtol=1e-2)

    jax.tree.map(check_step, begun, load_params(tmp_path / "run", 1), gradient)
    cfg.seed = 4
    assert np.any(first_batch().labels_bt != labels_bt), "the seed orders the data, too"


@pytest.mark.slow
def test_a_text_that_was_mended_before_the_first_checkpoint_gives_the_tokenizer(tmp_path: Path) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.data.units, cfg.data.vocab_size, cfg.steps = "characters", 0, 1
    right = (tmp_path / "train.de").read_text()
    (tmp_path / "train.de").write_text(right.translate({ord(letter): "x" for letter in "aeiou"}))
    with (tmp_path / "valid.de").open("a") as valid:
        valid.write("a line too many\n")
    with pytest.raises(UserError, match="unequal line counts"):
        loop.train(cfg, tmp_path / "run")

    (tmp_path / "train.en").write_text(right.upper())
    (tmp_path / "train.de").write_text(right)
    with (tmp_path / "valid.en").open("a") as valid:
        valid.write("another line\n")
    assert loop.train(cfg, tmp_path / "run") == 0
    path = tmp_path / "run" / "tokenizer.model"
    assert open_tokenizer(path).unknown([*right.splitlines(), *right.upper().splitlines()]) == 0

    before = path.stat().st_mtime_ns
    cfg.steps = 2
    assert loop.train(cfg, tmp_path / "run") == 0
    assert path.stat().st_mtime_ns == before, "from its first checkpoint on, a run keeps its tokenizer"

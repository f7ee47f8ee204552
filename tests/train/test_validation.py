"""Validation is the mean over all validation tokens, and a checkpoint is due by the clock when metrics are logged."""

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from tests.slow import slow_but
from vaswani.infer.translate.translator import Hypothesis, Translation
from vaswani.run import saved
from vaswani.run.sharding import data_mesh
from vaswani.tasks import translation
from vaswani.tasks.loss import Loss
from vaswani.train import job as jobs
from vaswani.train import loop
from vaswani.train.job import Job, open_job
from vaswani.train.step import make_eval_step
from vaswani.train.validation import validate


def test_batches_of_unequal_size_count_by_their_tokens() -> None:
    def loss(params: dict, batch: jax.Array, noise: None) -> Loss:
        return Loss(params["scale"] * batch.sum(), batch.sum(), jnp.asarray(batch.size, jnp.float32))

    batches = [np.array([1.0, 2.0, 3.0], np.float32), np.array([10.0], np.float32)]
    objective = tiny.with_loss(translation.objective(tiny.TINY, 0.0), loss)
    job = Job(objective, None, lambda: batches, lambda params: {"bleu": 7.0}, {})  # type: ignore[arg-type]
    found = validate(job, make_eval_step(objective), data_mesh(), {"scale": jnp.float32(2.0)})
    assert found == pytest.approx({"loss": 8.0, "nll": 4.0, "perplexity": math.exp(4.0), "bleu": 7.0})


def test_sums_do_not_lose_what_float32_would() -> None:
    def loss(params: dict, batch: jax.Array, noise: None) -> Loss:
        return Loss(batch.sum(), batch.sum(), batch.sum())

    batches = [np.array([size], np.float32) for size in (2**24, 1, 1)]
    objective = tiny.with_loss(translation.objective(tiny.TINY, 0.0), loss)
    job = Job(objective, None, lambda: batches, lambda params: {}, {})  # type: ignore[arg-type]

    def eval_step(params: dict, batch: jax.Array) -> Loss:
        return Loss(batch.sum(), batch.sum(), jnp.float32(1))

    found = validate(job, eval_step, data_mesh(), {})
    assert found["nll"] == found["loss"] == (2**24 + 2) / 3


class LowerCasing:
    """Stands in for a translator: it returns each source in lower case."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def translate(self, params: Any, texts: list[str], progress: Any) -> list[Translation]:
        return [Translation((Hypothesis(text.lower(), 0.0, 0.0, ()),)) for text in texts]


@pytest.mark.parametrize("lowercase", [True, False])
def test_bleu_of_lower_cased_text_ignores_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lowercase: bool
) -> None:
    for language in ("en", "de"):
        (tmp_path / f"valid.{language}").write_text("Der Hund sieht die alte Katze .\n")
    cfg = tiny.default()
    cfg.data.valid = f"text:{tmp_path}/valid.{{en,de}}"
    cfg.data.lowercase = lowercase
    monkeypatch.setattr(jobs, "open_tokenizer", lambda path: tiny.tokenizer())
    monkeypatch.setattr(jobs, "Translator", LowerCasing)
    found = jobs._bleu(cfg, tiny.TINY, tmp_path, data_mesh())({})
    assert (found["bleu"] == pytest.approx(100.0)) == lowercase


def test_a_model_that_knows_nothing_has_the_nll_of_its_vocabulary(tmp_path: Path) -> None:
    cfg = tiny.training_config(tmp_path)
    (tmp_path / "run").mkdir()
    job = open_job(cfg, tmp_path / "run", data_mesh())
    params = jax.tree.map(jnp.zeros_like, job.objective.init(jax.random.key(0)))
    found = validate(job, make_eval_step(job.objective), data_mesh(), params)
    assert found["nll"] == pytest.approx(math.log(cfg.data.vocab_size), rel=1e-6)
    assert found["loss"] == pytest.approx(math.log(cfg.data.vocab_size), rel=1e-6)


@pytest.mark.parametrize(
    ("minutes", "steps"), slow_but([(1e-9, [12, 8, 4])], [(1e-9, [12, 8, 4]), (1e9, [12]), (0.0, [12])])
)
def test_a_checkpoint_is_due_by_the_clock(tmp_path: Path, minutes: float, steps: list[int]) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.checkpoint.every, cfg.checkpoint.every_minutes = 1_000, minutes
    assert loop.train(cfg, tmp_path / "run") == 0
    assert saved.steps(tmp_path / "run" / "checkpoints") == steps


@pytest.mark.slow
@pytest.mark.parametrize(("minutes", "steps"), [(1e-9, [12, 9, 8, 4]), (1e9, [12, 9]), (0.0, [12, 9, 6, 3])])
def test_by_the_clock_the_checkpoints_that_are_averaged_stay_the_same(
    tmp_path: Path, minutes: float, steps: list[int]
) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.checkpoint.every, cfg.checkpoint.keep_last = 3, 2
    cfg.checkpoint.keep_every = 1  # all of them, to see which were saved
    cfg.checkpoint.every_minutes = minutes
    assert loop.train(cfg, tmp_path / "run") == 0
    assert saved.steps(tmp_path / "run" / "checkpoints") == steps


@pytest.mark.slow
def test_the_clock_begins_anew_with_each_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that is looked at once an update, and once a checkpoint, ten seconds apart."""
    seconds = itertools.count(0.0, 10.0)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    cfg = tiny.training_config(tmp_path)
    cfg.steps, cfg.log_every, cfg.checkpoint.keep_last = 15, 1, 9
    cfg.checkpoint.every, cfg.checkpoint.every_minutes = 1_000, 1.0
    assert loop.train(cfg, tmp_path / "run") == 0
    # More than a minute later: after 70 seconds.
    assert saved.steps(tmp_path / "run" / "checkpoints") == [15, 14, 7]

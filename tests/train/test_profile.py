"""`--profile`, the share of an accelerator's peak, and `--debug_nans`."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from tests.tolerance import log_prob
from vaswani.errors import UserError
from vaswani.run.uploads import Uploads
from vaswani.tasks.loss import Loss
from vaswani.tasks.translation import objective
from vaswani.train import loop, program
from vaswani.train.aot.flops import update_flops
from vaswani.train.check import parse_profile
from vaswani.train.metrics import Reporter
from vaswani.train.nans import _parameters, naming_nans
from vaswani.train.optim import optimizer
from vaswani.train.profile import Profile
from vaswani.train.step import Sums, TrainState, init_state, make_train_step
from vaswani.train.utilisation import batch_flops, chip_of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3", "it must be FIRST:LAST, the steps to trace, like 10:12"),
        ("3:x", "it must be FIRST:LAST, the steps to trace, like 10:12"),
        ("0:1", "both must be steps of this run, from 1 to steps=10, in this order"),
        ("9:11", "both must be steps of this run, from 1 to steps=10, in this order"),
        ("5:4", "both must be steps of this run, from 1 to steps=10, in this order"),
    ],
)
def test_a_range_that_the_run_does_not_make_is_refused(text: str, message: str) -> None:
    assert parse_profile("2:10", 10) == (2, 10)
    with pytest.raises(UserError, match=f"^--profile={text}: {message}$"):
        parse_profile(text, 10)


@pytest.mark.slow
def test_some_updates_are_traced(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.steps = 5
    assert loop.train(cfg, tmp_path / "run", profile=(2, 3)) == 0
    (trace,) = (tmp_path / "run" / "profile").rglob("*.trace.json.gz")
    lines = capsys.readouterr().err.splitlines()
    assert f"profile of steps 2 to 3: {tmp_path}/run/profile" in lines
    assert trace.stat().st_size > 0
    assert loop.train(cfg, tmp_path / "run", profile=(2, 3)) == 0
    assert "note: --profile=2:3: this run has made 5 steps already" in capsys.readouterr().err

    assert loop.train(cfg, tmp_path / "plain") == 0
    traced, plain = (losses(tmp_path / name) for name in ("run", "plain"))
    assert traced == plain


def losses(workdir: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (workdir / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v4", "TPU v4"),
        ("TPU v5 lite", "TPU v5e"),
        ("TPU v5", "TPU v5p"),
        ("TPU v5p", "TPU v5p"),
        ("TPU v6 lite", "TPU v6e"),
        ("TPU7x", "TPU7x half"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 SXM"),
        ("NVIDIA H200", "NVIDIA H200 SXM"),
        ("Tesla T4", None),
        ("cpu", None),
    ],
)
def test_known_accelerators_are_recognised_by_the_name_that_jax_gives(kind: str, name: str | None) -> None:
    chip = chip_of(kind)
    assert (chip.name if chip else None) == name


def test_the_log_shows_the_share_of_the_peak_where_both_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    goal = objective(tiny.TINY, 0.1)
    batch = tiny.batch(rows=4, length=6)
    assert batch_flops("translation", goal, batch) == update_flops(tiny.TINY, 4, 6, 6)
    assert batch_flops("masked_lm", goal, batch) == 0
    sums = Sums(Loss(np.float32(20), np.float32(10), np.float32(10)), np.int32(18), np.float32(1))
    for peak, flops in ((1e9, 0), (0.0, 500), (1e9, 500)):
        with Reporter(tmp_path, lambda step: 0.1, first=1, last=1, every=1, peak=peak) as reporter:
            reporter.update(1, sums, positions=20, flops=flops)
        (record,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
        assert (f"MFU {record.get('mfu', 0):.1%}" in capsys.readouterr().err) == ("mfu" in record) == bool(peak * flops)
    assert record["mfu"] == pytest.approx(500 / record["seconds"] / 1e9)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["parameter", "gradient"])
def test_a_nan_is_named_by_operation_and_parameter(where: str) -> None:
    cfg = tiny.default()
    goal = objective(tiny.TINY, 0.1)
    tx = optimizer(cfg.optim, 16, 10)
    state = init_state(goal.init, tx, jax.random.key(0))
    if where == "parameter":
        state = spoiled(state)
        expected = r"step 1: NaN from the operation \w+ \(model/[\w/]+\.py:\d+\); not finite before the step: "
        expected += "encoder/layer_0/self_attention/wq$"
    else:
        plain = goal.loss

        def loss(params: Any, *rest: Any) -> Loss:
            whole = plain(params, *rest)
            zero = jnp.sqrt(jnp.sum(0.0 * params["encoder"]["layer_0"]["self_attention"]["wk"]))
            return whole._replace(loss_sum=whole.loss_sum + zero)

        goal = tiny.with_loss(goal, loss)
        expected = r"step 1: NaN from the operation \w+ \(.*\); no finite gradient: "
        expected += "encoder/layer_0/self_attention/wk$"
    with jax.debug_nans(True):
        step = make_train_step(goal, tx, 1)
        batch = jax.tree.map(jnp.asarray, tiny.batch())
        key = jax.random.key(1)
        with pytest.raises(UserError, match=expected), naming_nans(goal, state, batch, key):
            step(state, batch, key)


@pytest.mark.slow
def test_a_nan_that_a_look_at_the_layers_meets_first_is_named_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diagnosis(*arguments: Any) -> None:
        raise FloatingPointError("invalid value (nan) encountered in mul")

    monkeypatch.setattr(program, "make_diagnosis", lambda *arguments: diagnosis)
    cfg = tiny.training_config(tmp_path)
    cfg.diagnose_every = 1
    with pytest.raises(UserError, match=r"^step 1: NaN from the operation mul "):
        loop.train(cfg, tmp_path / "run")


def spoiled(state: TrainState) -> TrainState:
    def spoil(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return leaf.at[0].set(jnp.inf) if name == "encoder/layer_0/self_attention/wq" else leaf

    return state.replace(params=jax.tree_util.tree_map_with_path(spoil, state.params))


@pytest.mark.slow
def test_of_a_schedule_free_run_the_gradient_is_that_of_the_update() -> None:
    cfg = tiny.default().optim
    cfg.update({"name": "schedule_free_adamw", "schedule": "constant"})
    plain = objective(tiny.TINY, 0.1)
    state = init_state(plain.init, optimizer(cfg, 16, 10), jax.random.key(0))
    start = state.params["embed"]

    def loss(params: Any, *rest: Any) -> Loss:
        whole = plain.loss(params, *rest)
        moved = jnp.sum(params["embed"] - start)
        return whole._replace(loss_sum=whole.loss_sum + jnp.where(moved > 0, jnp.nan, 0.0) * moved)

    lead = jax.tree.map(jnp.ones_like, state.opt_state.lead)
    state = state.replace(opt_state=state.opt_state._replace(lead=lead))
    batch = jax.tree.map(jnp.asarray, tiny.batch())
    found = _parameters(tiny.with_loss(plain, loss), state, batch, jax.random.key(1))
    assert found == "no finite gradient: embed"


@pytest.mark.slow
def test_a_healthy_run_has_no_nan_in_any_operation_and_the_same_losses(tmp_path: Path) -> None:
    cfg = tiny.training_config(tmp_path)
    cfg.steps = 4
    assert loop.train(cfg, tmp_path / "plain") == 0
    with jax.debug_nans(True):
        assert loop.train(cfg, tmp_path / "checked") == 0
    bound = log_prob(tiny.TINY, 1)  # the check compiles another program
    np.testing.assert_allclose(losses(tmp_path / "checked"), losses(tmp_path / "plain"), rtol=0, atol=bound)


def test_a_run_that_was_traced_is_resumed_by_the_same_command(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(UserError, match=r"^--profile=2:3: this run has made 5 steps already; trace later ones"):
        Profile(Uploads(tmp_path), (2, 3), 6)
    (tmp_path / "profile").mkdir()
    trace = Profile(Uploads(tmp_path), (2, 3), 6)
    trace.before(6, None)
    assert trace.after(6, None) == ""
    assert capsys.readouterr().err.startswith("note: --profile=2:3: this run has made 5 steps already, and ")


@pytest.mark.parametrize(
    "kind", ["NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"]
)
def test_a_slower_form_of_a_known_accelerator_has_no_known_peak(kind: str) -> None:
    assert chip_of(kind) is None


def test_of_several_processes_one_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All would write into one folder, whose newest trace may be another's, and half written."""
    monkeypatch.setattr("vaswani.train.profile.is_main", lambda: False)
    trace = Profile(Uploads(tmp_path), (2, 2), 1)
    trace.before(2, None)
    assert trace.after(2, None) == ""
    assert not (tmp_path / "profile").exists()

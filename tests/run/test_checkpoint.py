"""Checkpoints: what is saved is restored, the right ones are kept, and a bad one is a one-line error."""

import errno
import json
import os
import shutil
import sys
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.run import checkpoint, distributed, saved
from vaswani.run.checkpoint import Checkpoints, load_params
from vaswani.run.choice import quality
from vaswani.run.saved import DamagedError, fault


class State(struct.PyTreeNode):
    """The outline of a training state."""

    step: Any
    params: Any
    opt_state: Any


def state(step: int, d: int = 4) -> State:
    params = {"embed": jnp.full((3, d), step, jnp.float32), "norm_1": {"bias": jnp.arange(d) + 0.5}}
    return State(jnp.asarray(step, jnp.int32), params, (jax.tree.map(jnp.zeros_like, params),))


def test_the_folder_is_there_before_other_processes_look_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system would remember for half a minute that it was absent."""
    folder = tmp_path / "checkpoints"
    found: list[bool] = []
    monkeypatch.setattr(distributed, "_meet", lambda what: found.append(folder.is_dir()))
    with closing(Checkpoints(folder, keep())):
        assert found == [True, True], "at both meetings"


def keep(**changes: int) -> ConfigDict:
    cfg = default().checkpoint
    cfg.update({"keep_last": 10, "keep_best": 0, "keep_every": 0, **changes})
    return cfg


def filled(folder: Path, steps: dict[int, dict | None], **changes: int) -> Checkpoints:
    checkpoints = Checkpoints(folder, keep(**changes))
    for step, metrics in steps.items():
        checkpoints.save(step, state(step), {"epoch": 1, "batch": step}, metrics, {"seed": 0})
    checkpoints.wait()
    return checkpoints


def assert_equal(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints 3 and 5."""
    workdir = tmp_path_factory.mktemp("two")
    filled(workdir / "checkpoints", {3: {"loss": 2.0}, 5: {"loss": 1.0}}).close()
    return workdir


def test_a_state_comes_back_and_so_does_the_data_position(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path / "checkpoints", {3: {"loss": 1.0}, 5: None})
    restored, position = checkpoints.restore(jax.eval_shape(lambda: state(0)))
    assert_equal(restored, state(5))
    assert position == {"epoch": 1, "batch": 5}
    checkpoints.close()
    params = load_params(tmp_path, 3)
    assert_equal(params, state(3).params)
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(params))


def test_updates_that_reuse_the_buffers_do_not_reach_a_checkpoint_being_written(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep())
    add = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    big = state(1, d=1 << 18)
    checkpoints.save(1, big, {}, None, {})
    for _ in range(20):
        big = add(big)
    jax.block_until_ready(big)
    checkpoints.close()
    assert_equal(load_params(tmp_path, 1), state(1, d=1 << 18).params)


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"keep_last": 2}, [5, 6]),
        ({"keep_last": 2, "keep_best": 1}, [2, 5, 6]),
        ({"keep_last": 1, "keep_best": 2, "keep_every": 3}, [1, 2, 3, 6]),
    ],
)
def test_the_last_the_best_and_every_kth_are_kept(tmp_path: Path, changes: dict, kept: list[int]) -> None:
    bleu = {1: 7.0, 2: 9.0, 3: 1.0, 4: 2.0, 5: 3.0, 6: 0.0}
    steps = {step: {"loss": 1.0, "bleu": value} for step, value in bleu.items()}
    checkpoints = filled(tmp_path / "checkpoints", steps, **changes)
    assert checkpoints.steps() == kept
    assert checkpoints.latest() == 6
    checkpoints.close()


def test_unvalidated_checkpoints_are_not_among_the_best(tmp_path: Path) -> None:
    steps = {1: {"loss": 2.0}, 2: {"loss": 1.0}, 3: None, 4: {"loss": 3.0}, 5: None}
    checkpoints = filled(tmp_path / "checkpoints", steps, keep_last=1, keep_best=1)
    assert checkpoints.steps() == [2, 5]
    checkpoints.close()


def test_a_validation_that_is_nan_does_not_take_the_place_of_the_best(tmp_path: Path) -> None:
    nll = {1: 2.0, 2: 2.5, 3: float("nan")}
    steps = {step: {"nll": value} for step, value in nll.items()}
    checkpoints = filled(tmp_path / "checkpoints", steps, keep_last=1, keep_best=1)
    assert checkpoints.steps() == [1, 3]
    checkpoints.close()


def test_best_is_by_bleu_then_by_nll_and_only_without_either_by_the_smoothed_loss() -> None:
    worst_first = [
        {},
        {"loss": 2.0},
        {"loss": 1.0},
        {"loss": 3.0, "nll": 1.5},
        {"loss": 3.5, "nll": 1.2},
        {"loss": 9.0, "nll": 8.0, "bleu": 0.5},
        {"loss": 9.5, "nll": 8.5, "bleu": 3.0},
    ]
    best_first = worst_first[::-1]
    assert sorted(best_first, key=quality) == worst_first


def test_the_lowest_nll_is_kept_where_only_some_checkpoints_have_a_bleu(tmp_path: Path) -> None:
    """As `run.averaging.choose` judges: `eval.bleu_sentences` may be changed when a run is resumed."""
    steps = {1: {"nll": 3.0, "bleu": 5.0}, 2: {"nll": 1.0}, 3: {"nll": 2.0}, 4: {"nll": 2.5}}
    checkpoints = filled(tmp_path / "checkpoints", steps, keep_last=1, keep_best=1)
    assert checkpoints.steps() == [2, 4]
    checkpoints.close()


def test_a_step_saved_twice_stays_as_it_was(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path / "checkpoints", {3: None})
    checkpoints.save(3, state(8), {}, None, {})
    checkpoints.close()
    assert_equal(load_params(tmp_path, 3), state(3).params)


def test_metrics_may_come_later(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path / "checkpoints", {1: {"loss": 2.0}, 2: None}, keep_last=1, keep_best=1)
    checkpoints.add_validation(2, {"loss": 1.0}, has_ended=False)
    assert checkpoints.about(2) == saved.about(tmp_path / "checkpoints" / "2")._replace(time=checkpoints.about(2).time)
    assert checkpoints.about(2).metrics == {"loss": 1.0}
    assert fault(tmp_path / "checkpoints" / "2") is None
    checkpoints.save(3, state(3), {}, {"loss": 3.0}, {})
    checkpoints.wait()
    assert checkpoints.steps() == [2, 3]
    checkpoints.close()


@pytest.mark.parametrize("stopped_at", range(3))
def test_metrics_that_come_later_leave_a_whole_checkpoint_whenever_they_are_interrupted(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped_at: int
) -> None:
    folder = shutil.copytree(two, tmp_path / "run") / "checkpoints"
    checkpoints = Checkpoints(folder, keep())
    replace, calls = Path.replace, iter(range(9))

    def interrupted(path: Path, target: Path) -> None:
        if next(calls) == stopped_at:
            raise KeyboardInterrupt
        replace(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.add_validation(5, {"loss": 0.5}, has_ended=False)
    monkeypatch.undo()
    checkpoints.close()
    assert fault(folder / "5") is None
    assert saved.about(folder / "5").metrics in ({"loss": 1.0}, {"loss": 0.5})


def test_a_checkpoint_that_is_deleted_is_none_from_the_first_moment_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a process killed during deletion leaves no checkpoint with missing files; the next launch removes the rest."""
    checkpoints = filled(tmp_path / "checkpoints", {1: None}, keep_last=1)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    checkpoints.save(2, state(2), {}, None, {})
    checkpoints.close()
    monkeypatch.undo()
    assert (tmp_path / "checkpoints" / "1" / "state").is_dir()
    assert saved.steps(tmp_path / "checkpoints") == [2]
    Checkpoints(tmp_path / "checkpoints", keep()).close()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["2"]


def test_nothing_is_renamed_while_a_checkpoint_is_written_and_an_old_one_deleted(tmp_path: Path) -> None:
    """A mounted bucket copies a folder to rename it, or refuses."""
    renamed: list[str] = []
    watching = [True]
    sys.addaudithook(lambda event, arguments: renamed.append(arguments[0]) if watching and event == "os.rename" else 0)
    filled(tmp_path / "checkpoints", {1: {"nll": 1.0}, 2: None}, keep_last=1).close()
    watching.clear()
    folders = [path for path in renamed if not Path(path).name.startswith(".SHA256SUMS.")]
    assert folders == []


def test_what_no_marker_makes_a_checkpoint_is_none_and_is_removed_by_the_next_launch(tmp_path: Path) -> None:
    filled(tmp_path / "checkpoints", {1: None, 2: None}).close()
    for name in ("commit_success.txt", "SHA256SUMS"):
        (tmp_path / "checkpoints" / "2" / name).unlink()
    assert saved.steps(tmp_path / "checkpoints") == [1]
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep())
    assert checkpoints.steps() == [1]
    assert not (tmp_path / "checkpoints" / "2").exists()
    checkpoints.close()


def test_a_checkpoint_of_an_orbax_that_wrote_no_marker_is_restored(tmp_path: Path) -> None:
    filled(tmp_path / "checkpoints", {1: None}).close()
    (tmp_path / "checkpoints" / "1" / "commit_success.txt").unlink()
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep())
    assert_equal(checkpoints.restore(jax.eval_shape(lambda: state(0)))[0], state(1))
    checkpoints.close()


def test_a_process_killed_before_the_sums_were_written_has_lost_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "checkpoints", {1: None, 2: None}).close()
    sums = tmp_path / "checkpoints" / "2" / "SHA256SUMS"
    before = sums.read_bytes()
    sums.unlink()
    assert_equal(load_params(tmp_path, 2), state(2).params)
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep())
    assert checkpoints.latest() == 2
    assert sums.read_bytes() == before, "the next launch writes them"
    checkpoints.close()


def test_damage_after_a_save_of_this_process_is_noticed(tmp_path: Path) -> None:
    """Only what was verified when the folder was opened need not be read again."""
    checkpoints = filled(tmp_path / "checkpoints", {1: None})
    (tmp_path / "checkpoints" / "1" / "data" / "metadata").write_text('{"epoch": 9, "batch": 9}')
    with pytest.raises(DamagedError, match=r"this checkpoint is damaged \(data/metadata"):
        checkpoints.restore(jax.eval_shape(lambda: state(0)))
    checkpoints.close()


def test_another_models_checkpoint_is_named_with_both_shapes(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path / "checkpoints", {3: None})
    with pytest.raises(UserError, match=r"another model: embed is \(3, 4\) in it and \(3, 8\) in the config"):
        checkpoints.restore(jax.eval_shape(lambda: state(0, d=8)))
    checkpoints.close()


def test_what_is_not_there_is_said_to_be_absent(tmp_path: Path) -> None:
    checkpoints = filled(tmp_path / "checkpoints", {})
    with pytest.raises(UserError, match="there is no complete checkpoint here"):
        checkpoints.restore(jax.eval_shape(lambda: state(0)))
    checkpoints.close()
    with pytest.raises(UserError, match="no such checkpoint"):
        load_params(tmp_path, 4)


def test_the_first_failure_is_told_and_not_what_its_clean_up_does_to_a_thread_that_still_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = filled(tmp_path / "checkpoints", {3: None})
    removed = saved.remove

    def removed_while_it_is_written(folder: Path) -> None:
        removed(folder)
        monkeypatch.setattr(saved, "add_checksums", Path.stat)  # of a folder that is no more

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(saved, "add_checksums", full)
    monkeypatch.setattr(saved, "remove", removed_while_it_is_written)
    told = r"checkpoint 4 could not be written \(No space left on device\); checkpoint 3 is intact"
    with pytest.raises(UserError, match=told), closing(checkpoints):
        checkpoints.save(4, state(4), {}, None, {})
        checkpoints.wait()
    assert saved.steps(tmp_path / "checkpoints") == [3], "else the same command would resume from the other one"


@pytest.mark.parametrize("year", [1, 1969, 2287, 9999])
def test_a_checkpoint_saved_by_a_wrong_clock_is_intact(year: int, tmp_path: Path) -> None:
    filled(tmp_path / "checkpoints", {1: {"loss": 2.0}, 2: None}).close()
    folder, name = tmp_path / "checkpoints" / "2", "_CHECKPOINT_METADATA"
    seconds = int(datetime(year, 2, 3, tzinfo=UTC).timestamp())
    times = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(times | {"commit_timestamp_nsecs": seconds * 10**9}))
    saved.write_checksums(folder, saved.read_checksums(folder), [name])
    with closing(Checkpoints(folder.parent, keep())) as checkpoints:
        assert checkpoints.steps() == [1, 2] and checkpoints.about(2).time == seconds


def test_where_few_are_validated_fewer_are_among_the_best(tmp_path: Path) -> None:
    steps = {1: {"loss": 2.0}, 2: None, 3: None, 4: None, 5: None}
    checkpoints = filled(tmp_path / "checkpoints", steps, keep_last=1, keep_best=3)
    assert checkpoints.steps() == [1, 5]
    checkpoints.close()


def add_one(folder: Path, step: int, reason: str, metrics: dict | None = None, **changes: int) -> list[int]:
    """Returns the steps that are kept once a launch has saved one more, which has no `metrics` until they come late."""
    with closing(Checkpoints(folder, keep(**changes))) as checkpoints:
        checkpoints.save(step, state(step), {"epoch": 1, "batch": step}, None, {"seed": 0}, reason)
        if metrics:
            checkpoints.add_validation(step, metrics, has_ended=False)
        return checkpoints.steps()


def test_what_only_a_signal_saved_takes_no_other_ones_place(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    filled(folder, {3: None, 6: None, 9: None}, keep_last=3).close()
    kept = [add_one(folder, step, "signal", keep_last=3) for step in (10, 11)]
    assert kept == [[3, 6, 9, 10], [3, 6, 9, 11]]
    assert add_one(folder, 12, "schedule", keep_last=3) == [6, 9, 12]


def test_what_only_a_signal_saved_is_none_of_every_kth(tmp_path: Path) -> None:
    filled(tmp_path / "checkpoints", {3: None}, keep_last=1, keep_every=3).close()
    assert add_one(tmp_path / "checkpoints", 6, "signal", keep_last=1, keep_every=3) == [3, 6]
    assert add_one(tmp_path / "checkpoints", 7, "schedule", keep_last=1, keep_every=3) == [3, 7]


def test_what_only_a_signal_saved_is_none_of_the_best(tmp_path: Path) -> None:
    filled(tmp_path / "checkpoints", {3: {"nll": 2.0}}, keep_last=1, keep_best=1).close()
    assert add_one(tmp_path / "checkpoints", 4, "signal", {"nll": 1.0}, keep_last=1, keep_best=1) == [3, 4]
    assert add_one(tmp_path / "checkpoints", 5, "schedule", keep_last=1, keep_best=1) == [3, 5]


@pytest.mark.parametrize("name", ["a[x]", "a\\b"])
def test_a_path_that_orbax_takes_for_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"no checkpoint can be saved below square brackets or a backslash$"):
        Checkpoints(tmp_path / name / "checkpoints", keep())
    assert not (tmp_path / name).exists()


def test_a_host_that_does_not_share_the_folder_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "is_main", lambda: False)
    monkeypatch.setattr(checkpoint, "main_first", lambda what, folder: nullcontext())
    with pytest.raises(UserError, match=r"checkpoints: process 0 made this folder, but it is missing here"):
        Checkpoints(tmp_path / "checkpoints", keep())


@pytest.mark.parametrize("name", ["keep_1", "01", "1_best", "²"])
def test_a_checkpoint_that_was_renamed_to_keep_it_is_none(tmp_path: Path, name: str) -> None:
    filled(tmp_path, {1: None, 2: None}).close()
    (tmp_path / "1").rename(tmp_path / name)
    assert saved.steps(tmp_path) == [2]
    with closing(Checkpoints(tmp_path, keep())) as checkpoints:
        assert checkpoints.steps() == [2]
    assert (tmp_path / name).is_dir()

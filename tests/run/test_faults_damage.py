"""Damaged checkpoints: whatever the damage, the newest intact one is used, and a line says so."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.run.test_checkpoint import assert_equal, filled, keep, state
from vaswani.errors import UserError
from vaswani.files import sha256
from vaswani.run.averaging import load_choice
from vaswani.run.checkpoint import Checkpoints, load_params
from vaswani.run.saved import fault, read_checksums, write_checksums


def arrays(checkpoint: Path) -> Path:
    """The largest file of the arrays."""
    return max((checkpoint / "state").rglob("d/*"), key=lambda path: path.stat().st_size)


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty_all(checkpoint: Path) -> None:
    for path in checkpoint.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")


def of_another_step(checkpoint: Path) -> None:
    """Puts in arrays that can be read without an error, but are not those that were saved."""
    shutil.rmtree(checkpoint / "state")
    shutil.copytree(checkpoint.parent / "3" / "state", checkpoint / "state")


def swap(checkpoint: Path) -> None:
    """Puts an intact checkpoint, with its sums, under the name of another step."""
    shutil.rmtree(checkpoint)
    shutil.copytree(checkpoint.parent / "3", checkpoint)


def link(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.symlink_to(checkpoint.parent / "3")


def change_time(checkpoint: Path) -> None:
    path = checkpoint / "_CHECKPOINT_METADATA"
    path.write_text(re.sub(r'("commit_timestamp_nsecs": \d+)\d', r"\g<1>", path.read_text()))


def wrong_json(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda checkpoint: (checkpoint / name).write_bytes(content)


def sums_of_outside(checkpoint: Path) -> None:
    """Writes correct sums, but of a file outside the checkpoint, as an untrusted source might."""
    outside = checkpoint.parent / "outside"
    outside.write_text("secret")
    with (checkpoint / "SHA256SUMS").open("a") as file:
        file.write(f"{sha256(outside)}  state/../../outside\n")


def sums_of_absolute(checkpoint: Path) -> None:
    outside = checkpoint.parent / "outside"
    outside.write_text("secret")
    with (checkpoint / "SHA256SUMS").open("a") as file:
        file.write(f"{sha256(outside)}  {outside}\n")


# Each kind of damage, and how the message describes it.
def no_sums_no_arrays(folder: Path) -> None:
    """Leaves what an interrupted copy may leave."""
    (folder / "SHA256SUMS").unlink()
    arrays(folder).unlink()


DAMAGES = {
    "arrays truncated": (lambda folder: halve(arrays(folder)), r"state/\S*d/\w+ has changed"),
    "arrays deleted": (lambda folder: arrays(folder).unlink(), r"state/\S*d/\w+ is missing"),
    "arrays zero bytes": (lambda folder: arrays(folder).write_bytes(b""), r"state/\S*d/\w+ is empty"),
    "arrays garbage": (lambda folder: arrays(folder).write_bytes(b"garbage" * 99), r"state/\S*d/\w+ has changed"),
    "one bit flipped": (lambda folder: flip(arrays(folder)), r"state/\S*d/\w+ has changed"),
    "readable, of another step": (of_another_step, r"state/\S+ (has changed|is missing)"),
    "no manifest": (lambda folder: (folder / "state/manifest.ocdbt").unlink(), "state/manifest.ocdbt is missing"),
    "no tree": (lambda folder: (folder / "state/_METADATA").unlink(), "state/_METADATA is missing"),
    "tree empty": (lambda folder: (folder / "state/_METADATA").write_bytes(b""), "state/_METADATA is empty"),
    "no arrays": (lambda folder: shutil.rmtree(folder / "state"), r"state/\S+ is missing"),
    "no position": (lambda folder: shutil.rmtree(folder / "data"), r"data/\S+ is missing"),
    "position half written": (lambda folder: halve(folder / "data/metadata"), "data/metadata has changed"),
    "config half written": (lambda folder: halve(folder / "config/metadata"), "config/metadata has changed"),
    "metrics half written": (lambda folder: halve(folder / "metrics/metrics"), "metrics/metrics is damaged"),
    "no time": (lambda folder: (folder / "_CHECKPOINT_METADATA").unlink(), "_CHECKPOINT_METADATA is missing"),
    "time empty": (
        lambda folder: (folder / "_CHECKPOINT_METADATA").write_bytes(b""),
        "_CHECKPOINT_METADATA is damaged",
    ),
    "no sums and no arrays": (no_sums_no_arrays, r"SHA256SUMS is missing, and so is more: .*"),
    "sums garbage": (lambda folder: (folder / "SHA256SUMS").write_bytes(b"\xff\0"), "SHA256SUMS is damaged"),
    "sums of a file outside": (sums_of_outside, "SHA256SUMS names a file outside this folder"),
    "sums of an absolute path": (sums_of_absolute, "SHA256SUMS names a file outside this folder"),
    "another step's": (swap, "it holds the state of step 3"),
    "linked to another step": (link, "it holds the state of step 3"),
    "time changed": (change_time, "_CHECKPOINT_METADATA has changed"),
    "time a text": (
        wrong_json("_CHECKPOINT_METADATA", b'{"commit_timestamp_nsecs": "x"}'),
        "_CHECKPOINT_METADATA is damaged",
    ),
    "time a list": (wrong_json("_CHECKPOINT_METADATA", b"[1, 2]"), "_CHECKPOINT_METADATA is damaged"),
    "time huge": (
        wrong_json("_CHECKPOINT_METADATA", b'{"commit_timestamp_nsecs": 999999999999999999999999}'),
        "_CHECKPOINT_METADATA is damaged",
    ),
    "metrics a list": (wrong_json("metrics/metrics", b"[1, 2]"), "metrics/metrics is damaged"),
    "metrics a text": (wrong_json("metrics/metrics", b'{"loss": "low"}'), "metrics/metrics is damaged"),
    "metrics changed": (wrong_json("metrics/metrics", b'{"loss": 0.5}'), "metrics/metrics is damaged"),
    "metrics binary": (wrong_json("metrics/metrics", b"\xff\0"), "metrics/metrics is damaged"),
    "all zero bytes": (empty_all, "_CHECKPOINT_METADATA is damaged"),
}
KEEPS_PARAMETERS = ("no position", "position half written", "config half written", "time changed")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with checkpoints 3 and 5."""
    workdir = tmp_path_factory.mktemp("two")
    filled(workdir / "checkpoints", {3: {"loss": 2.0}, 5: {"loss": 1.0}}).close()
    return workdir


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_checkpoint_is_put_aside_and_the_one_before_is_used(
    two: Path, tmp_path: Path, capsys: pytest.CaptureFixture, kind: str
) -> None:
    damage, how = DAMAGES[kind]
    folder = shutil.copytree(two, tmp_path / "run") / "checkpoints"
    damage(folder / "5")
    files = {path.relative_to(folder / "5"): path.read_bytes() for path in (folder / "5").rglob("*") if path.is_file()}

    checkpoints = Checkpoints(folder, keep())
    instead = r"it is kept as 5\.damaged, and training resumes from checkpoint 3"
    assert re.fullmatch(rf"warning: {folder}/5 is damaged \({how}\): {instead}\n", capsys.readouterr().err)
    assert checkpoints.latest() == 3
    restored, position = checkpoints.restore(jax.eval_shape(lambda: state(0)))
    assert_equal(restored, state(3))
    assert position == {"epoch": 1, "batch": 3}
    aside = folder / "5.damaged"
    assert {path.relative_to(aside): path.read_bytes() for path in aside.rglob("*") if path.is_file()} == files

    checkpoints.save(5, state(5), {}, None, {})  # its place is free
    checkpoints.close()
    assert_equal(load_params(tmp_path / "run", 5), state(5).params)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("name", "holds"), [("3", "5"), ("5", "3")])
def test_a_checkpoint_under_the_name_of_an_earlier_or_later_step_is_not_taken_for_it(
    two: Path, tmp_path: Path, name: str, holds: str
) -> None:
    folder = shutil.copytree(two, tmp_path / "run") / "checkpoints"
    shutil.rmtree(folder / name)
    shutil.copytree(two / "checkpoints" / holds, folder / name)
    with pytest.raises(UserError, match=f"it holds the state of step {holds}"):
        load_params(tmp_path / "run", int(name))


@pytest.mark.parametrize("kind", DAMAGES)
def test_inference_serves_what_is_whole_and_says_what_is_not(
    two: Path, tmp_path: Path, capsys: pytest.CaptureFixture, kind: str
) -> None:
    damage, how = DAMAGES[kind]
    workdir = shutil.copytree(two, tmp_path / "run")
    damage(workdir / "checkpoints" / "5")
    used = 5 if kind in KEEPS_PARAMETERS else 3
    steps, params = load_choice(workdir, "latest")
    assert steps == [used]
    assert_equal(params, state(used).params)
    told = capsys.readouterr().err
    assert bool(re.fullmatch(rf"note: {workdir}/checkpoints/5 is damaged \({how}\) and ignored\n", told)) == (used == 3)
    assert load_choice(workdir, "average:2")[0] == ([3, 5] if used == 5 else [3])
    if used == 3:
        with pytest.raises(UserError, match=r"^[^\n]*(5: this checkpoint is damaged|no checkpoint at step 5)[^\n]*$"):
            load_choice(workdir, "5")


def test_where_nothing_is_whole_nothing_is_touched(two: Path, tmp_path: Path) -> None:
    workdir = shutil.copytree(two, tmp_path / "run")
    for step in (3, 5):
        flip(arrays(workdir / "checkpoints" / str(step)))
    before = sorted((workdir / "checkpoints").rglob("*"))
    with pytest.raises(
        UserError, match=r"^[^\n]*every checkpoint is damaged: 5 \(.*\), 3 \(.*\); restore a copy[^\n]*$"
    ):
        Checkpoints(workdir / "checkpoints", keep())
    with pytest.raises(UserError, match=r"^[^\n]*checkpoints/3: this checkpoint is damaged[^\n]*$"):
        load_choice(workdir, "latest")
    assert sorted((workdir / "checkpoints").rglob("*")) == before


def test_damaged_twice_both_are_kept(two: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(two, tmp_path / "run") / "checkpoints"
    for _ in range(2):
        (folder / "5" / "data" / "metadata").unlink()
        checkpoints = Checkpoints(folder, keep())
        checkpoints.save(5, state(5), {}, None, {})
        checkpoints.close()
    assert sorted(path.name for path in folder.iterdir()) == ["3", "5", "5.damaged", "5.damaged.damaged"]


def test_every_file_of_a_checkpoint_has_its_sum(two: Path) -> None:
    for step in ("3", "5"):
        folder = two / "checkpoints" / step
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert set(read_checksums(folder)) == files - {"commit_success.txt", "SHA256SUMS"}
        assert fault(folder) is None


def test_sums_that_list_no_array_are_damaged(two: Path, tmp_path: Path) -> None:
    workdir = shutil.copytree(two, tmp_path / "run")
    path = workdir / "checkpoints/5/SHA256SUMS"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "  state/" not in line))
    with pytest.raises(UserError, match=r"checkpoints/5: .*damaged \(SHA256SUMS lists no file of state/\)"):
        load_params(workdir, 5)


def test_sums_without_that_of_the_time_are_enough(two: Path, tmp_path: Path) -> None:
    """It is written last: a process may be killed between the two."""
    workdir = shutil.copytree(two, tmp_path / "run")
    path = workdir / "checkpoints/5/SHA256SUMS"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "_CHECKPOINT_METADATA" not in line))
    checkpoints = Checkpoints(workdir / "checkpoints", keep())
    assert checkpoints.latest() == 5
    checkpoints.close()
    assert_equal(load_params(workdir, 5), state(5).params)


def test_what_is_listed_but_is_no_file_is_not_opened(two: Path, tmp_path: Path) -> None:
    """A pipe, which could be read for ever."""
    workdir = shutil.copytree(two, tmp_path / "run")
    os.mkfifo(workdir / "checkpoints/5/state/pipe")
    with (workdir / "checkpoints/5/SHA256SUMS").open("a") as file:
        file.write(f"{'0' * 64}  state/pipe\n")
    with pytest.raises(UserError, match=r"damaged \(state/pipe is not a file\)"):
        load_params(workdir, 5)


@pytest.mark.parametrize(
    ("changed_before_the_sums", "message"),
    [(False, r".*damaged[^\n]*from the beginning"), (True, "this checkpoint is intact but cannot be restored here .*")],
)
def test_arrays_that_cannot_be_unpacked_are_one_line(
    tmp_path: Path, changed_before_the_sums: bool, message: str
) -> None:
    """Nothing else is printed: warnings are errors here, even those of reads whose results are never used."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep())
    large = state(1, d=1 << 14)
    large.params["embed"] = jnp.asarray(np.random.default_rng(0).normal(size=(3, 1 << 14)), jnp.float32)
    checkpoints.save(1, large, {}, None, {})
    checkpoints.wait()
    checkpoint = tmp_path / "checkpoints" / "1"
    data = arrays(checkpoint)
    content = bytearray(data.read_bytes())
    place = len(content) // 5
    content[place : place + 64] = bytes(64)
    data.write_bytes(content)
    if changed_before_the_sums:
        write_checksums(checkpoint, read_checksums(checkpoint), [data.relative_to(checkpoint).as_posix()])
    with pytest.raises(UserError, match=rf"^[^\n]*checkpoints/1: {message}$"):
        checkpoints.restore(jax.eval_shape(lambda: large))
    checkpoints.close()


def test_a_whole_checkpoint_of_another_optimiser_is_not_called_damaged(two: Path, tmp_path: Path) -> None:
    checkpoints = Checkpoints(shutil.copytree(two, tmp_path / "run") / "checkpoints", keep())
    other = state(0).replace(opt_state={"momentum": jnp.zeros(3)})
    with pytest.raises(
        UserError, match=r"^[^\n]*checkpoints/5: this checkpoint is intact but cannot be restored[^\n]*$"
    ):
        checkpoints.restore(jax.eval_shape(lambda: other))
    checkpoints.close()
    assert (tmp_path / "run/checkpoints/5").is_dir()

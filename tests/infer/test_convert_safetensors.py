"""Out as safetensors and in again: the same bits, and a run that commands take; what is wrong is one line."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

# isort: split
from tests import tiny
from tests.conftest import ROOT
from vaswani.data.symbols import SPECIALS
from vaswani.errors import UserError
from vaswani.infer.convert import __main__ as checked
from vaswani.infer.convert import __main__ as command
from vaswani.infer.convert import marian, safetensors
from vaswani.infer.convert.folders import make_run, new_folder, requires_package
from vaswani.infer.runs import Run, open_run
from vaswani.model.masked_lm import MaskedLM
from vaswani.model.parameters import init_params
from vaswani.model.translation import translation_model
from vaswani.run.parameters import flatten_params
from vaswani.tasks import task_of
from vaswani.tasks.config import model_config

FAMILIES = {"prefix_lm": translation_model, "classification": partial(MaskedLM, classes=2)}


def convert(*arguments: str) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-m", "infer.convert", *arguments]
    return subprocess.run(called, cwd=ROOT, capture_output=True, text=True)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_run(tmp_path_factory.mktemp("convert") / "run")


@pytest.fixture(scope="module")
def exported(workdir: Path) -> Path:
    folder = workdir.parent / "exported"
    folder.mkdir()
    safetensors.write(open_run(workdir), folder)
    return folder


def test_out_and_in_again_is_bitwise_the_same(workdir: Path, exported: Path, tmp_path: Path) -> None:
    make_run(tmp_path / "again", safetensors.read(exported))
    before, after = open_run(workdir), open_run(tmp_path / "again")
    assert after.step == before.step == 4 and after.tokenizer.sha256 == before.tokenizer.sha256
    assert after.model_config == before.model_config
    ours, theirs = flatten_params(before.params), flatten_params(after.params)
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[name].view(np.int32), theirs[name].view(np.int32)) for name in ours)


def test_the_command_goes_both_ways(workdir: Path, tmp_path: Path) -> None:
    out = convert(f"--workdir={workdir}", "--to=safetensors", f"--output={tmp_path}/out", "--checkpoint=2")
    back = convert(f"--workdir={tmp_path}/back", f"--from=safetensors:{tmp_path}/out")
    assert (out.returncode, back.returncode) == (0, 0), out.stderr + back.stderr
    assert open_run(tmp_path / "back").step == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "out"]


@pytest.mark.parametrize("task", FAMILIES)
def test_runs_of_other_tasks_are_made(task: str, exported: Path, tmp_path: Path) -> None:
    imported = safetensors.read(exported)
    config, size = imported.config, imported.tokenizer.vocab_size
    config.task, config.data.classes = task, "singular,plural"
    config.model.prefix = "full" if task == "prefix_lm" else "none"
    shapes = jax.eval_shape(partial(init_params, FAMILIES[task](model_config(config, size))), jax.random.key(0))
    params = jax.tree.map(lambda leaf: np.full(leaf.shape, 0.5, np.float32), shapes)
    make_run(tmp_path / "run", imported._replace(params=params))
    assert flatten_params(open_run(tmp_path / "run", task=task).params).keys() == flatten_params(params).keys()
    config.task = "other"
    with pytest.raises(UserError, match=r"^config: task is 'other', which this version does not know$"):
        make_run(tmp_path / "other", imported)


def test_a_wrong_file_or_shape_is_one_line(exported: Path, tmp_path: Path) -> None:
    wrong = safetensors.read(exported)
    wrong.params["decoder"]["layer_1"]["feed_forward"]["w1"] = np.zeros((2, 3), np.float32)
    with pytest.raises(UserError, match=r"decoder/layer_1/feed_forward/w1 is \(2, 3\); .* it is \(8, 16\)$"):
        make_run(tmp_path / "run", wrong)
    shutil.copy(exported / "config.json", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0nothing of this")
    with pytest.raises(UserError, match=r"^\S+model\.safetensors: cannot be read as safetensors \([^\n]+\)$"):
        safetensors.read(tmp_path)
    with pytest.raises(UserError, match=r"there is no model\.safetensors"):
        safetensors.read(tmp_path / "absent")


def test_the_home_of_nobody_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^--from=safetensors:[^\n]+: there is no user nosuchuser[^\n]*$"):
        command.read("safetensors:~nosuchuser/x", str(tmp_path / "run"))


def test_a_pipe_or_a_device_is_no_tokenizer(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "given")
    tokenizer = tmp_path / "given" / "tokenizer.model"
    tokenizer.unlink()
    os.mkfifo(tokenizer)
    with pytest.raises(UserError, match=r"tokenizer\.model: cannot be read \(not a regular file\)$"):
        safetensors.read(tmp_path / "given")
    tokenizer.unlink()
    tokenizer.symlink_to("/dev/zero")
    with pytest.raises(UserError, match=r"tokenizer\.model: cannot be read \(not a regular file\)$"):
        safetensors.read(tmp_path / "given")


class Options(dict):
    """Flags, by attribute their values, by key themselves."""

    __getattr__ = dict.__getitem__


@pytest.mark.parametrize("source", ["zip:file", "safetensors", "safetensors:"])
def test_a_wrong_source_is_one_line(source: str) -> None:
    given = {"to": None, "output": None, "checkpoint": None, "quantization": None}
    options = Options(given | {"from": SimpleNamespace(value=source)})
    with pytest.raises(UserError, match=rf"^--from={source}: write FORMAT:PATH, with the format one of ctranslate2, "):
        checked.check(options)


def test_only_ctranslate2_has_smaller_weights() -> None:
    given = {"to": "onnx", "from": SimpleNamespace(value=None), "output": "out"}
    given |= dict.fromkeys(("checkpoint", "languages", "tokenizer"))
    with pytest.raises(UserError, match=r"^--quantization is for --to=ctranslate2; the other formats are float32$"):
        checked.check(Options(given | {"quantization": "int8"}))
    checked.check(Options(given | {"quantization": None}))
    checked.check(Options(given | {"to": "ctranslate2", "quantization": "int8"}))


def test_a_missing_package_is_named() -> None:
    expected = pytest.raises(UserError, match=r"^--to=x needs the package absent: pip install -e '\.\[convert\]'$")
    with expected, requires_package("--to=x"):
        raise ModuleNotFoundError("No module named 'absent'", name="absent")


def test_a_failed_conversion_leaves_nothing_and_no_folder_is_overwritten(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match=r"^--output=.*cannot be written \(no space\)$"),
        new_folder("output", tmp_path / "a") as folder,
    ):
        (folder / "half").write_text("half")
        raise OSError("no space")
    assert not list(tmp_path.iterdir())
    (tmp_path / "kept").write_text("kept")
    with pytest.raises(UserError, match=r"it exists already"), new_folder("output", tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_killed_conversion_leaves_a_draft_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_folder("output", tmp_path / "a") as folder:
        assert re.fullmatch(r"\.converting-[0-9a-f]{32}", folder.name) and folder.parent == tmp_path
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_parameters_without_their_config_are_one_line(exported: Path, tmp_path: Path) -> None:
    shutil.copytree(exported, tmp_path / "exported")
    (tmp_path / "exported" / "config.json").unlink()
    with pytest.raises(UserError, match=r"^--from=safetensors:.*exported: there is no config\.json; give a folder"):
        safetensors.read(tmp_path / "exported")


@pytest.mark.parametrize("exists", [True, False])
def test_a_conversion_into_a_link_makes_the_folder_that_it_names(exists: bool, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / "elsewhere" / "out"
    if exists:
        place.mkdir()
    link = tmp_path / "link"
    link.symlink_to(place)
    with new_folder("output", link) as folder:
        (folder / "whole").write_text("whole")
    assert link.is_symlink() and (place / "whole").read_text() == "whole"
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["out"]


def test_layers_that_share_their_parameters_come_back_however_many_they_are(tmp_path: Path) -> None:
    config = tiny.run_config(tmp_path)
    config.task = "language_model"
    config.model.update({"N": 18, "share_layers": True})
    task = task_of(config.task)
    model = task.config(config, tiny.tokenizer().vocab_size)
    params = jax.device_get(task.objective(config, model).init(jax.random.key(0)))
    folder = tmp_path / "out"
    folder.mkdir()
    safetensors.write(Run(tmp_path, config, model, tiny.tokenizer(), params, 1, (1,)), folder)
    before, after = flatten_params(params), flatten_params(safetensors.read(folder).params)
    assert before.keys() == after.keys() and len(before) < 18
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_marians_vocabulary_has_our_names_of_special_symbols(tmp_path: Path) -> None:
    names = {"pad_piece": "[PAD]", "bos_piece": "[BOS]", "eos_piece": "[EOS]", "unk_piece": "[UNK]"}
    tokenizer = tiny.given_tokenizer(**names)
    marian._write_tokenizer(tokenizer, tmp_path)
    written = json.loads((tmp_path / "vocab.json").read_text())
    assert list(written)[:5] == [*SPECIALS, *tokenizer.pieces([4])] and list(written.values()) == list(range(320))


def test_a_failed_conversion_leaves_no_folder_that_it_made_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    for place in (tmp_path / "a" / "b" / "c", tmp_path / "there" / "c"):
        with pytest.raises(UserError, match="cannot hold"), new_folder("output", place):
            raise UserError("it cannot hold the model")
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    with new_folder("output", tmp_path / "a" / "b") as folder:
        (folder / "whole").write_text("whole")
    assert (tmp_path / "a" / "b" / "whole").read_text() == "whole"

"""Opening runs: the right parameters for every choice, and a one-line error if there is no such run."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests import tiny
from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.infer.options import _check_no_file
from vaswani.infer.runs import corpus_named, open_run
from vaswani.keys import flat
from vaswani.model.parameter_count import parameter_count
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.run import averaging, checkpoint, saved
from vaswani.run.averaging import list_checkpoints, named_steps
from vaswani.run.config import read_config
from vaswani.run.parameters import count_parameters, params_sha256
from vaswani.run.saved import Checkpoint
from vaswani.tasks.config import model_config


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_run(tmp_path_factory.mktemp("runs") / "run")


def embed(workdir: Path, *steps: int) -> np.ndarray:
    cfg = tiny.run_config(workdir)
    return np.mean([np.float64(tiny.run_params(320, cfg, step)["embed"]) for step in steps], axis=0)


@pytest.mark.parametrize(
    ("choice", "steps"),
    [(None, (2, 3, 4)), ("latest", (4,)), (3, (3,)), ("best", (2,)), ("average:2", (3, 4)), ("average-best:2", (2, 3))],
)
def test_open_run_loads_what_the_choice_names(workdir: Path, choice: str | int | None, steps: tuple[int, ...]):
    run = open_run(workdir, choice)
    assert (run.step, run.checkpoints) == (steps[-1], steps)
    np.testing.assert_array_equal(run.params["embed"], embed(workdir, *steps).astype(np.float32))
    assert count_parameters(run.params) == parameter_count(run.model_config)
    assert run.tokenizer.vocab_size == run.model_config.vocab_size == 320
    assert run.config.decode.beam == 1


def test_a_run_whose_layers_share_their_parameters_is_opened(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = shutil.copytree(workdir, tmp_path / "run")
    config = json.loads((shared / "config.json").read_text())
    config["model"] |= {"N": 3, "share_layers": True}
    (shared / "config.json").write_text(json.dumps(config))
    params = init_params(Transformer(model_config(ConfigDict(config), 320)), jax.random.key(0))
    monkeypatch.setattr("vaswani.infer.runs.load_choice", lambda *_: ([4], params))
    assert open_run(shared, accept_changes=True).params is params


def test_a_run_with_a_kernel_for_another_device_is_read_with_the_default(workdir: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(workdir, tmp_path / "run")
    config = json.loads((elsewhere / "config.json").read_text())
    config["model"]["attention_impl"] = "splash"
    (elsewhere / "config.json").write_text(json.dumps(config))
    run = open_run(elsewhere)
    assert run.model_config == open_run(workdir).model_config
    assert run.config.model.attention_impl == "splash"


def test_an_import_is_not_called_a_step() -> None:
    assert named_steps((0,)) == "imported"
    assert named_steps([10, 20]) == "step 10, 20"


def test_checkpoints_are_listed_with_time_and_metrics(workdir: Path):
    checkpoints = list_checkpoints(workdir)
    assert [checkpoint.step for checkpoint in checkpoints] == [1, 2, 3, 4]
    assert checkpoints[1].metrics == tiny.METRICS[2] and checkpoints[3].metrics == {}
    assert sorted(checkpoint.time for checkpoint in checkpoints) == [checkpoint.time for checkpoint in checkpoints]


def test_what_is_not_a_run_is_named(workdir: Path, tmp_path: Path):
    with pytest.raises(UserError, match="nowhere: no such folder"):
        open_run(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"not the folder of a run; it has no config\.json"):
        open_run(tmp_path)
    with pytest.raises(UserError, match="no checkpoint at step 7; there are 1, 2, 3, 4"):
        open_run(workdir, "7")
    copy = shutil.copytree(workdir, tmp_path / "copy")
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(UserError, match="no checkpoint"):
        open_run(copy, "latest")


def test_a_url_is_refused():
    with pytest.raises(UserError, match="--workdir=s3://bucket/run: this is a URL"):
        open_run("s3://bucket/run")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b"[1, 2]", r"it is \[1, 2\]; it must be an object"),
        (b"\xff\0", "not JSON"),
        ({"model": 3}, "there is no key model"),
        ({"data": []}, "there is no key data"),
        ({"model.d_model": "wide"}, "model.d_model is 'wide'; it must be a whole number up to 2147483647, like 512"),
        ({"model.d_model": 2**40}, f"model.d_model is {2**40}; it must be a whole number"),
        ({"model.h": None}, "model.h is None"),
        ({"model.dmodel": 8}, r"there is no key model\.dmodel; did you mean model\.d_model\?"),
        ({"decode.alpha": float("nan")}, "decode.alpha is nan; it must be a finite number, like 0.6"),
        ({"decode.beam": True}, "decode.beam is True; it must be a whole number"),
        ({"data.buckets": [8, "x"]}, "data.buckets is .*; it must be whole numbers"),
        ({"model.remat": False}, "model.remat is False; it must be text in Unicode, like 'none'"),
        ({"model.N": 10**400}, r"model.N is 10{79}\.\.\.; it must be a whole number"),
        ({"data.test": "text:\ud800"}, "data.test is .*; it must be text in Unicode"),
        ({"data.test": "text:\0"}, "data.test is .*; it must be text in Unicode"),
    ],
)
def test_a_damaged_config_is_one_line(workdir: Path, tmp_path: Path, damage: bytes | dict, message: str):
    path = shutil.copytree(workdir, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints")) / "config.json"
    if isinstance(damage, bytes):
        path.write_bytes(damage)
    else:
        ((key, value),) = damage.items()
        config = json.loads(path.read_text())
        *groups, name = key.split(".")
        group = config[groups[0]] if groups else config
        group[name] = value
        path.write_text(json.dumps(config))
    with pytest.raises(UserError, match=rf"^{path}: damaged[^\n]*{message}[^\n]*$"):
        read_config(path.parent)


@pytest.mark.parametrize("value", [{"a": 1}, {}], ids=repr)
def test_an_object_in_place_of_a_value_is_refused_whatever_its_key(tmp_path: Path, value: dict) -> None:
    """Also of a key that older runs lack."""
    path = tmp_path / "config.json"
    for key in flat(default().to_dict()):
        config = default().to_dict()
        group, _, name = key.rpartition(".")
        (config[group] if group else config)[name] = value
        path.write_text(json.dumps(config))
        with pytest.raises(UserError, match=rf"^{path}: damaged: [^\n]*{re.escape(key)}[^\n]*$"):
            read_config(tmp_path)


@pytest.mark.parametrize("edit", [{"mixer": "linear"}, {"mixer": "restricted"}, {"h": 4, "d_k": 2, "d_v": 2}])
def test_a_model_of_as_many_parameters_is_another_one(workdir: Path, tmp_path: Path, edit: dict) -> None:
    """Their arrays would not be found, or not fit."""
    copy = shutil.copytree(workdir, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config["model"].update(edit)
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"^[^\n]*checkpoints/4 has \S+ of shape .* of another model$"):
        open_run(copy, "latest")


def test_a_key_that_an_older_run_lacks_has_its_default(workdir: Path, tmp_path: Path):
    """Also a whole group of keys."""
    whole = read_config(workdir)
    config = json.loads((workdir / "config.json").read_text())
    del config["cpu_bfloat16"], config["data"]["units"], config["model"]["qk_norm"], config["image"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert read_config(tmp_path).to_dict() == whole.to_dict()


def test_a_switch_of_an_older_version_is_left_out_only_if_it_was_off(workdir: Path, tmp_path: Path):
    config = json.loads((workdir / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "amx": False}))
    assert read_config(tmp_path).to_dict() == read_config(workdir).to_dict()
    (tmp_path / "config.json").write_text(json.dumps({**config, "amx": True}))
    with pytest.raises(UserError, match="amx"):
        read_config(tmp_path)


def test_a_checkpoint_of_another_model_is_refused(workdir: Path, tmp_path: Path):
    copy = shutil.copytree(workdir, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    config["model"]["d_ff"] = 24
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"checkpoints/4 holds .* parameters; .* of another model"):
        open_run(copy, "latest")


@pytest.mark.parametrize("gone_at", ["listed", "loaded"])
def test_checkpoints_that_a_training_replaces_meanwhile_are_chosen_again(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, gone_at: str
) -> None:
    copy = shutil.copytree(workdir, tmp_path / "run", ignore=shutil.ignore_patterns("1", "4"))
    gone = copy / "checkpoints" / "2"

    def replaced() -> None:  # as training does: the next is saved, then the oldest goes
        if gone.exists():
            shutil.copytree(workdir / "checkpoints" / "4", copy / "checkpoints" / "4")
            shutil.rmtree(gone)

    if gone_at == "listed":
        about = saved.about

        def removed_before(folder: Path) -> Checkpoint:
            replaced()
            return about(folder)

        monkeypatch.setattr(saved, "about", removed_before)
    else:
        load = checkpoint.load_params

        def gone_before(folder: Path, step: int) -> dict:
            replaced()
            return load(folder, step)

        monkeypatch.setattr(checkpoint, "load_params", gone_before)
    steps, _ = averaging.load_choice(copy, "average:2")
    assert steps == [3, 4]
    assert "damaged" not in capsys.readouterr().err


def test_a_truncated_checkpoint_is_named_and_another_serves(
    workdir: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    copy = shutil.copytree(workdir, tmp_path / "copy")
    for file in sorted((copy / "checkpoints" / "4" / "state").rglob("*")):
        if file.is_file() and file.stat().st_size > 4:
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(UserError, match=r"checkpoints/4: this checkpoint is damaged"):
        open_run(copy, "4")
    capsys.readouterr()
    assert open_run(copy, "latest").step == 3
    assert "checkpoints/4 is damaged (state/" in capsys.readouterr().err
    assert open_run(copy, "average:2").checkpoints == (2, 3)


def test_the_hash_is_of_names_types_shapes_and_values_only():
    params = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": {"w": np.ones(2, np.float32)}}
    params["a-b"] = np.zeros(1, np.int32)  # before a/w as a path, after it in the tree
    digest = params_sha256(params)
    w, b = np.ones(2, "<f4").tobytes(), np.arange(6, dtype="<f4").tobytes()
    written = b"a-b int32 (1,)\n" + bytes(4) + b"a/w float32 (2,)\n" + w + b"b float32 (2, 3)\n" + b
    assert digest == hashlib.sha256(written).hexdigest()
    swapped = {**params, "b": np.asfortranarray(params["b"]).astype(">f4")}
    assert params_sha256(swapped) == digest
    assert params_sha256(jax.tree.map(jax.numpy.asarray, params)) == digest
    for changed in (
        {**params, "b": params["b"].T},
        {**params, "b": params["b"].astype(np.float64)},
        {**params, "c": params["b"]},
        {"a-b": params["a-b"], "b": params["b"], "c": params["a"]},
        {**params, "b": params["b"] + 1e-6},
    ):
        assert params_sha256(changed) != digest


class Given(SimpleNamespace):
    """Flags that are given."""

    def __contains__(self, name: str) -> bool:
        return hasattr(self, name)


def test_the_names_of_an_ensemble_may_be_longer_than_that_of_a_file(tmp_path: Path) -> None:
    _check_no_file(Given(workdir=",".join(f"{number:064}" for number in range(5))))
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"this is a file; name the folder of a run$"):
        _check_no_file(Given(workdir=f"{tmp_path},{tmp_path}/file"))


def test_a_split_of_the_grammar_is_no_test_of_a_run_on_another_text() -> None:
    cfg = default()
    cfg.data.train = "text:corpus/train.{en,de}"
    cfg.data.valid = "text:corpus/valid.{en,de}"
    cfg.data.test = "grammar:test:1000"
    assert corpus_named(cfg, "valid") == cfg.data.valid
    message = (
        r"^--split=test: the run's data.test is 'grammar:test:1000', of another corpus than data.train, "
        r"'text:corpus/train.{en,de}'; name a corpus with --corpus=SPEC$"
    )
    with pytest.raises(UserError, match=message):
        corpus_named(cfg, "test")
    assert corpus_named(cfg, "grammar:test:1000") == "grammar:test:1000"
    for train in ("grammar:train:{de,en}", "trees:grammar:train:9", ""):
        cfg.data.train = train
        assert corpus_named(cfg, "test") == "grammar:test:1000"

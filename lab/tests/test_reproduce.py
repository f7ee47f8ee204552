"""A recorded run, trained again: its commands, what is compared, what is refused, and one from end to end."""

import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.reproduce import command as reproduce
from lab.reproduce import compare, repeated
from tests.conftest import ROOT
from tests.planted import head, plant, planted_config, scores
from vaswani.errors import UserError
from vaswani.paper import provenance
from vaswani.paper.records import RunRecord, find_records, read_run, save
from vaswani.paper.results import make_record

CONFIG = planted_config("lab/studies/layers/design.py:attention", seed=1)
BESIDE = CONFIG | {"data": CONFIG["data"] | {"train": "text:../corpus/train.{en,de}"}}
LAUNCH = {
    "command": ["__main__.py", "--config=lab/studies/layers/design.py:attention", "--config.seed=1"],
    "device": {"kind": "cpu", "count": 1, "cpus": 2, "cpu": "Xeon"},
    "versions": {"jax": "0.10.2", "flax": "0.12.8"},
    "data": {},
    "git": {"commit": head(), "dirty": False},
}


def planted(folder: Path, perplexity: float, params: str = "a", **launch: Any) -> RunRecord:
    evaluation = scores(CONFIG, "test", 80.0, perplexity=perplexity, params_sha256=params, checkpoint="latest")
    plant(folder, CONFIG, evaluation)
    return read_run(folder)._replace(launches=[LAUNCH | launch])


def written(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Writes a record, "layers/one", and has the command look for it there."""
    evaluation = scores(CONFIG, "test", 80.0, perplexity=1.3)
    content = {
        "name": "layers/one",
        "config": CONFIG,
        "evaluation": evaluation,
        "caveats": [],
        "launches": [LAUNCH],
        **changes,
    }
    content["training"] = {"steps": CONFIG["steps"], "minutes": 2.0, "validations": []}
    for place in ("paper", "lab"):
        (folder / place).mkdir()
    save(folder / "lab" / "records.jsonl", content)
    monkeypatch.setattr(reproduce, "RECORDS", (folder / "paper", folder / "lab"))


@pytest.mark.parametrize(
    "given",
    [
        ["--tracker=wandb", "--config.seed=1"],
        ["--profile", "10:12", "--config.seed=1", "--debug_nans"],
        ["--coordinator=host:1", "--config.seed=1", "--processes", "2", "--process=0"],
        ["--config.seed=1", "--workdir", "elsewhere"],
    ],
)
def test_only_what_says_what_was_trained_is_repeated(given: list[str], tmp_path: Path) -> None:
    record = planted(
        tmp_path / "run", 1.3, command=["train", "--config=lab/studies/layers/design.py:attention", *given]
    )
    train, _ = reproduce.commands(record, Path("RUN"))
    assert train == ["train", "--config=lab/studies/layers/design.py:attention", "--config.seed=1", "--workdir=RUN"]


def test_the_commands_are_those_of_the_record(tmp_path: Path) -> None:
    train, evaluate = reproduce.commands(planted(tmp_path / "run", 1.3), Path("RUN"))
    assert train == ["train", "--config=lab/studies/layers/design.py:attention", "--config.seed=1", "--workdir=RUN"]
    search = ["--beam=1", "--alpha=0.0", "--extra_length=50"]
    assert evaluate == ["infer", "--workdir=RUN", "--split=test", "--checkpoint=latest", *search]


@pytest.mark.parametrize(
    ("of_run", "stopping", "given"),
    [
        ("exact", "exact", []),
        ("exact", "full", ["--stopping=full"]),
        ("full", "exact", ["--stopping=exact"]),
        ("full", "full", []),
        ("full", None, []),  # what does not search, such as a language model, has none, and no such flag
    ],
)
def test_a_search_that_ended_otherwise_than_the_run_s_is_repeated_as_it_was(
    of_run: str, stopping: str | None, given: list[str], tmp_path: Path
) -> None:
    record = planted(tmp_path / "run", 1.3)
    evaluation = record.evaluations[0]
    noted = {} if stopping is None else {"stopping": stopping}
    searched = evaluation._replace(scores=evaluation.scores | noted)
    config = record.config | {"decode": record.config["decode"] | {"stopping": of_run}}
    _, evaluate = reproduce.commands(record._replace(config=config, evaluations=[searched]), Path("RUN"))
    assert [flag for flag in evaluate if "stopping" in flag] == given


@pytest.mark.parametrize(
    ("perplexity", "params", "tolerance", "said"),
    [
        (1.31, "b", 0.017, "repeated: the loss differs by +0.0077 nats, and may by 0.017"),  # log(1.31 / 1.3)
        (1.28, "b", 0.017, "repeated: the loss differs by −0.0155 nats"),
        (1.27, "b", 0.017, "another processor: the loss differs by −0.0233 nats"),
        (1.31, "b", 0.005, "another processor: the loss differs by +0.0077 nats, and may by 0.005"),
        (1.3, "a", 0.0, "repeated: the parameters are the same, bit for bit; the loss differs by +0.0000"),
    ],
)
def test_a_run_is_repeated_if_its_loss_hardly_differs(
    tmp_path: Path, perplexity: float, params: str, tolerance: float, said: str
) -> None:
    record = planted(tmp_path / "record", 1.3)
    elsewhere = {"device": {"kind": "cpu", "cpu": "EPYC"}, "versions": {"jax": "1"}}
    again = planted(tmp_path / "again", perplexity, params, **elsewhere)
    table = reproduce.table("one", record, again, tolerance)
    assert table.notes[0].startswith(said)
    assert compare.is_close(record, again, tolerance) == said.startswith("repeated")
    assert table.notes[3:] == [
        "recorded on Xeon, now on EPYC",
        "packages: jax 0.10.2, now 1; flax 0.12.8, now none",
    ]
    assert ("sacrebleu", "80.0000", "80.0000", "+0.0000") in table.rows


def test_a_parser_is_compared_by_its_last_validation(tmp_path: Path) -> None:
    record = planted(tmp_path / "run", 1.3)
    evaluation = record.evaluations[0]
    parsed = {key: value for key, value in evaluation.scores.items() if key != "perplexity"}
    parser = record._replace(evaluations=[evaluation._replace(scores={"f1": 90.0, **parsed})])
    assert compare.loss_of(parser) == pytest.approx(1.6094, abs=1e-4)  # log 5, which is planted
    assert reproduce.commands(parser, Path("RUN"))[1][0] == "infer.parse"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"launches": [LAUNCH | {"git": {"commit": "0" * 40, "dirty": False}}]},
            "the commit is not in the repository",
        ),
        ({"caveats": ["the code had uncommitted changes"]}, "since the code had uncommitted changes"),
        ({"launches": []}, "cannot be repeated"),
        ({"evaluation": scores(CONFIG, "test", 80.0, members=["a", "b"])}, "it is of an ensemble; repeat its members"),
        ({"config": BESIDE}, r"it read files beside its clone \(text:\.\./corpus/train\.\{en,de\}\)"),
        ({"launches": [LAUNCH | {"command": ["x", "--init=runs/base"]}]}, r"files \(--init=runs/base\)"),
        ({"launches": [LAUNCH | {"command": ["x", "-init=runs/base"]}]}, r"files \(-init=runs/base\)"),
    ],
)
def test_what_cannot_be_repeated_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    if message == provenance.UNREACHABLE and not provenance.history_is_known():
        pytest.skip("no git checkout, or a shallow one")
    written(tmp_path, monkeypatch, **changes)
    with pytest.raises(UserError, match=message):
        reproduce.recorded("layers/one")


@pytest.mark.parametrize("folder", ["paper", "lab"])
def test_a_record_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    written(tmp_path, monkeypatch)
    (tmp_path / "lab" / "records.jsonl").replace(tmp_path / folder / "layers.jsonl")
    found = reproduce.recorded("layers/one")
    assert (found.record, found.path) == ("layers/one", tmp_path / folder / "layers.jsonl")


def test_what_is_not_the_name_of_a_run_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a file of records, a name without its study, and records that are of no run."""
    found = find_records(*reproduce.RECORDS)
    monkeypatch.setattr(reproduce, "find_records", lambda *folders: found)
    for name in ("lab/studies/layers/records.jsonl", "attention-seed0", "table1", "base-v5e-2x2", ""):
        with pytest.raises(UserError) as refused:
            reproduce.recorded(name)
        assert str(refused.value) == (
            f"{name}: there is no record of a run of this name; `python -m lab cards` prints such names"
        )


@pytest.mark.parametrize(
    ("flag", "allowed", "status"),
    [
        (None, "0.017", 0),  # the new loss differs by 0.0077
        (0.01, "0.01", 0),
        (0.005, "0.005", 1),
        (0.0, "0", 1),
    ],
)
def test_a_flag_overrides_by_how_much_the_loss_may_differ(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flag: float | None,
    allowed: str,
    status: int,
) -> None:
    written(tmp_path, monkeypatch)
    again = planted(tmp_path / "again", 1.31, "b")
    monkeypatch.setattr(reproduce, "repeat", lambda record, folder: again)
    assert reproduce.main("layers/one", SimpleNamespace(workdir=None, tolerance=flag, save=False)) == status
    assert f"the loss differs by +0.0077 nats, and may by {allowed}\n" in capsys.readouterr().out


def test_the_seeds_of_a_row_say_by_how_much_its_loss_may_differ(tmp_path: Path) -> None:
    """Losses of 0.2, 0.3 and 0.4 have a standard deviation of 0.1; another row and another split do not count."""
    other = CONFIG | {"model": CONFIG["model"] | {"N": 5}}
    rows = [(CONFIG, 0.2, "test"), (CONFIG, 0.3, "test"), (CONFIG, 0.4, "test"), (other, 9.0, "test")]
    for seed, (config, loss, split) in enumerate([*rows, (CONFIG, 9.0, "valid")]):
        content = {"name": f"layers/{seed}", "config": config | {"seed": seed}, "caveats": [], "launches": [LAUNCH]}
        content["evaluation"] = scores(config, split, 80.0, perplexity=math.exp(loss))
        content["training"] = {"steps": config["steps"], "minutes": 2.0, "validations": []}
        save(tmp_path / "records.jsonl", content)
    runs = {run.record: run for run in find_records(tmp_path).runs}
    assert reproduce.tolerance_of(runs["layers/0"]) == pytest.approx(0.3)
    assert reproduce.tolerance_of(runs["layers/3"]) == 0.017, "of a single seed no spread is known"


def test_what_became_of_a_record_is_a_row_of_the_table(tmp_path: Path) -> None:
    record = planted(tmp_path / "record", 1.3)
    elsewhere = {"device": {"kind": "cpu", "cpu": "EPYC"}}
    same = planted(tmp_path / "same", 1.3, "a")
    other = planted(tmp_path / "other", 1.27, "b", **elsewhere)
    file = tmp_path / "repeated.jsonl"
    repeated.add(record._replace(record="layers/one"), other, 0.017, file)
    repeated.add(record._replace(record="layers/one"), same, 0.017, file)
    repeated.add(record._replace(record="layers/two"), other, 0.017, file)
    rows = repeated.table(file).rows
    assert rows[0] == ("layers/one", "Xeon", "Xeon", "0.2624", "0.2624", "+0.0000", "0.017", "repeated, bit for bit")
    assert rows[1] == ("layers/two", "Xeon", "EPYC", "0.2624", "0.2390", "−0.0233", "0.017", "another processor")
    assert len(rows) == 2, "a later repetition takes the place of an earlier one"


@pytest.mark.slow
def test_from_end_to_end_the_parameters_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the code of HEAD, which need not be that of the working tree."""
    flags = ["--config=configs/quickstart.py", "--config.steps=3", "--config.data.train=grammar:train:300"]
    flags += ["--config.data.vocab_size=400", "--config.model.N=1", "--config.model.d_ff=16"]
    flags += [
        "--config.eval.bleu_sentences=0",
        "--config.decode.checkpoint=latest",
        "--config.data.test=grammar:test:3",
    ]
    workdir = f"--workdir={tmp_path / 'run'}"
    for command in (["train", *flags, workdir], ["infer", workdir, "--split=test"]):
        subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True, capture_output=True)
    content = make_record(tmp_path / "run", allow_dirty=True)
    launch = content["launches"][0] | {"git": {"commit": head(), "dirty": False}}
    record = {"name": "one"} | content | {"launches": [launch], "caveats": []}
    save(tmp_path / "records" / "runs.jsonl", record)
    monkeypatch.setattr(reproduce, "RECORDS", (tmp_path / "records",))
    found = reproduce.recorded("one")
    again = reproduce.repeat(found, tmp_path / "again")
    assert compare.same_parameters(found, again)
    table = reproduce.table("one", found, again, 0.0)
    assert table.notes[0].startswith("repeated: the parameters are the same, bit for bit")


def test_the_folder_is_the_user_s_wherever_he_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, monkeypatch)
    again = planted(tmp_path / "again", 1.31, "b")
    folders: list[Path] = []
    monkeypatch.setattr(reproduce, "repeat", lambda record, folder: folders.append(folder) or again)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for workdir in ("here", "~/there"):
        reproduce.main("layers/one", SimpleNamespace(workdir=workdir, tolerance=1.0, save=False))
    assert folders == [tmp_path / "here", tmp_path / "home" / "there"]


def test_a_difference_above_the_tolerance_does_not_look_equal_to_it(tmp_path: Path) -> None:
    record = planted(tmp_path / "record", 1.3)
    again = planted(tmp_path / "again", 1.30001, "b")  # log(1.30001 / 1.3) = 7.7e-6
    note = reproduce.table("one", record, again, 0.0).notes[0]
    assert note == "NOT repeated: the loss differs by +0.00001 nats, and may by 0"

"""`python -m train.runs`: the table of runs, the difference of two, and their curves, without jax."""

import fcntl
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.train.overview.curves import Curve, curves_of
from vaswani.train.overview.find_runs import find_runs
from vaswani.train.overview.picture import draw
from vaswani.train.overview.scores import scores_of
from vaswani.train.overview.table import difference_of, table_of
from vaswani.train.runs import check, show
from vaswani.train.table import as_text

ROOT = Path(__file__).parent.parent.parent


def write_run(folder: Path, steps: int = 10, nll: float = 2.0, launched: bool = True, **changes: Any) -> Path:
    """Writes what a training to update `steps` of 10 leaves, but for its checkpoints."""
    cfg = default()
    cfg.steps = 10
    cfg.update_from_flattened_dict({key.replace("__", "."): value for key, value in changes.items()})
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(cfg.to_dict()))
    records: list[dict] = []
    for step in range(5, steps + 1, 5):
        loss = {"loss": nll + 1, "nll": nll + 1 / step, "perplexity": 9.0}
        records.append({"step": step, "kind": "train", **loss, "seconds": 12.0 * step})
        records.append({"step": step, "kind": "valid", **loss, "bleu": 2.5 * step})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    device = {"kind": "TPU v4", "count": 2, "cpus": 1, "cpu": ""}
    data = {"train": {"sha256": {}}, "valid": {"sha256": {}}}
    if launched:
        (folder / "run.json").write_text(json.dumps({"launches": [{"step": 0, "data": data, "device": device}]}))
    return folder


def rows(*places: Path) -> dict[str, tuple[str, ...]]:
    table = table_of(find_runs([str(place) for place in places]))
    return {Path(row[0]).name: row[1:] for row in table.rows}


def test_a_row_has_state_step_scores_minutes_device_and_the_keys_that_differ(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "long", seed=1, model__h=4)
    write_run(tmp_path / "short", steps=5)
    write_run(tmp_path / "patient", steps=5, eval__patience=1)
    with (tmp_path / "patient" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "kind": "valid", "loss": 9.0, "nll": 9.0, "perplexity": 9.0}\n')
    (tmp_path / "short" / "checkpoints" / "5" / "metrics").mkdir(parents=True)
    (tmp_path / "unrelated").mkdir()
    table = table_of(find_runs([str(tmp_path)]))
    assert table.head == (
        "run",
        "state",
        "step",
        "nll",
        "best nll",
        "BLEU",
        "accuracy",
        "minutes",
        "h",
        "seed",
        "device",
        "patience",
    )
    assert table.title == "2 done, 1 stopped"
    assert rows(tmp_path) == {
        "long": ("done", "10/10", "2.1000", "2.1000", "25.00", "", "2.0", "4", "1", "2 x TPU v4", "0"),
        "patient": ("done", "6/10", "9.0000", "2.2000", "12.50", "", "1.0", "8", "0", "2 x TPU v4", "1"),
        "short": ("stopped", "5/10", "2.2000", "2.2000", "12.50", "", "1.0", "8", "0", "2 x TPU v4", "0"),
    }


def test_a_run_that_a_process_holds_is_training_and_an_import_is_no_training(tmp_path: Path) -> None:
    write_run(tmp_path / "now", steps=5)
    write_run(tmp_path / "taken", steps=0, launched=False)
    (tmp_path / "taken" / "metrics.jsonl").unlink()
    (tmp_path / "taken" / "checkpoints" / "0").mkdir()
    with (tmp_path / "now" / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert {name: cells[0] for name, cells in rows(tmp_path).items()} == {"now": "training", "taken": "imported"}
    assert rows(tmp_path)["now"][0] == "stopped"


def test_a_start_that_failed_is_no_import(tmp_path: Path) -> None:
    write_run(tmp_path / "without_launch", steps=0, launched=False)
    write_run(tmp_path / "with_launch", steps=0)
    assert {cells[0] for cells in rows(tmp_path).values()} == {"not started"}


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("config.json", '{"seed": ', "config.json: damaged"),
        ("config.json", None, "not the folder of a run; it has no config.json"),
        ("metrics.jsonl", '{"step": 1, "kind": "epoch"}\n', "kind is 'epoch'; it must be train or valid"),
        ("metrics.jsonl", '{"step": 1, "kind": "valid", "loss": 2.0}\n', "metrics.jsonl: damaged"),
        ("run.json", "[]", "run.json: damaged"),
    ],
)
def test_a_damaged_run_is_a_row_with_the_reason_and_no_other_is_lost(
    tmp_path: Path, name: str, content: str | None, why: str
) -> None:
    write_run(tmp_path / "bad")
    write_run(tmp_path / "good", seed=3)
    (tmp_path / "bad" / name).unlink()
    if content is not None:
        (tmp_path / "bad" / name).write_text(content)
    table = table_of(find_runs([str(tmp_path)]))
    assert [row[1] for row in table.rows] == ["damaged", "done"]
    assert len(table.notes) == 1
    assert table.notes[0].startswith(f"{tmp_path}/bad: ")
    assert why in table.notes[0]
    with pytest.raises(UserError, match=re.escape(why)):
        difference_of(*find_runs([str(tmp_path)]))


def test_the_difference_of_two_runs_has_results_and_keys(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one")
    other = write_run(tmp_path / "other", steps=5, optim__lr=0.25)
    for run, beam in ((one, 4), (other, 4), (other, 1)):
        evaluate(run, 30.0 if run == one else 31.0, beam=beam)
    table = difference_of(*find_runs([str(one), str(other)]))
    names = [
        "state",
        "step",
        "nll",
        "best nll",
        "BLEU",
        "minutes",
        "test BLEU, beam 4",
        "test BLEU, beam 1",
        "optim.lr",
    ]
    assert sorted(row[0] for row in table.rows) == sorted(names)
    assert ("test BLEU, beam 4", "30.00", "31.00") in table.rows
    assert ("test BLEU, beam 1", "", "31.00") in table.rows
    assert table.rows[-1] == ("optim.lr", "1", "0.25")
    assert as_text(difference_of(*find_runs([str(one)]), *find_runs([str(one)]))).startswith("nothing differs")
    close = write_run(tmp_path / "close", steps=5, optim__lr=0.25000001)
    for beam in (4, 1):
        evaluate(close, 31.0, beam=beam)
    table = difference_of(*find_runs([str(other)]), *find_runs([str(close)]))
    assert table.rows == [("optim.lr", "0.25", "0.25000001")]


def test_the_seeds_of_a_config_are_one_curve_with_a_band(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        write_run(tmp_path / f"small-{seed}", nll=2.0 + seed, seed=seed, model__h=4)
    write_run(tmp_path / "big", seed=7)
    write_run(tmp_path / "broken")
    (tmp_path / "broken" / "metrics.jsonl").write_text("{\n")
    runs = find_runs([str(tmp_path)])
    for name in ("curves.svg", "curves.png"):
        draw(runs, tmp_path / name)
    svg = (tmp_path / "curves.svg").read_text()
    assert svg.count('id="FillBetweenPolyCollection') == 2, "a band in each panel"
    assert "<!-- h=4 (3 runs) -->" in svg
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    curves = curves_of(runs, "valid")
    assert list(curves) == ["h=8", "h=4 (3 runs)"]
    one, three = curves.values()
    assert one == Curve([5, 10], [2.2, 2.1], [], [])
    assert (three.low, three.high) == ([2.2, 2.1], [4.2, 4.1])
    with pytest.raises(UserError, match="nothing to draw"):
        draw([runs[1]], tmp_path / "none.svg")


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the command; the last line on stderr is what it imported of jax."""
    code = (
        "import runpy, sys\n"
        "try:\n    runpy.run_module('vaswani.train.runs', run_name='__main__', alter_sys=True)\n"
        "finally:\n    print(sorted({'jax', 'jaxlib', 'flax', 'orbax', 'grain'} & sys.modules.keys()), file=sys.stderr)"
    )
    arguments_ = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(arguments_, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.slow
def test_the_command_lists_and_draws_hundreds_of_runs_without_jax(tmp_path: Path) -> None:
    for number in range(200):
        write_run(tmp_path / f"{number:03d}", seed=number)
    done = command(tmp_path, "--plot", tmp_path / "curves.svg")
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert done.stdout.startswith("200 done, in ")
    assert (tmp_path / "curves.svg").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "which runs?"),
        (("absent",), "absent: there is no such folder"),
        (("docs",), "docs: there is no run in this folder"),
        (("--diff", "docs"), "docs: there is no run in this folder"),
        (("--diff", "--plot=x.svg", "docs"), "--diff prints a table; --plot draws without it"),
        (("--plot=x.pdf", "docs"), "--plot=x.pdf: its name must end in .svg or .png"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = command(*arguments)
    first, modules = done.stderr.splitlines()
    assert (done.returncode, done.stdout, modules) == (2, "", "[]")
    assert first.startswith(f"error: {message}")


def options(**given: Any) -> SimpleNamespace:
    off = {"scores": False, "diff": False, "markdown": False, "latex": False, "csv": False}
    return SimpleNamespace(**(off | {"columns": None, "sort": None, "plot": None} | given))


def test_flags_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(UserError, match="--diff also shows the scores"):
        check(options(diff=True, sort="nll"))
    with pytest.raises(UserError, match="give one of --markdown, --latex and --csv"):
        check(options(csv=True, latex=True))


FITTED = """\
1 done, 1 stopped, in sweep

run  state    step       nll  best nll   BLEU  minutes  h
---  -------  -----  -------  --------  -----  -------  -
a    done     10/10   2.1000    2.1000  25.00      2.0  4
b    stopped  5/10   12.2000   12.2000  12.50      1.0  8

no room for device: choose with --columns; --markdown has
all
"""


def test_a_table_has_the_columns_that_fit_those_first_that_people_vary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(Path("sweep/a"), model__h=4)
    write_run(Path("sweep/b"), steps=5, nll=12.0)
    monkeypatch.setenv("COLUMNS", "58")
    show(options(), ["."])
    assert capsys.readouterr().out == FITTED
    write_run(Path("sweep/c"), model__h=4, data__train="text:corpora/europarl/commercial/train.{en,de}")
    monkeypatch.delenv("COLUMNS")
    show(options(), ["."])
    wide = capsys.readouterr().out
    assert wide.splitlines()[2].split()[-4:] == ["minutes", "h", "device", "train"]
    assert "text:cor…l/train.{en,de}" in wide
    for index in range(20):
        write_run(Path(f"sweep/d{index}"), optim__lr=0.001 * index, data__cache=f"{'deep/' * 9}{index}", seed=index)
    show(options(), ["."])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 120


def test_columns_and_the_order_of_rows_are_chosen_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, nll in enumerate((9.0, 10.0, 8.0)):
        write_run(Path(f"{number}"), nll=nll, optim__lr=10.0 ** -(number + 3))
    (tmp_path / "3" / "checkpoints").mkdir(parents=True)
    show(options(sort="-nll", columns=["optim.lr", "nll"], csv=True), ["."])
    assert capsys.readouterr().out.split() == ["lr,nll", "0.0001,10.1000", "0.001,9.1000", "1e-05,8.1000", ","]
    show(options(sort="lr", columns=["lr"], csv=True), ["."])
    assert capsys.readouterr().out.split() == ["lr", "1e-05", "0.0001", "0.001", '""']
    with pytest.raises(UserError, match="--sort: there is no column speed; there are run, state, step, nll"):
        show(options(sort="speed"), ["."])


def evaluate(run: Path, bleu: float, split: str = "test", beam: int = 4, time: str = "1", **others: Any) -> None:
    """Writes what `python -m infer` leaves in a run."""
    path = run / "evaluations" / f"{split}-{beam}-{time}.json"
    path.parent.mkdir(exist_ok=True)
    signatures = {"sacrebleu": "case:mixed", "sacrebleu_lc": "case:lc"}
    scores = {"sacrebleu": bleu, "sacrebleu_lc": bleu + 1, "signatures": signatures}
    of_it = {"split": split, "data": f"grammar:{split}:9", "checkpoint": "latest", "beam": beam, "time": time}
    path.write_text(json.dumps(scores | of_it | others))


SCORES = """\
split test, checkpoint latest, beam 4

runs   lr          BLEU
----  ---  ------------
   3  0.1  31.00 ± 1.00
   1  0.2         20.00

not evaluated: 1 of 5 runs
not trained to the end: 1 of 4 runs
test is grammar:test:9
BLEU: case:mixed
"""


def test_scores_are_means_over_the_seeds_of_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        evaluate(write_run(Path(f"a{seed}"), seed=seed, optim__lr=0.1), 30 + seed)
    evaluate(Path("a2"), 1.0, time="0")  # an earlier one of the same
    evaluate(write_run(Path("b"), steps=5, optim__lr=0.2), 20.0)
    write_run(Path("c"))
    (tmp_path / "b" / "evaluations" / "heads.json").write_text('{"heads": []}')
    show(options(scores=True), ["."])
    assert capsys.readouterr().out == SCORES
    show(options(scores=True, latex=True), ["."])
    assert r"3 & 0.1 & 31.00 $\pm$ 1.00 \\" in capsys.readouterr().out.splitlines()
    show(options(scores=True, csv=True, columns=["run", "seed", "BLEU"]), ["."])
    assert capsys.readouterr().out.split()[1:] == ["a0,0,30.00", "a1,1,31.00", "a2,2,32.00", "b,0,20.00"]


def test_evaluations_that_are_of_other_things_have_a_row_each(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", data__lowercase=True)
    evaluate(run, 30.0)
    evaluate(run, 29.0, beam=1)
    evaluate(run, 40.0, split="valid")
    evaluate(run, 50.0, members=["1", "2"], time="2")
    table = scores_of(find_runs([str(tmp_path)]))
    places = [table.head.index(name) for name in ("split", "members", "beam", "BLEU")]
    assert [tuple(row[place] for place in places) for row in table.rows] == [
        ("test", "", "1", "30.00"),
        ("test", "", "4", "31.00"),
        ("test", "2", "4", "51.00"),
        ("valid", "", "4", "41.00"),
    ]
    with pytest.raises(UserError, match="none of these runs has been evaluated"):
        scores_of(find_runs([str(write_run(tmp_path / "other"))]))


def test_a_folder_s_name_is_no_formula(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / "$\\b$" / str(seed), seed=seed)
    runs = find_runs([str(tmp_path)])
    draw(runs, tmp_path / "curves.svg")
    assert "$\\b$/0 (2 runs) -->" in (tmp_path / "curves.svg").read_text()


def test_a_run_that_was_stopped_in_its_last_validation_is_not_done(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    assert rows(tmp_path)["run"][:2] == ("done", "10/10")
    *kept, last = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    assert '"valid"' in last
    (folder / "metrics.jsonl").write_text("".join(kept))
    assert rows(tmp_path)["run"][:2] == ("stopped", "10/10")


def test_keys_that_end_alike_have_their_whole_names_in_the_legend(tmp_path: Path) -> None:
    write_run(tmp_path / "a", eval__every=10)
    write_run(tmp_path / "b", checkpoint__every=10)
    runs = find_runs([str(tmp_path)])
    draw(runs, tmp_path / "curves.svg")
    assert "<!-- checkpoint.every=1500, eval.every=10 -->" in (tmp_path / "curves.svg").read_text()


def test_a_link_to_a_run_is_a_run_and_other_links_are_not_followed(tmp_path: Path) -> None:
    write_run(tmp_path / "disk" / "moved")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "one").symlink_to(tmp_path / "disk" / "moved")
    (tmp_path / "runs" / "disk").symlink_to(tmp_path / "disk")
    assert [run.path for run in find_runs([str(tmp_path / "runs")])] == [tmp_path / "runs" / "one"]

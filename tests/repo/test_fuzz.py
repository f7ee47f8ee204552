"""Three hundred damaged runs, files and flags: each is refused in one line, or makes no difference to the result."""

import json
import os
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import tiny
from tests.fuzzing import Done, run
from tests.planted import plant, planted_config, scores
from vaswani.train.sweep.plan import open_plan
from vaswani.train.sweep.point import Outcome
from vaswani.train.sweep.study import Study

CASES, SEED = 300, 24
MARKERS = {
    "README.md": ("<!-- results: made by `python -m paper.results` -->", "<!-- end of results -->"),
    "docs/results.md": ("<!-- results: made by `python -m paper.results` -->", "<!-- end of results -->"),
    "docs/tables.md": ("<!-- results: made by `python -m paper.results` -->", "<!-- end of results -->"),
}
TREE = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ sleeps)) (. .)))"
PLAN = {
    "kind": "grid",
    "config": {"steps": 10, "seed": 0, "model": {"h": 8}, "eval": {"every": 5, "every_epochs": 0}},
    "storage": None,
    "study": "s",
}

# What stands in the place of one value of a JSON file, of a number and of a path in a flag, and of a whole file.
VALUES = ("9" * 5000, "null", "[]", "{}", '"x"', "[[[]]]")
NUMBERS = ("9" * 5000, "x", "", "1e400", "nan")
PATHS = ("~nosuchuser/x", "a" * 300, "", "nowhere/x", "a" * 5000, "s3://bucket/x")
CONTENTS = (b"", b"[", b"[1, 2]", b"\xff\xfe\0", b"null", b"\xed\xa0\x80\n", b"rubbish" * 999)


class Command(NamedTuple):
    """A command over a prepared folder, DIR in its arguments, and what of it can be damaged.

    `json` and `other` are patterns of files below the folder, `paths` and `numbers` flags; `result` is what must be the
    same wherever the command ends with 0.
    """

    arguments: tuple[str, ...]
    result: Callable[[Path, Done], Any] = lambda folder, done: done.out
    json: tuple[str, ...] = ()
    other: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    stdin: str = ""

    @property
    def name(self) -> str:
        return self.arguments[0]


def timeless(folder: Path, done: Done) -> str:
    return "\n".join(line for line in done.out.splitlines() if "seconds" not in line)


def counted(folder: Path, done: Done) -> dict[str, dict[str, Any]]:
    """What was prepared; the same text may be in the cache under another name."""
    names = ("spec", "source_language", "target_language")
    found = json.loads(done.out)
    return {split: {key: found[split][key] for key in found[split] if key not in names} for split in found}


def learned(folder: Path, done: Done) -> list[dict[str, Any]]:
    """The measures of the updates that were made, but not how long they took."""
    lines = map(json.loads, (folder / "trained" / "metrics.jsonl").read_text().splitlines())
    left_out = ("seconds", "tokens_per_second")
    return [{key: line[key] for key in line if key not in left_out} for line in lines if line["step"] > 8]


def recorded(folder: Path, done: Done) -> str:
    return (folder / "paper" / "records" / "runs.jsonl").read_text()


SAVED = ("run/checkpoints/4/_CHECKPOINT_METADATA", "run/checkpoints/3/metrics/metrics")
ARRAYS = ("run/checkpoints/*/SHA256SUMS", "run/checkpoints/4/state/**/*", "run/tokenizer.model")
OPEN = {"json": ("run/config.json", *SAVED), "other": ARRAYS}
PAIR = ("in.en", "out.de")
PLANTED = ("runs/*/*.json", "runs/*/*.jsonl", "runs/*/evaluations/*.json")
COMMANDS = (
    Command(
        ("infer.translate", "--workdir=DIR/run", "--beam=2", "--nbest=2"),
        **OPEN,
        paths=("workdir",),
        numbers=(
            "beam",
            "nbest",
            "alpha",
            "extra_length",
            "columns",
            "seed",
            "chunk",
            "checkpoint",
            "max_input",
            "batch_tokens",
        ),
        stdin="in.en",
    ),
    Command(
        ("infer", "--workdir=DIR/run", "--source=DIR/in.en", "--reference=DIR/out.de", "--output=DIR/o", "--beam=1"),
        timeless,
        **{**OPEN, "other": (*ARRAYS, *PAIR)},
        paths=("workdir", "source", "reference", "output"),
        numbers=("beam", "alpha", "extra_length", "checkpoint", "row_length", "batch_tokens"),
    ),
    Command(
        ("infer.score", "--hypothesis=DIR/in.en", "--reference=DIR/out.de", "--baseline=DIR/in.en"),
        other=PAIR,
        paths=("hypothesis", "reference", "baseline"),
    ),
    Command(("infer.inspect", "--workdir=DIR/run"), json=SAVED, other=ARRAYS[:2], paths=("workdir",)),
    Command(
        ("infer.rescore", "--workdir=DIR/run", "--source=DIR/in.en", "--nbest=DIR/lists"),
        **{**OPEN, "other": (*ARRAYS, "in.en", "lists")},
        paths=("workdir", "source", "nbest"),
        numbers=("checkpoint",),
    ),
    Command(
        ("infer.align", "--workdir=DIR/run", "--source=DIR/in.en", "--target=DIR/out.de", "--layer=1"),
        **{**OPEN, "other": (*ARRAYS, *PAIR)},
        paths=("workdir", "source", "target"),
        numbers=("layer", "checkpoint"),
    ),
    Command(
        ("infer.brackets", "--gold=DIR/gold", "--parsed=DIR/gold", "--parameters=DIR/evalb"),
        other=("gold", "evalb"),
        paths=("gold", "parsed", "parameters"),
    ),
    Command(
        ("infer.parse", "--workdir=DIR/run", "--trees=DIR/gold", "--beam=1", "--output=DIR/o"),
        timeless,
        **{**OPEN, "other": (*ARRAYS, "gold")},
        paths=("workdir", "trees", "parameters", "output"),
        numbers=("beam", "alpha", "extra_length", "checkpoint"),
    ),
    Command(
        ("infer.attention_maps", "--workdir=DIR/run", "--source=The dog.", "--target=Der", "--output=DIR/a.html"),
        lambda folder, done: (folder / "a.html").read_text(),
        **OPEN,
        paths=("workdir", "output"),
        numbers=("layer", "head", "checkpoint"),
    ),
    Command(
        ("train", "--config=DIR/tiny_config.py", "--workdir=DIR/trained", "--config.steps=12"),
        learned,
        json=("trained/*.json", "trained/metrics.jsonl", "trained/checkpoints/*/*/metadata", "cache/*/manifest.json"),
        other=("trained/checkpoints/8/**/*", "trained/tokenizer.model", "cache/*/*", "cache/*.*", "*.en", "*.de"),
        paths=("workdir", "config.data.cache", "config.data.train", "config.data.tokenizer", "init"),
        numbers=("config.model.N", "config.steps", "config.optim.lr", "config.data.vocab_size", "config.seed"),
    ),
    Command(
        ("data.prepare", "--config=DIR/tiny_config.py"),
        counted,
        json=("cache/*/manifest.json",),
        other=("cache/*/*", "cache/*.*", "*.en", "*.de", "tiny_config.py"),
        paths=("config.data.cache", "config.data.train", "config.data.valid", "config.data.tokenizer", "config"),
        numbers=("config.data.vocab_size", "config.data.max_length", "config.data.max_ratio"),
    ),
    Command(
        ("train.sweep", "--workdir=DIR/sweep", "--table"),
        json=("sweep/sweep/plan.json",),
        other=("sweep/sweep/plan.json", "sweep/sweep/study.db"),
        paths=("workdir", "storage"),
        numbers=("silence",),
    ),
    Command(("paper", "table3", "--runs=DIR/runs"), json=PLANTED, other=PLANTED, paths=("runs", "html")),
    Command(("paper", "table2", "--runs=DIR/runs"), json=PLANTED, other=PLANTED, paths=("runs", "html")),
    Command(
        ("paper.results", "--workdir=DIR/runs/one", "--name=mine", "--split=valid", "--allow_dirty"),
        recorded,
        json=("runs/one/*.json", "runs/one/evaluations/*.json", "runs/one/metrics.jsonl"),
        other=("runs/one/**/*",),
        paths=("workdir",),
    ),
)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the commands read, made under the name that its copies have: `case`."""
    folder = tmp_path_factory.mktemp("fuzz") / "case"
    folder.mkdir()
    tiny.write_run(folder / "run")
    sources, targets = ("".join(f"{pair[side]}\n" for pair in tiny.PAIRS) for side in (0, 1))
    (folder / "in.en").write_text(sources)
    (folder / "out.de").write_text(targets)
    (folder / "lists").write_text("0 ||| Der Hund. ||| 1\n3 ||| Du. ||| 2\n")
    (folder / "gold").write_text(f"{TREE}\n{TREE}\n")
    (folder / "evalb").write_text("DEBUG 0\nMAX_ERROR 10\nDELETE_LABEL TOP\nEQ_LABEL ADVP PRT\n")
    _sweep(folder / "sweep")
    config = planted_config("configs/ablations.py:base:small")
    plant(folder / "runs" / "one", config, scores(config, "valid", 20.0))
    other = planted_config("configs/base.py:en-fr:small")
    plant(folder / "runs" / "two", other, scores(other, "test", 21.0))
    for name, markers in MARKERS.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("\n".join(markers) + "\n")
    config_file = tiny.config_file(folder, tiny.training_config(folder))
    command = ["train", f"--config={config_file}", f"--workdir={folder}/trained", "--config.steps=8"]
    trained = run(command, folder)
    assert trained.status == 0, trained.err
    return folder.rename(folder.with_name("ready"))


def _sweep(folder: Path) -> None:
    open_plan(folder, PLAN)
    study = Study(folder, PLAN, None, 60, "none")
    study.enqueue({"base": {}, "h=4": {"model.h": 4}}, lambda trial: {}, retry=False)
    done = Outcome("done", "", {"step": 10, "nll": 2.0, "nll_best": 2.0, "loss": 2.5, "loss_best": 2.5})
    study.train_next(lambda point: done, lambda end: None)


def copied(ready: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ready, folder, symlinks=True)


def arguments(command: Command, folder: Path) -> list[str]:
    return [argument.replace("DIR", str(folder)) for argument in command.arguments]


def chosen_file(folder: Path, patterns: tuple[str, ...], dice: random.Random) -> Path:
    files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    return dice.choice(files)


def leaves(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(leaf for key, item in items for leaf in leaves(item, (*at, key)))] if at or items else [at]


def with_value(text: str, dice: random.Random, value: str) -> tuple[str, str]:
    """Returns JSON with one value replaced by another, and the place of it."""
    content = json.loads(text)
    place = dice.choice([leaf for leaf in leaves(content) if leaf] or [()])
    if not place:
        return value, "it"
    inside = content
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = "@@"
    return json.dumps(content).replace('"@@"', value), ".".join(map(str, place))


def damage_json(folder: Path, command: Command, dice: random.Random) -> str:
    path, value = chosen_file(folder, command.json, dice), dice.choice(VALUES)
    lines = path.read_text().splitlines(keepends=True) if path.suffix == ".jsonl" else [path.read_text()]
    number = dice.randrange(len(lines))
    lines[number], place = with_value(lines[number], dice, value)
    path.write_text("".join(line if line.endswith("\n") else f"{line}\n" for line in lines))
    return f"{path.relative_to(folder)}: {place} is {value[:20]}"


def damage_file(folder: Path, command: Command, dice: random.Random) -> str:
    path = chosen_file(folder, (*command.json, *command.other), dice)
    hows = ["pipe", "/dev/zero", "/dev/null", "folder", "nothing", "loop", *CONTENTS]
    if command.name == "paper":
        hows.remove("nothing")  # what is not there has not been run
    if path.parent == folder and path.suffix != ".py":
        hows = [how for how in hows if not isinstance(how, bytes) or b"\xff" in how]  # other text is text, too
    how = dice.choice(hows)
    path.unlink()
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif isinstance(how, bytes):
        path.write_bytes(how)
    elif how != "nothing":
        path.symlink_to(path if how == "loop" else how)
    return f"{path.relative_to(folder)} is {how!r:.30}"


def damage_flag(given: list[str], command: Command, dice: random.Random) -> str:
    name = dice.choice((*command.paths, *command.numbers))
    value = dice.choice(PATHS if name in command.paths else NUMBERS)
    given[:] = [one for one in given if not one.startswith(f"--{name}=")] + [f"--{name}={value}"]
    return f"--{name}={value[:20]}"


def damaged(folder: Path, given: list[str], command: Command, dice: random.Random) -> str:
    """Damages a value, a file or a flag; returns what, and how."""
    kind = dice.choice(["value"] * 3 * bool(command.json) + ["file"] * 2 + ["flag"] * 2)
    if kind == "flag":
        return damage_flag(given, command, dice)
    return (damage_json if kind == "value" else damage_file)(folder, command, dice)


def verdict(done: Done, result: Any, expected: Any) -> str:
    """Returns what is wrong with how a command ended; "" if nothing is."""
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    if done.status is None:
        return "a hang"
    if "Traceback" in done.err:
        return "a traceback"
    if done.status == 2:
        last = done.err.splitlines()[-1:]
        return "" if len(errors) == 1 and last == errors else f"{len(errors)} lines of error: {done.err[-300:]}"
    if done.status != 0:
        return f"status {done.status}: {done.err[-300:]}"
    if re.search("^(left out: |note: .* is damaged)", done.err, re.MULTILINE):  # and what is whole is used
        return ""
    if ": unfinished (0 of " in done.out:  # of updates that cannot be read none were made, and the table says so
        return ""
    return "" if result == expected else "another result"


@pytest.mark.long
@pytest.mark.parametrize("place", range(len(COMMANDS)), ids=[command.name for command in COMMANDS])
def test_what_is_damaged_is_refused_in_one_line_or_makes_no_difference(ready: Path, place: int) -> None:
    command, folder = COMMANDS[place], ready.parent / "case"
    copied(ready, folder)
    stdin = folder / command.stdin if command.stdin else None
    intact = run(arguments(command, folder), folder, stdin)
    assert intact.status == 0, intact.err
    expected = command.result(folder, intact)
    places: Counter[str] = Counter()
    failures = []
    for case in range(place, CASES, len(COMMANDS)):
        dice = random.Random(f"{SEED} {case}")
        copied(ready, folder)
        given = arguments(command, folder)
        what = damaged(folder, given, command, dice)
        done = run(given, folder, stdin)
        result = command.result(folder, done) if done.status == 0 else None
        places[re.sub(r"[ =:].*", "", what)] += 1
        if wrong := verdict(done, result, expected):
            failures.append(f"case {case}, {what}: {wrong}\n{done.err[-1500:]}")
    print(f"{command.name}: {sum(places.values())} cases, {len(places)} places, {len(failures)} failures")
    assert not failures, "\n".join(failures)

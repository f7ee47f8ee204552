"""The README's commands, executed from top to bottom in a clone that has nothing beside it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.written import FENCE
from vaswani.data.grammar.sentences import pair

ROOT = Path(__file__).parent.parent.parent

# Lines that are not executed. The pages' other tests read their flags and files.
LEFT_OUT = (
    r"make test\b",  # this test would start itself
    r"make install && \.venv/bin/pip install",  # needs the network
    r"\.venv/bin/python -m data\.prepare --config=configs/base\.py\b",  # downloads gigabytes
    r"\.venv/bin/python -m train --config=configs/base\.py\b",  # needs the download, and days
)
SHORT = {"steps": 20, "checkpoint.every": 2, "eval.every": 20, "data.vocab_size": 400, "data.tokens_per_batch": 512}
SHORT |= {"model.N": 1, "decode.extra_length": 3}
SMALL = {f"data.{split}": f"grammar:{split}:{pairs}" for split, pairs in (("train", 1000), ("valid", 8), ("test", 8))}


def script(page: str) -> str:
    """Returns the README's blocks as one script, without what is left out."""
    parts = ["set -e -o pipefail", ".venv/bin/python -c 'import vaswani.train as train; print(train.__file__)'"]
    used: set[str] = set()
    for language, block in FENCE.findall(page):
        if language == "python":
            parts.append(f"python - <<'END'\n{block}END")
        elif language == "":
            for line in block.replace("\\\n", " ").splitlines():
                left_out = [pattern for pattern in LEFT_OUT if re.match(pattern, line)]
                used.update(left_out)
                parts += [] if left_out else [line]
    assert used == set(LEFT_OUT), "the README has no longer every command that is left out"
    return "\n".join(parts)


def clone(folder: Path) -> None:
    """Clones the repository into `folder`, with the changes that are not committed yet."""
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    changes = subprocess.run(["git", "diff", "--binary", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    if changes:
        subprocess.run(["git", "apply"], cwd=folder, input=changes, check=True)


def install(folder: Path) -> None:
    """Makes a .venv in which `python` is the current one, and trainings are short; make takes it for installed."""
    short, small = (" ".join(f"--config.{key}={value}" for key, value in keys.items()) for keys in (SHORT, SMALL))
    programs = {
        "activate": f'PATH="{folder}/.venv/bin:$PATH"\n',
        "vaswani": f'#!/bin/sh\nexec "{folder}/.venv/bin/python" -m vaswani "$@"\n',
        "python": f"""#!/bin/sh
case "$*" in "-m train "*) set -- "$@" {short} ;; esac
case "$*" in "-m train "*configs/quickstart.py*) set -- "$@" {small} ;; esac
exec "{sys.executable}" "$@"
""",
    }
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name, text in programs.items():
        (folder / ".venv" / "bin" / name).write_text(text)
        (folder / ".venv" / "bin" / name).chmod(0o755)
    (folder / ".venv" / ".installed").touch()


def own_text(folder: Path) -> None:
    """Writes what the README calls the reader's own text."""
    (folder / "corpus").mkdir()
    for split, count in (("train", 300), ("valid", 8), ("test", 8)):
        pairs = [pair(split, index) for index in range(count)]
        (folder / "corpus" / f"{split}.en").write_text("".join(f"{one.english}\n" for one in pairs))
        (folder / "corpus" / f"{split}.de").write_text("".join(f"{one.german}\n" for one in pairs))
    (folder / "in.txt").write_text("The dog sleeps.\nWe read a new book.\n")


@pytest.mark.slow
def test_the_commands_of_the_readme_run_in_a_clone(tmp_path: Path) -> None:
    """All but `LEFT_OUT`, in their order and with the same Python; trainings make 20 small updates of one layer.

    For these the test appends `SHORT` to each `python -m train`, and `SMALL` to those of the built-in corpus.
    """
    folder = tmp_path / "clone"
    clone(folder)
    install(folder)
    own_text(folder)
    assert not (folder.parent / "shared").exists()
    commands = script((folder / "README.md").read_text(encoding="utf-8"))
    apart = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL")
    environment = {name: value for name, value in os.environ.items() if name not in apart}
    (tmp_path / "readme.sh").write_text(commands, encoding="utf-8")
    done = subprocess.run(
        ["bash", tmp_path / "readme.sh"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{commands}\n\n{done.stdout}\n\n{done.stderr}"

    assert done.stdout.splitlines()[0] == str(folder / "train" / "__init__.py"), "the code is the clone's"
    quickstart = folder / "runs" / "quickstart"
    made = {path.name for path in quickstart.iterdir()}
    assert {"attention.png", "attention.html", "explorer.html", "sample.de"} <= made
    assert json.loads((folder / "runs" / "one_head" / "config.json").read_text())["model"]["h"] == 1
    assert len((folder / "out.txt").read_text().splitlines()) == 2
    assert re.findall(r"^sacrebleu\w*", done.stdout, re.M) == ["sacrebleu", "sacrebleu_lc"], "of the reader's own text"
    assert "\n  infer.translate " in done.stdout, "vaswani --help"
    assert done.stdout.count(" ||| ") == 4, "two translations with their scores"
    assert "case:mixed" in done.stdout.splitlines()[-2], "the scores of the Python snippet"

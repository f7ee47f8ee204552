"""What every command has in common: complete help, mistakes in one line, and outputs that cannot be written."""

import ast
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import commands, tiny
from tests.slow import slow_but
from vaswani.infer.translate.__main__ import CHUNK, first_chunk
from vaswani.infer.translate.stream import Arriving, Columns, Lines, chunks, prompted, translate_stream, why_empty
from vaswani.infer.translate.translator import NOTHING, Hypothesis, Translation, Translator

ROOT = Path(__file__).parent.parent.parent
GUARD = '\nif __name__ == "__main__"'
SCOPES = (ast.FunctionDef, ast.ClassDef)  # what they hold is not run as the module is imported
ROOMS = ("data", "infer", "train", "paper")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__"): path
    for room in ROOMS
    for path in sorted((ROOT / room).rglob("*.py"))
}
COMMANDS = [module for module, path in MODULES.items() if GUARD in path.read_text()]
MAIN_COMMANDS = ("data.prepare", "infer", "infer.translate", "train", "paper")
UNLISTED = """
import contextlib, io, runpy, sys
module = sys.argv[1]
sys.argv, output = ["x", "--help"], io.StringIO()
with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
    runpy.run_module(f"vaswani.{module}", run_name="__main__", alter_sys=True)
from absl import flags
ours = [(name, defined) for name, defined in flags.FLAGS.flags_by_module_dict().items()
        if not name.startswith(("absl", "ml_collections", "grain", "orbax"))]
unlisted = [flag.name for _, defined in ours for flag in defined if f"--{flag.name}:" not in output.getvalue()
            and f"--[no]{flag.name}:" not in output.getvalue()]
print(unlisted)
"""


def check_help(module: str) -> None:
    """Asserts that --help lists every flag which the command's own code defines."""
    done = subprocess.run([sys.executable, "-c", UNLISTED, module], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("[]\n", ""), f"what --help of {module} does not list, and its stderr"


@pytest.mark.parametrize("module", slow_but(MAIN_COMMANDS, COMMANDS))
def test_help_lists_every_flag(module: str) -> None:
    check_help(module)


def test_only_commands_define_flags_as_they_are_imported() -> None:
    """What `main` imports comes after the flags have been read: a flag that it defined would be unknown."""
    late = []
    for room in ("vaswani", "data", "model", "search", "run", "tasks", "infer", "train", "paper"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text()
            body = [statement for statement in ast.parse(text).body if not isinstance(statement, SCOPES)]
            if GUARD not in text and any("DEFINE_" in ast.dump(statement) for statement in body):
                late.append(str(path.relative_to(ROOT)))
    assert late == []


@pytest.mark.parametrize("module", slow_but(MAIN_COMMANDS, COMMANDS))
def test_a_closed_pipe_ends_quietly_and_a_full_disk_in_one_line(module: str) -> None:
    command = [sys.executable, "-m", module, "--help"]
    reading, writing = os.pipe()
    os.close(reading)
    closed = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writing)
    assert (closed.returncode, closed.stderr) == (141, "")
    if not Path("/dev/full").exists():
        return
    with Path("/dev/full").open("w") as disk:
        full = subprocess.run(command, stdout=disk, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert (full.returncode, full.stderr) == (
        2,
        "error: standard output cannot be written (No space left on device)\n",
    )


def test_output_that_stops_being_read_or_stored_while_it_is_written(tmp_path: Path) -> None:
    """Of a command that prints more than a buffer, and that writes a file."""
    script = tmp_path / "command.py"
    script.write_text(
        "import errno, sys\nfrom pathlib import Path\nfrom absl import flags\nfrom vaswani.command import run\n"
        "def main(argv):\n    if argv[1:]:\n        raise OSError(errno.ENOSPC, 'No space left on device', argv[1])\n"
        "    for line in range(100_000):\n        print(line)\n"
        "run(main)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    shell = f"{sys.executable} {script} | head -1; echo ${{PIPESTATUS[0]}}"
    piped = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, env=environment)
    assert (piped.stdout, piped.stderr) == ("0\n141\n", "")
    named = subprocess.run([sys.executable, script, "a.txt"], capture_output=True, text=True, env=environment)
    assert (named.returncode, named.stderr) == (2, "error: a.txt cannot be written (No space left on device)\n")


@pytest.mark.parametrize(
    ("body", "status", "printed", "line"),
    [
        ("raise UserError('a\\nb' + '\\033[2J')", 2, "", "error: a\\nb\\x1b[2J"),
        ("raise UserError('9' * 5000)", 2, "", f"error: {'9' * 1000} ... {'9' * 500}"),
        ("raise MemoryError", 2, "", "error: there is not enough memory: take less at a time"),
        (
            "raise RuntimeError('Unable to initialize backend: it is in use\\nmore')",
            2,
            "",
            "error: Unable to initialize backend: it is in use",
        ),
        (
            "raise RuntimeError(\"Unable to initialize backend 'tpu': no libtpu.so (set JAX_PLATFORMS='' to choose)\")",
            2,
            "",
            "error: Unable to initialize backend 'tpu': no libtpu.so; a TPU needs the extra tpu: "
            "pip install -e '.[tpu]'",
        ),
        (
            "raise RuntimeError('RESOURCE_EXHAUSTED: Out of memory\\nmore')",
            2,
            "",
            "error: there is not enough memory: RESOURCE_EXHAUSTED: Out of memory; a larger --config.optim.accumulate "
            "makes the same updates in less, a smaller --batch_tokens the same searches; validation and scoring read a "
            "line whole: leave out the longest, or break it",
        ),
        (
            "raise RuntimeError('INTERNAL: Error dispatching computation: Out of memory allocating 9 bytes.')",
            2,
            "",
            "error: there is not enough memory: INTERNAL: Error dispatching computation: Out of memory allocating 9 "
            "bytes.; a larger --config.optim.accumulate makes the same updates in less, a smaller --batch_tokens the "
            "same searches; validation and scoring read a line whole: leave out the longest, or break it",
        ),
        ("raise PermissionError(13, 'Permission denied', 'a/b')", 2, "", "error: a/b: Permission denied"),
        ("print('a\\ud800b')", 0, "a\\ud800b\n", ""),
    ],
)
def test_whatever_is_wrong_is_one_line(tmp_path: Path, body: str, status: int, printed: str, line: str) -> None:
    script = tmp_path / "command.py"
    script.write_text(
        "from vaswani.command import run\nfrom vaswani.errors import UserError\n"
        f"def main(argv):\n    {body}\nrun(main)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (status, printed, f"{line}\n" if line else "")


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["data.prepare", "--config", "none.py"], "error: --config=none.py: no such file"),
        (
            ["infer.translate", "--workdir=x", f"--columns={'9' * 5000}"],
            ": columns are different numbers from 1 to 999999; --help lists the flags",
        ),
    ],
)
def test_a_flag_with_a_wrong_value_is_one_line(command: list[str], line: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, cwd=ROOT, timeout=100)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert line in done.stderr


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["train", "--config=configs/quickstart.py"], "error: --workdir=DIR is missing; --help lists the flags\n"),
        (["infer.translate"], "error: --workdir=DIR is missing; --help lists the flags\n"),
        (["infer.align", "--workdir=x", "--target=x"], "error: --source=... is missing; --help lists the flags\n"),
        (
            ["infer.translate", "--workdir=README.md"],
            "error: --workdir=README.md: this is a file; name the folder of a run\n",
        ),
        (
            ["infer.attention_maps", "--workdir=x", "--source= ", "--output=x.png"],
            "error: --source is empty: give a sentence\n",
        ),
        (
            ["infer", "--workdir=x", "--source=a", "--reference=b", "--reference=c"],
            "error: --reference is given 2 times, and only the last would count: give one\n",
        ),
        (
            ["infer.translate", "--workdir=x", "--columns=2", "--columns=3"],
            "error: --columns is given 2 times, and only the last would count: give one\n",
        ),
        (
            ["infer.translate", "--beam=2", "--beam=3", "--workdir=README.md"],
            "error: --workdir=README.md: this is a file; name the folder of a run\n",
        ),
        (
            [
                "train",
                "--config=configs/base.py",
                "--config.data.test=a",
                "--config.data.test=b",
                "--workdir=README.md",
            ],
            "error: --workdir=README.md: README.md is a file; name a folder\n",
        ),
        (
            ["train", "--config=configs/quickstart.py", "--workdir=README.md"],
            "error: --workdir=README.md: README.md is a file; name a folder\n",
        ),
    ],
)
def test_what_is_missing_or_of_another_kind_is_answered_in_one_line(command: list[str], line: str) -> None:
    done = commands.run(*command)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_help_names_no_path_and_quotes_no_number() -> None:
    done = subprocess.run([sys.executable, "-m", "infer", "--help"], capture_output=True, text=True, cwd=ROOT)
    assert str(ROOT) not in done.stdout and "default: '" not in done.stdout
    assert done.stdout.index("python -m infer --workdir") < done.stdout.index("Flags:")


@pytest.mark.parametrize("module", ["train", "vaswani"])
def test_the_version_is_printed(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.match(r"vaswani \d+\.\d+", done.stdout)


def test_a_reader_that_has_gone_ends_the_list_of_commands_too() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "vaswani", "--help"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_what_is_meant_for_a_closed_standard_error_goes_nowhere(tmp_path: Path) -> None:
    """Not to standard output, nor into the next file that is opened."""
    script = tmp_path / "command.py"
    script.write_text(
        "import os, sys\nfrom vaswani.command import run\nfrom vaswani.errors import UserError\n"
        "def main(argv):\n    with open(argv[1], 'wb'):\n        os.write(2, b'of a library')\n"
        "    print('a result')\n    sys.stderr.isatty()\n"
        "    print('of a file in no encoding: \\udcff', file=sys.stderr)\n    raise UserError('a mistake')\n"
        "run(main)\n"
    )
    written, environment = tmp_path / "written", os.environ | {"PYTHONPATH": str(ROOT)}
    for closed in ("2>&-", "2>&- <&-"):
        shell = f"{sys.executable} {script} {written} {closed}"
        done = subprocess.run(["bash", "-c", shell], stdout=subprocess.PIPE, text=True, env=environment)
        assert (done.returncode, done.stdout, written.read_bytes()) == (2, "a result\n", b"")


@pytest.mark.parametrize("command", ["data.prepare", "infer.translate", "train", "paper", "vaswani"])
def test_an_older_python_is_told_which_one_is_needed(command: str) -> None:
    older = "import runpy, sys; sys.version_info = (3, 10, 13, 'final', 0); sys.argv[0] = '-m'"
    program = f"{older}; runpy.run_module({command!r}, run_name='__main__', alter_sys=True)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    told = f"error: Python 3.11 or newer is needed; {sys.executable} is 3.10; `make quickstart PYTHON=python3.12` "
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(told)
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize("room", ["vaswani", *ROOMS])
def test_what_an_older_python_reads_first_has_no_newer_syntax(room: str) -> None:
    ast.parse((ROOT / room / "__init__.py").read_text(), feature_version=(3, 8))


def test_ctrl_c_during_a_late_import_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text("import os\nos.kill(os.getpid(), 2)\nraise SystemExit('went on')\n")
    (tmp_path / "command.py").write_text(
        "from vaswani.command import run\ndef main(argv):\n    import late\nrun(main)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, tmp_path / "command.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.slow
def test_ctrl_c_ends_a_translation_at_once_with_130(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infer.translate", f"--workdir={tiny.write_run(tmp_path / 'run')}", "--chunk=1"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, **streams)
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(b"The dog sleeps.\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith(b"\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert b"Traceback" not in (errors := process.stderr.read()) and b"interrupted" in errors
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


# Interactive translation, and empty translations.


class Silent(Translator):
    """A translator that has nothing to say."""

    split_sentences = False
    tokenizer = SimpleNamespace(unknown=lambda texts: 0)

    def __init__(self) -> None:
        pass

    def translate(self, params, texts, *, first_line, progress, required):
        progress(len(texts))
        return [Translation((NOTHING._replace(log_prob=-1.0),)) for _ in texts]


def test_a_terminal_gets_a_prompt_for_each_line_and_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    lines = prompted(io.BytesIO(b"a\nb\n"))
    outputs = translate_stream(Lines(Silent(), {}, 1, False), lines, chunk=1, interactive=True)
    next(outputs)
    assert capsys.readouterr().err == "> "
    assert len(list(outputs)) == 1
    assert re.sub(r"note:.*\n", "", capsys.readouterr().err) == "> > \n"


def test_lines_of_a_pipe_are_translated_once_no_more_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vaswani.infer.translate.stream._PATIENCE", 0.01)
    reading, writing = os.pipe()
    os.write(writing, b"one\ntwo\nth")
    found = chunks(Arriving(reading), 1_000)
    assert next(found) == ["one", "two"]  # while the other end is still open
    os.write(writing, b"ree\n" + b"x\n" * 3 + b"end")
    os.close(writing)
    assert list(found) == [["three", "x", "x", "x", "end"]]
    os.close(reading)


def test_the_first_chunk_may_be_smaller() -> None:
    lines = [b"a\n"] * 7
    assert [len(chunk) for chunk in chunks(lines, 3, 1)] == [1, 3, 3]
    assert [len(chunk) for chunk in chunks(lines, 3)] == [3, 3, 1]


def test_who_reads_the_output_as_it_comes_gets_a_smaller_first_chunk(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with (tmp_path / "out.txt").open("w") as file:
        assert first_chunk(file.fileno()) is None
    first = first_chunk(writing)
    assert first is not None and first < 100 < CHUNK
    os.close(reading)
    os.close(writing)


def test_a_pipe_that_does_not_wait_is_waited_for() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)

    def write() -> None:
        time.sleep(0.2)
        os.write(writing, b"a\n")
        os.close(writing)

    writer = threading.Thread(target=write)
    writer.start()
    assert list(Arriving(reading)) == [b"a\n"]
    writer.join()
    os.close(reading)


def test_text_without_a_translation_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    text = io.BytesIO(b"a\n\n" + b"b\n" * 9)
    list(translate_stream(Lines(Silent(), {}, 1, False), text, chunk=4))
    notes = capsys.readouterr().err.splitlines()
    assert notes[0].startswith("note: line 1: the translation is empty: the model's best output is to end at once")
    assert notes[1].startswith("note: line 3: ") and len(notes) == 6
    assert "11 lines, 10 texts without a translation" in notes[-1]


def test_cells_without_a_translation_are_explained_by_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    class SilentInColumns(Silent):
        def translate(self, params, texts, *, first_line):
            return super().translate(params, texts, first_line=first_line, progress=lambda rows: None, required=())

    table = io.BytesIO(b"a\tx\tb\nc\ty\t\nd\tz\te\n")
    outputs = translate_stream(Columns(SilentInColumns(), {}, [3, 1]), table, chunk=2)
    assert b"".join(outputs) == b"\tx\t\n\ty\t\n\tz\t\n"
    notes = capsys.readouterr().err.splitlines()
    assert [note[:13] for note in notes[:-1]] == [f"note: line {line}:" for line in (1, 1, 2, 3, 3)]
    assert "3 lines, 5 cells without a translation" in notes[-1]


@pytest.mark.parametrize(
    ("best", "why"),
    [
        (NOTHING, "the tokenizer keeps nothing of this line"),
        (NOTHING._replace(score=-float("inf")), "not finite"),
        (Hypothesis("", -1.0, -1.0, (3,)), "subwords without text"),
    ],
)
def test_why_a_translation_is_empty(best: Hypothesis, why: str) -> None:
    assert why in why_empty(Translation((best,)))

"""Progress: a bar on a terminal, plain lines in a log; jobs of known and of unknown size share one bar."""

import io
import re
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from base.progress import Bar, Progress
from train.metrics import Reporter


class Terminal(io.StringIO):
    """What a terminal receives."""

    def isatty(self) -> bool:
        return True

    def text(self) -> str:
        """Returns it without control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_a_job_of_known_size_shows_how_much_is_done_a_note_and_messages_above(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        bar = Bar("training", total=12, done=3)
        bar.start()
        bar.message("step 4/12 valid: loss [bold] 1")
        bar.update(5)
        bar.note("loss 2.5")
        bar.stop()
    first, *_, last = [line.strip() for line in terminal.text().splitlines() if line.strip()]
    assert "step 4/12 valid: loss [bold] 1" in terminal.text()  # as it is, without markup
    assert first.startswith("3/12 ")
    assert last.startswith("5/12 ") and "loss 2.5" in last


def test_a_job_of_unknown_size_leaves_one_line(terminal: Terminal) -> None:
    with redirect_stderr(terminal), Progress("reading", "lines") as progress:
        assert list(progress.count("abc")) == ["a", "b", "c"]
    assert "reading" in terminal.text().splitlines()[0]
    assert re.fullmatch(r"reading: 3 lines, \d+\.\d s", terminal.text().splitlines()[-1].strip("\r"))


def test_a_log_gets_messages_but_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar("training", total=12)
    bar.start()
    bar.update(5)
    bar.note("loss 2.5")
    bar.message("resuming")
    bar.stop()
    assert capsys.readouterr().err == "resuming\n"


def test_what_is_not_enabled_shows_nothing(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        bar = Bar("training", total=12, enabled=False)
        bar.start()
        bar.update(5)
        bar.message("resuming")
        bar.stop()
        with Progress("reading", "lines", enabled=False) as progress:
            progress.update(5)
    assert terminal.getvalue() == ""


def test_training_shows_its_last_record_beside_the_bar(terminal: Terminal, tmp_path: Path) -> None:
    with redirect_stderr(terminal), Reporter(tmp_path, lambda step: 0.1, first=4, last=12, every=4) as reporter:
        reporter.validation(4, {"loss": 1.0, "nll": 1.0, "perplexity": 2.718})
    assert "step 4/12 valid: loss 1.0000  perplexity 2.72" in terminal.text()
    assert " 3/12 " in terminal.text()

"""Progress: a bar on a terminal, plain lines in a log; jobs of known and of unknown size share one bar."""

import io
import re
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import pytest

from vaswani.progress import Bar, Progress
from vaswani.tasks.loss import Loss
from vaswani.train.metrics import Reporter
from vaswani.train.step import Sums


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


def _sums() -> Sums:
    loss = Loss(np.float32(16), np.float32(16), np.float32(8))
    return Sums(loss, np.int32(8), np.float32(1))


def test_a_job_of_known_size_shows_how_much_is_done_a_note_and_messages_above(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        bar = Bar("training", total=12, done=3, stays=True)
        bar.start()
        bar.message("step 4/12 valid: loss [bold] 1, of grammar:train:5000")
        bar.update(5)
        bar.stop()
    first, *_, last = [line.strip() for line in terminal.text().splitlines() if line.strip()]
    assert "step 4/12 valid: loss [bold] 1, of grammar:train:5000" in terminal.text()  # as it is, without markup
    assert first.startswith("training  3/12 ")
    assert last.startswith("training  5/12 ")


def test_80_columns_hold_job_count_bar_and_time(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with redirect_stderr(terminal), Progress(f"preparing text:{'x' * 99}", "pairs", total=450_000) as progress:
        progress.update(200_000)
    first = terminal.text().splitlines()[0]
    assert re.search(r" 0/450,000 ━{20} -:--:--$", first)
    assert first.startswith("preparing text:xx") and len(first) <= 80


def test_a_job_inside_another_is_a_row_of_its_display(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        bar = Bar("training", total=12, done=3, stays=True)
        bar.start()
        with Progress("validating", "batches", total=40, is_summarised=False) as progress:
            assert list(progress.count("abc")) == ["a", "b", "c"]
            bar.message("between")
        bar.update(12)
        bar.stop()
    lines = [line.strip() for line in terminal.text().splitlines()]
    assert any(line.startswith("validating") and "/40 ━" in line for line in lines)
    assert lines[-1].startswith("training 12/12 ")
    assert "batches" not in terminal.text()


def test_a_job_of_unknown_size_leaves_one_line(terminal: Terminal) -> None:
    with redirect_stderr(terminal), Progress("reading", "lines") as progress:
        assert list(progress.count("abc")) == ["a", "b", "c"]
    assert "reading" in terminal.text().splitlines()[0]
    assert re.fullmatch(r"reading: 3 lines, \d+\.\d s", terminal.text().splitlines()[-1].strip("\r"))


def test_a_log_gets_messages_but_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar("training", total=12)
    bar.start()
    bar.update(5)
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


def test_a_log_gets_a_line_of_a_long_job_with_its_total(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vaswani.progress._SECONDS_BETWEEN_LINES", -1.0)
    with Progress("scoring", "sentences", total=3, is_summarised=False) as progress:
        assert list(progress.count("abc")) == ["a", "b", "c"]
    lines = [re.sub(r"\d+\.\d s", "T", line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [f"scoring: {done} of 3 sentences so far, T" for done in (1, 2, 3)]


def test_training_prints_its_records_above_the_bar(terminal: Terminal, tmp_path: Path) -> None:
    with redirect_stderr(terminal), Reporter(tmp_path, lambda step: 0.1, first=4, last=12, every=4) as reporter:
        reporter.update(4, _sums(), positions=16)
        reporter.record_validation(4, {"loss": 1.0, "nll": 1.0, "perplexity": 2.718})
    assert "step 4/12 train: loss 2.0000  nll 2.0000  perplexity 7.39  lr 1.00e-01" in terminal.text()
    assert "step 4/12 valid: loss 1.0000  nll 1.0000  perplexity 2.72" in terminal.text()
    assert " 3/12 " in terminal.text()


def test_a_log_has_no_plural_of_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vaswani.progress._SECONDS_BETWEEN_LINES", -1.0)
    for total in (None, 1, 2):
        with Progress("translating", "lines", total=total) as progress:
            progress.update(1)
    lines = [line.rpartition(",")[0] for line in capsys.readouterr().err.splitlines()]
    expected = ["1 line so far", "1 line", "1 of 1 line so far", "1 line", "1 of 2 lines so far", "1 line"]
    assert lines == [f"translating: {text}" for text in expected]

"""What users name: paths, pipes and counts are refused, or read, where they enter; nothing is waited for."""

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from vaswani.data.images import open_images
from vaswani.data.imported import open_tokenizer
from vaswani.data.lines import file_digest, read_lines
from vaswani.data.sources import open_corpus
from vaswani.errors import UserError
from vaswani.files import output_file
from vaswani.infer.rescore import parse_lists
from vaswani.infer.scores.brackets import read_parameters
from vaswani.infer.scores.pairs import read_pair
from vaswani.numbers import whole
from vaswani.paper import command
from vaswani.run.choice import choose
from vaswani.run.lock import check_ours
from vaswani.run.saved import Checkpoint, fault

FILES = ("tsv:{}", "lines:{}", "chars:{}:train", "trees:{}", "parquet:{}:{{en,de}}")
CORPORA = (*FILES, "text:{}.{{en,de}}", "tfds:{}:{{en,de}}")
NOBODY = "~nosuchuser/x"


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_corpus_in_the_home_of_nobody(corpus: str) -> None:
    with pytest.raises(UserError, match="there is no user nosuchuser"):
        open_corpus(corpus.format(NOBODY))


def test_a_file_in_the_home_of_nobody() -> None:
    for read in (
        lambda: read_pair(NOBODY, "x"),
        lambda: read_parameters(NOBODY),
        lambda: file_digest(Path(NOBODY)),
        lambda: open_images(f"idx:{NOBODY},x", (8, 8), 10),
        lambda: output_file("output", NOBODY),
    ):
        with pytest.raises(UserError, match="there is no user nosuchuser"):
            read()


@pytest.fixture(params=["pipe", "/dev/zero"])
def endless(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The name of what would be read for ever."""
    if request.param == "pipe":
        os.mkfifo(tmp_path / "pipe")
    return request.param if request.param.startswith("/") else str(tmp_path / request.param)


@pytest.mark.parametrize("corpus", FILES)
def test_a_corpus_is_a_regular_file(endless: str, corpus: str) -> None:
    with pytest.raises(UserError, match=rf"^{endless}: cannot be read \(not a regular file\)$"):
        open_corpus(corpus.format(endless))


def test_other_files_are_regular_ones(endless: str, tmp_path: Path) -> None:
    for read in (
        lambda: list(read_lines(Path(endless))),
        lambda: open_tokenizer(endless),
        lambda: open_images(f"idx:{endless},x", (8, 8), 10),
    ):
        with pytest.raises(UserError, match=r"\(not a regular file\)$"):
            read()
    (tmp_path / "SHA256SUMS").symlink_to(endless)
    assert "not a regular file" in str(fault(tmp_path))
    (tmp_path / "lock").symlink_to(endless)
    check_ours(tmp_path)


def test_the_output_of_a_command_is_read_as_a_file() -> None:
    """A shell gives `<(zcat FILE)` as /dev/fd/N, an open pipe."""
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write("Zwölf\nLines\n".encode())

    thread = threading.Thread(target=write)
    thread.start()
    assert list(read_lines(Path(f"/dev/fd/{reading}"))) == ["Zwölf", "Lines"]
    thread.join()
    os.close(reading)


@pytest.mark.parametrize("digits", [23, 400, 5000])
def test_numbers_of_many_digits_are_none(digits: int) -> None:
    number = "9" * digits
    assert whole(number) is None
    for spec in (f"grammar:test:{number}", f"trees:grammar:test:{number}", f"lines:grammar:test:{number}"):
        with pytest.raises(UserError, match=r"the grammar makes up to 100,000,000 sentences$"):
            open_corpus(spec)
    for choice in (number, f"average:{number}", f"average-best:{number}"):
        with pytest.raises(UserError, match=r"no checkpoint at step|is not a choice"):
            choose(choice, [Checkpoint(1, 0.0, {})])
    with pytest.raises(UserError, match=r"line 1: it must be LINE \|\|\| TEXT, with LINE from 0 to 1"):
        parse_lists("lists", [f"{number} ||| x"], 2)


def test_whole_numbers() -> None:
    assert [whole(text) for text in ("0", "12", "9" * 18, "", "-1", "1.5", "²", "x")] == [
        0,
        12,
        10**18 - 1,
        *[None] * 5,
    ]


def test_the_file_of_the_figure_is_checked_before_the_runs_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "find_records", lambda folder: pytest.fail("too late"))
    flags = {"plot": str(tmp_path / "table1.txt"), "runs": str(tmp_path)}
    with pytest.raises(UserError, match=r"^--plot=.*table1\.txt"):
        command.show("table1", SimpleNamespace(**flags))

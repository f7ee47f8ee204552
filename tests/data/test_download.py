"""A corpus arrives whole and as it was pinned, or not at all; its files are served from 127.0.0.1."""

import gzip
import hashlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import pytest
from ml_collections import ConfigDict

from vaswani.data.corpora import CORPORA, ELSEWHERE, FOLDER, File, Source, corpus_folder
from vaswani.data.download import main
from vaswani.data.fetch import fetch
from vaswani.data.from_config import prepare_all
from vaswani.data.sources import open_corpus
from vaswani.errors import UserError

ROOT = Path(__file__).parent.parent.parent
CONTENT = b"".join(b"%d\n" % number for number in range(46_500))  # whose last block is short
SIZE = len(CONTENT)
HALF = 100_000


class Server(ThreadingHTTPServer):
    """Serves `content` under every address.

    Attributes:
      asked: the Range of each request, "" for none.
      content: what is served.
      has_ranges: whether it sends a part when it is asked for one.
      ends_after: bytes of its answers, after which the connection breaks off, or waits.
      waits: whether it then waits until `go`.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[str] = []
        self.content = CONTENT
        self.has_ranges = True
        self.ends_after: int | None = None
        self.waits = False
        self.go = threading.Event()

    def file(self) -> File:
        """Returns the file as it is pinned, whatever is served."""
        url = f"http://127.0.0.1:{self.server_port}/some/where/text.txt"
        return File(url, SIZE, hashlib.sha256(CONTENT).hexdigest())


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range", "")
        self.server.asked.append(asked)
        start = 0
        if asked and self.server.has_ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header(
                "Content-Range", f"bytes {start}-{len(self.server.content) - 1}/{len(self.server.content)}"
            )
        else:
            self.send_response(200)
        rest = self.server.content[start:]
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: self.server.ends_after])
        if self.server.waits:
            self.wfile.flush()
            self.server.go.wait()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks 127.0.0.1 itself, where the environment names a proxy."""
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.go.set()
        server.shutdown()
        thread.join()


def refusal(file: File, folder: Path) -> str:
    """Returns the one line with which a download is refused."""
    with pytest.raises(UserError) as refused:
        fetch(file, folder)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Returns once the condition holds; fails after so long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain"
        time.sleep(0.01)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_whole_and_only_once(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "corpora" / "mine"
    assert fetch(server.file(), folder).read_bytes() == CONTENT
    assert fetch(server.file(), folder) == folder / "text.txt"
    assert (names(folder), server.asked) == (["text.txt"], [""])


def test_what_was_broken_off_is_resumed(server: Server, tmp_path: Path) -> None:
    server.ends_after = HALF
    told = refusal(server.file(), tmp_path)
    assert f"broke off after {HALF:,} of {SIZE:,} bytes" in told and told.endswith("the same command resumes")
    assert names(tmp_path) == ["text.txt.part"]
    assert refusal(server.file(), tmp_path).count(f"after {2 * HALF:,} of") == 1
    server.ends_after = None
    assert fetch(server.file(), tmp_path).read_bytes() == CONTENT
    assert server.asked == ["", f"bytes={HALF}-", f"bytes={2 * HALF}-"]
    assert names(tmp_path) == ["text.txt"]


def test_a_server_that_sends_no_part_sends_all_of_it(server: Server, tmp_path: Path) -> None:
    server.has_ranges = False
    (tmp_path / "text.txt.part").write_bytes(CONTENT[:HALF])
    assert fetch(server.file(), tmp_path).read_bytes() == CONTENT
    assert server.asked == [f"bytes={HALF}-"]


def test_a_part_of_a_longer_file_is_begun_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "text.txt.part").write_bytes(CONTENT + b"more")
    assert fetch(server.file(), tmp_path).read_bytes() == CONTENT
    assert server.asked == [""]


def test_a_part_that_is_whole_needs_no_server(tmp_path: Path) -> None:
    (tmp_path / "text.txt.part").write_bytes(CONTENT)
    unreachable = File("http://127.0.0.1:9/text.txt", SIZE, hashlib.sha256(CONTENT).hexdigest())
    assert fetch(unreachable, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"", CONTENT[:HALF], CONTENT + b"more", b"x" * SIZE])
def test_a_file_with_another_sum_is_not_kept(server: Server, tmp_path: Path, part: bytes) -> None:
    if part:
        (tmp_path / "text.txt.part").write_bytes(part)
    server.content = bytes([CONTENT[0] ^ 1]) + CONTENT[1:-1] + b"\0"
    assert re.search("SHA-256 is not the one pinned for|longer than", refusal(server.file(), tmp_path))
    assert names(tmp_path) == []


def test_a_file_that_is_too_long_is_not_read_to_its_end(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT + b"x" * (1 << 20)
    server.ends_after = SIZE + 100_000
    server.waits = True  # whoever reads on waits for ever
    assert f"longer than {SIZE:,} bytes" in refusal(server.file(), tmp_path)
    assert names(tmp_path) == []


def test_a_file_of_another_content_is_left_alone(server: Server, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("mine\n")
    assert refusal(server.file(), tmp_path).endswith("delete it, and it is downloaded again")
    assert ((tmp_path / "text.txt").read_text(), server.asked) == ("mine\n", [])


def test_without_a_connection_the_message_says_where_to_put_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unresolved(*_: object, **__: object) -> NoReturn:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    told = refusal(File("http://127.0.0.1:9/text.txt", SIZE, "0" * 64), tmp_path)
    assert "cannot be downloaded ([Errno" in told and told.endswith(f"put it at {tmp_path}/text.txt")
    monkeypatch.setattr(socket, "getaddrinfo", unresolved)
    told = refusal(File("http://no.such.host.invalid/text.txt", SIZE, "0" * 64), tmp_path)
    assert "Name or service not known" in told and told.endswith(f"put it at {tmp_path}/text.txt")


def test_an_address_that_is_gone_is_told(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Answer, "do_GET", lambda answer: answer.send_error(404))
    assert "cannot be downloaded (HTTP 404, Not Found)" in refusal(server.file(), tmp_path)


def test_a_folder_that_cannot_be_written_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert refusal(server.file(), tmp_path / "file" / "mine").endswith("cannot be written (Not a directory)")
    read_only = tmp_path / "read_only"
    read_only.mkdir(mode=0o500)
    if os.geteuid() != 0:
        assert refusal(server.file(), read_only).endswith("cannot be written (Permission denied)")
    assert server.asked == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
def test_a_full_disk_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "text.txt.part").symlink_to("/dev/full")
    assert refusal(server.file(), tmp_path).endswith("cannot be written (No space left on device)")
    assert not (tmp_path / "text.txt").exists()


def test_a_second_process_does_not_write_into_the_first_ones_file(server: Server, tmp_path: Path) -> None:
    server.ends_after = HALF
    server.waits = True
    first = threading.Thread(target=lambda: refusal(server.file(), tmp_path))
    first.start()
    part = tmp_path / "text.txt.part"
    until(lambda: not first.is_alive() or (part.exists() and part.stat().st_size > 0))
    assert first.is_alive()
    assert refusal(server.file(), tmp_path).endswith("another process is downloading it")
    server.go.set()
    first.join()


COMMAND = """
import sys
from vaswani import command
from vaswani.data import corpora, download
from vaswani.data.corpora import File, Source
corpora.CORPORA["mine"] = Source("a text", "none", (File({url!r}, {size}, {sha256!r}),))
command.run(download.main)
"""


def started(server: Server, folder: Path) -> subprocess.Popen:
    """Starts `python -m data.download mine`, a corpus of the server's file."""
    url, size, sha256 = server.file()
    command = [sys.executable, "-c", COMMAND.format(url=url, size=size, sha256=sha256), "mine"]
    variables = {**os.environ, FOLDER: str(folder)}
    return subprocess.Popen(command, cwd=ROOT, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_an_interrupted_command_resumes(server: Server, tmp_path: Path) -> None:
    server.ends_after = HALF
    server.waits = True
    process = started(server, tmp_path)
    part = tmp_path / "mine" / "text.txt.part"
    until(lambda: process.poll() is not None or (part.exists() and part.stat().st_size >= HALF - (1 << 16)))
    process.send_signal(signal.SIGINT)
    _, told = process.communicate()
    assert process.returncode == 130 and "Traceback" not in told
    server.ends_after, server.waits = None, False
    server.go.set()
    output, told = started(server, tmp_path).communicate()
    assert output == f"{tmp_path}/mine\n"
    assert f"mine: a text; {SIZE / 1e6:.1f} MB; licence: none\n" in told
    assert (tmp_path / "mine" / "text.txt").read_bytes() == CONTENT
    assert len(server.asked) == 2 and re.fullmatch(r"bytes=\d+-", server.asked[1])


@pytest.mark.parametrize(("name", "how"), ELSEWHERE.items(), ids=ELSEWHERE)
def test_what_it_cannot_download_is_told(name: str, how: str) -> None:
    with pytest.raises(UserError) as refused:
        main(["download", name])
    assert str(refused.value) == f"{name}: this command cannot download it: {how}; the config says what it reads"


def test_an_unknown_corpus_is_told() -> None:
    with pytest.raises(UserError, match=r"^there is no corpus 'multi31k'; there are shakespeare, multi30k, "):
        main(["download", "multi31k"])


def test_without_a_name_it_says_which_there_are() -> None:
    with pytest.raises(UserError, match="multi30k, multi30k_published, sigmorphon2021"):
        main(["download"])


CONFIGS = {"shakespeare": "char_lm", "multi30k": "multi30k", "multi30k_published": "multi30k_published"}


def config(name: str):
    file, _, argument = name.partition(":")
    get_config = import_module(f"vaswani.configs.{file}").get_config
    return get_config(argument) if argument else get_config()


@pytest.mark.parametrize("name", CONFIGS)
def test_the_configs_read_every_file_that_is_downloaded_and_no_other(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert files_read(config(CONFIGS[name]).data) == {f"{tmp_path}/{name}/{file.name}" for file in CORPORA[name].files}


def files_read(data: ConfigDict) -> set[str]:
    """Returns the files that a config reads."""
    read: set[str] = set()
    for spec in filter(None, (data.train, data.valid, data.test)):
        path = re.sub(":(train|valid)$", "", spec.partition(":")[2])
        read |= {path.replace("{en,de}", language) for language in ("en", "de")}
    return read


@pytest.mark.parametrize("name", ["char_lm", "multi30k", "multi30k_published", "tatoeba", "news", "parsing"])
def test_a_missing_corpus_is_told_with_its_key(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path))
    data = config(name).data
    data.cache = str(tmp_path / "cache")
    with pytest.raises(UserError, match=f"^data.train: {tmp_path}/") as told:
        prepare_all(data)
    corpus = Path(str(told.value).removeprefix("data.train: ").partition(": no such file; ")[0]).parent.name
    advice = str(told.value).partition(": no such file; ")[2]
    if corpus in CORPORA:
        assert advice == f"`python -m data.download {corpus}` fetches it"
    else:
        assert advice.startswith(f"no command downloads it: {ELSEWHERE[corpus]}")
    data.train = "grammar:train:10"
    with pytest.raises(UserError, match=f"^data.valid: {tmp_path}/"):
        prepare_all(data)


def test_other_missing_files_get_no_advice(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"multi30k/train\.en: no such file$"):
        open_corpus(f"text:{tmp_path}/multi30k/train.{{en,de}}")


def test_a_file_is_read_where_there_is_only_a_compressed_one(tmp_path: Path) -> None:
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(b"x\ty\n"))
    assert list(open_corpus(f"tsv:{tmp_path}/a.tsv").pairs()) == [("x", "y")]
    (tmp_path / "a.tsv").write_text("p\tq\n")
    assert list(open_corpus(f"tsv:{tmp_path}/a.tsv").pairs()) == [("p", "q")]


def test_corpora_are_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert corpus_folder("multi30k") == "~/.cache/vaswani/corpora/multi30k"
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert corpus_folder("multi30k") == "/caches/vaswani/corpora/multi30k"
    monkeypatch.setenv(FOLDER, "mine")
    assert corpus_folder("multi30k") == "mine/multi30k"


@pytest.mark.parametrize("name", CORPORA)
def test_the_table_is_sound(name: str) -> None:
    source: Source = CORPORA[name]
    assert source.about and source.licence
    for file in source.files:
        assert file.url.startswith("https://raw.githubusercontent.com/")
        assert file.size > 0 and re.fullmatch("[0-9a-f]{64}", file.sha256)
    for values in (source.files, {file.name for file in source.files}, {file.sha256 for file in source.files}):
        assert len(values) == len(source.files)


def test_a_folder_in_the_home_of_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, "~nosuchuser/corpora")
    with pytest.raises(UserError, match=r"^shakespeare: ~nosuchuser/.*: there is no user nosuchuser"):
        main(["download", "shakespeare"])


def test_what_another_process_has_just_finished_is_not_added_to(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    lock = fcntl.flock
    part = tmp_path / "text.txt.part"

    def after_the_other(file: object, how: int) -> None:
        part.write_bytes(CONTENT)
        part.replace(tmp_path / "text.txt")
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", after_the_other)
    assert refusal(server.file(), tmp_path).endswith("give the same command again")
    assert (tmp_path / "text.txt").read_bytes() == CONTENT
    assert fetch(server.file(), tmp_path).read_bytes() == CONTENT


def test_a_file_that_cannot_be_read_is_told(server: Server, tmp_path: Path) -> None:
    (tmp_path / "text.txt").mkdir()
    assert refusal(server.file(), tmp_path).endswith("text.txt: cannot be read (Is a directory)")
    assert server.asked == []

"""vaswani/files.py: paths that users give, reading what is regular, and atomic writes."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from vaswani.errors import UserError
from vaswani.files import (
    folder,
    folders,
    local_path,
    output_file,
    output_folder,
    read_bytes,
    sha256,
    write_json,
    write_text,
)
from vaswani.read_json import read_json


@pytest.mark.parametrize("url", ["s3://bucket/run", "s3://bucket", "gs:/bucket/run", "file:///runs/a", "https://a/b"])
def test_a_url_is_not_made_a_folder(url: str) -> None:
    for path in (url, Path(url)):
        with pytest.raises(UserError, match=rf"^--workdir={path}: this is a URL; .* mount the bucket[^\n]*$"):
            folder("workdir", path)


def test_a_folder_is_where_it_says() -> None:
    for path in ("runs/a", "/a:b/c", "gs:", "a/gs://b", "C:/runs"):
        assert folder("workdir", path) == Path(path)
    assert folder("workdir", "~/runs") == Path.home() / "runs"


def test_folders_are_separated_by_commas_but_a_sweeps_point_has_some_in_its_name(tmp_path: Path) -> None:
    one, other = (str(tmp_path / name) for name in ("h=1,d_k=128,seed=0", "h=2,d_k=64,seed=0"))
    Path(one).mkdir()
    Path(other).mkdir()
    (tmp_path / "h=1").mkdir()  # begins like a point's name
    assert folders("workdir", one) == [one]
    assert folders("workdir", f"{one},{other}") == [one, other]
    assert folders("workdir", f"runs/a,{other},runs/b") == ["runs/a", other, "runs/b"]
    assert folders("workdir", "runs/a") == ["runs/a"]
    many = [f"run-{number}" for number in range(60)]  # together longer than any name
    assert folders("workdir", ",".join([one, *many])) == [one, *many]
    with pytest.raises(UserError, match=r"^--workdir=: the path is empty"):
        folders("workdir", f"{one},")


def test_a_file_is_written_whole_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "one")
    write_text(tmp_path / "a", "zwölf\n")
    assert (tmp_path / "a").read_bytes() == "zwölf\n".encode()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / "a", "one")

    def full(self: Path, content: bytes) -> int:
        with self.open("wb") as file:
            file.write(content[:1])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(tmp_path / "a", "two")
    assert (tmp_path / "a").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_sha256(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("~nosuchuser/x", "there is no user nosuchuser"),
        ("", "the path is empty"),
        (" ", "the path is empty"),
    ],
)
def test_a_path_that_names_nothing_is_refused(path: str, why: str) -> None:
    with pytest.raises(UserError, match=rf"^--output=.*{why}"):
        folder("output", path)


def test_a_name_that_is_not_unicode_is_a_name(tmp_path: Path) -> None:
    path = folder("output", f"{tmp_path}/a\udcff")
    write_json(path, {"name": str(path)})
    assert read_json(path, {"name": str}) == {"name": str(path)}


def test_a_long_name_does_not_make_its_draft_too_long(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)
    write_text(path, "x")
    assert path.read_text() == "x"


def test_where_an_output_cannot_be_written_is_known_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, why in (
        (tmp_path, "this is a folder; name a file"),
        (tmp_path / "none" / "a.png", rf"there is no such folder: {tmp_path}/none"),
        (tmp_path / "file" / "a.png", rf"there is no such folder: {tmp_path}/file"),
    ):
        with pytest.raises(UserError, match=rf"^--plot={path}: {why}$"):
            output_file("plot", path)
    with pytest.raises(UserError, match=r"its name must end in \.png or \.pdf$"):
        output_file("plot", tmp_path / "a.svg", (".png", ".pdf"))
    assert output_file("plot", str(tmp_path / "a.png"), (".png",)) == tmp_path / "a.png"
    for path in (tmp_path / "file", tmp_path / "file" / "a"):
        with pytest.raises(UserError, match=rf"^--output={path}: {tmp_path}/file is a file; name a folder$"):
            output_folder("output", path)
    assert output_folder("output", tmp_path / "a" / "b") == tmp_path / "a" / "b"


@pytest.mark.parametrize("read", [read_bytes, sha256, lambda path: read_json(path, dict)])
def test_only_regular_files_are_read(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """A pipe that nobody writes to would be waited for, a device may have no end."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises((UserError, OSError), match="not a regular file"):
            read(path)
    with pytest.raises((UserError, OSError), match="directory"):
        read(tmp_path)


def test_a_file_of_ours_is_not_larger_than_memory(tmp_path: Path) -> None:
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UserError, match=r"a\.json: cannot be read \(larger than 256 MiB\)"):
        read_json(tmp_path / "a.json", dict)


def test_a_link_stays_and_the_file_that_it_names_is_written(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a").write_text("old")
    for name in ("a", "not there yet"):
        link = tmp_path / f"link to {name}"
        link.symlink_to(Path("elsewhere") / name)
        assert output_file("output", link) == link
        write_text(link, "new")
        assert link.is_symlink() and (tmp_path / "elsewhere" / name).read_text() == "new"
    assert sorted(path.name for path in (tmp_path / "elsewhere").iterdir()) == ["a", "not there yet"]


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    device, full = tmp_path / "null", tmp_path / "full"
    try:  # not the system's own, which would be lost to it if this test failed
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(full, stat.S_IFCHR | 0o666, os.makedev(1, 7))
        device.write_bytes(b"")
    except OSError as error:
        pytest.skip(f"devices cannot be made here: {error}")
    link = tmp_path / "link"
    link.symlink_to("null")
    for path in (device, link):
        assert output_file("output", path) == path
        write_text(path, "gone")
        assert link.is_symlink() and device.is_char_device()
    with pytest.raises(OSError, match=r"No space left on device: .*full"):
        write_text(full, "x")
    assert full.is_char_device()


def test_a_terminal_is_written_to() -> None:
    reading, writing = os.openpty()
    write_text(Path(os.ttyname(writing)), "shown")
    assert os.read(reading, 100) == b"shown"
    os.close(reading)
    os.close(writing)


def test_what_cannot_be_written_is_one_line_before_anything_is_computed(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "to folder").symlink_to("folder")
    (tmp_path / "lost").symlink_to("nowhere/file")
    for name, message in (
        ("folder", "this is a folder; name a file"),
        ("to folder", "this is a folder; name a file"),
        ("lost", "there is no such folder: .*nowhere"),
        ("nowhere/file", "there is no such folder: .*nowhere"),
    ):
        with pytest.raises(UserError, match=f"^--output={tmp_path}/{name}: .*{message}[^\n]*$"):
            output_file("output", tmp_path / name)
        with pytest.raises(OSError):
            write_text(tmp_path / name, "x")
    with pytest.raises(UserError, match="--output=: the path is empty"):
        output_file("output", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "lost", "to folder"]
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_home_that_is_not_set_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_home(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", without_home)
    with pytest.raises(UserError, match=r"^x: ~ stands for HOME, which is not set$"):
        local_path("~/runs", "x")

"""vaswani/read_json.py: a fault in JSON is a one-line error that names the place in the file."""

import io
import json
from pathlib import Path

import pytest

from vaswani.errors import UserError
from vaswani.files import write_json
from vaswani.read_json import read_json, read_json_lines

LAUNCHES = {"launches": [{"step": int, "git": {"commit": str}}]}


def test_json_comes_back_as_it_was_written(tmp_path: Path) -> None:
    value = {"launches": [{"step": 3, "git": {"commit": "abc"}, "more": [1.5, None]}]}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json", LAUNCHES) == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.json: damaged, not JSON"),
        (b"{", "a.json: damaged, not JSON"),
        (b"\xff\xfe{}", "a.json: damaged, not JSON"),
        (b"[" * 100_000, "a.json: damaged, not JSON"),
        (b"[1, 2]", r"a.json: damaged: it is \[1, 2\]; it must be an object"),
        (b"{}", "a.json: damaged: it has no 'launches'"),
        (b'{"launches": 3}', "damaged: launches is 3; it must be a list"),
        (b'{"launches": [{"step": 1, "git": {"commit": "a"}}, {}]}', r"launches\[1\] has no 'step'"),
        (b'{"launches": [{"step": true, "git": {}}]}', r"launches\[0\].step is true; it must be a whole number"),
        (b'{"launches": [{"step": 1, "git": {"commit": null}}]}', r"launches\[0\].git.commit is null; it must be text"),
    ],
)
def test_what_is_wrong_with_json_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=message) as caught:
        read_json(tmp_path / "a.json", LAUNCHES)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(tmp_path)) + 300


def test_a_json_file_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.json: no such file"):
        read_json(tmp_path / "a.json", dict)
    with pytest.raises(UserError, match="cannot be read"):
        read_json(tmp_path, dict)


def test_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_json_lines(path, dict) == []
    path.write_text('{"step": 1}\n{"step": 2}\n{"st')
    assert read_json_lines(path, {"step": int}) == [{"step": 1}, {"step": 2}]
    path.write_text('{"step": 1}\n{"step": "x"}\n')
    with pytest.raises(UserError, match='damaged in line 2: step is "x"; it must be a whole number'):
        read_json_lines(path, {"step": int})
    path.write_bytes(b'{"step": 1}\n\x00\x01\n')
    with pytest.raises(UserError, match="damaged in line 2, not JSON"):
        read_json_lines(path, {"step": int})


def test_lines_of_json_may_be_more_than_a_file_that_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n' * 100)
    monkeypatch.setattr("vaswani.files.LARGEST", 1000)
    with pytest.raises(UserError, match="cannot be read"):
        read_json(path, dict)
    assert len(read_json_lines(path, {"step": int})) == 100


def test_a_line_that_is_still_being_written_ends_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"st')

    class Growing(io.FileIO):
        """A file whose last line is completed once its beginning has been read."""

        def __next__(self) -> bytes:
            line = super().__next__()
            if not line.endswith(b"\n"):
                with path.open("a") as file:
                    file.write('ep": 2}\n{"step": 3}\n')
            return line

    monkeypatch.setattr("vaswani.read_json.open_regular", Growing)
    assert read_json_lines(path, {"step": int}) == [{"step": 1}]


def test_floats_may_be_whole_and_objects_anything(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"a": 1, "b": [None, "x"], "c": 2.5}))
    assert read_json(path, {"a": float, "b": [object], "c": float})["c"] == 2.5

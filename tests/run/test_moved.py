"""What a config names by another path is what the run has read, or not: told by bytes, not by names."""

from pathlib import Path
from typing import Any

from vaswani.data.lines import file_digest
from vaswani.run.folder import record_launch
from vaswani.run.unchanged import has_same_content


def test_the_same_name_with_other_bytes_is_another_corpus(tmp_path: Path) -> None:
    """The run has gone on with other data: what an earlier launch read by a name is not what the run reads now."""
    (tmp_path / "one.tsv").write_text("The dog sleeps.\tDer Hund schläft.\n")
    one = f"tsv:{tmp_path / 'one.tsv'}"
    two = f"tsv:{tmp_path / 'two.tsv'}"  # which is on another machine
    valid = {"sha256": {"pairs": "v"}, "spec": "grammar:valid:9"}
    for spec, digest in ((one, "a"), (two, "b")):
        train = {"sha256": {"pairs": digest}, "spec": spec, "fingerprint": digest}
        record_launch(tmp_path, {"train": train, "valid": valid}, 0)
    config: dict[str, Any] = {"task": "translation", "data": {"train": one}}
    assert not has_same_content(tmp_path, "data.train", config)
    config["data"]["train"] = two
    assert has_same_content(tmp_path, "data.train", config)


def test_no_tokenizer_is_not_that_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "own.model").write_bytes(b"subwords")
    train = {"sha256": {}, "tokenizer_sha256": file_digest(tmp_path / "own.model")}
    record_launch(tmp_path, {"train": train, "valid": {"sha256": {}}}, 0)
    for path, is_same in ((str(tmp_path / "own.model"), True), ("", False)):
        assert has_same_content(tmp_path, "data.tokenizer", {"data": {"tokenizer": path}}) == is_same

"""Parquet files as corpora: columns, and the nested translations of Hugging Face."""

from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from tests.data.test_sources import error
from vaswani.data.sources import open_corpus


def write(path: Path, **columns: Any) -> Path:
    parquet.write_table(pyarrow.table(columns), path, row_group_size=2)
    return path


def nested(*pairs: tuple[str | None, str | None]) -> list[dict[str, str | None]]:
    return [{"de": german, "en": english} for english, german in pairs]


def test_columns_of_text(tmp_path: Path) -> None:
    german = pyarrow.array(["x\nx", "ü", ""], pyarrow.large_string())
    path = write(tmp_path / "c.parquet", number=[1, 2, 3], en=["a", "b b", "a"], de=german)
    corpus = open_corpus(f"parquet:{path}:{{en,de}}")
    assert (corpus.source_language, corpus.target_language, corpus.size()) == ("en", "de", 3)
    assert list(corpus.pairs()) == list(corpus.pairs()) == [("a", "x x"), ("b b", "ü"), ("a", "")]
    repeated = pyarrow.array(["x", "y", "x"]).dictionary_encode()
    turned = open_corpus(f"parquet:{write(tmp_path / 'd', en=['a', 'b', 'c'], de=repeated)}:{{de,en}}")
    assert list(turned.pairs()) == [("x", "a"), ("y", "b"), ("x", "c")]


def test_translations_in_several_files(tmp_path: Path) -> None:
    for part, pair in (("00000-of-00002", ("a", "x")), ("00001-of-00002", ("b", "y"))):
        write(tmp_path / f"train-{part}.parquet", translation=nested(pair, pair), id=["1", "2"])
    corpus = open_corpus(f"parquet:{tmp_path}/train-*.parquet:{{en,de}}")
    assert (list(corpus.pairs()), corpus.size()) == ([("a", "x")] * 2 + [("b", "y")] * 2, 4)
    prints = {corpus.fingerprint}
    prints.add(open_corpus(f"parquet:{tmp_path}/train-*.parquet:{{de,en}}").fingerprint)
    write(tmp_path / "train-00001-of-00002.parquet", translation=nested(("b", "z")))
    prints.add(open_corpus(f"parquet:{tmp_path}/train-*.parquet:{{en,de}}").fingerprint)
    assert len(prints) == 3
    assert error(f"parquet:{tmp_path}/none-*:{{en,de}}") == f"{tmp_path}/none-*: no such file"


def test_what_is_wrong_with_a_file_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "c", translation=nested(("a", "x")), id=[1])
    assert error(f"parquet:{path}:{{en,fr}}") == (
        f"{path}: no column 'fr'; its columns are id, translation.de, translation.en"
    )
    assert error(f"parquet:{path}:{{id,en}}") == f"{path}: column id is no text, but int64"
    assert error(f"parquet:{path}").endswith(
        "name the two languages once, source first, as in {en,de} (quoted, in a shell)"
    )
    assert error(f"parquet:{path}{{en,de}}").endswith("write parquet:FILE:{en,de}")
    assert error(f"parquet:{tmp_path}/none:{{en,de}}") == f"{tmp_path}/none: no such file"
    for missing in (("b", None), (None, "y")):
        write(path, translation=nested(("a", "x"), ("a", "x"), missing))
        column = "de" if missing[1] is None else "en"
        assert error(f"parquet:{path}:{{en,de}}") == f"{path}, row 3: no text in column translation.{column}"
    write(path, translation=[*nested(("a", "x")), None])
    assert error(f"parquet:{path}:{{en,de}}") == f"{path}, row 2: no text in column translation.en"
    write(path, en=["a", None], de=["x", "y"])
    assert error(f"parquet:{path}:{{en,de}}") == f"{path}, row 2: no text in column en"
    write(path, en=pyarrow.array([], pyarrow.string()), de=pyarrow.array([], pyarrow.string()))
    assert error(f"parquet:{path}:{{en,de}}").endswith("is empty: it has no sentences")


def test_what_is_no_parquet_file_or_is_damaged_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "c", en=["a" * 999] * 9, de=[f"{number}" * 99 for number in range(9)])
    content = path.read_bytes()
    middle = len(content) // 3
    for damaged in (b"", b"a\tb\n" * 9, content[:middle], content[:4] + b"\xff" * middle + content[4 + middle :]):
        path.write_bytes(damaged)
        assert error(f"parquet:{path}:{{en,de}}").startswith(f"{path}: not a Parquet file, or a damaged one (")

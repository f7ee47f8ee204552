import gzip
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import regex

from vaswani.data import sources
from vaswani.data import tfds as tfds_corpus
from vaswani.data.lines import LONGEST_LINE, is_blank, read_lines
from vaswani.data.sources import open_corpus
from vaswani.data.tfds import download
from vaswani.errors import UserError

ROOT = Path(__file__).parent.parent.parent


def write(path: Path, content: str | bytes) -> Path:
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def text(folder: Path, source: str | bytes, target: str | bytes, ending: str = "") -> str:
    write(folder / f"c.en{ending}", source)
    write(folder / f"c.de{ending}", target)
    return f"text:{folder}/c.{{en,de}}{ending}"


def error(spec: str) -> str:
    with pytest.raises(UserError) as caught:
        list(open_corpus(spec).pairs())
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_text_reads_lines_in_both_directions(tmp_path: Path, ending: str) -> None:
    spec = text(tmp_path, "a\nb b\n", "x\ny\n", ending)
    corpus = open_corpus(spec)
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert list(corpus.pairs()) == list(corpus.pairs()) == [("a", "x"), ("b b", "y")]
    turned = open_corpus(spec.replace("{en,de}", "{de,en}"))
    assert (turned.source_language, list(turned.pairs())) == ("de", [("x", "a"), ("y", "b b")])
    assert turned.fingerprint != corpus.fingerprint


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    odd = "one\u2028line\x85of\x0bone\x0cpair\x1d"
    spec = text(tmp_path, f"{odd}\r\n\nlast", "x\ny\nz")
    assert list(open_corpus(spec).pairs()) == [(odd, "x"), ("", "y"), ("last", "z")]


def test_the_fingerprint_follows_the_text_and_not_its_place(tmp_path: Path) -> None:
    (tmp_path / "moved").mkdir()
    first = open_corpus(text(tmp_path, "a\n", "x\n")).fingerprint
    assert open_corpus(text(tmp_path / "moved", "a\n", "x\n")).fingerprint == first
    assert open_corpus(text(tmp_path, "a\n", "y\n")).fingerprint != first


@pytest.mark.parametrize(("left", "right"), [(3, 2), (2, 3), (4, 1), (0, 2), (1, 4)])
def test_unequal_line_counts(tmp_path: Path, left: int, right: int) -> None:
    message = error(text(tmp_path, "a\n" * left, "x\n" * right))
    lines = "line" if left == 1 else "lines"
    assert f"c.en has {left} {lines}," in message and f"c.de has {right}" in message


def test_faulty_files_are_named(tmp_path: Path) -> None:
    assert "is empty" in error(text(tmp_path, "", ""))
    assert "c.de, line 2: not valid UTF-8 (byte 0xff at position 3)" in error(text(tmp_path, "a\nb\n", b"x\nab\xff\n"))
    assert "nowhere.en: no such file" in error(f"text:{tmp_path}/nowhere.{{en,de}}")
    assert "name the two languages once" in error(f"text:{tmp_path}/c.en")
    assert "name the two languages once" in error(f"text:{tmp_path}/c.{{en,en}}")
    spec = text(tmp_path, "a\n" * 9999, "x\n" * 9999, ".gz")
    whole = (tmp_path / "c.de.gz").read_bytes()
    (tmp_path / "c.de.gz").write_bytes(whole[:-10])
    assert "c.de.gz, after line" in error(spec)
    (tmp_path / "c.de.gz").write_bytes(b"plain text")
    assert "c.de.gz: cannot be read" in error(spec)
    (tmp_path / "d.en").mkdir()
    assert "d.en: cannot be read" in error(f"text:{tmp_path}/d.{{en,de}}")


def test_a_damaged_gzip_stream_is_named(tmp_path: Path) -> None:
    spec = text(tmp_path, "a\n" * 9999, "".join(f"{i} x\n" for i in range(9999)), ".gz")
    whole = bytearray((tmp_path / "c.de.gz").read_bytes())
    whole[len(whole) // 2 :] = b"\xff" * (len(whole) - len(whole) // 2)
    (tmp_path / "c.de.gz").write_bytes(whole)
    assert re.search(r"c\.de\.gz, after line \d+: cannot be read \(Error -3 while decompressing", error(spec))


def test_one_carriage_return_before_a_line_feed_is_no_text(tmp_path: Path) -> None:
    path = write(tmp_path / "c", "\ra\r\r\n\r\nb\r\r")
    assert list(read_lines(path)) == ["\ra\r", "", "b\r"]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_line_without_an_end_is_not_held_in_memory(tmp_path: Path, ending: str) -> None:
    spec = text(tmp_path, "a\n" + "b" * (LONGEST_LINE + 1), "x\ny\n", ending)
    assert "c.en" + ending + ", line 2: longer than 16,777,216 bytes" in error(spec)
    short = text(tmp_path, "a\n" + "b" * LONGEST_LINE + "\n", "x\ny\n", ending)
    assert len(list(open_corpus(short).pairs())) == 2


def test_tsv(tmp_path: Path) -> None:
    path = write(tmp_path / "c.tsv", "a\tx\nb\ty\tlicence\n")
    corpus = open_corpus(f"tsv:{path}")
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert list(corpus.pairs()) == [("a", "x"), ("b", "y")]
    assert open_corpus(f"tsv:{path}:{{fr,en}}").source_language == "fr"
    assert "c.tsv, line 2: no tab" in error(f"tsv:{write(path, 'a' + chr(9) + 'x' + chr(10) + 'b')}")
    assert "is empty" in error(f"tsv:{write(path, '')}")


def test_unknown_schemes_suggest_the_nearest() -> None:
    assert error("gramar:train").endswith("grammar:, text:, tsv:, parquet:, tfds:, trees:; did you mean grammar:?")
    assert "unknown scheme; the known ones are" in error("corpus.en")


def test_grammar() -> None:
    corpus = open_corpus("grammar:test:3")
    pairs = list(corpus.pairs())
    assert len(pairs) == 3
    assert list(open_corpus("grammar:test:3:{de,en}").pairs()) == [(german, english) for english, german in pairs]
    assert next(iter(open_corpus("grammar:test").pairs())) == pairs[0]
    assert (
        len({open_corpus(f"grammar:{rest}").fingerprint for rest in ("test:3", "test:3:{de,en}", "test", "train")}) == 4
    )
    for spec in ("grammar:dev", "grammar:", "grammar:train:x"):
        assert "SPLIT" in error(spec)
    assert "write {en,de}, {de,en} or {en,PROPERTY}" in error("grammar:train:5:{en,fr}")
    assert "is empty" in error("grammar:train:0")


def test_fingerprints_cover_the_code_that_makes_the_text_and_no_other(tmp_path: Path, monkeypatch) -> None:
    shutil.copytree(ROOT / "data", tmp_path / "data")
    monkeypatch.setattr(sources, "__file__", str(tmp_path / "data" / "sources.py"))
    specs = ("grammar:test:3", "trees:grammar:test:3", f"trees:{write(tmp_path / 'x.mrg', '(S (NN a))')}")
    before = [open_corpus(spec).fingerprint for spec in specs]
    for name, changes in {
        "batching.py": [False, False, False],
        "grammar/lexicon.py": [True, True, False],
        "grammar/words/nouns.tsv": [True, True, False],
        "trees/tree.py": [True, True, True],
        "trees/linearise.py": [False, True, True],
    }.items():
        with (tmp_path / "data" / name).open("a") as file:
            file.write("# a comment\n")
        after = [open_corpus(spec).fingerprint for spec in specs]
        assert [old != new for old, new in zip(before, after, strict=True)] == changes, name
        before = after


def prepare_tfds(folder: Path, features: Any, examples: Sequence[dict[str, Any]]) -> Path:
    import tensorflow_datasets as tfds

    class Tiny(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # there are several of the name
        VERSION = tfds.core.Version("1.0.0")
        url_infos: ClassVar = {}  # nothing to download

        def _info(self) -> object:
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(), "test": self._generate_examples()}

        def _generate_examples(self):
            yield from enumerate(examples)

    builder = Tiny(data_dir=folder, file_format="array_record")
    builder.download_and_prepare()
    return Path(builder.data_dir)


def prepare_pairs(folder: Path, count: int = 4, word: str = "line") -> Path:
    import tensorflow_datasets as tfds

    features = tfds.features.Translation(languages=("de", "en"))
    return prepare_tfds(folder, features, [{"de": f"Zeile\n{i} ü", "en": f"{word} {i}"} for i in range(count)])


@pytest.fixture(scope="module")
def prepared_tfds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_pairs(tmp_path_factory.mktemp("tfds"))


@pytest.mark.filterwarnings("default")
def test_tfds_reads_a_prepared_set(prepared_tfds: Path) -> None:
    corpus = open_corpus(f"tfds:{prepared_tfds}:{{en,de}}")
    pairs = sorted(corpus.pairs())
    assert pairs == [(f"line {i}", f"Zeile {i} ü") for i in range(4)]
    half = open_corpus(f"tfds:{prepared_tfds}:train[:50%]:{{de,en}}")
    assert len(list(half.pairs())) == 2 and next(half.pairs())[0].startswith("Zeile")
    assert half.fingerprint != corpus.fingerprint
    assert (corpus.size(), half.size()) == (4, 2)
    assert "is empty: it has no sentences" in error(f"tfds:{prepared_tfds}:train[:0]:{{en,de}}")
    assert "no split 'dev'; the splits of" in error(f"tfds:{prepared_tfds}:dev:{{en,de}}")
    assert "no language 'fr'" in error(f"tfds:{prepared_tfds}:{{en,fr}}")
    assert "name the two languages once" in error(f"tfds:{prepared_tfds}")
    download(f"tfds:{prepared_tfds}:{{en,de}}")


@pytest.mark.filterwarnings("default")
def test_the_builder_of_the_page_prepares_the_pairs_of_text_files_in_their_order(tmp_path, monkeypatch) -> None:
    page = (ROOT / "docs/corpora.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    Path("corpus").mkdir()
    for split, count in [("train", 7), ("valid", 1), ("test", 2)]:
        for language in ("en", "de"):
            lines = [f"{split} {language} {number}\n" for number in range(count)]
            write(tmp_path / f"corpus/{split}.{language}", "".join(lines))
    exec(compile(recipe, "corpora.md", "exec"), {"__name__": "recipe"})
    monkeypatch.setattr(tfds_corpus, "AT_ONCE", 3)
    for split in ("train", "valid", "test"):
        own = open_corpus(f"tfds:sets/mine/1.0.0:{split}:{{en,de}}")
        assert list(own.pairs()) == list(open_corpus(f"text:corpus/{split}.{{en,de}}").pairs())


def test_the_two_recorded_trainings_from_a_set_and_from_text_files_are_the_same_but_for_their_corpora() -> None:
    lines = (ROOT / "paper/records/corpora.jsonl").read_text(encoding="utf-8").splitlines()
    text_run, tfds_run = (json.loads(line) for line in lines)
    assert (text_run["name"], tfds_run["name"]) == ("corpora/text", "corpora/tfds")
    for run, kind in ((text_run, "text:"), (tfds_run, "tfds:")):
        for split in ("train", "valid", "test"):
            assert run["config"]["data"].pop(split).startswith(kind)
    assert text_run["config"] == tfds_run["config"]
    losses = [[line["nll"] for line in run["training"]["validations"]] for run in (text_run, tfds_run)]
    assert len(losses[0]) == 10 and losses[0] == losses[1]
    hashes = [(run["evaluation"]["params_sha256"], run["translations_sha256"]) for run in (text_run, tfds_run)]
    assert hashes[0] == hashes[1]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("split", ["train", "train[:50%]"])
def test_a_set_that_was_prepared_again_is_another_corpus(prepared_tfds: Path, tmp_path: Path, split: str) -> None:
    for name, word, same in [("a", "line", True), ("b", "LINE", False)]:  # as many bytes
        again = prepare_pairs(tmp_path / name, word=word)
        first, second = (open_corpus(f"tfds:{folder}:{split}:{{en,de}}") for folder in (prepared_tfds, again))
        assert (first.fingerprint == second.fingerprint) is same


@pytest.mark.filterwarnings("default")
def test_texts_and_classes_of_tfds(tmp_path: Path) -> None:
    import tensorflow_datasets as tfds

    kinds = {
        "text": tfds.features.Text(),
        "label": tfds.features.ClassLabel(names=["bad", "good"]),
        "stars": tfds.features.Scalar(np.int32),
    }
    examples = [{"text": f"{i}", "label": i, "stars": i} for i in range(2)]
    unlabelled = [*examples, {"text": "2", "label": -1, "stars": 2}]
    features = tfds.features.FeaturesDict(kinds)
    without = prepare_tfds(tmp_path / "without", features, unlabelled)
    assert "an example has no label; name another split" in error(f"tfds:{without}:{{text,label}}")
    folder = prepare_tfds(tmp_path / "with", features, examples)
    assert sorted(open_corpus(f"tfds:{folder}:{{text,label}}").pairs()) == [("0", "bad"), ("1", "good")]
    assert error(f"tfds:{folder}:{{text,stars}}").endswith("stars is no text, but what tfds calls Scalar")


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("left", [0, 0.5, 0.9])
def test_a_damaged_file_of_tfds_is_named(tmp_path: Path, left: float) -> None:
    folder = prepare_pairs(tmp_path, count=100)
    (file,) = folder.glob("*train*")
    corpus = open_corpus(f"tfds:{folder}:{{en,de}}")
    content = file.read_bytes()
    file.write_bytes(content[: int(left * len(content))])
    with pytest.raises(UserError, match=r": a file of it is damaged; prepare it again \("):
        list(corpus.pairs())
    file.unlink()
    assert "no such file" in error(f"tfds:{folder}:{{en,de}}")


@pytest.mark.filterwarnings("default")
def test_tfds_says_what_to_do(tmp_path: Path) -> None:
    assert error("tfds:no_such/de-en:{en,de}").endswith("is not on this machine: python -m data.prepare downloads it")
    assert "python -m data.prepare" in error(f"tfds:{tmp_path}:{{en,de}}")
    refused = r"^corpus 'tfds:no_such/de-en:\{en,de\}': tensorflow-datasets could not prepare no_such/de-en \("
    with pytest.raises(UserError, match=refused):
        download("tfds:no_such/de-en:{en,de}")
    download("text:nothing.to.do")


def test_reading_needs_neither_tfds_nor_tensorflow() -> None:
    code = (
        "import sys, vaswani.data.pipeline, vaswani.data.sources; "
        "print([m for m in sys.modules if m in ('tensorflow', 'tensorflow_datasets', 'pyarrow', 'jax')])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_multi30k_has_its_published_size() -> None:
    folder = ROOT.parent / "shared" / "data" / "multi30k"
    if not folder.exists():
        pytest.skip("no Multi30k here")
    pairs = open_corpus(f"text:{folder}/test_2016_flickr.{{en,de}}.gz").pairs()
    assert sum(1 for _ in pairs) == 1_000


def test_a_corpus_counts_its_records_where_that_is_quick(tmp_path: Path) -> None:
    (tmp_path / "c.en").write_bytes(b"a\nb\nc")  # the last line lacks its line feed
    (tmp_path / "c.de").write_bytes(b"a\nb\nc\n")
    (tmp_path / "c.tsv").write_bytes(b"a\tb\n" * 5)
    (tmp_path / "c.en.gz").write_bytes(gzip.compress(b"a\n"))
    files = (f"text:{tmp_path}/c.{{en,de}}", f"tsv:{tmp_path}/c.tsv", f"lines:{tmp_path}/c.en")
    for spec in (*files, "grammar:train:7", "lines:grammar:train:7", "lines:grammar:train:7:{en,de}"):
        corpus = open_corpus(spec)
        assert corpus.size() == len(list(corpus.pairs())), spec
    assert open_corpus(f"lines:{tmp_path}/c.en.gz").size() is None


@pytest.mark.parametrize(
    "spec",
    ["text:gs://b/c.{en,de}", "tsv:gs://b/c:{en,de}", "lines:s3://b/c", "chars:gs://b/c:train", "trees:gs://b/c"],
)
def test_a_corpus_in_a_bucket_is_told_to_be_mounted(spec: str) -> None:
    why = {"gs": "this must be on the machine's own disk", "s3": "this is a URL; only gs:// and mounted"}
    scheme = "s3" if "s3://" in spec else "gs"
    assert error(spec).startswith(f"corpus {spec!r}: {why[scheme]}")
    with pytest.raises(UserError, match=r"^gs:/b/c: this is a URL; only gs:// and mounted"):
        list(read_lines(Path("gs://b/c")))


def test_a_file_whose_lines_end_in_carriage_returns_alone_is_told(tmp_path: Path) -> None:
    for content in ("a\tx\rb\ty\r", "\ufeffa\tx\rb\ty", "a\tb\r" * 4_000_000):
        path = write(tmp_path / "c.tsv", content)
        assert error(f"tsv:{path}") == (
            f"{path}: its lines end in bare carriage returns; write line feeds instead, as with tr '\\r' '\\n'"
        )
    for content, pairs in {"a\tx\r": [("a", "x")], "a\rb\tx\r\nc\rd\ty": [("a\rb", "x"), ("c\rd", "y")]}.items():
        assert list(open_corpus(f"tsv:{write(tmp_path / 'c.tsv', content)}").pairs()) == pairs


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path, ending: str) -> None:
    spec = text(tmp_path, "\ufeffa\r\n\ufeffb\r\n", "\ufeffx\r\ny\r\n", ending)
    assert list(open_corpus(spec).pairs()) == [("a", "x"), ("\ufeffb", "y")]
    tree = write(tmp_path / "bank", "\ufeff(S (NN dog))\n")
    assert [source for source, _ in open_corpus(f"trees:{tree}").pairs()] == ["dog"]


def test_a_line_that_shows_nothing_is_blank() -> None:
    ignorable = regex.compile(r"[\s\p{Cc}\p{Default_Ignorable_Code_Point}]")
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        assert is_blank(character) == bool(ignorable.match(character)), hex(code)
    assert is_blank("") and is_blank("\u034f \ufe0f\t") and not is_blank("\ufe0f.") and not is_blank("\u0600")

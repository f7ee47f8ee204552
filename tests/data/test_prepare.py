import errno
import json
import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from tests import commands
from vaswani.configs.common import default
from vaswani.data import cache as module
from vaswani.data.cache import prepare
from vaswani.data.from_config import prepare_all
from vaswani.data.imported import open_tokenizer
from vaswani.data.pipeline import TrainingBatches
from vaswani.data.prepare import first_epoch
from vaswani.data.prepared import Prepared, id_type
from vaswani.data.sources import open_corpus
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import EOS, PAD
from vaswani.run.folder import record_launch

ROOT = Path(__file__).parent.parent.parent
ENGLISH = ["the dog runs", "a cat", "", "the dog sees a cat and the cat sees the dog", "a", "the cat runs"] * 20
GERMAN = [
    "der Hund läuft",
    "eine Katze",
    "x",
    "der Hund sieht eine Katze",
    "der Hund und die Katze laufen",
    "die Katze läuft",
] * 20


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "c.en").write_text("\n".join(ENGLISH) + "\n", "utf-8")
    (folder / "c.de").write_text("\n".join(GERMAN) + "\n", "utf-8")
    return f"text:{folder}/c.{{en,de}}"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.train([*ENGLISH, *GERMAN], 320, tmp_path_factory.mktemp("tokenizer") / "t.model")


def make(spec: str, tokenizer: Tokenizer, cache: Path, **changes: object) -> Prepared:
    settings = {"cache": cache, "max_length": 256, "max_ratio": 9.0, "clean": False, "progress": False}
    return prepare(spec, tokenizer, **(settings | changes))


def texts(prepared: Prepared, tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [tuple(tokenizer.decode(ids) for ids in prepared[i]) for i in range(len(prepared))]


@pytest.mark.parametrize("id_bytes", [2, 4])
def test_every_pair_comes_back(spec, tokenizer, tmp_path, monkeypatch, id_bytes) -> None:
    for file in ("vaswani.data.cache.id_type", "vaswani.data.prepared.id_type"):
        monkeypatch.setattr(file, lambda vocab_size: np.dtype({2: "<u2", 4: "<i4"}[id_bytes]))
    prepared = make(spec, tokenizer, tmp_path)
    assert texts(prepared, tokenizer) == list(zip(ENGLISH, GERMAN, strict=True))
    assert prepared.lengths.dtype == np.int32 and prepared.lengths.shape == (120, 2)
    order = [5, 0, 119, 5]
    for (source, target), index in zip(prepared.records(np.array(order)), order, strict=True):
        assert source.dtype == target.dtype == np.int32
        assert source[-1] == target[-1] == EOS
        assert [len(source), len(target)] == list(prepared.lengths[index])
        np.testing.assert_array_equal(source[:-1], tokenizer.encode(ENGLISH[index]))
    assert (prepared.folder / "ids.bin").stat().st_size == id_bytes * prepared.lengths.sum()


def test_cleaning_counts_what_it_drops(spec, tokenizer, tmp_path) -> None:
    sizes = [(len(tokenizer.encode(e)), len(tokenizer.encode(g))) for e, g in zip(ENGLISH, GERMAN, strict=True)]
    longest = max(max(pair) for pair in sizes)
    prepared = make(spec, tokenizer, tmp_path, clean=True, max_length=longest, max_ratio=3.0)
    kept = [p for p in sizes if min(p) > 0 and max(p) < longest and max(p) <= 3 * min(p)]
    counts = prepared.manifest["pairs"]
    assert len(prepared) == counts["kept"] == len(kept) < 120
    assert counts["read"] == 120 == sum(n for name, n in counts.items() if name != "read")
    assert counts["empty"] == 20 and counts["too_long"] == 20 and counts["ratio"] == 20
    assert (prepared.lengths - 1).tolist() == [list(pair) for pair in kept]
    exactly = make(spec, tokenizer, tmp_path, clean=True, max_length=longest + 1, max_ratio=99.0)
    assert exactly.manifest["pairs"]["too_long"] == 0
    with pytest.raises(UserError, match=r"cleaning dropped all 120 pairs.*raise data\.max_length"):
        make(spec, tokenizer, tmp_path, clean=True, max_length=1)
    assert not list(tmp_path.glob(".*"))


def test_the_manifest_tells_where_it_came_from(spec, tokenizer, tmp_path) -> None:
    prepared = make(spec, tokenizer, tmp_path)
    manifest = json.loads((prepared.folder / "manifest.json").read_text("utf-8"))
    assert manifest == prepared.manifest
    assert manifest["spec"] == spec and manifest["tokenizer_sha256"] == tokenizer.sha256
    assert (manifest["source_language"], manifest["target_language"]) == ("en", "de")
    assert manifest["fingerprint"] == open_corpus(spec).fingerprint
    assert manifest["tokens"] == dict(zip(("source", "target"), prepared.lengths.sum(axis=0).tolist(), strict=True))


def test_the_cache_is_used_and_keyed_by_content(spec, tokenizer, tmp_path, monkeypatch) -> None:
    first = make(spec, tokenizer, tmp_path)
    monkeypatch.setattr(module, "_write", None)
    assert make(spec, tokenizer, tmp_path).folder == first.folder
    assert make(spec, tokenizer, tmp_path, max_length=7).folder == first.folder  # no rule applies without cleaning
    monkeypatch.undo()
    turned = make(spec.replace("{en,de}", "{de,en}"), tokenizer, tmp_path)
    cleaned = make(spec, tokenizer, tmp_path, clean=True)
    stricter = make(spec, tokenizer, tmp_path, clean=True, max_ratio=2.0)
    assert len({first.folder, turned.folder, cleaned.folder, stricter.folder}) == 4


@pytest.mark.parametrize("name", ["ids.bin", "lengths.npy", "manifest.json"])
@pytest.mark.parametrize("damage", ["truncated", "missing", "changed"])
def test_a_damaged_cache_is_made_again(spec, tokenizer, tmp_path, name, damage) -> None:
    folder = make(spec, tokenizer, tmp_path).folder
    file = folder / name
    whole = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(whole[: len(whole) // 2] + (b"\xff" * (len(whole) - len(whole) // 2)) * (damage == "changed"))
    with pytest.raises(UserError, match="is damaged"):
        Prepared(folder)
    again = make(spec, tokenizer, tmp_path)
    assert texts(again, tokenizer) == list(zip(ENGLISH, GERMAN, strict=True))
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_chunks_that_are_encoded_at_once_stay_in_order(spec, tokenizer, tmp_path, monkeypatch) -> None:
    whole = texts(make(spec, tokenizer, tmp_path / "one"), tokenizer)
    monkeypatch.setattr(module, "_CHUNK", 2)
    assert texts(make(spec, tokenizer, tmp_path / "many"), tokenizer) == whole


def test_ids_take_two_bytes_where_they_fit() -> None:
    assert [id_type(size).itemsize for size in (300, 65_536, 65_537)] == [2, 2, 4]


def test_the_ratio_of_lengths_may_be_reached_but_not_exceeded(tokenizer, tmp_path) -> None:
    sizes = [(1, 3), (3, 1), (2, 6), (1, 4), (4, 1), (2, 7)]
    lines = [tuple(" ".join("a" * n) for n in pair) for pair in sizes]
    assert [tuple(len(tokenizer.encode(text)) for text in line) for line in lines] == sizes
    (tmp_path / "c.tsv").write_text("".join(f"{left}\t{right}\n" for left, right in lines), "utf-8")
    prepared = make(f"tsv:{tmp_path / 'c.tsv'}", tokenizer, tmp_path, clean=True, max_ratio=3.0)
    assert (prepared.lengths - 1).tolist() == [[1, 3], [3, 1], [2, 6]]


def test_two_tokenizers_share_a_cache(spec, tokenizer, tmp_path) -> None:
    other = Tokenizer.train([*ENGLISH, *GERMAN], 300, tmp_path / "other.model")
    first, second = make(spec, tokenizer, tmp_path), make(spec, other, tmp_path)
    assert first.folder != second.folder and not np.array_equal(first.lengths, second.lengths)
    for prepared, its in ((first, tokenizer), (second, other), (make(spec, tokenizer, tmp_path), tokenizer)):
        assert texts(prepared, its) == list(zip(ENGLISH, GERMAN, strict=True))


def test_what_killed_preparations_left_is_removed_after_a_day(spec, tokenizer, tmp_path) -> None:
    hours = {f".{'0a' * 10}-dead": 25, f".{'1b' * 10}-busy": 23, ".my-own-folder": 999}
    for name, age in hours.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "ids.bin").write_bytes(b"x")
        for path in (tmp_path / name / "ids.bin", tmp_path / name):
            os.utime(path, times=(time.time() - 3600 * age,) * 2)
    writing = tmp_path / f".{'2c' * 10}-writing"  # the folder is old, what is written into it is not
    writing.mkdir()
    (writing / "ids.bin").write_bytes(b"x")
    os.utime(writing, times=(0, 0))
    kept = make(spec, tokenizer, tmp_path).folder.name
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {f".{'1b' * 10}-busy", ".my-own-folder", writing.name, kept}


@pytest.mark.parametrize("damage", ["truncated", "changed", "unmarked"])
def test_a_damaged_cached_tokenizer_is_learned_again(spec, tmp_path, damage) -> None:
    cfg = data_config(spec, tmp_path)
    whole = prepare_all(cfg)[0].sha256
    (path,) = tmp_path.glob("*.model")
    content = path.read_bytes()
    if damage == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "changed":  # a tokenizer still, but another one
        Tokenizer.train([*ENGLISH, *GERMAN, "x y z"], 320, path)
    else:
        path.with_suffix(".sha256").write_bytes(b"\xff")
    again = prepare_all(cfg)[0]
    assert again.sha256 == whole and path.read_bytes() == content


def test_a_manifest_that_does_not_fit_the_ids_is_damaged(spec, tokenizer, tmp_path) -> None:
    folder = make(spec, tokenizer, tmp_path).folder
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    for damage in ({"vocab_size": 70_000}, {"vocab_size": "300"}, {"sha256": []}, {"format": 1}):
        (folder / "manifest.json").write_text(json.dumps(manifest | damage), "utf-8")
        with pytest.raises(UserError, match="is damaged"):
            Prepared(folder)


@pytest.mark.parametrize("name", ["fingerprint", "tokenizer_sha256", "cleaning"])
def test_a_manifest_of_another_corpus_is_written_again(spec, tokenizer, tmp_path, name: str) -> None:
    prepared = make(spec, tokenizer, tmp_path)
    (prepared.folder / "manifest.json").write_text(json.dumps(prepared.manifest | {name: {}}), "utf-8")
    assert make(spec, tokenizer, tmp_path).manifest == prepared.manifest


def test_a_failed_preparation_leaves_nothing(spec, tokenizer, tmp_path) -> None:
    for file, line in (("c.en", b"ok\n"), ("c.de", b"\xff\n")):
        (tmp_path / file).write_bytes(line)
    with pytest.raises(UserError, match=r"c\.de, line 1"):
        make(f"text:{tmp_path}/c.{{en,de}}", tokenizer, tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def _prepare_in_process(arguments: tuple) -> int:
    return len(make(*arguments))


def test_processes_may_prepare_at_once(spec, tokenizer, tmp_path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        counts = pool.map(_prepare_in_process, [(spec, _Portable(tokenizer), tmp_path)] * 4, chunksize=1)
    assert counts == [120] * 4
    assert len(list(tmp_path.iterdir())) == 1


class _Portable(Tokenizer):
    """A tokenizer that can be sent to another process."""

    def __init__(self, tokenizer: Tokenizer):
        super().__init__(tokenizer._model)

    def __reduce__(self) -> tuple:
        return Tokenizer, (self._model,)


def test_the_second_of_two_at_once_takes_the_first_ones(spec, tokenizer, tmp_path, monkeypatch) -> None:
    write = module._write

    def overtaken(folder: Path, *rest: object) -> None:
        monkeypatch.setattr(module, "_write", write)
        make(spec, tokenizer, tmp_path)
        write(folder, *rest)

    monkeypatch.setattr(module, "_write", overtaken)
    assert len(make(spec, tokenizer, tmp_path)) == 120
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_at_a_url_is_refused() -> None:
    cfg = default()
    cfg.data.cache = "gs://bucket/cache"
    with pytest.raises(UserError, match=r"^--config\.data\.cache=gs://bucket/cache: this must be on the machine"):
        prepare_all(cfg.data)


def test_a_cache_that_cannot_be_written_is_said(spec, tokenizer, tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"data\.cache .*file: cannot be written"):
        make(spec, tokenizer, tmp_path / "file")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(module.np, "save", full)
    with pytest.raises(UserError, match=r"data\.cache .*No space left on device"):
        make(spec, tokenizer, tmp_path)


def data_config(spec: str, cache: Path):
    cfg = default().data
    cfg.train = cfg.valid = spec
    cfg.cache = str(cache)
    cfg.vocab_size = 320
    return cfg


@pytest.mark.parametrize(("classes", "kept"), [("yes,no", 3), ("", 1)])
def test_no_text_is_dropped_for_being_longer_than_its_class(tmp_path: Path, classes: str, kept: int) -> None:
    lines = ["a b c d e f g h\tyes", "a b c d e f g h i j k l m n o p q r s t\tno", "a\tno"]
    (tmp_path / "labelled.tsv").write_text("".join(line + "\n" for line in lines))
    cfg = data_config(f"tsv:{tmp_path / 'labelled.tsv'}", tmp_path / "cache")
    cfg.vocab_size, cfg.max_ratio, cfg.classes = 290, 2.0, classes
    assert len(prepare_all(cfg)[1]) == kept


def test_prepare_all_trains_keeps_and_reuses_the_tokenizer(spec, tmp_path, monkeypatch, capsys) -> None:
    cfg = data_config(spec, tmp_path / "cache")
    cfg.max_ratio = 99.0
    tokenizer, train, valid = prepare_all(cfg, tmp_path / "run" / "tokenizer.model")
    assert (len(train), len(valid)) == (100, 120)
    assert open_tokenizer(tmp_path / "run" / "tokenizer.model").sha256 == tokenizer.sha256
    captured = capsys.readouterr()
    assert captured.out == "" and "120 read, 100 kept, 20 empty, 0 too_long, 0 ratio" in captured.err
    monkeypatch.setattr(Tokenizer, "train", None)
    for path in (tmp_path / "run" / "tokenizer.model", tmp_path / "other" / "tokenizer.model", None):
        assert prepare_all(cfg, path)[0].sha256 == tokenizer.sha256
    cfg.tokenizer = str(tmp_path / "run" / "tokenizer.model")
    prepare_all(cfg, tmp_path / "third.model")
    assert (tmp_path / "third.model").read_bytes() == (tmp_path / "run" / "tokenizer.model").read_bytes()
    cfg.vocab_size = 321
    with pytest.raises(UserError, match=r"data\.vocab_size is 321, but the tokenizer's is 320"):
        prepare_all(cfg, tmp_path / "fourth.model")
    cfg.valid = ""
    with pytest.raises(UserError, match=r"data\.valid is empty"):
        prepare_all(cfg, tmp_path / "fourth.model")


def test_normalisation_decides_what_is_learned_and_kept(tmp_path) -> None:
    (tmp_path / "c.tsv").write_text("full width，\tｆｕｌｌ\n" * 20, "utf-8")
    cfg = data_config(f"tsv:{tmp_path}/c.tsv:{{en,zh}}", tmp_path / "cache")
    cfg.vocab_size = 275
    folded, folded_train, _ = prepare_all(cfg)
    cfg.normalisation = "none"
    kept, kept_train, _ = prepare_all(cfg)
    assert texts(folded_train, folded)[0] == ("full width,", "full")
    assert texts(kept_train, kept)[0] == ("full width，", "ｆｕｌｌ")

    folded.save(tmp_path / "folded.model")
    cfg.tokenizer = str(tmp_path / "folded.model")
    for normalisation in ("none", "plain_nfkc"):
        cfg.normalisation = normalisation
        with pytest.raises(UserError, match=rf"^data\.normalisation is {normalisation}, but the tokenizer's is nfkc"):
            prepare_all(cfg)
    kept.save(tmp_path / "kept.model")
    for normalisation in ("none", "nfkc"):  # the default says nothing of a tokenizer that is given
        cfg.normalisation, cfg.tokenizer = normalisation, str(tmp_path / "kept.model")
        assert prepare_all(cfg)[0].sha256 == kept.sha256


def test_a_run_goes_on_with_the_same_pairs_only(spec, tokenizer, tmp_path) -> None:
    now = make(spec, tokenizer, tmp_path).manifest
    record_launch(tmp_path, {"train": now, "valid": now}, 0)
    record_launch(tmp_path, {"train": now, "valid": now}, 10)
    other = make(spec, tokenizer, tmp_path, clean=True).manifest
    with pytest.raises(UserError, match=r"data\.train has changed"):
        record_launch(tmp_path, {"train": other, "valid": other}, 20)


def command(spec: str, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [
        sys.executable,
        "-m",
        "data.prepare",
        "--config=configs/base.py",
        f"--config.data.train={spec}",
        f"--config.data.valid={spec}",
        f"--config.data.cache={cache}",
        "--config.data.test=",
        *arguments,
    ]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})


def test_command_line(spec, tmp_path) -> None:
    done = command(spec, tmp_path, "--config.data.vocab_size=320", "--config.data.max_ratio=99.0")
    assert done.returncode == 0, done.stderr
    manifests = json.loads(done.stdout)
    assert manifests["train"]["pairs"]["kept"] == 100 and Path(manifests["valid"]["folder"]).is_dir()
    assert manifests["epoch"].keys() == {"batching", "row_lengths", "updates", "filled"}
    assert "learning 320 subwords" in done.stderr and "100 kept" in done.stderr
    done = command(spec, tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith("error: data.vocab_size is 37000, more than the training text")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("batching", ["bucket", "pack"])
def test_the_first_epoch_is_as_full_as_its_arrays(spec, tokenizer, tmp_path, batching) -> None:
    cfg = default()
    cfg.data.update({"batching": batching, "tokens_per_batch": 64, "max_length": 32, "pack_length": 32})
    cfg.data.buckets = (8, 16, 32)
    train = make(spec, tokenizer, tmp_path, clean=True)
    told = first_epoch(train, cfg)
    with closing(TrainingBatches(train, cfg.data, seed=cfg.seed)) as batches:
        arrays = [next(batches) for _ in range(told["updates"])]
        assert batches.get_state() == {"epoch": 1, "batch": 0}
    assert told["row_lengths"] == sorted({batch.labels_bt.shape[1] for batch in arrays})
    sides = {"source": [batch.source.ids_bt for batch in arrays], "target": [batch.labels_bt for batch in arrays]}
    for side, ids in sides.items():
        tokens = sum(np.count_nonzero(ids_bt != PAD) for ids_bt in ids)
        assert told["filled"][side] == pytest.approx(tokens / sum(ids_bt.size for ids_bt in ids), abs=1e-4)


def test_a_corpus_without_a_count_says_how_much_it_takes() -> None:
    for spec, named in (("grammar:train", "grammar:train (100,000 records)"), ("grammar:train:7", "grammar:train:7")):
        assert module.describe_corpus(open_corpus(spec), open_corpus(spec).size()) == named


def test_other_users_can_read_what_is_prepared(spec, tokenizer, tmp_path) -> None:
    before = os.umask(0o022)
    try:
        folder = make(spec, tokenizer, tmp_path).folder
    finally:
        os.umask(before)
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_corpus_has_its_own_name_whoever_prepared_the_text_first(spec, tokenizer, tmp_path) -> None:
    first = make(spec, tokenizer, tmp_path / "cache")
    for language, lines in (("en", ENGLISH), ("de", GERMAN)):
        (tmp_path / f"moved.{language}").write_text("\n".join(lines) + "\n", "utf-8")
    moved = make(f"text:{tmp_path}/moved.{{en,de}}", tokenizer, tmp_path / "cache")
    assert moved.folder == first.folder
    assert moved.manifest == first.manifest | {"spec": f"text:{tmp_path}/moved.{{en,de}}"}


def test_pairs_that_all_have_an_empty_side_are_not_too_long(tokenizer, tmp_path) -> None:
    (tmp_path / "c.tsv").write_text("the dog\t\na cat\t\n")
    with pytest.raises(UserError, match=r"cleaning dropped all 2 pairs.*; each has an empty side") as caught:
        make(f"tsv:{tmp_path / 'c.tsv'}", tokenizer, tmp_path / "cache", clean=True)
    assert "max_length" not in str(caught.value)


def test_a_cache_may_be_in_the_users_home(spec, tokenizer, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert make(spec, tokenizer, Path("~/cache")).folder.parent == tmp_path / "home" / "cache"
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("vocab_sise=320", "--config.data.vocab_sise: there is no such key; did you mean data.vocab_size?"),
        ("vocab_size=many", "--config.data.vocab_size=many: wrong type; write, for example, 37000"),
    ],
)
def test_a_mistyped_key_or_value_is_told_as_by_training(spec, tmp_path, argument: str, line: str) -> None:
    done = command(spec, tmp_path, f"--config.data.{argument}")
    assert (done.returncode, done.stderr) == (2, f"error: {line}\n")


@pytest.mark.parametrize(("train", "valid"), [("chars", "lines"), ("lines", "chars")])
def test_one_text_of_characters_is_not_validated_on_lines(tmp_path: Path, train: str, valid: str) -> None:
    (tmp_path / "text.txt").write_text("to be\nor not\n" * 30)
    file = f"{tmp_path}/text.txt"
    cfg = default().data
    cfg.update({"train": f"{train}:{file}", "valid": f"{valid}:{file}", "cache": str(tmp_path), "vocab_size": 0})
    cfg.units = "characters"
    with pytest.raises(UserError, match=rf"^data\.train is {train}:.*, and data\.valid {valid}:.*the same for both$"):
        prepare_all(cfg, sides=1)
    cfg.update({"train": f"chars:{file}", "valid": f"chars:{file}", "units": "words"})
    with pytest.raises(UserError, match=r"^data\.units is words, but chars:.* is read in characters$"):
        prepare_all(cfg, sides=1)


def test_images_need_no_preparation_and_data_prepare_says_so() -> None:
    done = commands.run("data.prepare", "--config=configs/vision.py:digits")
    said = "error: config: task is vision, whose images need no preparation: train without this command\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)

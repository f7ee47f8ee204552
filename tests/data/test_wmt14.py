"""WMT14 is prepared from its archives without TensorFlow; those here have its names, and a few pairs each."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from vaswani.data.archives import Archives
from vaswani.data.corpora import File
from vaswani.errors import UserError

ROOT = Path(__file__).parent.parent.parent
ENGLISH = [f"the {animal} sees the {other}" for animal in ("dog", "cat") for other in ("bird", "fish", "horse")]
GERMAN = [f"{animal} sieht {other}" for animal in ("Der Hund", "Die Katze") for other in ("Vögel", "Fische", "Pferde")]

# As `python -m data.prepare`, with these sums in place of WMT14's, and TensorFlow hidden.
PREPARE = """
import runpy
from importlib.machinery import PathFinder
from tensorflow_datasets.core.download.checksums import UrlInfo
from tensorflow_datasets.translate.wmt14 import Wmt14Translate
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "tensorflow" else find(name, *rest)
ours = {url: UrlInfo(size, sha256, None) for url, size, sha256 in %s}
assert ours.keys() <= Wmt14Translate.url_infos.keys()
Wmt14Translate.url_infos = ours
runpy.run_module("vaswani.data.prepare", run_name="__main__", alter_sys=True)
"""


def sgm(lines: list[str]) -> list[str]:
    return ["<doc>", *(f'<seg id="{number}">{line}</seg>' for number, line in enumerate(lines, 1)), "</doc>"]


def pack(path: Path, members: dict[str, list[str]]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, lines in members.items():
            content = "\n".join(lines).encode()
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def pinned(url: str, path: Path) -> File:
    return File(url, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def archives(tmp_path: Path) -> list[File]:
    """Small archives where a download would have put them."""
    folder = tmp_path / "corpora" / "wmt14_translate"
    folder.mkdir(parents=True)
    files = []
    for address, stem in {
        "www.statmt.org/wmt13/training-parallel-europarl-v7": "training/europarl-v7.de-en",
        "www.statmt.org/wmt13/training-parallel-commoncrawl": "commoncrawl.de-en",
        "www.statmt.org/wmt14/training-parallel-nc-v9": "training/news-commentary-v9.de-en",
    }.items():
        url = f"http://{address}.tgz"
        path = pack(folder / url.rpartition("/")[2], {f"{stem}.de": GERMAN, f"{stem}.en": ENGLISH})
        files.append(pinned(url, path))
    dev = {
        "dev/newstest2013.de": GERMAN[:4],
        "dev/newstest2013.en": ENGLISH[:4],
        "dev/newstest2014-deen-src.de.sgm": sgm(GERMAN[:2]),
        "dev/newstest2014-deen-ref.en.sgm": sgm(ENGLISH[:2]),
    }
    files.append(pinned("http://data.statmt.org/wmt19/translation-task/dev.tgz", pack(folder / "dev.tgz", dev)))
    return files


def prepare(tmp_path: Path, files: list[File]) -> subprocess.CompletedProcess[str]:
    folders = {"TFDS_DATA_DIR": f"{tmp_path}/tfds", "VASWANI_CORPORA": f"{tmp_path}/corpora"}
    options = (f"--config.data.cache={tmp_path}/cache", "--config.data.vocab_size=300")
    return subprocess.run(
        [sys.executable, "-c", PREPARE % [tuple(file) for file in files], "--config=configs/base.py", *options],
        cwd=ROOT,
        env=os.environ | folders,
        capture_output=True,
        text=True,
        check=False,
    )


def test_wmt14_is_prepared_from_its_archives_without_tensorflow(tmp_path: Path, archives: list[File]) -> None:
    done = prepare(tmp_path, archives)
    assert done.returncode == 0, done.stderr[-2000:]
    manifests = json.loads(done.stdout)
    assert [manifests[split]["pairs"]["kept"] for split in ("train", "valid")] == [3 * 6, 4]
    assert (tmp_path / "tfds" / "wmt14_translate" / "de-en" / "1.0.0").is_dir()
    assert sorted(path.name for path in (tmp_path / "corpora" / "wmt14_translate").iterdir()) == sorted(
        file.name
        for file in archives  # nothing unpacked is left
    )


def test_an_archive_with_another_sum_is_named(tmp_path: Path, archives: list[File]) -> None:
    done = prepare(tmp_path, [file._replace(sha256="0" * 64) for file in archives])
    assert done.returncode == 2
    last = done.stderr.strip().rpartition("\n")[2]
    assert "training-parallel-europarl-v7.tgz: its SHA-256 is not the one pinned for" in last


def opened(tmp_path: Path, *files: File) -> Archives:
    (tmp_path / "unpacked").mkdir()
    return Archives(None, {file.url: file for file in files}, tmp_path, tmp_path / "unpacked")


def test_archives_of_every_kind(tmp_path: Path) -> None:
    tar = pinned("http://x/a.tar.gz", pack(tmp_path / "a.tar.gz", {"f/b.txt": ["b"], "a.txt": ["a"]}))
    (tmp_path / "c.csv").write_text("c")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        archive.writestr("z.txt", "z")
    archives = opened(tmp_path, tar)
    paths = archives.download({"tar": [tar.url], "again": tar.url})
    assert paths == {"tar": [tmp_path / "a.tar.gz"], "again": tmp_path / "a.tar.gz"}
    assert [(name, file.read()) for name, file in archives.iter_archive(paths["again"])] == [
        ("a.txt", b"a"),
        ("f/b.txt", b"b"),
    ]
    assert archives.download_and_extract([tar.url]) == [tmp_path / "unpacked" / "a.tar"]
    folder, same = archives.extract([tmp_path / "z.zip", tmp_path / "c.csv"])
    assert ((folder / "z.txt").read_text(), same) == ("z", tmp_path / "c.csv")
    with pytest.raises(UserError, match=r"^http://x/none: tensorflow-datasets has no SHA-256 of it"):
        archives.download("http://x/none")


def test_an_archive_cannot_write_outside_of_its_folder(tmp_path: Path) -> None:
    pack(tmp_path / "evil.tgz", {"a.txt": ["a"], "../out.txt": ["out"]})
    with pytest.raises(tarfile.OutsideDestinationError):
        opened(tmp_path).extract(tmp_path / "evil.tgz")
    assert not (tmp_path / "unpacked" / "out.txt").exists()

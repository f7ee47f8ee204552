"""`python -m infer.score` on good and bad files."""

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from vaswani.errors import UserError
from vaswani.infer.scores import bleu
from vaswani.infer.scores.pairs import language_of, read_pair

REFERENCE = "Der Hund schläft.\nWir lesen ein neues Buch über E-Mail.\n"


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "infer.score", *arguments]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=Path(__file__).parents[2])


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    hypothesis, reference = tmp_path / "out.txt", tmp_path / "test.de.gz"
    hypothesis.write_text(REFERENCE.replace("neues", "altes"), encoding="utf-8")
    reference.write_bytes(gzip.compress(REFERENCE.encode()))
    return hypothesis, reference


def test_json_has_every_reading_and_equals_the_functions(files: tuple[Path, Path]):
    done = run_cli(f"--hypothesis={files[0]}", f"--reference={files[1]}", "--json")
    assert done.returncode == 0, done.stderr
    lines = REFERENCE.splitlines()
    expected = bleu.all_scores([line.replace("neues", "altes") for line in lines], lines, "de")
    assert json.loads(done.stdout) == expected
    assert expected["exact_match"] == 50


def test_the_flag_may_be_given_again_for_further_references(files: tuple[Path, Path], tmp_path: Path):
    other = tmp_path / "other.de"
    other.write_text(REFERENCE.replace("neues", "altes"), encoding="utf-8")
    done = run_cli(f"--hypothesis={files[0]}", f"--reference={files[1]}", f"--reference={other}", "--json")
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)
    assert scores["exact_match"] == 100 and scores["sacrebleu"] == pytest.approx(100)
    other.write_text("Der Hund schläft.\n", encoding="utf-8")
    done = run_cli(f"--hypothesis={files[0]}", f"--reference={files[1]}", f"--reference={other}")
    assert done.returncode == 2
    assert f"unequal line counts: {files[0]} has 2 lines, {other} has 1" in done.stderr


@pytest.mark.slow
def test_the_flag_says_which_language_the_tokeniser_reads(files: tuple[Path, Path], tmp_path: Path):
    hypotheses, references = ["L'eau de l'ami."], ["L'eau d'une amie."]
    scores = {language: bleu.all_scores(hypotheses, references, language) for language in ("de", "fr")}
    assert scores["fr"] != scores["de"]
    for name, lines in (("out.txt", hypotheses), ("reference.de", references)):
        (tmp_path / name).write_text(lines[0] + "\n", encoding="utf-8")
    arguments = (f"--hypothesis={tmp_path}/out.txt", f"--reference={tmp_path}/reference.de", "--json")
    for more, language in (([], "de"), (["--language=fr"], "fr")):
        assert json.loads(run_cli(*arguments, *more).stdout) == scores[language]


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
def test_a_baseline_is_compared_on_the_same_references(several: bool, files: tuple[Path, Path], tmp_path: Path):
    baseline = tmp_path / "old.txt"
    baseline.write_text(REFERENCE.replace("Hund", "Baum").replace("Buch", "Brot"), encoding="utf-8")
    arguments = [f"--hypothesis={files[0]}", f"--reference={files[1]}", f"--baseline={baseline}"]
    if several:
        arguments.append(f"--reference={files[0]}")
    done = run_cli(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    low, high = found["baseline"]["chrf"]["scores"]
    assert low < high == pytest.approx(found["chrf"])
    assert (found["chrf"] == pytest.approx(100)) == several
    shown = run_cli(*arguments).stdout.splitlines()
    assert f"{baseline}, {files[0]}, difference and two-sided p:" in shown
    assert shown[-1].startswith("chrf") and f"{high - low:+.2f}, p " in shown[-1]


@pytest.mark.slow
def test_references_from_a_pipe_are_read_once(files: tuple[Path, Path]):
    command = [sys.executable, "-m", "infer.score", f"--hypothesis={files[0]}", f"--baseline={files[0]}", "--json"]
    done = subprocess.run(
        [*command, "--reference=/dev/stdin"],
        input=REFERENCE,
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["exact_match"] == 50


def test_a_baseline_of_another_length_is_named(files: tuple[Path, Path], tmp_path: Path):
    short = tmp_path / "short.txt"
    short.write_text("Der Hund schläft.\n", encoding="utf-8")
    done = run_cli(f"--hypothesis={files[0]}", f"--reference={files[1]}", f"--baseline={short}")
    assert done.returncode != 0 and done.stdout == "" and done.stderr.count("\n") == 1
    assert f"{short} has 1 line," in done.stderr


def test_the_table_has_a_line_for_every_reading(files: tuple[Path, Path], tmp_path: Path):
    scores = bleu.all_scores(["a b c d"], ["a b c d"], "fr")
    lines = bleu.as_text(scores).splitlines()
    assert [line.split()[0] for line in lines] == list(bleu.METRICS)
    assert lines[0].split()[1] == "100.00" and scores["signatures"]["sacrebleu"] in lines[0]


def test_a_bad_file_is_one_line_on_stderr(files: tuple[Path, Path], tmp_path: Path):
    bad = tmp_path / "bad.de"
    bad.write_bytes(b"gut\nschl\xe4ft\n")
    done = run_cli(f"--hypothesis={bad}", f"--reference={files[1]}")
    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and f"{bad}, line 2" in done.stderr and "UTF-8" in done.stderr


def test_unequal_empty_and_missing_files_are_named(files: tuple[Path, Path], tmp_path: Path):
    short, empty = tmp_path / "short.de", tmp_path / "empty.de"
    short.write_text("eins\n")
    empty.write_text("")
    with pytest.raises(UserError, match=r"short\.de has 1 line, .*test\.de\.gz has 2"):
        read_pair(short, files[1])
    with pytest.raises(UserError, match=r"empty\.de and .*empty\.de are empty"):
        read_pair(empty, empty)
    with pytest.raises(UserError, match=r"missing\.de: no such file"):
        read_pair(files[0], tmp_path / "missing.de")


def test_empty_lines_are_sentences_and_count(tmp_path: Path):
    left, right = tmp_path / "a.de", tmp_path / "b.de"
    left.write_text("eins\n\n\n")
    right.write_text("eins\nzwei\n\n")
    assert read_pair(left, right) == (["eins", "", ""], ["eins", "zwei", ""])


@pytest.mark.parametrize("language", ["ZH", "german", "de-", ""])
def test_what_is_no_code_of_a_language_is_refused(language: str, files: tuple[Path, Path]):
    done = run_cli(f"--hypothesis={files[0]}", f"--reference={files[1]}", f"--language={language}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: flag --language={language}: it is a language's code, such as de or zh-CN; ")


@pytest.mark.parametrize(("language", "short"), [("zho", "zh"), ("chi-Hans", "zh"), ("jpn", "ja"), ("gsw", "en")])
def test_a_long_code_is_scored_as_its_short_one(language: str, short: str):
    lines = ["他说汉语。"], ["她说汉语！"]
    assert bleu.sacrebleu(*lines, language=language) == bleu.sacrebleu(*lines, language=short)
    assert bleu.ter(*lines, language=language) == bleu.ter(*lines, language=short)


def test_the_page_explains_every_score():
    first_cells = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs/commands.md").read_text(encoding="utf-8"), re.MULTILINE)
    explained = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert explained >= {*bleu.METRICS, *bleu.AS_IS, bleu.ORACLE, "perplexity"}


def test_language_comes_from_the_file_name():
    assert language_of("data/newstest2014.fr.gz") == "fr"
    assert language_of("x.en") == "en"
    assert language_of("x.zh-CN.gz") == "zh-CN"
    assert language_of("x.txt") == "de"

"""A split of a corpus leaks no sentence, in either language."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from vaswani.data.split import same, split
from vaswani.errors import UserError

ROOT = Path(__file__).parent.parent.parent


def made(count: int, seed: int = 0) -> list[tuple[str, ...]]:
    """Returns pairs many of which share a sentence with another, differently written."""
    draw = random.Random(seed)
    pairs = []
    for _ in range(count):
        source, target = draw.randrange(count), draw.randrange(count)
        pairs.append((draw.choice(("Word {}.", "word  {}. ")).format(source), f"Wort {target}"))
    return pairs


@pytest.mark.parametrize("seed", range(3))
def test_no_sentence_is_in_two_parts(seed: int) -> None:
    pairs = made(400, seed)
    parts = split(pairs, seed, valid=30, test=40)
    assert 0 < len(parts.valid) <= 30 and 0 < len(parts.test) <= 40
    for side in (0, 1):
        sentences = [{same(pair[side]) for pair in part} for part in parts]
        assert sum(map(len, sentences)) == len(set.union(*sentences))
    assert sorted(pair for part in parts for pair in part) == sorted(set(pairs))


def test_the_seed_draws_the_parts() -> None:
    pairs = made(400)
    assert split(pairs, 1, 30, 40) == split(pairs, 1, 30, 40) != split(pairs, 2, 30, 40)


def test_pairs_that_occur_twice_or_are_empty_are_left_out() -> None:
    pairs = [(f"{number}", f"{number}") for number in range(10)]
    parts = split([*pairs, *pairs, ("a", " "), ("", "b")], 0, 2, 2)
    assert sorted(pair for part in parts for pair in part) == pairs
    assert (len(parts.valid), len(parts.test)) == (2, 2)


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(UserError, match="there are 3 distinct pairs; --valid=1 and --test=1 would leave fewer"):
        split([("a", "b"), ("c", "d"), ("e", "f")], 0, 1, 1)


def test_the_command_writes_what_training_reads(tmp_path: Path) -> None:
    lines = [f"Line {number}\tZeile {number}" for number in range(50)]
    (tmp_path / "all.tsv").write_text("\n".join([*lines, lines[0]]) + "\n")
    command = [
        sys.executable,
        "-m",
        "data.split",
        f"--corpus=tsv:{tmp_path}/all.tsv:{{en,de}}",
        "--valid=5",
        "--test=6",
    ]
    command.append(f"--output={tmp_path}/corpus")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    left_out = "left out, since they occur twice or have an empty side: 1\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, "train 39\nvalid 5\ntest 6\n", left_out)
    english = (tmp_path / "corpus" / "test.en").read_text().splitlines()
    german = (tmp_path / "corpus" / "test.de").read_text().splitlines()
    assert [line.replace("Line", "Zeile") for line in english] == german
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 2 and "this folder already contains files" in again.stderr

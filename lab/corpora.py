"""Prints a corpus that only our studies have, a pair a line: source, tab, target.

python -m lab.corpora rich:train:40000 > rich-train.tsv
python -m lab.corpora scan:length:train > scan-train.tsv

rich:SPLIT:COUNT is the rich grammar (lab/grammar), English and German; SPLIT is train, valid or test. scan:SPLIT:PART
is SCAN (lab/scan.py), commands and actions; SPLIT is simple, length, length-N with outputs of up to N actions in
training, or around-right, and PART train or test. Train with `--config.data.train=tsv:rich-train.tsv`, as on any file.

The recorded runs read the same pairs when both were corpora of training itself, under these names; `python -m
lab.reproduce` repeats them with the code of their time. There every word of SCAN was one symbol, which
`--config.data.units=words` comes closest to.
"""

import re
from collections.abc import Iterable

from lab import scan
from lab.grammar.sentences import RICH_SPLITS, pair
from vaswani.command import run
from vaswani.errors import UserError


def corpus(spec: str) -> Iterable[tuple[str, str]]:
    """Returns the pairs of a corpus; `UserError` if there is none of this name."""
    rich = re.fullmatch(r"(rich:\w+):([1-9][0-9]{0,7})", spec)
    if rich and rich[1] in RICH_SPLITS:
        examples = (pair(rich[1], index) for index in range(int(rich[2])))
        return ((example.english, example.german) for example in examples)
    of_scan = re.fullmatch(r"scan:([\w-]+):(train|test)", spec)
    if of_scan and scan.is_split(of_scan[1]):
        return scan.pairs(of_scan[1], of_scan[2])
    splits = ", ".join(scan.SPLITS)
    raise UserError(f"{spec}: write rich:train:40000, or scan:SPLIT:train or :test, SPLIT one of {splits}, length-N")


def main(argv: list[str]) -> None:
    if len(argv) != 2:
        raise UserError("name one corpus, such as rich:train:40000")
    for source, target in corpus(argv[1]):
        print(f"{source}\t{target}")


if __name__ == "__main__":
    run(main)

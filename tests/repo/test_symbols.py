"""The page of the paper's symbols names keys that exist, every column of Table 3, and every axis letter."""

import re
from pathlib import Path

from tests.repo.test_layout import leaves
from vaswani.paper.published import Ablation

ROOT = Path(__file__).parent.parent.parent
MEASURED = {"perplexity", "bleu", "parameters"}  # by Table 3, which varies the others


def column(place: int) -> list[str]:
    """Returns the cells of a column of the page's table."""
    text = (ROOT / "docs" / "symbols.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [line.strip("|").split("|")[place].strip() for line in lines[1:]]


def keys() -> list[str]:
    return [key for cell in column(3) for key in re.findall(r"`([^`]+)`", cell)]


def test_every_key_of_the_page_exists() -> None:
    assert len(keys()) > 15 and set(keys()) <= set(leaves())


def test_every_symbol_of_table_3_has_its_key() -> None:
    names = {key.rpartition(".")[2] for key in keys()}
    assert set(Ablation._fields) - MEASURED <= names


def test_the_axes_are_those_of_the_rules() -> None:
    rules = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    sentence = rules.partition("3. Array names end in their axes")[2].partition("In masks")[0]
    letters = set(re.findall(r"`(\w)`", sentence))
    assert letters == {letter for cell in column(4) for letter in re.findall(r"[a-z]", cell)}

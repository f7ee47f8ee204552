"""lab/grammar/tables: each has its columns filled with what the grammar knows, and no line twice."""

import pytest

from lab.grammar.words import TABLES
from tests.data.test_words import KINDS, check_cells, check_nouns, check_verbs
from vaswani.data.grammar.lexicon import table


@pytest.mark.parametrize("name", sorted(path.stem for path in TABLES.glob("*.tsv")))
def test_every_cell_is_filled_and_no_line_is_there_twice(name: str) -> None:
    check_cells(table(name, TABLES))


@pytest.mark.parametrize("name", ["rich_nouns", "rich_cues", "rich_senses"])
def test_nouns_have_a_gender_and_known_kinds(name: str) -> None:
    check_nouns(table(name, TABLES))


def test_verbs_have_known_frames_and_kinds_and_an_auxiliary() -> None:
    check_verbs(table("rich_verbs", TABLES))


def test_adjectives_and_compounds_are_of_known_kinds() -> None:
    for name, column in (("rich_adjectives", "kinds"), ("rich_compounds", "head_kinds")):
        for row in table(name, TABLES):
            assert set(row[column].split()) <= KINDS, row


def test_every_meaning_has_somebody_who_decides_it() -> None:
    domains = [row["domain"] for row in table("rich_cues", TABLES)]
    assert {row["domain"] for row in table("rich_senses", TABLES)} <= set(domains)

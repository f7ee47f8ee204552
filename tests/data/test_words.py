"""data/grammar/words/: each table has its columns filled with what the grammar knows, and no line twice."""

import re
from pathlib import Path

import pytest

from vaswani.data.grammar import lexicon
from vaswani.data.grammar.lexicon import make_noun, make_verb, table

WORDS = Path(lexicon.__file__).with_name("words")
TABLES = sorted(path.stem for path in WORDS.glob("*.tsv"))
MAY_BE_EMPTY = ("particle", "preposition", "objects")
KINDS = {
    *("person", "he", "she", "trade", "animal", "thing", "clothing", "machine", "text", "flat", "upright", "light"),
    *("bright", "furniture", "vehicle", "timetable", "food", "dish", "money", "shore", "ambiguous"),
    *("place", "in", "into", "to", "at", "on", "onto"),
}
FRAMES = {
    *("none", "acc", "dat", "give", "put", "motion", "ride", "swim"),
    *("that", "whether", "infinitive", "stative"),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_is_filled_and_no_line_is_there_twice(name: str) -> None:
    check_cells(table(name))


def check_cells(rows: list[dict[str, str]]) -> None:
    lines = [tuple(row.values()) for row in rows]
    assert len(set(lines)) == len(lines) > 0
    for row in rows:
        for column, cell in row.items():
            assert cell == cell.strip() and "  " not in cell, row
            assert cell or column in MAY_BE_EMPTY, row
            # English letters, German ones, and the hyphens, slashes and pluses of T-shirt, kenne/kennst, auf+wachen
            assert re.fullmatch(r"[A-Za-zÄÖÜäöüß +/-]*", cell), row


def test_nouns_have_a_gender_and_known_kinds() -> None:
    check_nouns(table("nouns"))


def check_nouns(rows: list[dict[str, str]]) -> None:
    for row in rows:
        noun = make_noun(row)
        assert noun.gender in ("m", "f", "n") and noun.kinds <= KINDS, row
        assert not {"he", "she"} <= noun.kinds, row
        feminine = noun.gender == "f"
        assert feminine == (noun.de[0][3] == noun.de[0][0]), row  # only they have no genitive ending
        assert all(form[0].isupper() for forms in noun.de for form in forms), row


def test_verbs_have_known_frames_and_kinds_and_an_auxiliary() -> None:
    check_verbs(table("verbs"))


def check_verbs(rows: list[dict[str, str]]) -> None:
    for row in rows:
        verb = make_verb(row)
        assert verb.frames <= FRAMES and {*verb.subjects, *verb.objects} <= KINDS, row
        assert verb.auxiliary in ("haben", "sein") and verb.en_preposition in ("", "for", "to"), row
        takes_objects = bool(verb.frames & {"acc", "dat", "give", "put"})
        assert takes_objects == bool(verb.objects), row
        assert verb.participle.startswith(verb.particle) and verb.infinitive.endswith("n"), row


def test_adjectives_are_of_known_kinds() -> None:
    for row in table("adjectives"):
        assert set(row["kinds"].split()) <= KINDS, row


def test_a_line_with_too_few_columns_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "some.tsv").write_text("english\tgerman\nhouse\tHaus\ntree\n")
    with pytest.raises(ValueError, match="shorter"):
        table("some", tmp_path)
    (tmp_path / "some.tsv").write_text("english\tgerman\nhouse\t-\n")
    assert table("some", tmp_path) == [{"english": "house", "german": ""}]

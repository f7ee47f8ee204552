"""A table of strings, written for terminals, Markdown and spreadsheets."""

import csv
import io
import math

import pytest

from vaswani.train.table import Markdown, Table, as_csv, as_markdown, as_text, difference, is_numeric, number, spread

TABLE = Table(
    "t",
    "A title",
    ("row", "BLEU: paper", "BLEU: ours", "cost: ours"),
    [("a|b", "4.9", "not run", ""), ("c", "12.1", "−0.50 ± 0.10", "1 h, x")],
    ["a note"],
)


def test_text_names_a_group_once_and_aligns_numbers_right() -> None:
    assert as_text(TABLE).splitlines() == [
        "A title",
        "",
        "row  BLEU: paper          ours  cost: ours",
        "---  -----------  ------------  ----------",
        "a|b          4.9       not run",
        "c           12.1  −0.50 ± 0.10  1 h, x",
        "",
        "a note",
    ]


def test_markdown_keeps_bars_inside_cells() -> None:
    assert as_markdown(TABLE).splitlines()[2:5] == [
        "| row | BLEU: paper | ours | cost: ours |",
        "|---|---:|---:|---|",
        "| a\\|b | 4.9 | not run |  |",
    ]
    assert as_markdown(TABLE).endswith("\n\n- a note")


def test_text_is_not_markdown_unless_it_says_so() -> None:
    text = "<b>a</b> & &lt; `c`\n| d | [e](f) *g* _h_ d_model p < 0.05 \\"
    shown = r"\<b>a\</b> & \&lt; \`c\` | d | \[e\](f) \*g\* \_h\_ d_model p < 0.05 \\"
    cell = shown.replace("|", r"\|")
    lines = as_markdown(Table("t", text, (text,), [(text,), (Markdown("[a](b)"),)], [text])).splitlines()
    assert lines == [f"### {shown}", "", f"| {cell} |", "|---|", f"| {cell} |", "| [a](b) |", "", f"- {shown}"]


def test_csv_has_whole_heads_and_the_tables_name() -> None:
    rows = list(csv.reader(io.StringIO(as_csv(TABLE))))
    assert rows[0] == ["table", "row", "BLEU: paper", "BLEU: ours", "cost: ours"]
    assert rows[2] == ["t", "c", "12.1", "-0.50 ± 0.10", "1 h, x"]  # a minus that programs can read


@pytest.mark.parametrize("cell", ["=1+1", "+SUM(A1)", "@A1", "-cmd|' /C calc'!A0", "-1+A1", "\t=1", "+e5", "+1.5 mm"])
def test_csv_has_no_formula(cell: str) -> None:
    table = Table(cell, "", (cell,), [(cell,)], [])
    assert list(csv.reader(io.StringIO(as_csv(table)))) == [["table", f"'{cell}"], [f"'{cell}", f"'{cell}"]]
    assert cell in as_text(table)


@pytest.mark.parametrize(
    "cell",
    ["+0.5", "-3", "-1e-05", "+1.5e+06", "-1,234.50", "-inf", "+0.12 ± 0.10", "-7%", "-", "a=1", "3-1", "(-1, 2)"],
)
def test_numbers_with_a_sign_stay_numbers_in_csv(cell: str) -> None:
    assert list(csv.reader(io.StringIO(as_csv(Table("", "", ("h",), [(cell,)], []))))) == [["h"], [cell]]


def test_without_a_name_or_a_title_there_is_no_place_for_one() -> None:
    lone = TABLE._replace(name="", title="")
    assert as_csv(lone).splitlines()[0] == "row,BLEU: paper,BLEU: ours,cost: ours"
    assert as_csv(lone).splitlines()[2] == 'c,12.1,-0.50 ± 0.10,"1 h, x"'
    assert as_markdown(lone).splitlines()[0] == "| row | BLEU: paper | ours | cost: ours |"


@pytest.mark.parametrize("form", [as_text, as_markdown, as_csv])
def test_a_table_may_have_no_rows(form: object) -> None:
    assert "ours" in form(TABLE._replace(rows=[]))  # type: ignore[operator]


def test_what_is_a_number() -> None:
    assert is_numeric(["", "1.2e18", "+0.1", "63,045,632", "unfinished", "not evaluated on valid"])
    assert not is_numeric(["12 h, 8 x P100"])
    assert not is_numeric(["", ""])


def test_a_huge_number_is_short_and_still_a_number() -> None:
    assert number(999_999_999.0) == "999999999.00"
    assert number(1e9) == "1.00e+09"
    assert number(-4.4514683785252334e84) == "−4.45e+84"
    assert is_numeric(["1.00e+09", "−4.45e+84"])
    assert (number(math.inf), number(math.nan)) == ("inf", "nan")


def test_mean_and_sample_deviation() -> None:
    assert spread([]) == ""
    assert spread([1.234]) == "1.23"
    assert spread([1.0, 2.0, 3.0]) == "2.00 ± 1.00"
    assert spread([1.0, math.inf]) == "inf"
    assert spread([1.0, math.nan]) == "nan"


def test_differences_carry_their_sign() -> None:
    assert (difference(1.0, 2.5), difference(2.5, 1.0, 1), difference(None, 1.0)) == ("−1.50", "+1.5", "")
    assert number(None) == ""

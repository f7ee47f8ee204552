"""The report page: whatever its cells contain, it is one file that needs no network."""

import html.parser
import re
from pathlib import Path

import pytest

from vaswani.errors import UserError
from vaswani.paper.report.page import Section, drawings, folded, inner_page, page, pictures, table, write
from vaswani.table import Table

TABLE = Table(
    "t",
    "A <title>",
    ("row", "BLEU: paper", "BLEU: ours", "cost"),
    [("<script>", "4.9", "not run", "1 & 2"), ("b", "5.0", "5.1", "python -m train")],
    ["note <1>", "note <1>"],
)


class Parser(html.parser.HTMLParser):
    """Collects what is opened and not closed, rows as text, and the places that attributes point to."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[list[str]] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.links += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.cells[-1][-1] += data


def parsed(text: str) -> Parser:
    parser = Parser()
    parser.feed(text)
    assert parser.open == []
    return parser


def test_a_table_groups_its_heads_and_keeps_every_cell() -> None:
    text = table(TABLE)
    assert parsed(text).cells == [["row", "BLEU", "cost"], ["paper", "ours"], *map(list, TABLE.rows)]
    assert '<th colspan="2" scope="colgroup">BLEU</th>' in text
    assert text.count("note &lt;1&gt;") == 1
    assert '<span class="absent">not run</span>' in text
    assert "<code>python -m train</code>" in text


def test_a_table_scrolls_in_its_own_box() -> None:
    assert '<div class="scroll" tabindex="0" role="region" aria-label="A &lt;title&gt;"><table>' in table(TABLE)


def test_a_page_is_whole_and_names_its_sections(tmp_path: Path) -> None:
    (tmp_path / "a_map.png").write_bytes(b"png")
    parts = [table(TABLE), *drawings({"x < y": "<svg></svg>"}), *pictures([tmp_path / "a_map.png"])]
    text = page("From <there>.", [Section("One two", parts), Section("Empty", []), Section("3", [folded("more", "x")])])
    parser = parsed(text)
    assert parser.links == ["#one-two", "#3", "data:image/png;base64,cG5n"]
    assert "From &lt;there&gt;." in text and "__" not in text
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text


def test_a_page_within_the_page_stays_in_its_frame() -> None:
    text = inner_page('"q" <t>', '<p class="x">&amp;</p>')
    assert parsed(text).open == []
    assert 'srcdoc="&lt;p class=&quot;x&quot;&gt;&amp;amp;&lt;/p&gt;"' in text


def policy(text: str) -> str:
    (found,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    (scripts,) = re.findall(r"script-src ([^;]*)", found)
    return scripts


def test_only_the_scripts_that_are_named_may_run() -> None:
    assert policy(page("x", [])) == "'none'"
    # SHA-256 of "alert(1)", in base64.
    assert policy(page("x", [], ["alert(1)"])) == "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"


def test_what_looks_like_a_place_of_the_template_is_only_text() -> None:
    assert "__BODY__ __X__" in page("__BODY__ __X__", [Section("one", ["text"])])


def test_a_name_that_is_not_unicode_can_be_written(tmp_path: Path) -> None:
    write(tmp_path / "x.html", "a \udcff b")
    assert (tmp_path / "x.html").read_bytes() == b"a \\udcff b"


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--html=.*none/x.html: cannot be written \(No such file or directory\)"):
        write(tmp_path / "none" / "x.html", "")


@pytest.mark.parametrize("verdict", ["not met", "not shown", "not equivalent"])
def test_a_verdict_is_no_missing_number(verdict: str) -> None:
    from vaswani.paper.report.report import _is_run

    shown = Table("t", "T", ("claim", "ours", "verdict"), [("a", "26.10", verdict)], [])
    assert "absent" not in table(shown)
    assert _is_run(shown)
    assert "absent" in table(shown._replace(rows=[("a", "not evaluated on test", "not run")]))

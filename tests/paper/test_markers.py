"""A command rewrites only the block between two marker lines of a page."""

from pathlib import Path

import pytest

from vaswani.errors import UserError
from vaswani.paper.markers import replace_block


def test_only_what_is_between_the_lines_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<a>\nold <b> old\n</a>\nafter </a>\n", encoding="utf-8")
    assert replace_block(page, "<a>", "</a>", "new") == "before\n<a>\nnew\n</a>\nafter </a>\n"


@pytest.mark.parametrize("text", ["", "<a>\n", "</a>\n", "</a>\n<a>\n"])
def test_a_page_without_the_lines_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=rf"^{tmp_path}/page.md: it must contain both of the lines '<a>' and '</a>'$"):
        replace_block(tmp_path / "page.md", "<a>", "</a>", "new")

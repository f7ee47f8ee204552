"""The README's map of the paper names what exists, and the links of the README and of docs/ lead somewhere."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
MAP = "## The paper, section by section"
SECTIONS = (
    *("3.1", "3.2.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5", "4"),
    *("5.1", "5.2", "5.3", "5.4", "6.1", "6.2", "6.3"),
    *(f"Figure {number}" for number in range(1, 6)),
    *(f"Table {number}" for number in range(1, 5)),
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def map_rows() -> list[tuple[list[str], str]]:
    """Returns the labels (sections, figures and tables) and the code of each row of the map."""
    text = README.read_text(encoding="utf-8").partition(f"\n{MAP}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [(cells[0].strip().split(", "), cells[2].strip()) for cells in rows[2:]]


def defined(path: Path) -> set[str]:
    """Returns the names of a file's functions, classes and variables, those inside functions left out."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def anchors(path: Path) -> set[str]:
    """Returns the names that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_map_has_every_section_figure_and_table() -> None:
    labels = {label for row, _ in map_rows() for label in row}
    assert labels == set(SECTIONS)


@pytest.mark.parametrize(("labels", "code"), map_rows(), ids=[", ".join(row) for row, _ in map_rows()])
def test_a_row_of_the_map_names_files_and_what_they_define(labels: list[str], code: str) -> None:
    named = re.findall(r"\[([^\]]*)\]\(([^)]*)\)((?: `\w+`,?)*)", code)
    assert named and re.sub(r"\[[^\]]*\]\([^)]*\)|`\w+`|[ ,]", "", code) == ""
    for shown, target, names in named:
        assert shown.rstrip("/") == target and (ROOT / target).exists(), f"there is no {target}"
        for name in re.findall(r"\w+", names):
            assert name in defined(ROOT / target), f"{target} defines no {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"https?://", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        assert not anchor or anchor in anchors(target), f"{page.name} links to {link}, which has no such heading"


def test_every_page_of_docs_is_linked_from_the_readme() -> None:
    linked = {link.partition("#")[0] for link in LINK.findall(README.read_text(encoding="utf-8"))}
    pages = {page.relative_to(ROOT).as_posix() for page in ROOT.glob("docs/*.md")}
    assert pages <= linked, f"the README links to none of {sorted(pages - linked)}"

"""The README's map of the paper names what exists, and the links of all pages lead somewhere."""

import ast
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
README = ROOT / "README.md"
LAB = ROOT / "lab" / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("lab/**/*.md"))]
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


def faults(code: str) -> list[str]:
    """Returns what is wrong with the code of a row: links to files, each followed by names that the file defines."""
    named = re.findall(r"\[([^\]]*)\]\(([^)]*)\)((?: `\w+`,?)*)", code)
    found = []
    if not named or re.sub(r"\[[^\]]*\]\([^)]*\)|`\w+`|[ ,]", "", code):
        found.append(f"not only links and names: {code}")
    for shown, target, names in named:
        if shown.rstrip("/") != target or not (ROOT / target).exists():
            found.append(f"there is no {target}")
            continue
        missing = [name for name in re.findall(r"\w+", names) if name not in defined(ROOT / target)]
        found += [f"{target} defines no {name}" for name in missing]
    return found


def test_the_rows_of_the_map_name_files_and_what_they_define() -> None:
    assert faults("[model/embed.py](model/embed.py) `Embedding`, `logits_of`") == []
    assert faults("[model/embed.py](model/embed.py) `sinusoids`") == ["model/embed.py defines no sinusoids"]
    wrong = [f"{', '.join(labels)}: {fault}" for labels, code in map_rows() for fault in faults(code)]
    assert not wrong, "\n".join(wrong)


def test_the_links_of_the_pages_lead_somewhere() -> None:
    wrong = []
    for page in PAGES:
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            if re.match(r"https?://", link):
                continue
            if not target.exists():
                wrong.append(f"{page.relative_to(ROOT)} links to {link}, which does not exist")
            elif anchor and anchor not in anchors(target):
                wrong.append(f"{page.relative_to(ROOT)} links to {link}, which has no such heading")
    assert not wrong, "\n".join(wrong)


def links(page: Path) -> set[Path]:
    """Returns the files that a page links to."""
    found = LINK.findall(page.read_text(encoding="utf-8"))
    return {(page.parent / link.partition("#")[0]).resolve() for link in found}


def test_every_page_is_linked_from_the_readme_or_the_labs() -> None:
    pages = {*ROOT.glob("docs/*.md"), LAB}
    assert pages <= links(README), f"the README links to none of {sorted(pages - links(README))}"
    labs = {*ROOT.glob("lab/docs/*.md"), *ROOT.glob("lab/studies/*/README.md")}
    assert len(labs) > 15 and labs <= links(LAB), f"lab/README.md links to none of {sorted(labs - links(LAB))}"


def test_equation_1_stands_in_the_readme_as_in_the_code() -> None:
    (snippet,) = re.findall(r"^```py\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    source = (ROOT / "model" / "attention.py").read_text(encoding="utf-8")
    (body,) = re.findall(
        r"^    # How compatible .*?^    return heads_bhte, weights_bhts\n", source, re.MULTILINE | re.DOTALL
    )
    assert snippet == textwrap.dedent(body)

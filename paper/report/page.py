"""Tables, drawings and pictures as HTML, and the page around them, which loads nothing from the network."""

import base64
import html
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vaswani.files import write_text, writing
from vaswani.html import script_policy
from vaswani.table import ABSENT, Table, is_numeric

TEMPLATE = Path(__file__).with_name("report.html")
_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


class Section(NamedTuple):
    """A heading of the page and what is below it, as HTML."""

    title: str
    parts: Sequence[str]


def page(about: str, sections: Sequence[Section], scripts: Sequence[str] = ()) -> str:
    """Returns the page as text.

    Args:
      about: a sentence for its head.
      sections: those without parts are left out.
      scripts: the text of every script that may run in it and in its frames; a browser refuses all others.
    """
    links: list[str] = []
    bodies: list[str] = []
    for section in sections:
        if section.parts:
            anchor = _anchor(section.title)
            title = html.escape(section.title)
            links.append(f'<a href="#{anchor}">{title}</a>')
            bodies.append(f'<section><h2 id="{anchor}">{title}</h2>\n{"".join(section.parts)}</section>')
    parts = {
        "SCRIPTS": script_policy(scripts),
        "ABOUT": html.escape(about),
        "CONTENTS": "\n".join(links),
        "BODY": "\n".join(bodies),
    }
    return re.sub("__([A-Z]+)__", lambda match: parts[match[1]], TEMPLATE.read_text(encoding="utf-8"))


def write(path: Path, text: str) -> None:
    """Writes the page; raises `UserError` where that is not possible."""
    with writing(f"--html={path}"):
        write_text(path, text)


def table(shown: Table) -> str:
    """Returns a table in a box that scrolls where the page is narrow, with its notes below."""
    title = html.escape(shown.title, quote=True)
    columns = list(zip(*shown.rows, strict=True)) or [()] * len(shown.head)
    classes = _classes(shown.head, columns)
    lines: list[str] = []
    for row in shown.rows:
        cells = "".join(map(_td, row[1:], classes[1:]))
        lines.append(f'<tr><th scope="row">{_text(row[0])}</th>{cells}</tr>')
    rows = "\n".join(lines)
    return (
        f'<h3>{title}</h3>\n<div class="scroll" tabindex="0" role="region" aria-label="{title}"><table>\n'
        f"<thead>{_head(shown.head, classes)}</thead>\n<tbody>\n{rows}\n</tbody></table></div>\n{_notes(shown.notes)}"
    )


def _classes(head: Sequence[str], columns: Sequence[Sequence[str]]) -> list[list[str]]:
    """Returns the CSS classes of each column: whether it has numbers, begins a group, and is of our runs."""
    classes: list[list[str]] = []
    before = ""
    for name, column in zip(head, columns, strict=True):
        group = name.rpartition(": ")[0]
        applies = {"number": is_numeric(column), "group": group != before, "ours": name.endswith(": ours")}
        classes.append([kind for kind, applied in applies.items() if applied])
        before = group
    return classes


def _head(head: Sequence[str], classes: Sequence[Sequence[str]]) -> str:
    """Returns one header line, or two where columns share a group."""
    groups = [name.rpartition(": ")[0] for name in head]
    if not any(groups):
        return f"<tr>{''.join(_th(name, kind) for name, kind in zip(head, classes, strict=True))}</tr>"
    above: list[str] = []
    below: list[str] = []
    for group, places in itertools.groupby(range(len(head)), key=groups.__getitem__):
        inside = list(places)
        if group:
            above.append(f'<th colspan="{len(inside)}" scope="colgroup">{html.escape(group)}</th>')
            below += [_th(head[place].removeprefix(f"{group}: "), classes[place]) for place in inside]
        else:
            above += [_th(head[place], classes[place], 'rowspan="2" ') for place in inside]
    return f"<tr>{''.join(above)}</tr><tr>{''.join(below)}</tr>"


def _th(name: str, kind: Sequence[str], more: str = "") -> str:
    return f'<th {more}scope="col" class="{" ".join(kind)}">{html.escape(name)}</th>'


def _td(cell: str, kind: Sequence[str]) -> str:
    return f'<td class="{" ".join(kind)}">{_text(cell)}</td>'


def _text(cell: str) -> str:
    text = html.escape(cell)
    if cell.startswith("python "):
        return f"<code>{text}</code>"
    return f'<span class="absent">{text}</span>' if cell.startswith(ABSENT) else text


def _notes(notes: Sequence[str]) -> str:
    lines = "".join(f"<li>{html.escape(note)}</li>" for note in dict.fromkeys(notes))
    return f'<ul class="notes">{lines}</ul>' if lines else ""


def drawings(drawn: Mapping[str, str]) -> list[str]:
    """Returns drawings by title, SVG in the page's own colours, side by side where there is room."""
    figures = [f"<figure><figcaption>{html.escape(title)}</figcaption>{svg}</figure>" for title, svg in drawn.items()]
    return [f'<div class="drawings">{"".join(figures)}</div>'] if figures else []


def pictures(paths: Sequence[Path]) -> list[str]:
    """Returns pictures, SVG or PNG, on a white background (their colours are fixed), which the dark theme inverts."""
    return [f'<div class="drawings">{"".join(map(_picture, paths))}</div>'] if paths else []


def _picture(path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    name = html.escape(path.stem.replace("_", " "), quote=True)
    image = f'<img alt="{name}" src="data:{_TYPES[path.suffix]};base64,{data}">'
    return f'<figure class="wide"><figcaption>{name}</figcaption><div class="sheet">{image}</div></figure>'


def inner_page(title: str, text: str) -> str:
    """Returns another self-contained page, in a frame."""
    return f'<iframe title="{html.escape(title)}" loading="lazy" srcdoc="{html.escape(text)}"></iframe>'


def folded(summary: str, inside: str) -> str:
    """Returns `inside` folded away behind `summary`."""
    return f"<details><summary>{html.escape(summary)}</summary>\n{inside}</details>"


def _anchor(title: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in title.lower())

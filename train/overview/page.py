"""The page of curves: one file without network access, whose curves can be smoothed, hidden and looked at."""

import math
from html import escape
from pathlib import Path
from typing import Any

from vaswani.infer.html import inline_scripts, read_template, script_json, script_policy
from vaswani.train.overview.curves import PANELS, Curve
from vaswani.train.table import Table, is_numeric

TEMPLATE = Path(__file__).with_name("curves.html")


def page(groups: dict[str, list[Curve]], table: Table) -> str:
    """Returns the page of the curves of these groups, by name and in the order of `PANELS`, with the table below."""
    panels = []
    for place, panel in enumerate(PANELS):
        curves = [curves[place] for curves in groups.values()]
        if any(curve.steps for curve in curves):
            panels.append({"title": panel.title, "curves": [*map(_as_json, curves)]})
    template = read_template(TEMPLATE)
    before, rest = template.replace("__SCRIPT__", script_policy(inline_scripts(template))).split("__TABLE__")
    between, after = rest.split("__DATA__")
    return f"{before}{_html(table)}{between}{script_json({'names': [*groups], 'panels': panels})}{after}"


def _as_json(curve: Curve) -> dict[str, Any]:
    finite = [[value if math.isfinite(value) else None for value in column] for column in curve[1:]]
    return dict(zip(Curve._fields, (curve.steps, *finite), strict=True))


def _html(table: Table) -> str:
    """Returns a table as HTML, with its title above and the notes below."""
    columns = list(zip(*table.rows, strict=True))
    classes = [' class="number"' if is_numeric(column) else "" for column in columns]
    heads = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.head)
    lines = [f"<h2>{escape(table.title)}</h2>", '<div class="scroll" tabindex="0" role="region" aria-label="runs">']
    lines += ["<table>", f"<thead><tr>{heads}</tr></thead>"]
    for row in table.rows:
        cells = "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(row, classes, strict=True))
        lines.append(f"<tr>{cells}</tr>")
    lines.append("</table></div>")
    lines += [f"<p>{escape(note)}</p>" for note in table.notes]
    return "\n".join(lines)

"""The report: every table, how training went, and what the models look at, as one page."""

import html
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from vaswani.data.sources import open_corpus
from vaswani.errors import UserError
from vaswani.html import assembled, inline_scripts
from vaswani.infer import load_run
from vaswani.paper.records import Records, RunRecord, newest_with_checkpoints
from vaswani.paper.report import table1_plot
from vaswani.paper.report.curves import curves, other_curves, trends
from vaswani.paper.report.page import Section, drawings, folded, inner_page, page, pictures, table
from vaswani.paper.rows import RowRuns
from vaswani.table import ABSENT, Table

_WORDS = range(8, 15)  # of the sentence whose attention is shown


def report(
    tables: Mapping[str, list[Table]],
    records: Records,
    place: str,
    commands: Table,
    plots: Mapping[str, Callable[[Path], None]] = MappingProxyType({}),
    rows: Mapping[str, Mapping[str, RowRuns]] = MappingProxyType({}),
) -> str:
    """Returns the page as text.

    Args:
      tables: what to show, by "table1" and so on.
      records: what they were made of.
      place: the folders that hold those, for the page's head.
      commands: the table of the command of each row.
      plots: what draws a figure below the tables of a name, into a file.
      rows: runs whose learning curves are drawn beside those of the paper's rows, by title and row.
    """
    sections: list[Section] = []
    have_run = {name: any(map(_is_run, made)) for name, made in tables.items()}
    # What has run stands before what has not.
    for name in sorted(tables, key=lambda name: not have_run[name]):
        parts = [table(shown) for shown in sorted(tables[name], key=lambda shown: not _is_run(shown))]
        if have_run[name]:
            parts += _beside(name, records, plots)
        sections.append(Section(_title(name), parts))
    sections.append(Section("Learning curves", [*drawings(curves(records, rows)), *_others(records, rows)]))
    scripts: list[str] = []
    drawer = newest_with_checkpoints(records)
    if drawer is not None:
        from vaswani.infer.attention.page import TEMPLATE  # only now: attention needs the whole model

        sections.append(Section("Attention", _attention(drawer)))
        # The page's policy lets a browser run these scripts alone, those of the attention pages inside it.
        scripts = inline_scripts(assembled(TEMPLATE))
    sections.append(Section("To run it", [folded("one command for every row", table(commands))]))
    done = sum(not run.problem for run in records.runs)
    about = f"Made from {len(records.runs)} runs in {place}, {done} of them complete."
    return page(" ".join([about, *records.notes]), sections, scripts)


def _title(name: str) -> str:
    """Returns the heading of a table, a study or the cards: "Table 1", "Scan length", "Cards"."""
    if name.startswith("table"):
        return f"Table {name[-1]}"
    return name.capitalize().replace("_", " ")


def _is_run(shown: Table) -> bool:
    """Returns whether any of its rows has run, as far as it says of one that it has not."""
    says_absent = False
    for column in zip(*shown.rows, strict=True):
        present = [cell for cell in column if not cell.startswith(ABSENT)]
        if len(present) < len(column):
            says_absent = True
            if any(present):
                return True
    return bool(shown.rows) and not says_absent


def _others(records: Records, rows: Mapping[str, Mapping[str, RowRuns]]) -> list[str]:
    drawn = drawings(other_curves(records, rows))
    return [folded("runs that are no row of a table", "".join(drawn))] if drawn else []


def _beside(name: str, records: Records, plots: Mapping[str, Callable[[Path], None]]) -> list[str]:
    """Returns the drawings that stand below the tables of this name."""
    if name == "table1" and records.layers:
        return _drawn("layer_types", partial(table1_plot.plot, records.layers[-1]))
    if name == "table3":
        return drawings(trends(records))
    if name in plots:
        return _drawn(name, plots[name])
    return []


def _drawn(name: str, plot: Callable[[Path], None]) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.svg"
        plot(path)
        return pictures([path])


def _attention(run: RunRecord) -> list[str]:
    """Returns the paper's figures as this run draws them, and every head over one sentence."""
    from vaswani.infer.attention.maps import titled
    from vaswani.infer.attention.page import page as attention_page
    from vaswani.paper.figures import figures

    parts = [f'<p class="soft">Drawn by {html.escape(str(run.path))}.</p>']
    try:
        with tempfile.TemporaryDirectory() as folder:
            parts += pictures(figures(run.path, Path(folder)))
        model = load_run(run.path)
        pairs = open_corpus(run.config["data"]["valid"]).pairs()
        source = next((source for source, _ in pairs if len(source.split()) in _WORDS), "The dog sleeps.")
        (target,) = model.translate([source])
        maps = model.attention_maps(source, target)
        title = f"{source} → {target}"
        parts.append(inner_page(title, attention_page(title, titled(maps))))
    except UserError as error:
        parts.append(f"<p>{html.escape(str(error))}</p>")
    return parts

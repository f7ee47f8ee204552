"""What `python -m paper` does once its flags have been checked."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vaswani.errors import UserError
from vaswani.files import folder, folders, output_folder
from vaswani.paper import table1_plot
from vaswani.paper.launch import commands
from vaswani.paper.records import Records, find_records, newest_with_checkpoints
from vaswani.paper.tables import table1, table2, table3, table4
from vaswani.train.table import Table, as_csv, as_markdown, as_text


def show(what: str, options: Any) -> None:
    """Prints and writes what the flags of `paper.__main__` ask for."""
    output = output_folder("output", options.output) if what == "figures" else None
    records = read(options.runs)
    if output:
        draw(records, output, options.runs)
    print_tables(make(what, records), commands() if options.commands else None, options)


def read(places: str) -> Records:
    """Reads the records below these comma-separated folders; says what was left out.

    Raises:
      UserError: there is no such folder.
    """
    records = find_records(*(folder("runs", place) for place in folders("runs", places)))
    for note in records.notes:
        print(note, file=sys.stderr)
    return records


def print_tables(made: Mapping[str, Sequence[Table]], commands: Table | None, options: Any) -> None:
    """Prints tables, then the table of commands if there is one, in the format that the flags ask for."""
    tables = [table for of_name in made.values() for table in of_name]
    if commands:
        tables.append(commands)
    if tables:
        print("\n\n".join(map(_form(options), tables)))


def _form(options: Any) -> Callable[[Table], str]:
    """Returns the table formatter that the flags ask for."""
    if options.markdown:
        return as_markdown
    return as_csv if options.csv else as_text


def make(what: str, records: Records) -> dict[str, list[Table]]:
    """Returns the tables that `what` names, by the paper's table."""
    makers = {
        "table1": layer_types,
        "table2": table2.tables,
        "table3": table3.tables,
        "table4": table4.tables,
    }
    return {name: tables(records) for name, tables in makers.items() if what in (name, "all")}


def layer_types(records: Records) -> list[Table]:
    """Returns Table 1 from its record; without one, a table that says how to make it."""
    if records.layers:
        return [table1.table(records.layers[-1])]
    return [Table("table1", "Table 1: layer types", ("", "command"), [("not run", "python -m paper.table1")], [])]


def draw(records: Records, output: Path, place: str) -> None:
    """Draws Table 1, if it was measured, and the paper's figures into the folder `output`; prints their names.

    Raises:
      UserError: no run can draw the figures.
    """
    from vaswani.paper.figures import figures  # and this the whole model

    if records.layers:
        path = output / "table1.svg"
        table1_plot.plot(records.layers[-1], path)
        print(path)
    drawer = newest_with_checkpoints(records)
    if drawer is None:
        raise UserError(f"--runs={place}: no complete run in it that translates and has its checkpoints")
    print(f"drawn by {drawer.path}", file=sys.stderr)
    for path in figures(drawer.path, output):
        print(path)

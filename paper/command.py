"""What `python -m paper` does once its flags have been checked."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from vaswani.files import folder, folders, output_file
from vaswani.paper import table1_plot
from vaswani.paper.launch import commands
from vaswani.paper.records import Records, find_records
from vaswani.paper.tables import table1, table2, table3, table4
from vaswani.train.table import Table, as_csv, as_markdown, as_text


def show(what: str, options: Any) -> None:
    """Prints and writes what the flags of `paper.__main__` ask for."""
    plot = None if options.plot is None else output_file("plot", options.plot, (".svg", ".png", ".pdf"))
    records = read(options.runs)
    print_tables(make(what, records), commands() if options.commands else None, options)
    if plot and records.layers:
        table1_plot.plot(records.layers[-1], plot)


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
    in_format = as_markdown if options.markdown else as_csv if options.csv else as_text
    print("\n\n".join(map(in_format, tables)))


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

"""What `python -m lab` does once its flags have been checked."""

from typing import Any

from lab import cards
from lab.studies.index import STUDIES, studies
from vaswani.errors import UserError
from vaswani.files import output_file
from vaswani.paper.command import print_tables, read
from vaswani.paper.launch import table_of
from vaswani.paper.records import Records
from vaswani.train.table import Table


def show(what: str, options: Any) -> None:
    """Prints and writes what the flags of `lab.__main__` ask for."""
    if options.plot is not None and what not in STUDIES:
        raise UserError(f"--plot={options.plot}: only a study has a figure to put there: {', '.join(STUDIES)}")
    plot = None if options.plot is None else output_file("plot", options.plot, (".svg", ".png", ".pdf"))
    records = read(options.runs)
    made = {what: cards.tables(cards.cards(records))} if what == "cards" else make(what, records)
    print_tables(made, commands() if options.commands else None, options)
    if plot:
        studies()[what].plot(records, plot)


def make(what: str, records: Records) -> dict[str, list[Table]]:
    """Makes the tables that `what` names, by the study."""
    return {name: study.tables(records) for name, study in studies().items() if what in (name, "all")}


def commands() -> Table:
    """Lists every row of the studies with its command; it has run once evaluated."""
    rows = [(name, *command) for name, study in studies().items() for command in study.commands]
    return table_of(rows)

"""What `python -m train.runs` does: finds the runs, prints their table, and draws them."""

import shutil
import sys
from collections.abc import Sequence
from typing import Any

from base.errors import UserError
from base.files import output_file
from base.table import as_text
from train.overview.found import find_runs
from train.overview.picture import SUFFIXES, draw
from train.overview.table import as_fitted_text, difference_of, table_of


def show(options: Any, places: Sequence[str]) -> None:
    """Prints the table, or the difference of two runs, and draws what --plot names.

    Raises:
      UserError: a folder holds no run, --diff has not two runs, or the drawing cannot be written.
    """
    if not places:
        raise UserError("which runs? name their folders: python -m train.runs DIR...")
    output = None if options.plot is None else output_file("plot", options.plot, SUFFIXES)
    runs = find_runs(places)
    if options.diff:
        if len(runs) != 2:
            raise UserError(f"--diff compares two runs; these folders hold {len(runs)}")
        print(as_text(difference_of(*runs)))
        return
    table = table_of(runs)
    if sys.stdout.isatty():
        print(as_fitted_text(table, shutil.get_terminal_size().columns))
    else:  # a line a run, for other programs
        print(as_text(table))
    if output:
        draw(runs, table, output)

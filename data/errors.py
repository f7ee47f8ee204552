"""Errors that are the user's to mend, and how every command prints them."""

import sys
from collections.abc import Callable

from absl import app


class UserError(Exception):
    """A wrong file, line, key or value. The message is one line: what is wrong, where, and what would be right."""


def run(main: Callable[[list[str]], int | None]) -> None:
    """Runs an absl `main`; a `UserError` becomes one line on stderr and exit status 2, without a traceback."""

    def guarded(argv: list[str]) -> int:
        try:
            return main(argv) or 0
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2

    app.run(guarded)

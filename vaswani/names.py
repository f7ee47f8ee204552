"""Every package has one name, `vaswani.model`: under a second one its classes would be other classes."""

import sys


def refuse_short_name(package: str) -> None:
    """Refuses `import model` in a clone. `python -m train` needs the short name, since it imports `train` first.

    Raises:
      ImportError: the package is being imported by its short name.
    """
    is_command = sys.argv[:1] == ["-m"]  # as long as Python looks for the command's file
    if "." not in package and not is_command:
        raise ImportError(f"import vaswani.{package}, not {package}: every package has one name, also in a clone")

"""Every package has one name, `vaswani.model`: under a second one its classes would be other classes."""

import sys


def refuse_short_name(package: str) -> None:
    """Refuses `import model` in a clone, where `python -m train` alone may use the short name.

    Raises:
      ImportError: the package is being imported by its short name.
    """
    # To find the file of `python -m train`, Python first imports the package `train`; sys.argv still begins with "-m".
    is_command = sys.argv[:1] == ["-m"]
    if "." not in package and not is_command:
        raise ImportError(f"import vaswani.{package}, not {package}: every package has one name, also in a clone")

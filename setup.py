"""Puts the packages into one, `vaswani`, so that a wheel has no other top-level name; the rest: pyproject.toml.

In an editable install they also have their own names, so that notebooks and commands find them from any folder.
"""

import sys

from setuptools import find_packages, setup

patterns = ("base", "configs", "data", "infer", "model", "paper", "run", "search", "tasks", "train")
rooms = find_packages(include=[*patterns, *(f"{room}.*" for room in patterns)])
wheel = {f"vaswani.{room}": room.replace(".", "/") for room in rooms}
setup(
    packages=["vaswani", *(rooms if "editable_wheel" in sys.argv else wheel)],
    package_dir={} if "editable_wheel" in sys.argv else wheel,
)

"""The page for readers of other tutorials names files, classes and functions that exist, and keys."""

import ast
import re
from pathlib import Path

from tests.repo.test_layout import leaves

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/from_tutorials.md").read_text(encoding="utf-8")


def test_every_part_of_the_page_is_defined_where_it_says() -> None:
    parts = re.findall(r"`([a-z_/]+\.py):(\w+)`", PAGE)
    missing: list[str] = []
    for file, name in parts:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        if name not in defined:
            missing.append(f"{file}:{name}")
    assert len(parts) > 25 and missing == []


def test_every_key_of_the_page_exists() -> None:
    keys = re.findall(r"`((?:model|data|optim|loss|decode)\.[\w.]+)(?:=\w+)?`", PAGE)
    assert len(keys) >= 5 and set(keys) <= set(leaves())

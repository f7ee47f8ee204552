"""The advice to install an extra is right in a clone and for the installed package, and is in one place."""

import importlib.util
import shutil
from pathlib import Path

from vaswani import errors

ROOT = Path(__file__).parents[2]


def test_only_a_clone_is_installed_from_where_it_is(tmp_path: Path) -> None:
    assert errors.pip_install("convert") == "pip install -e '.[convert]'"
    folder = tmp_path / "site-packages" / "vaswani" / "base"
    folder.mkdir(parents=True)
    copy = shutil.copy(errors.__file__, folder)
    spec = importlib.util.spec_from_file_location("installed_errors", copy)
    assert spec and spec.loader
    installed = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(installed)
    assert installed.pip_install("convert") == "pip install 'vaswani[convert]'"


def test_no_other_file_that_is_installed_says_how_to_install_an_extra() -> None:
    rooms = [path for path in (ROOT / "vaswani").iterdir() if path.is_dir() and path.name != "configs"]
    files = [*(ROOT / "vaswani").glob("*.py"), *(path for room in rooms for path in room.rglob("*.py"))]
    assert [path.name for path in files if "pip install" in path.read_text(encoding="utf-8")] == ["errors.py"]

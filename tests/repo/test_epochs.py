"""How often a sentence is trained on is what configs and a notebook say."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SMALL = ("configs/small.py", "notebooks/4_table_3_in_small.py", "notebooks/4_table_3_in_small.ipynb")
# In a process of its own: with types checked at each call it takes 14 times as long.
COUNT = """
import sys
from vaswani.configs.{config} import get_config
from vaswani.data.from_config import prepare_all
from vaswani.data.pipeline import TrainingBatches

cfg = get_config(*sys.argv[2:])
cfg.data.cache = sys.argv[1]
_, train, _ = prepare_all(cfg.data)
print(cfg.steps / len(TrainingBatches(train, cfg.data, seed=0).plan(0)))  # which is an epoch's updates
"""


def text_of(file: str) -> str:
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".ipynb"):
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return text


@pytest.mark.parametrize(
    ("config", "arguments", "files"),
    [
        ("ablations", ["base:small"], SMALL),
        pytest.param("quickstart", [], ("configs/quickstart.py",), marks=pytest.mark.slow),
    ],
    ids=["small", "quickstart"],
)
def test_a_sentence_is_trained_on_as_often_as_the_files_say(
    config: str, arguments: list[str], files: tuple[str, ...], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", COUNT.format(config=config), tmp_path, *arguments]
    times = float(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    for file in files:
        assert re.findall(r"some (\w+)\W+times", text_of(file)) == [str(round(times))], file

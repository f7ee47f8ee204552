"""How often a sentence is trained on is what configs, a page and a notebook say."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SMALL = ("configs/small.py", "notebooks/4_table_3_in_small.py", "notebooks/4_table_3_in_small.ipynb")
SHARES = {"fifth": 5, "sixth": 6}
# In a process of its own: with types checked at each call it takes 14 times as long.
COUNT = """
import sys
from configs.{config} import get_config
from data.of_config import prepare_all
from data.pipeline import TrainingBatches

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


@pytest.mark.parametrize("file", ["configs/optimisers.py", "docs/studies.md"])
def test_the_study_of_optimisers_trains_for_the_share_of_an_epoch_that_it_says(file: str) -> None:
    record = json.loads((ROOT / "results/optimisers/adam-seed1.json").read_text(encoding="utf-8"))
    tokens = max(record["launches"][0]["data"]["train"]["tokens"].values())
    positions = record["training"]["steps"] * record["config"]["data"]["tokens_per_batch"]  # few of which are padding
    (share,) = re.findall(r"a (\w+) of an epoch", text_of(file))
    assert SHARES[share] == round(tokens / positions)

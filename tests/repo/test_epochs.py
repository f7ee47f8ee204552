"""How often a sentence is trained on is what configs, a page and a notebook say."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from data.of_config import prepare_all
from data.pipeline import TrainingBatches

ROOT = Path(__file__).parent.parent.parent
SMALL = ("configs/small.py", "notebooks/4_table_3_in_small.py", "notebooks/4_table_3_in_small.ipynb")
SHARES = {"fifth": 5, "sixth": 6}


def text_of(file: str) -> str:
    text = (ROOT / file).read_text(encoding="utf-8")
    if file.endswith(".ipynb"):
        text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    return text


@pytest.mark.parametrize(
    ("config", "argument", "files"),
    [
        ("ablations", "base:small", SMALL),
        pytest.param("quickstart", "", ("configs/quickstart.py",), marks=pytest.mark.slow),
    ],
    ids=["small", "quickstart"],
)
def test_a_sentence_is_trained_on_as_often_as_the_files_say(
    config: str, argument: str, files: tuple[str, ...], tmp_path: Path
) -> None:
    get_config = import_module(f"configs.{config}").get_config
    cfg = get_config(argument) if argument else get_config()
    cfg.data.cache = str(tmp_path)
    _, train, _ = prepare_all(cfg.data)
    updates = len(TrainingBatches(train, cfg.data, seed=0).plan(0))  # of an epoch
    times = round(cfg.steps / updates)
    for file in files:
        assert re.findall(r"some (\w+)\W+times", text_of(file)) == [str(times)], file


@pytest.mark.parametrize("file", ["configs/optimisers.py", "docs/studies.md"])
def test_the_study_of_optimisers_trains_for_the_share_of_an_epoch_that_it_says(file: str) -> None:
    record = json.loads((ROOT / "results/optimisers/adam-seed1.json").read_text(encoding="utf-8"))
    tokens = max(record["launches"][0]["data"]["train"]["tokens"].values())
    positions = record["training"]["steps"] * record["config"]["data"]["tokens_per_batch"]  # few of which are padding
    (share,) = re.findall(r"a (\w+) of an epoch", text_of(file))
    assert SHARES[share] == round(tokens / positions)

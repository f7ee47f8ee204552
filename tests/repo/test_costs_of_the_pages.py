"""Runs of the studies take as long as docs/reproduce.md says."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDERS = {
    "layers before and after self-attention": ("layers",),
    "the same with rates tuned alike, by distance": ("distance",),
    "positions beyond the training length": ("extrapolation",),
    "SCAN": ("scan",),
    "SCAN by length": ("scan_length",),
    "scaling laws, both designs": ("scaling", "scaling_long"),
    "classifiers and translators by family": ("families",),
    "one vector for a sentence": ("bottleneck",),
    "scores of queries and keys": ("scores",),
    "five optimisers, tuned alike": ("optimisers",),
}


@pytest.mark.parametrize("study", FOLDERS)
def test_no_recorded_run_took_longer_than_the_page_says(study: str) -> None:
    page = (ROOT / "docs/reproduce.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {re.escape(study)} \|.*$", page, re.MULTILINE)
    found = re.search(r"(\d+) runs of (?:up to )?(?:\d+ to )?(\d+|half a|a) minutes?", row)
    assert found, row
    most = {"a": 1.0, "half a": 0.5}.get(found[2]) or float(found[2])
    paths = [path for folder in FOLDERS[study] for path in (ROOT / "results" / folder).glob("*.json")]
    assert len(paths) == int(found[1])
    longest = max(json.loads(path.read_text(encoding="utf-8"))["training"]["minutes"] for path in paths)
    assert longest < most + 0.5, f"{study}: the longest run took {longest:.1f} minutes"

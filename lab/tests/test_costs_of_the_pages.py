"""Runs of the studies take as long as lab/README.md says."""

import re
from pathlib import Path

import pytest

from vaswani.read_json import read_json_lines

ROOT = Path(__file__).parent.parent.parent
STUDIES = {
    "layers before and after self-attention": "layers",
    "the same with rates tuned alike, by distance": "distance",
    "positions beyond the training length": "extrapolation",
    "SCAN": "scan",
    "SCAN by length": "scan_length",
    "scaling laws, both designs": "scaling",
    "classifiers and translators by family": "families",
    "one vector for a sentence": "bottleneck",
    "scores of queries and keys": "scores",
    "five optimisers, tuned alike": "optimisers",
    "ten layers of encoder and two of decoder, or six and six": "depth",
}


@pytest.mark.parametrize("title", STUDIES)
def test_no_recorded_run_took_longer_than_the_page_says(title: str) -> None:
    page = (ROOT / "lab/README.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {re.escape(title)} \|.*$", page, re.MULTILINE)
    found = re.search(r"(\d+) runs of (?:up to )?(?:\d+ to )?(\d+|half a|a) minutes?", row)
    assert found, row
    most = {"a": 1.0, "half a": 0.5}.get(found[2]) or float(found[2])
    records = read_json_lines(ROOT / "lab" / "studies" / STUDIES[title] / "records.jsonl", dict)
    assert len(records) == int(found[1])
    longest = max(record["training"]["minutes"] for record in records)
    assert longest < most + 0.5, f"{title}: the longest run took {longest:.1f} minutes"

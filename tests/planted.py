"""Makes run folders and records like those of training and scoring, for tests of the tables."""

import json
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from tests.conftest import ROOT
from vaswani.infer.scores.bleu import METRICS
from vaswani.paper.rows import load
from vaswani.run.folder import as_json

DEVICE = {"kind": "cpu", "count": 1, "cpus": 2}


@cache
def head() -> str:
    """Returns the commit that is checked out; an arbitrary one if git cannot tell."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "0" * 40


def planted_config(name: str, **changes: Any) -> dict[str, Any]:
    """Returns the config that a run of `name` records; `changes` are dotted keys with __ for the dot."""
    cfg = ConfigDict(load(name).to_dict())
    cfg.update_from_flattened_dict({key.replace("__", "."): value for key, value in changes.items()})
    return as_json(cfg)


def scores(config: dict[str, Any], split: str, value: float, **changes: Any) -> dict[str, Any]:
    """Returns an evaluation with the options of `config`; every score is `value`."""
    decode, steps = config["decode"], config["steps"]
    count = 1 if decode["checkpoint"] == "latest" else int(decode["checkpoint"].partition(":")[2])
    every = 60 if config["checkpoint"]["every_epochs"] else config["checkpoint"]["every"]
    saved = [*range(every, steps, every), steps]
    return {
        **dict.fromkeys((*METRICS, "perplexity"), value),
        "signatures": {key: f"{key}:signature" for key in METRICS},
        "params": 1_000_000,
        "params_sha256": f"{value}",
        "step": steps,
        "checkpoints": saved[-count:],
        "data": config["data"][split],
        "split": split,
        "tokens": 50_000,
        **{key: decode[key] for key in ("beam", "alpha", "extra_length")},
        "time": "2026-01-01T00:00:00+00:00",
        **changes,
    }


def plant(
    folder: Path,
    config: dict[str, Any],
    *evaluations: dict[str, Any],
    steps: int | None = None,
    hours: float = 1.0,
    validations: Sequence[tuple[int, float]] = (),
) -> Path:
    """Writes the folder of a run that did `steps` updates, by default all, in `hours`; returns it.

    `validations` are updates and their perplexities.
    """
    done = config["steps"] if steps is None else steps
    (folder / "evaluations").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    launch = {"device": DEVICE, "data": {}, "command": [], "git": {"commit": head(), "dirty": False}}
    (folder / "run.json").write_text(json.dumps({"launches": [launch]}))
    for number, evaluation in enumerate(evaluations):
        (folder / "evaluations" / f"{evaluation['split']}-{number}.json").write_text(json.dumps(evaluation))
    records: list[dict[str, Any]] = []
    for step, perplexity in validations or [(done // 4, 12.0), (done // 2, 9.0), (done, 5.0)]:
        records.append({"step": step, "kind": "valid", "perplexity": perplexity, "nll": 2.2, "loss": 2.5})
    records.insert(1, {"step": done, "kind": "train", "seconds": 3600 * hours})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder

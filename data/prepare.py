"""Prepares the corpora of a config: downloads them if necessary, and tokenises them into the cache (`data.cache`).

    python -m data.prepare --config=configs/base.py

Training does the same when it starts, except for the download. Prints, as JSON, where the corpora are, their counts and
their hashes; keys are set as --config.data.KEY=VALUE. For pairs it also says what `data.batching` makes of the first
epoch: the sequence lengths, for each of which a step is compiled, the number of steps, and the share of each side's
positions that hold tokens.
"""

import json
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from vaswani import command
from vaswani.configs.common import default
from vaswani.data.from_config import prepare_all
from vaswani.data.pipeline import TrainingBatches
from vaswani.data.prepared import Prepared
from vaswani.data.tfds import download
from vaswani.errors import UserError


def main(argv: list[str]) -> None:
    """Prepares `data.train` and `data.valid`, downloading them if necessary; prints the manifests as JSON."""
    if flags.FLAGS.config.task == "vision":
        raise UserError("config: task is vision, whose images need no preparation: train without this command")
    cfg = flags.FLAGS.config
    cfg_data = cfg.data
    for spec in (cfg_data.train, cfg_data.valid, cfg_data.test):
        download(spec)
    _, train, valid = prepare_all(cfg_data)
    manifests: dict[str, Any] = {
        "train": {"folder": str(train.folder), **train.manifest},
        "valid": {"folder": str(valid.folder), **valid.manifest},
    }
    if train.lengths.shape[1] == 2:
        manifests["epoch"] = first_epoch(train, cfg)
    print(json.dumps(manifests, indent=2, ensure_ascii=False))


def first_epoch(train: Prepared, cfg: ConfigDict) -> dict[str, Any]:
    """Returns the batches of a run's first epoch of pairs: sequence lengths, steps, and how full each side is."""
    plan = TrainingBatches(train, cfg.data, seed=cfg.seed).plan(0)
    positions = sum(batch.row_length * len(batch.rows_bc) for batch in plan)  # a side
    return {
        "batching": cfg.data.batching,
        "row_lengths": sorted({batch.row_length for batch in plan}),
        "updates": len(plan),
        "filled": {side: round(tokens / positions, 4) for side, tokens in train.manifest["tokens"].items()},
    }


if __name__ == "__main__":
    config_flags.DEFINE_config_file("config", None, "config file; its data.* keys say what to prepare")
    flags.mark_flag_as_required("config")
    command.run(main, default().to_dict(), hint="keys are set as --config.data.KEY=VALUE")

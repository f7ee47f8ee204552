"""Prepares the corpora of a config: downloads them if necessary, and tokenises them into the cache (`data.cache`).

    python -m data.prepare --config=configs/base.py

Training does the same when it starts, except for the download. Prints, as JSON, where the corpora are, their counts and
their hashes; keys are set as --config.data.KEY=VALUE.
"""

import json

from absl import flags
from ml_collections import config_flags

from vaswani import command
from vaswani.configs.common import default
from vaswani.data.of_config import prepare_all
from vaswani.data.tfds import download
from vaswani.errors import UserError


def main(argv: list[str]) -> None:
    """Prepares `data.train` and `data.valid`, downloading them if necessary; prints the manifests as JSON."""
    if flags.FLAGS.config.task == "vision":
        raise UserError("config: task is vision, whose images need no preparation: train without this command")
    cfg_data = flags.FLAGS.config.data
    for spec in (cfg_data.train, cfg_data.valid, cfg_data.test):
        download(spec)
    _, train, valid = prepare_all(cfg_data)
    manifests = {
        "train": {"folder": str(train.folder), **train.manifest},
        "valid": {"folder": str(valid.folder), **valid.manifest},
    }
    print(json.dumps(manifests, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    config_flags.DEFINE_config_file("config", None, "config file; its data.* keys say what to prepare")
    flags.mark_flag_as_required("config")
    command.run(main, default().to_dict(), hint="keys are set as --config.data.KEY=VALUE")

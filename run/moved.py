"""Tells whether what a config names by another path is what the run reads: the same bytes, on another machine perhaps.

`run.json` records the SHA-256 of the data and of the tokenizer at each launch.
"""

from pathlib import Path
from typing import Any

from vaswani.data.images import open_images
from vaswani.data.lines import file_digest
from vaswani.data.sources import open_corpus
from vaswani.errors import UserError
from vaswani.files import folder
from vaswani.run.records import read_launches

KEYS = ("data.tokenizer", "data.train", "data.valid")  # the path may be another one


def has_same_content(workdir: Path, key: str, config: dict[str, Any]) -> bool:
    """Returns whether the run in `workdir` has recorded what this one of `KEYS` names in `config`.

    Raises:
      UserError: that cannot be read, or `run.json` is damaged.
    """
    launches = read_launches(workdir)
    if not launches:
        return False
    name = key.removeprefix("data.")
    path = config["data"][name]
    latest = launches[-1]["data"]
    if name == "tokenizer":
        return bool(path) and file_digest(folder(f"config.{key}", path)) == latest["train"].get("tokenizer_sha256")
    recorded = latest[name]
    launched = [launch["data"][name] for launch in launches]
    # Each launch has read its data. They need not be on the machine that opens the run now.
    if any(data["sha256"] == recorded["sha256"] and data.get("spec") == path for data in launched):
        return True
    try:
        if config["task"] != "vision":
            return open_corpus(path).fingerprint == recorded.get("fingerprint")
        image = config["image"]
        images = open_images(path, (image["height"], image["width"]), image["classes"])
    except UserError as error:
        raise UserError(f"{key}: {error}") from error
    return images.manifest["sha256"] == recorded["sha256"]

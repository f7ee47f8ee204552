"""Finds the splits that a config took over from the grammar's config, though its training text is another."""

from ml_collections import ConfigDict

_GRAMMAR = "grammar:"


def other_corpora(data: ConfigDict) -> dict[str, str]:
    """Returns an error for each of "valid" and "test" that is the bundled grammar when training is not.

    `configs/quickstart.py` names all three; a user's own files replace only those that the command line gives.
    """
    train = data["train"]
    if not train or _GRAMMAR in train:
        return {}
    return {
        split: f"data.{split} is {data[split]!r}, of another corpus than data.train, {train!r}"
        for split in ("valid", "test")
        if _GRAMMAR in data[split]
    }

"""The lengths of the rows that `data.batching` makes of texts, and the corpora and models that they do not fit."""

from bisect import bisect_left
from typing import Any

import numpy as np
from jaxtyping import Int32
from ml_collections import ConfigDict

from vaswani.data.length_batches import length_batches
from vaswani.errors import UserError


def row_lengths(cfg_data: ConfigDict) -> list[int]:
    """Returns the sequence lengths that pairs of up to `data.max_length` subwords need, ascending; each is compiled."""
    # Packed rows and windows all have one length; buckets are needed up to the one that holds the longest pair.
    if cfg_data.batching in ("pack", "window"):
        return [cfg_data.pack_length]
    return list(cfg_data.buckets[: bisect_left(cfg_data.buckets, cfg_data.max_length) + 1])


def check_lengths(lengths_nk: Int32[np.ndarray, "n sides"], cfg_data: ConfigDict) -> None:
    """Raises a `UserError` unless training records of these lengths fit the rows that `data.batching` makes."""
    is_text = lengths_nk.shape[1] == 1
    # Windows are cut from a text of any length.
    if cfg_data.batching == "window":
        if not is_text:
            raise UserError("data.batching is window, for monolingual text; data.train has pairs: use bucket or pack")
        return
    key = "the largest of data.buckets"
    longest_row = cfg_data.buckets[-1]
    if cfg_data.batching == "pack":
        key = "data.pack_length"
        longest_row = cfg_data.pack_length
    if cfg_data.max_length > longest_row:
        raise UserError(
            f"data.max_length is {cfg_data.max_length}, but {key} is {longest_row}: a pair of"
            f" {cfg_data.max_length} tokens would fit no row"
        )
    longest = int(lengths_nk.max())
    # Lines are no longer than `data.max_length`; a text in characters is one sequence.
    if is_text and longest > longest_row:
        raise UserError(
            f"data.batching is {cfg_data.batching}, and data.train has a text of {longest:,} tokens; {key} is"
            f" {longest_row}: take window, which cuts a text into rows"
        )


def check_positions(cfg_data: ConfigDict, limit: int | None, train: Any, valid: Any) -> None:
    """Raises a `UserError` if the corpora need rows longer than `limit`, the learned positions, if any."""
    if limit is None:
        return
    batching = cfg_data.batching
    for name, corpus in {"data.train": train, "data.valid": valid}.items():
        # Validation is by length even where training packs, but not where rows are windows of a text.
        if batching == "window" or (batching == "pack" and name == "data.train"):
            longest = cfg_data.pack_length
        else:
            lengths_n = corpus.lengths.max(axis=1)
            longest_row = limit if name == "data.valid" else None  # in training every row is as long as its bucket
            batches = length_batches(lengths_n, cfg_data.buckets, tokens=cfg_data.tokens_per_batch, limit=longest_row)
            longest = max(batch.length for batch in batches)
        if limit < longest:
            raise UserError(
                f"config: model.max_positions is {limit}; it must be at least {longest}, as long as the rows of {name}"
            )

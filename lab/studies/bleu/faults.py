"""Faults that no config has a key for: each is a patch of our own code that lasts as long as one run.

A patch also holds while the run is scored, since whoever has such a fault translates with it, too.
"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from vaswani.data.plans import PlannedBatch
from vaswani.model.embed import embeddings
from vaswani.model.masks import Mask
from vaswani.train import optim

OPEN_ROWS = 16  # that a plan in order fills at a time, as many as `data.plans.pack_plan`
_dense = Mask._dense
_learning_rate = optim.learning_rate
Patch = tuple[str, Any]  # the dotted name of what is replaced, and what replaces it


# Masks. A causal mask hides what is after a query, padding among it, with every fault but the last.


def attend_to_padding(mask: Mask, queries_bt: Int[Array, "b t"], place_t: Int[Array, " t"]) -> Bool[Array, "b t s"]:
    """Returns the dense mask in which queries also attend to padding."""
    mask_bts = _dense(mask, queries_bt, place_t)
    if mask.causal:
        return mask_bts
    is_padding_bs = mask.keys_bs == 0
    return mask_bts | is_padding_bs[:, None, :]


def attend_to_row(mask: Mask, queries_bt: Int[Array, "b t"], place_t: Int[Array, " t"]) -> Bool[Array, "b t s"]:
    """Returns the dense mask in which queries attend to all sentences of their row, and to its padding."""
    one_sentence = mask.replace(keys_bs=jnp.ones_like(mask.keys_bs))
    return _dense(one_sentence, jnp.ones_like(queries_bt), place_t)


def attend_to_future(mask: Mask, queries_bt: Int[Array, "b t"], place_t: Int[Array, " t"]) -> Bool[Array, "b t s"]:
    """Returns the dense mask in which a decoder's queries attend to later positions of their sentence."""
    return _dense(mask.replace(causal=False), queries_bt, place_t)


# Positions, and the rate.


def embeddings_without_target_positions(model: Any, *sides: str) -> list[Any]:
    """Returns the embeddings of both sides, of which the target's adds no positions."""
    source, target = embeddings(model, *sides)
    without_positions = dataclasses.replace(model.config, positions="none")
    return [source, target._replace(config=without_positions)]


def rate_from_step_0(cfg: Any, d_model: int, steps: int, step: Any) -> Array:
    """Returns the learning rate of the step before: the first one has number 0."""
    return _learning_rate(cfg, d_model, steps, step - 1)


# The order of pairs.


def plan_in_file_order(lengths_nk: Int[np.ndarray, "n 2"], **options: Any) -> list[PlannedBatch]:
    """Returns the batches of every epoch, with the pairs in the order of the file."""
    return plan_in_order(lengths_nk, np.arange(len(lengths_nk)), options["tokens"], options["pack_length"])


def plan_by_length(lengths_nk: Int[np.ndarray, "n 2"], **options: Any) -> list[PlannedBatch]:
    """Returns the batches of every epoch, from the shortest pair to the longest."""
    order_n = np.argsort(lengths_nk.sum(axis=1), kind="stable")
    return plan_in_order(lengths_nk, order_n, options["tokens"], options["pack_length"])


def plan_in_order(
    lengths_nk: Int[np.ndarray, "n 2"], order_n: Int[np.ndarray, " n"], tokens: int, pack_length: int
) -> list[PlannedBatch]:
    """Puts pairs into rows in this order, each into the first of the open rows with room, and rows into batches."""
    rows: list[list[int]] = []
    used: list[np.ndarray] = []  # positions of each row, on either side
    for number in order_n:
        is_open = range(max(0, len(rows) - OPEN_ROWS), len(rows))
        fitting = [row for row in is_open if np.all(used[row] + lengths_nk[number] <= pack_length)]
        if not fitting:
            fitting.append(len(rows))
            rows.append([])
            used.append(np.zeros(2, np.int64))
        rows[fitting[0]].append(int(number))
        used[fitting[0]] += lengths_nk[number]

    # Full batches, the last of which may have empty rows.
    size = tokens // pack_length
    rows_rc = np.full((-(-len(rows) // size) * size, max(map(len, rows))), -1, np.int32)
    for row, members in enumerate(rows):
        rows_rc[row, : len(members)] = members
    return [PlannedBatch(pack_length, rows_bc) for rows_bc in np.split(rows_rc, len(rows_rc) // size)]


_MASK = "vaswani.model.masks.Mask._dense"
_PLAN = "vaswani.data.pipeline.pack_plan"
FAULTS: dict[str, list[Patch]] = {
    "padding": [(_MASK, attend_to_padding)],
    "neighbours": [(_MASK, attend_to_row)],
    "future": [(_MASK, attend_to_future)],
    "decoder-positions": [("vaswani.model.transformer.embeddings", embeddings_without_target_positions)],
    # Both names: the optimiser's, and the log's.
    "step-0": [(f"vaswani.train.{module}.learning_rate", rate_from_step_0) for module in ("optim", "program")],
    "source-eos": [("vaswani.data.tokenizer.Tokenizer.source_end", ())],
    "file-order": [(_PLAN, plan_in_file_order)],
    "by-length": [(_PLAN, plan_by_length)],
}


@contextmanager
def fault(name: str) -> Iterator[None]:
    """Patches our code with a fault of `FAULTS`, or with none for another name, and restores it at the end."""
    patches = [patch(target, replacement) for target, replacement in FAULTS.get(name, [])]
    for started in patches:
        started.start()
    try:
        yield
    finally:
        for started in patches:
            started.stop()

"""Dropout by place: each row has its places, the patch drops the sum, and the rule of the design."""

from pathlib import Path
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lab.studies.dropout import design, study
from lab.studies.dropout.run import drop_sum_and_norm, train_row
from tests.planted import head
from tests.tiny import TINY
from vaswani.configs.common import default
from vaswani.model import block
from vaswani.model.block import Block
from vaswani.model.masks import Mask
from vaswani.model.noise import Noise
from vaswani.paper.records import Records

RATES = ("P_drop", "P_drop_embeddings", "P_drop_attention", "P_drop_relu")


@pytest.mark.parametrize("row", design.ROWS)
def test_a_row_drops_at_its_places_only(row: str) -> None:
    model = design.get_config(row).model
    assert {rate for rate in RATES if model[rate]} == set(design.ROWS[row])
    assert {model[rate] for rate in design.ROWS[row]} <= {design.RATE}


def test_the_patch_drops_the_input_of_a_sub_layer_with_its_output() -> None:
    layer = Block(TINY, cross=False, causal=False)
    x_btd = jax.random.normal(jax.random.key(0), (1, 3, TINY.d_model))
    segments_bt = jnp.ones((1, 3), jnp.int32)
    arguments = (x_btd, jnp.arange(3)[None], Mask(segments_bt, segments_bt))
    params = layer.init(jax.random.key(1), *arguments)
    noise = Noise.of(TINY, jax.random.key(2), jnp.arange(1))

    def spread() -> float:
        """Returns how far apart elements are after the last norm, whose input is dropped altogether where it can be."""
        with patch.object(block, "dropout", lambda x, *rest: 0 * x):
            y_btd, *_ = layer.apply(params, *arguments, noise=noise)
        return float(np.std(y_btd))

    assert spread() > 0.5  # x passes the sub-layers by
    dropping_all = patch("lab.studies.dropout.run.dropout", lambda x, *rest: 0 * x)
    with patch.object(Block, "_add_and_norm", drop_sum_and_norm), dropping_all:
        assert spread() < 1e-3


def test_a_run_leaves_its_validations_and_what_it_was(tmp_path: Path) -> None:
    cfg = default()
    cfg.steps = 2
    cfg.data.update({"train": "grammar:train:50", "valid": "grammar:valid:8", "vocab_size": 400})
    cfg.data.update({"batching": "pack", "pack_length": 64, "max_length": 64, "tokens_per_batch": 128})
    cfg.model.update({"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "d_k": 8, "d_v": 8, "P_drop": 0.5})
    cfg.eval.update({"every": 1, "bleu_sentences": 0})
    losses = {}
    for row in ("sub-layers", "sum"):
        record = train_row(row, cfg, tmp_path / row)
        assert record is not None
        assert [line["step"] for line in record["valid"]] == [1, 2]
        assert (record["row"], record["seed"], record["steps"]) == (row, 0, 2)
        losses[row] = record["valid"][-1]["nll"]
    assert losses["sum"] != losses["sub-layers"]  # the patch holds while it trains


def records_of(nll: dict[str, float], seeds: int = 3) -> Records:
    """Returns a record of each row and seed, whose lowest nll is that of the row, a little higher with each seed."""
    made = []
    for row in design.ROWS:
        for seed in range(seeds):
            lowest = nll.get(row, 3.0) + 0.01 * seed + 0.001 * len(row) * (seed == 1)
            valid = [{"step": step, "nll": lowest + height} for step, height in ((100, 1.0), (200, 0.0), (300, 0.2))]
            about = {
                "git": [{"commit": head(), "dirty": False}],
                "device": {"count": 1, "kind": "cpu", "cpus": 1},
                "versions": {},
                "minutes": 1.0,
                "steps": 300,
            }
            made.append({"study": "dropout", "row": row, "seed": seed, "valid": valid, **about})
    return Records([], [], [], [], made)


def test_the_lowest_loss_counts_and_claims_are_by_sign() -> None:
    records = records_of({"none": 3.5, "sum": 3.0, "relu": 3.9})
    (table,) = study.tables(records)
    by_row = {line[0]: line for line in table.rows}
    assert by_row["none"][1].startswith("3.5") and by_row["none"][4].startswith("200")
    verdicts = {card.claim: card.verdict for card in study.cards(records)}
    assert verdicts["dropout of attention alone has less than none"] == "shown"
    assert verdicts["dropout of relu alone has less than none"] == "refuted"
    assert verdicts["sub-layers' outputs have less than sums"] == "neither"


def test_there_is_no_verdict_before_all_seeds_have_run() -> None:
    assert {card.verdict for card in study.cards(records_of({"none": 3.5}, seeds=2))} == {"open"}
    assert {card.verdict for card in study.cards(Records([], [], [], []))} == {"not run"}

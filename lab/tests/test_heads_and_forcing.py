"""Entropies of heads, and losses under forced and own prefixes: the measures and rules of two studies."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from lab.studies.forcing import measure as forcing
from lab.studies.forcing import study as forcing_study
from lab.studies.forcing.design import POSITIONS
from lab.studies.heads import design
from lab.studies.heads import measure as heads
from lab.studies.heads import study as heads_study
from tests import tiny
from tests.planted import plant, planted_config, scores
from vaswani.ids import BOS, EOS
from vaswani.paper.records import find_records
from vaswani.paper.rows import load


def test_entropies_of_equal_weights_are_those_of_uniform_ones_and_of_one_hot_weights_0() -> None:
    run = tiny.random_run(N=2)
    for side in ("encoder", "decoder"):
        for layer in run.params[side].values():
            for place in layer.keys() & {"self_attention", "cross_attention"}:
                layer[place]["wq"] = np.zeros_like(layer[place]["wq"])  # all scores are 0
    measured = heads.head_entropies(run, tiny.PAIRS)
    lengths = [[len(run.tokenizer.encode(text)) + 1 for text in pair] for pair in tiny.PAIRS]
    by_hand = {
        "encoder": np.concatenate([np.full(s, np.log2(s)) for s, _ in lengths]),
        "decoder": np.concatenate([np.log2(np.arange(1, t + 1)) for _, t in lengths]),
        "cross": np.concatenate([np.full(t, np.log2(s)) for s, t in lengths]),
    }
    for place, of_place in measured.items():
        assert of_place["uniform"] == pytest.approx(by_hand[place].mean()), place
        assert np.array(of_place["heads"]) == pytest.approx(np.full((2, 2), of_place["uniform"]), rel=1e-5), place
    assert heads.bits(np.eye(3, dtype=np.float32)).tolist() == [0, 0, 0]


def test_losses_are_those_of_the_model_and_part_where_its_own_prefix_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    run = tiny.random_run(N=1)
    targets = [[*run.tokenizer.encode(target), EOS] for _, target in tiny.PAIRS]
    own = [[*target[:2], 3 + target[2] % 100, *target[3:]] for target in targets]  # all leave at the third token
    assert min(map(len, targets)) >= 5

    class Writes:
        def __init__(self, run: Any) -> None: ...

        def hypotheses(self, sources: list[str], beam: int) -> list[Any]:
            assert beam == 1 and len(sources) == len(own)
            return [(SimpleNamespace(tokens=tokens),) for tokens in own]

    monkeypatch.setattr(forcing, "LoadedRun", Writes)
    measured = forcing.forced_and_own(run, tiny.PAIRS)

    params = jax.device_put(run.params)

    def by_hand(prefixes: list[list[int]]) -> np.ndarray:
        loss_bt = np.full((len(targets), POSITIONS), np.nan)
        for row, (source, _) in enumerate(tiny.PAIRS):
            source_ids = [*run.tokenizer.encode(source), EOS]
            prefix = [BOS, *prefixes[row][:-1]]
            # Of one width, so that one program is compiled.
            source_bs, prefix_bt = np.zeros((2, 1, 32), np.int32)
            source_bs[0, : len(source_ids)] = source_ids
            prefix_bt[0, : len(prefix)] = prefix
            logits_tv = tiny.apply_jitted(run.model_config, params, source_bs, prefix_bt)[0]
            log_probs_tv = np.asarray(jax.nn.log_softmax(logits_tv))
            for t, token in enumerate(targets[row][:POSITIONS]):
                loss_bt[row, t] = -log_probs_tv[t, token]
        return loss_bt

    forced_bt = by_hand(targets)
    own_bt = by_hand(own)
    assert measured["forced"] == pytest.approx(np.nanmean(forced_bt, axis=0), rel=1e-4)
    assert measured["own"] == pytest.approx(np.nanmean(own_bt, axis=0), rel=1e-4)
    assert measured["left"] == [0, 0, 0, *[1] * (POSITIONS - 3)]
    assert measured["own"][:3] == pytest.approx(measured["forced"][:3], rel=1e-5)
    assert measured["own_of_left"] == pytest.approx(np.nanmean(own_bt[:, 3:]), rel=1e-4)


def test_the_rows_of_heads_are_those_of_table_3_but_one() -> None:
    rows = {"8-8": "base", "1-64": "A1", "4-16": "A2", "16-4": "A3"}
    for row, name in rows.items():
        assert design.get_config(row).to_dict() == load(f"configs/ablations.py:{name}:small").to_dict()
    alone = design.get_config("1-8").model
    assert (alone.h, alone.d_k, alone.d_v) == (1, 8, 64)


def test_one_head_averages_more_by_dunnett_s_test_times_three_once_all_seeds_have_run(tmp_path: Path) -> None:
    def plant_row(row: str, seed: int, bits: dict[str, float]) -> None:
        entropy = {place: {"heads": [[value + 0.01 * seed]], "uniform": 3.0} for place, value in bits.items()}
        config = planted_config(heads_study.RUNS.configs[row], seed=seed)
        plant(tmp_path / f"{row}.{seed}", config, scores(config, "test", 80.0, head_entropy=entropy))

    for seed in range(5):
        plant_row("8-8", seed, {"encoder": 2.0, "decoder": 1.0, "cross": 1.5})
        if seed < 3:
            plant_row("1-64", seed, {"encoder": 2.5, "decoder": 0.5, "cross": 1.5})
        if seed < 2:
            plant_row("1-8", seed, {"encoder": 2.5, "decoder": 1.0, "cross": 1.54})
    verdicts = {card.claim: card.verdict for card in heads_study.cards(find_records(tmp_path))}
    assert set(verdicts.values()) == {"open"} and len(verdicts) == 6
    plant_row("1-8", 2, {"encoder": 2.5, "decoder": 1.0, "cross": 1.54})  # p in one place alone is 0.027
    cards = heads_study.cards(find_records(tmp_path))
    assert [card.verdict for card in cards] == ["shown", "refuted", "neither", "shown", "neither", "neither"]
    (table,) = heads_study.tables(find_records(tmp_path))
    assert table.rows[1][:4] == ("1-64", "2.51 ± 0.01 (5.7)", "0.51 ± 0.01 (1.4)", "1.51 ± 0.01 (2.8)")
    heads_study.plot(find_records(tmp_path), tmp_path / "heads.svg")


def test_smoothing_is_compared_seed_by_seed_once_all_seeds_have_run(tmp_path: Path) -> None:
    def plant_row(row: str, seed: int, forced: float, own: float, left: float) -> None:
        noise = 0.001 * seed * (row == "unsmoothed")
        own_t = [forced, *[own + noise] * (POSITIONS - 1)]
        measured = {"forced": [forced] * POSITIONS, "own": own_t, "own_of_left": left - noise}
        config = planted_config(forcing_study.RUNS.configs[row], seed=seed)
        plant(tmp_path / f"{row}-{seed}", config, scores(config, "test", 80.0, own_prefixes=measured))

    for seed in range(5):
        plant_row("smoothed", seed, 0.4, 1.4, 5.0)
        if seed < 4:
            plant_row("unsmoothed", seed, 0.4, 1.6, 4.0)
    assert {card.verdict for card in forcing_study.cards(find_records(tmp_path))} == {"open"}
    plant_row("unsmoothed", 4, 0.4, 1.6, 4.0)
    cards = forcing_study.cards(find_records(tmp_path))
    assert [(card.ours, card.verdict) for card in cards] == [
        ("+0.000", "neither"),
        ("−1.002", "refuted"),
        ("+0.202", "shown"),
    ]
    forcing_study.plot(find_records(tmp_path), tmp_path / "forcing.svg")

"""Table 3 from planted runs: means, differences, states, and the trend of the scaled-down models."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.stats import spearmanr

from tests.planted import plant, planted_config, scores
from vaswani.model.parameter_count import parameter_count
from vaswani.paper.published import TABLE3
from vaswani.paper.records import Records, find_records
from vaswani.paper.rows import load
from vaswani.paper.tables import table3, trend
from vaswani.tasks.config import model_config
from vaswani.train.intervals import half_interval, with_interval
from vaswani.train.table import Table

EMPTY = Records([], [], [], [])


def row(table: Table, name: str) -> dict[str, str]:
    (cells,) = (cells for cells in table.rows if cells[0] == name)
    return dict(zip(table.head, cells, strict=True))


def plant_row(folder: Path, row: str, perplexity: float, bleu: float, seed: int = 0) -> None:
    config = planted_config(f"configs/ablations.py:{row}", seed=seed)
    evaluation = scores(config, "valid", bleu, perplexity=perplexity, params_sha256=f"{row}{seed}")
    plant(folder / f"run {row} {seed}".replace(":", " "), config, evaluation)


def test_every_row_of_the_paper_stands_there_and_says_that_it_has_not_run() -> None:
    for table in (table3.full(EMPTY), table3.small(EMPTY)):
        assert [cells[0] for cells in table.rows] == list(TABLE3)
        assert sum("not run" in cells for cells in table.rows) == len(TABLE3)
        assert all(len(cells) == len(table.head) for cells in table.rows)


def test_a_full_size_row_stands_beside_the_papers(tmp_path: Path) -> None:
    plant_row(tmp_path, "A1", 5.39, 24.5, seed=0)
    plant_row(tmp_path, "A1", 5.29, 24.7, seed=1)
    found = row(table3.full(find_records(tmp_path)), "A1")
    assert found["perplexity: paper"] == "5.29"
    assert found["perplexity: ours"] == "5.34 ± 0.07"
    assert found["perplexity: delta"] == "+0.05"
    assert (found["BLEU: ours"], found["BLEU: delta"]) == ("24.60 ± 0.14", "−0.30")
    assert (found["seeds"], found["cost: ours"]) == ("2", "1.00 h, 1 x cpu (2 cores)")
    assert found["parameters: ours"] == "1,000,000"
    assert row(table3.full(find_records(tmp_path)), "A2")["perplexity: ours"] == "not run"


def test_parameters_are_exact_beside_the_papers_rounded_ones() -> None:
    cfg = load("configs/ablations.py:C5")
    found = row(table3.full(EMPTY), "C5")
    assert found["parameters: paper"] == "168e6"
    assert found["parameters: ours"] == f"{parameter_count(model_config(cfg, cfg.data.vocab_size)):,}"


def test_scaled_down_models_show_how_far_from_base_they_are(tmp_path: Path) -> None:
    plant_row(tmp_path, "base:small", 1.5, 80.0)
    plant_row(tmp_path, "A1:small", 1.8, 77.0, seed=0)
    plant_row(tmp_path, "A1:small", 1.6, 78.0, seed=1)
    table = table3.small(find_records(tmp_path))
    found = row(table, "A1")
    # Paired: base has seed 0 alone. log(5.29 / 4.92) and log(1.8 / 1.5).
    assert (found["log perplexity − base: paper"], found["log perplexity − base: ours"]) == ("+0.073", "+0.182")
    assert (found["BLEU − base: paper"], found["BLEU − base: ours"]) == ("−0.9", "−3.00")
    plant_row(tmp_path, "base:small", 1.55, 80.5, seed=1)
    found = row(table3.small(find_records(tmp_path)), "A1")
    # log(1.8 / 1.5) = 0.1823 and log(1.6 / 1.55) = 0.0317: mean 0.1070, half their distance 0.0753. Of two seeds the
    # 95 % interval reaches 12.706 times that on either side, the quantile of any table.
    assert found["log perplexity − base: ours"] == "+0.107 ± 0.957"
    assert found["BLEU − base: ours"] == "−2.75 ± 3.18"
    assert row(table, "A2")["perplexity"] == "not run"
    assert row(table3.full(find_records(tmp_path)), "A1")["perplexity: ours"] == "not run"


def test_a_row_that_did_not_train_has_no_line_and_a_note(tmp_path: Path) -> None:
    """Every seed must be above twice base's perplexity: 3.1 and 2.9 beside 1.5 and 1.5 are not."""
    for seed, of_rows in enumerate(({"base": 1.5, "big": 3.1, "C3": 3.1}, {"base": 1.5, "big": 3.2, "C3": 2.9})):
        for name, perplexity in of_rows.items():
            plant_row(tmp_path, f"{name}:small", perplexity, 50.0, seed)
    table = table3.small(find_records(tmp_path))
    names = [cells[0] for cells in table.rows]
    assert "big" not in names and "C3" in names and len(names) == len(TABLE3) - 1
    (note,) = [note for note in table.notes if "did not train with base's schedule" in note]
    assert note.startswith("big did not train")


def test_an_unfinished_row_says_so(tmp_path: Path) -> None:
    plant(tmp_path / "run", planted_config("configs/ablations.py:D1:small"), steps=10)
    table = table3.small(find_records(tmp_path))
    assert row(table, "D1")["perplexity"] == "unfinished"
    assert any("D1:small, seed 0: unfinished (10 of" in note for note in table.notes)


def test_the_trend_counts_signs_and_ranks(tmp_path: Path) -> None:
    for name, perplexity in (("base", 1.5), ("A1", 1.8), ("C1", 1.4), ("C5", 1.3)):
        plant_row(tmp_path, f"{name}:small", perplexity, 50.0)
    notes = table3.small(find_records(tmp_path)).notes
    # The paper: C5 4.66 < base 4.92 < A1 5.29 < C1 6.11. Ours: C5 < C1 < base < A1, so ranks 0 2 3 1 beside 0 1 2 3.
    assert "perplexity: the sign of the difference from base is the paper's in 2 of 3 rows" in notes
    assert "perplexity: not with the paper's sign: C1" in notes
    (ranked,) = [note for note in notes if "rank correlation" in note]
    assert ranked.startswith(
        "perplexity: Spearman's rank correlation with the paper over 4 rows is 0.40, 95 % bootstrap"
    )
    assert ranked.endswith("which includes 0: no agreement is shown")


def test_clear_differences_are_told_from_lucky_ones(tmp_path: Path) -> None:
    noise = (0.0, 0.1, -0.1, 0.05)
    for seed, luck in enumerate(noise):  # base's luck is shared by A1 and D2, as that of one seed's batches is
        plant_row(tmp_path, "base:small", 2.0 + luck, 50.0, seed)
        plant_row(tmp_path, "A1:small", 2.5 + 1.25 * luck, 50.0, seed)
        plant_row(tmp_path, "D2:small", 2.0 - noise[seed - 1], 50.0, seed)
        plant_row(tmp_path, "C5:small", 2.5 + luck / 2, 50.0, seed)
    notes = table3.small(find_records(tmp_path)).notes
    (line,) = [note for note in notes if note.startswith("perplexity: the sign")]
    assert (
        "; 2 of 3 (A1, C5) differ from base with p < 0.05 in a two-sided paired t-test over seeds, 1 of them with the "
        "paper's sign; " in line
    )  # A1 is worse than base in the paper, too; C5 is better
    assert line.endswith("by Holm, for 3 comparisons, 2 (A1, C5), 1 of them with the paper's sign")


def test_a_pooled_test_stands_beside_the_paired_one_without_rows_that_say_nothing_of_the_variance(
    tmp_path: Path,
) -> None:
    """Where the luck of a seed is not shared pairing buys nothing: the paired test finds no row, the pooled one A1."""
    of_rows = {"base": (0.0, 0.1, 0.05), "A1": (0.6, 0.4, 0.5), "A2": (0.1, 0.05, 0.0)}
    of_rows |= {"C3": (0.2, 0.4, 3.0), "big": (2.0, 1.9, 2.1)}
    for name, of_seeds in of_rows.items():
        for seed, log in enumerate(of_seeds):
            plant_row(tmp_path, f"{name}:small", float(np.exp(log)), 50.0 + log, seed)
    notes = table3.small(find_records(tmp_path)).notes
    (line,) = [note for note in notes if note.startswith("perplexity: the sign")]
    assert "by Holm, for 4 comparisons, 1 (big)" in line
    (line,) = [note for note in notes if note.startswith("log perplexity, post hoc")]
    expected = stats.dunnett(of_rows["A1"], of_rows["A2"], control=of_rows["base"]).pvalue < 0.05
    assert expected.tolist() == [True, False]
    assert "5 % for all rows together, 1 of 2 differ (A1); left out: big (did not train), C3 (seeds over 10" in line


def test_the_design_is_met_if_the_seeds_of_base_agree(tmp_path: Path) -> None:
    """Two seeds d apart have a standard deviation of d / sqrt(2); that of log perplexity is its share."""
    for name, of_seeds in (("close", ((2.0, 50.0), (2.08, 51.4))), ("far", ((2.0, 50.0), (2.0, 51.5)))):
        for seed, (perplexity, bleu) in enumerate(of_seeds):
            plant_row(tmp_path / name, "base:small", perplexity, bleu, seed)
    close, far = (table3.small(find_records(tmp_path / name)).notes for name in ("close", "far"))
    assert any(note.startswith("2 runs; base's 2 seeds") and "0.99 BLEU and 2.8 %" in note for note in close)
    assert any(note.endswith("the design allows 1 and 3 %: met") for note in close)
    assert any("1.06 BLEU and 0.0 %" in note and note.endswith(": not met") for note in far)


def test_p_is_students() -> None:
    # The quantile of any table: t = 3.1824 with 3 degrees of freedom has p = 0.05.
    differences = np.array([-1.0, 0.0, 0.0, 1.0])
    assert trend.p_value(differences + 3.1824 * differences.std(ddof=1) / 2) == pytest.approx(0.05, abs=1e-4)
    assert trend.p_value(np.array([1.0])) is None
    assert trend.p_value(np.zeros(3)) == 1.0
    assert trend.p_value(np.ones(3)) == 0.0
    # With one degree of freedom the distribution is Cauchy's: p of t = 1 is a half.
    assert trend.p_value(np.array([0.0, 1.0])) == pytest.approx(0.5, abs=1e-5)


@pytest.mark.slow
def test_three_seeds_without_a_difference_are_significant_one_time_in_twenty() -> None:
    """Whichever sign they have: the test is two-sided. The interval holds the truth in the other nineteen."""
    draws = np.random.default_rng(0).normal(size=(4000, 3))
    p_values = np.array([trend.p_value(draw) for draw in draws])
    found = draws[p_values < 0.05].mean(1)
    assert len(found) / len(draws) == pytest.approx(0.05, abs=0.01)
    assert (found < 0).mean() == pytest.approx(0.5, abs=0.1)
    held = [abs(draw.mean()) <= (half_interval(draw) or 0) for draw in draws]
    assert np.mean(held) == pytest.approx(0.95, abs=0.01)


def test_the_interval_of_three_seeds_is_the_textbooks() -> None:
    assert half_interval(np.array([-1.0, 0.0, 1.0])) == pytest.approx(4.3027 / 3**0.5, abs=1e-4)
    assert half_interval(np.array([1.0])) is None
    assert with_interval(np.array([2.0, 3.0, 4.0]), 2) == "+3.00 ± 2.48"
    assert with_interval(np.array([]), 2) == ""


def test_holm_multiplies_the_smallest_by_how_many_there_are() -> None:
    """The example of R's `p.adjust`: c(0.01, 0.02, 0.03, 0.04) by Holm are 0.04, 0.06, 0.06, 0.06."""
    found = trend.holm({"c": 0.03, "a": 0.01, "d": 0.04, "b": 0.02})
    assert [found[name] for name in "abcd"] == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert trend.holm({"a": 0.7, "b": 0.6}) == {"b": 1.0, "a": 1.0}
    assert trend.holm({}) == {}


def test_by_holm_at_most_one_table_in_twenty_has_a_false_row() -> None:
    tables = np.random.default_rng(1).uniform(size=(4000, 18))
    corrected = [min(trend.holm(dict(enumerate(table))).values()) for table in tables.tolist()]
    assert np.mean(np.array(corrected) < 0.05) == pytest.approx(0.05, abs=0.01)
    assert np.mean((tables < 0.05).any(1)) > 0.5


def test_a_note_has_p_and_p_by_holm() -> None:
    seeds = {"x": np.array([-1.0, 0.0, 1.0]), "alone": np.array([5.0])}
    assert trend.tested(seeds, "BLEU") == ["BLEU: p of a two-sided t-test over the seeds: x 1"]
    seeds["y"] = np.array([2.0, 3.0, 4.0])  # t = 3 / (1 / sqrt(3)) = 5.196, of two degrees of freedom
    (note,) = trend.tested(seeds, "BLEU")
    assert note.endswith("over the seeds, in brackets by Holm for 2 comparisons: x 1 (1), y 0.035 (0.07)")
    assert trend.tested({"alone": np.array([5.0])}, "BLEU") == []


def test_the_bootstrap_interval_holds_the_correlation_and_narrows_with_rows() -> None:
    generator = np.random.default_rng(1)

    def interval(rows: int, noise: float) -> tuple[float, float]:
        paper = np.arange(rows, dtype=float)
        seeds = [value + noise * generator.normal(size=3) for value in paper]
        low, high = trend.bootstrap_interval(paper.tolist(), [one.tolist() for one in seeds])
        middle = trend.rank_correlation(paper, np.array([one.mean() for one in seeds]))
        assert low <= middle <= high
        return low, high

    few, many = interval(6, 3.0), interval(60, 30.0)
    assert many[1] - many[0] < few[1] - few[0]
    assert interval(20, 0.0) == (1.0, 1.0)
    low, high = interval(20, 1000.0)
    assert low < 0 < high


def test_the_bootstrap_interval_is_95_of_100_draws_of_rows_and_of_their_seeds() -> None:
    """Against the definition in a loop; two samples of draws differ by up to 0.013 here, 90 of 100 by 0.036."""
    noise, draw = np.random.default_rng(1), np.random.default_rng(2)
    paper = np.arange(30.0)
    seeds = [value + 8 * noise.normal(size=2) for value in paper]
    found = []
    for _ in range(1_000):
        rows = draw.integers(30, size=30)
        ours = np.array([draw.choice(of_row, size=2).mean() for of_row in seeds])
        found.append(spearmanr(paper[rows], ours[rows]).statistic)
    interval = trend.bootstrap_interval(paper.tolist(), [of_row.tolist() for of_row in seeds])
    np.testing.assert_allclose(interval, np.percentile(found, [2.5, 97.5]), atol=0.02)


def test_the_rank_correlation_shares_the_ranks_of_equal_values() -> None:
    """Ranks 1 2 3 4 beside 2.5 1 2.5 4: their products sum to 3, their squares to 5 and 4.5."""
    one, other = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 1.0, 5.0, 7.0])
    assert trend.rank_correlation(one, other) == pytest.approx(3 / (5 * 4.5) ** 0.5)
    assert trend.rank_correlation(np.stack([one, one]), np.stack([other, -one])) == pytest.approx([0.632456, -1])
    assert np.isnan(trend.rank_correlation(one, np.ones(4)))


def test_what_a_row_changes_is_said_in_its_own_size() -> None:
    assert table3.changed("A1") == "h 1, d_k 512, d_v 512"
    assert table3.changed("A1:small") == "h 1, d_k 64, d_v 64"
    assert table3.changed("big").endswith("steps 300,000")


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_has_neither_p_nor_interval(wrong: float) -> None:
    differences = np.array([0.1, wrong, 0.2])
    assert trend.p_value(differences) is None and half_interval(differences) is None
    assert trend.p_values_of({"a": differences}) == {}


def test_p_just_below_the_level_does_not_look_like_it() -> None:
    found = {p: trend.shown_p_value(p) for p in (0.0496, 0.04999, 0.05, 0.0504, 0.035, 1.0)}
    assert list(found.values()) == ["0.0496", "0.04999", "0.05", "0.05", "0.035", "1"]

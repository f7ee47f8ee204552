"""The second design of Table 3 in small: its rule, applied to differences that are made up."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from lab.studies.choice import choice
from lab.studies.second import study as second
from lab.studies.second.design import EQUIVALENT, PRIMARY, get_config
from lab.studies.second.first import COMPARED, why
from tests.conftest import ROOT
from tests.planted import plant, planted_config, scores
from vaswani.configs.ablations import ROWS
from vaswani.paper.records import Records, find_records
from vaswani.paper.tables import table3

EMPTY = Records([], [], [], [])
SEEDS = np.array([-0.004, 0.001, 0.003])


def differences(factor: float, noise: float = 1.0) -> dict[str, np.ndarray]:
    """Differences of `factor` times the paper's, with a little noise of the seeds."""
    return {name: factor * second.paper_difference(name) + noise * SEEDS for name in (*PRIMARY, *EQUIVALENT)}


def test_differences_like_the_papers_are_shown_and_opposite_ones_refuted() -> None:
    _, verdict = second.verdict(differences(0.5))
    assert verdict.word == "shown" and verdict.sentence.endswith("is shown")
    conditions, verdict = second.verdict(differences(-0.5))
    assert conditions[0].startswith("1. 0 of 12 primary rows") and verdict.sentence.endswith("is refuted")
    # Three rows turned round: the signs fail, the correlation of the others is left.
    some = differences(0.5)
    for name in ("A1", "C6", "C7"):
        some[name] = -some[name]
    conditions, verdict = second.verdict(some)
    assert conditions[0].startswith("1. 9 of 12") and conditions[0].endswith("not met")
    assert verdict.word == "neither" and verdict.sentence.endswith("is neither shown nor refuted")
    some["B1"] = some["B1"][:2]
    assert second.verdict(some) == ([], ("open", "")), "two of three seeds leave no verdict"
    del some["B1"]
    assert second.verdict(some) == ([], ("open", "")), "a primary row that has not run leaves no verdict"


def test_what_the_parameters_alone_explain_is_not_shown() -> None:
    sizes = {name: np.log(second._parameters(name)) for name in PRIMARY}
    middle = np.mean(list(sizes.values()))
    by_size: dict[str, np.ndarray] = {}
    for place, (name, size) in enumerate(sizes.items()):
        by_size[name] = -0.3 * (size - middle) + 0.001 * place + SEEDS  # rows of one size differ a little
    conditions, verdict = second.verdict(by_size)
    assert "excludes 0: not met" in conditions[2] and verdict.word != "shown"
    assert "nan" not in conditions[2]


def test_the_partial_correlation_is_that_of_the_residuals_of_ranks() -> None:
    paper, ours, given = np.random.default_rng(0).standard_normal((3, 12))
    ours = ours + paper + given
    ranks = [stats.rankdata(x) for x in (paper, ours, given)]
    line = [np.polyval(np.polyfit(ranks[2], side, 1), ranks[2]) for side in ranks[:2]]
    expected = np.corrcoef(ranks[0] - line[0], ranks[1] - line[1])[0, 1]
    assert float(second.partial_correlation(paper, ours, given)) == pytest.approx(expected, abs=1e-12)


def test_each_condition_is_needed_and_its_limits_are_those_of_the_design() -> None:
    def ruled(changes: dict[str, float], noise: float = 1.0) -> tuple[list[bool], str]:
        changed = {name: mean + SEEDS for name, mean in changes.items()}
        conditions, verdict = second.verdict(differences(1.0, noise) | changed)
        return [condition.endswith(": met") for condition in conditions], verdict.word

    neither = "neither"
    assert ruled({}, noise=10) == ([True, True, True], "shown"), "ten of twelve are enough"
    assert ruled({}, noise=12) == ([False, True, True], neither), "nine are not"
    assert ruled({"C4": -0.5}) == ([True, False, True], neither), "0.69, but from 0.05"
    assert ruled({"big": 1.5}) == ([True, False, True], neither), "0.54, but up to 1: a failed row does not refute"
    assert ruled({"C2": 0.5, "C4": 0.6}) == ([True, True, False], neither), "0.90, but given the parameters from -0.17"


def test_the_interval_is_from_2_5_to_97_5_percent_of_the_draws_that_have_a_correlation() -> None:
    draws = np.array([*np.linspace(0, 1, 1001), np.nan, np.inf])
    assert second._with_ends(0.5, draws) == pytest.approx((0.5, 0.025, 0.975))


def test_equivalence_takes_both_one_sided_tests() -> None:
    assert second.equivalent(np.array([0.007, 0.015, 0.023])), "5 % each, not 2.5 %"
    assert not second.equivalent(np.array([0.005, 0.015, 0.025]))
    assert not second.equivalent(np.array([-0.005, -0.015, -0.025]))
    assert second.equivalent(np.array([0.005, 0.006, 0.007]))
    assert not second.equivalent(np.array([0.028, 0.029, 0.030])), "its interval reaches beyond the margin"
    assert not second.equivalent(np.array([-0.05, -0.051, -0.052]))
    assert second.row_verdict("A3", np.array([0.005, 0.006, 0.007])).sentence == "equivalent"
    assert second.row_verdict("A2", np.array([0.005, 0.006, 0.007])).sentence == "", "no verdict was promised"


def test_a_difference_beyond_the_margin_is_not_called_not_shown() -> None:
    # Around a standard deviation of 0.01 half of the 95 % interval is 0.0248.
    assert second.row_verdict("C3", np.array([0.046, 0.056, 0.066])).sentence == "not equivalent"
    assert second.row_verdict("C3", np.array([-0.046, -0.056, -0.066])).sentence == "not equivalent"
    assert second.row_verdict("C3", np.array([0.044, 0.054, 0.064])).sentence == "not shown"
    assert second.row_verdict("C3", np.array([-0.04, 0.01, 0.06])).sentence == "not shown"


def test_a_primary_row_may_be_the_opposite() -> None:
    # Around a standard deviation of 0.01 two standard errors are 0.0115.
    assert second.row_verdict("A1", np.array([-0.002, -0.012, -0.022])).sentence == "the opposite"
    assert second.row_verdict("A1", np.array([-0.001, -0.011, -0.021])).sentence == "not shown"
    assert second.row_verdict("big", np.array([0.3, 0.31, 0.32])).sentence == "the opposite"


def test_a_primary_row_needs_the_sign_and_two_standard_errors() -> None:
    assert second.row_verdict("A1", np.array([0.07, 0.071])).sentence == "", "the third seed has not run"
    assert second.row_verdict("A1", np.array([0.07, 0.071, 0.072])).sentence == "as the paper"
    # Around a standard deviation of 0.01 two standard errors are 0.0115.
    assert second.agrees(np.array([0.002, 0.012, 0.022]), 0.05)
    assert not second.agrees(np.array([0.001, 0.011, 0.021]), 0.05)
    assert second.agrees(np.array([0.02, 0.03, 0.04]), 0.05)
    assert not second.agrees(np.array([0.02, 0.03, 0.04]), -0.05)
    assert not second.agrees(np.array([-0.02, 0.03, 0.04]), 0.05)


def test_the_lower_perplexity_chooses_and_a_tie_goes_to_steep(tmp_path: Path) -> None:
    assert choice({"steep": 2.0, "gentle": 1.5}) == "gentle"
    assert choice({"steep": 2.0, "gentle": 2.0}) == "steep"
    assert choice({"steep": 2.0, "gentle": None}) == ""
    for schedule, perplexity in (("steep", 3.0), ("gentle", 2.5)):
        config = planted_config(f"{second.FILE}:C3:{schedule}", seed=0)
        plant(tmp_path / schedule, config, validations=[(500, 9.0), (1_000, perplexity)])
    stage_2, stage_1, _ = second.tables(find_records(tmp_path))
    (line,) = (line for line in stage_1.rows if line[0] == "C3")
    assert line == ("C3", "3.000", "2.500", "gentle")
    (line,) = (line for line in stage_2.rows if line[0] == "C3")
    assert line[stage_2.head.index("perplexity")] == "not run", "stage 1 is not asked for scores on test"
    assert not any("no evaluation" in note for note in stage_2.notes)


def test_every_row_has_the_schedule_that_its_recorded_runs_chose() -> None:
    _, stage_1, _ = second.tables(find_records(ROOT / "lab" / "studies" / "second"))
    assert {line[0]: line[-1] for line in stage_1.rows} == second.CHOSEN


def test_a_run_that_has_not_started_half_way_is_said_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second, "CHOSEN", {})
    half_way_of_seeds = {"base": (2.0, 3.0), "C3": (8.1, 11.9), "C2": (7.9, 11.9)}  # 11.9 is below 4 times 3.0
    for row, perplexity in (("base", 1.5), ("C3", 4.0), ("C2", 1.6)):
        for seed in (1, 2):
            config = planted_config(second.config_of(row), seed=seed)
            late = half_way_of_seeds[row][seed - 1]
            kept = scores(config, "test", 50.0, perplexity=perplexity + seed / 100)
            plant(tmp_path / f"{row}{seed}", config, kept, validations=[(500, late), (1_000, perplexity)])
    main, *_ = second.tables(find_records(tmp_path))
    assert {line[main.head.index("seeds")] for line in main.rows} == {"0"}, "no row has chosen its schedule"
    monkeypatch.setattr(second, "CHOSEN", dict.fromkeys(ROWS, "steep"))
    config = planted_config(second.config_of("C3"), seed=4)  # of no design
    plant(tmp_path / "C34", config, scores(config, "test", 50.0, perplexity=1.0))
    main, *_ = second.tables(find_records(tmp_path))
    lines = {line[0]: dict(zip(main.head, line, strict=True)) for line in main.rows}
    assert (lines["C3"]["failed seeds"], lines["C2"]["failed seeds"]) == ("1", "")
    assert lines["C3"]["seeds"] == "2" and lines["C3"]["log perplexity − base: ours"].startswith("+0.9")
    assert get_config("C3").steps == 1_000
    second.plot(find_records(tmp_path), tmp_path / "second.svg")
    assert (tmp_path / "second.svg").read_text().rstrip().endswith("</svg>")


def test_the_models_that_fail_stand_beside_those_without_the_suspect(tmp_path: Path) -> None:
    for name, perplexity in (("base", 1.5), ("C3", 1.8), ("base-pre", 1.4), ("C3-pre", 1.2)):
        config = planted_config(f"{table3.FILE}:{name}:small")
        plant(tmp_path / name, config, scores(config, "valid", 50.0, perplexity=perplexity))
    table = why(find_records(tmp_path))
    found = {cells[0]: dict(zip(table.head, cells, strict=True)) for cells in table.rows}
    assert found["C3"]["log perplexity: difference"] == "+0.182"  # log(1.8 / 1.5)
    assert found["C3-pre"]["minus"] == "base-pre"
    assert found["C3-pre"]["log perplexity: difference"] == "−0.154"  # log(1.2 / 1.4)
    assert found["big-drop"]["perplexity"] == "not run"
    for name, other in COMPARED:  # like with like: where the norm is the suspect, both sides have the other one
        assert ("norm" in table3.changed(f"{name}:small")) == ("norm" in table3.changed(f"{other}:small"))

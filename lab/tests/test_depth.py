"""Deep encoder, shallow decoder: equal parameters, the rules of the design, and what its clock measures."""

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import evaluation
from lab.studies.depth import speed, study
from lab.studies.depth.design import EVEN, SHALLOW, get_config
from tests.planted import plant, planted_config, scores
from vaswani.infer import api
from vaswani.model.parameter_count import parameter_count
from vaswani.paper.records import Records, find_records
from vaswani.tasks.config import model_config

SPREAD = (-2.0, -1.0, 0.0, 1.0, 2.0)  # of five seeds; its variance is 2.5, so the error of a difference is 1


def planted(folder: Path, bleu: float, speeds: tuple[float, ...], seeds: int = 5) -> Records:
    """Five seeds of 6+6, with a mean BLEU of 80 and 10 sentences a second; 10+2 has `bleu` more."""
    for name, middle, fast in ((EVEN, 80.0, (10.0,) * 5), (SHALLOW, 80 + bleu, speeds)):
        for seed in range(1, seeds + 1):
            config = planted_config(study.RUNS.configs[name], seed=seed)
            value = middle + SPREAD[seed - 1]
            found = scores(config, "test", value, **{study.SPEED: fast[seed - 1]})
            plant(folder / f"{name}-{seed}", config, found)
    return find_records(folder)


def test_both_have_equally_many_parameters_and_layers() -> None:
    even, shallow = (model_config(cfg, cfg.data.vocab_size) for cfg in (get_config(EVEN), get_config(SHALLOW)))
    assert (even.depths, shallow.depths) == ((6, 6), (10, 2))
    assert parameter_count(shallow) == pytest.approx(parameter_count(even), rel=1e-3)
    with pytest.raises(ValueError, match=r"^there is no row '12\+1'; the rows are 6\+6, 10\+2$"):
        get_config("12+1")


TWICE = (20.0,) * 5
# With 8 degrees of freedom half of the 90 % interval is 1.86, and of the 95 % interval 2.31.
CASES = [
    pytest.param(0.9, TWICE, ("shown", "shown"), id="not worse, faster"),
    pytest.param(0.8, (5.0,) * 5, ("neither", "refuted"), id="maybe worse, slower"),
    pytest.param(-2.8, (5.0, 20.0, 5.0, 20.0, 20.0), ("neither", "neither"), id="maybe worse, maybe faster"),
    pytest.param(-2.9, TWICE, ("refuted", "shown"), id="worse, faster"),
]


@pytest.mark.parametrize(("bleu", "speeds", "expected"), CASES)
def test_both_claims_are_judged_as_the_design_says(
    tmp_path: Path, bleu: float, speeds: tuple[float, ...], expected: tuple[str, str]
) -> None:
    records = planted(tmp_path, bleu, speeds)
    made = study.cards(records)
    assert tuple(card.verdict for card in made) == expected
    (table,) = study.tables(records)
    verdicts = [note for note in table.notes if note.startswith("verdict")]
    assert len(verdicts) == 2 and all(word in note for note, word in zip(verdicts, expected, strict=True))


def test_the_table_has_the_difference_and_the_ratio_with_their_intervals(tmp_path: Path) -> None:
    records = planted(tmp_path, 0.5, (20.0, 20.0, 20.0, 20.0, 40.0))
    (table,) = study.tables(records)
    even, shallow = (dict(zip(table.head, row, strict=True)) for row in table.rows)
    assert (even["sacreBLEU − 6+6"], shallow["sacreBLEU − 6+6"]) == ("", "+0.50 ± 2.31")
    # The logarithms to base 2 are 1, 1, 1, 1, 2: mean 1.2, error 0.2, and 2.776 errors are 0.555.
    assert shallow["speed / 6+6"] == "2.30 (1.56 to 3.38)"
    assert any(note.startswith("the difference's 90 % interval: ± 1.86; p 0.63") for note in table.notes)
    bleu, faster = study.cards(records)
    assert (bleu.ours, bleu.interval, bleu.p, bleu.seeds) == ("+0.50", "± 2.31", "0.63", "5")
    assert (faster.ours, faster.interval) == ("2.30", "1.56 to 3.38")
    study.plot(records, tmp_path / "depth.svg")
    assert (tmp_path / "depth.svg").stat().st_size > 5_000


def test_four_seeds_are_open(tmp_path: Path) -> None:
    made = study.cards(planted(tmp_path, 0.5, TWICE, seeds=4))
    assert [card.verdict for card in made] == ["open", "open"]


def test_runs_are_timed_in_turn_after_a_first_time_and_the_median_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = {"a": iter([9.0, 1.0, 2.0, 4.0]), "b": iter([9.0, 8.0, 5.0, 1.0])}  # each time, the first compiles
    now = 0.0
    order: list[str] = []

    def load(workdir: str, *_: object) -> SimpleNamespace:
        data = SimpleNamespace(test="grammar:test:10:{en,de}")
        run = SimpleNamespace(config=SimpleNamespace(data=data), workdir=workdir)

        def translate(sources: list[str]) -> None:
            nonlocal now
            assert len(sources) == 10
            order.append(workdir)
            now += next(seconds[workdir])

        return SimpleNamespace(run=run, translate=translate)

    monkeypatch.setattr(api, "load", load)
    monkeypatch.setattr(time, "process_time", lambda: now)
    monkeypatch.setattr(evaluation, "evaluation_file", lambda run: tmp_path / f"{run.workdir}.json")
    for workdir in seconds:
        (tmp_path / f"{workdir}.json").write_text('{"sacrebleu": 80.0}')
    speed.main(SimpleNamespace(workdir=["a", "b"], checkpoint=None, accept_changes=False, rounds=3))
    assert order == ["a", "b"] * 4
    written = [json.loads((tmp_path / f"{workdir}.json").read_text()) for workdir in seconds]
    assert written == [{"sacrebleu": 80.0, study.SPEED: 5.0}, {"sacrebleu": 80.0, study.SPEED: 2.0}]
    assert capsys.readouterr().out.startswith("a: 5.0 sentences a second; seconds of the processor: 1.00, 2.00, 4.00\n")

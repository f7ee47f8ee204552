"""Why BLEU is lower: each fault does what it says, the texts, the intervals, the signs, the queue and the tables."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lab.studies import texts
from lab.studies.bleu import curve, design, queue, run, signs, study
from lab.studies.bleu.faults import FAULTS, fault
from lab.studies.bleu.measure import MeanOfSentences, Reading, Scored, compare, compare_readings
from tests.tiny import LINES, TINY, tokenizer
from vaswani.configs.common import default
from vaswani.data import pipeline
from vaswani.data.pipeline import TrainingBatches
from vaswani.files import write_text
from vaswani.infer.scores.bleu import scorer
from vaswani.model.masks import Mask
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.paper.records import Records
from vaswani.tokens import Tokens
from vaswani.train import optim

PARAMS = init_params(Transformer(TINY), jax.random.key(0))
SEGMENTS = jnp.array([[1, 1, 2, 0]])  # two sentences in a row, and padding


def logits(source: list[int], target: list[int], target_first: int = 0, source_first: int = 0) -> np.ndarray:
    """Returns the logits of one sentence, whose positions begin at these numbers."""
    sides = []
    for ids, first in ((source, source_first), (target, target_first)):
        tokens = Tokens.of(jnp.array([ids]))
        sides.append(tokens._replace(positions_bt=tokens.positions_bt + first))
    return np.asarray(Transformer(TINY).apply({"params": PARAMS}, *sides))[0]


def test_each_fault_is_a_row_and_ends_with_its_run() -> None:
    without_key = {name for name, row in design.ROWS.items() if row.key.startswith("none: our code")}
    assert set(FAULTS) == without_key
    before = Mask._dense, pipeline.pack_plan, optim.learning_rate, tokenizer().source_end
    for name in FAULTS:
        with fault(name):
            pass
    assert (Mask._dense, pipeline.pack_plan, optim.learning_rate, tokenizer().source_end) == before


def test_masks_show_padding_neighbours_or_the_future() -> None:
    whole = Mask(SEGMENTS, SEGMENTS)
    causal = Mask(SEGMENTS, SEGMENTS, causal=True)
    first_b = whole.dense()[0, 0].tolist()
    assert first_b == [True, True, False, False]
    with fault("padding"):
        assert whole.dense()[0, 0].tolist() == [True, True, False, True]
        assert causal.dense()[0, 0].tolist() == [True, False, False, False]
    with fault("neighbours"):
        assert whole.dense().all()
        assert causal.dense()[0].tolist() == np.tri(4, dtype=bool).tolist()
    with fault("future"):
        assert causal.dense()[0, 0].tolist() == first_b


def test_only_a_decoder_with_the_fault_sees_the_next_word() -> None:
    one, other = logits([5, 6, 2], [1, 7, 8]), logits([5, 6, 2], [1, 7, 9])
    np.testing.assert_array_equal(one[:2], other[:2])
    with fault("future"):
        one, other = logits([5, 6, 2], [1, 7, 8]), logits([5, 6, 2], [1, 7, 9])
    assert np.abs(one[:2] - other[:2]).max() > 1e-3


def test_only_the_decoder_loses_its_positions() -> None:
    at_0 = logits([5, 6, 2], [1, 7, 8])
    assert np.abs(at_0 - logits([5, 6, 2], [1, 7, 8], target_first=9)).max() > 1e-3
    with fault("decoder-positions"):
        at_0 = logits([5, 6, 2], [1, 7, 8])
        np.testing.assert_array_equal(at_0, logits([5, 6, 2], [1, 7, 8], target_first=9))
        assert np.abs(at_0 - logits([5, 6, 2], [1, 7, 8], source_first=9)).max() > 1e-3


def test_counted_from_0_the_first_rate_is_0_and_the_others_are_one_step_late() -> None:
    cfg = default().optim
    second = optim.learning_rate(cfg, 64, 100, 2)
    with fault("step-0"):
        assert float(optim.learning_rate(cfg, 64, 100, 1)) == 0.0
        assert optim.learning_rate(cfg, 64, 100, 3) == second
        tx = optim.optimizer(cfg, 64, 100)
        param = {"w": jnp.ones(3)}
        updates, _ = tx.update(param, tx.init(param), param)
    assert not np.any(updates["w"]), "the optimiser has the same rate as the log"


def test_a_source_without_eos_is_its_subwords() -> None:
    text = LINES[0]
    assert tokenizer().source_ids(text) == [*tokenizer().encode(text), 2]
    with fault("source-eos"):
        assert tokenizer().source_ids(text) == tokenizer().encode(text)


class Lengths:
    """A corpus that is planned by its lengths, and never read."""

    def __init__(self, lengths_nk: Any) -> None:
        self.manifest: dict[str, Any] = {}
        self.lengths = lengths_nk

    def records(self, indices: Any, epoch: int = 0) -> list[Any]:
        raise AssertionError("only its lengths are needed")


@pytest.mark.parametrize("name", ["file-order", "by-length"])
def test_pairs_come_in_the_same_order_in_every_epoch(name: str) -> None:
    lengths_nk = np.random.default_rng(1).integers(2, 30, (400, 2)).astype(np.int32)
    cfg = design.get_config().data
    cfg.max_length = 32
    cfg.pack_length = 32
    cfg.tokens_per_batch = 128
    batches = TrainingBatches(Lengths(lengths_nk), cfg, seed=0)
    shuffled = np.concatenate([batch.members for batch in batches.plan(0)])
    with fault(name):
        epochs = [np.concatenate([batch.members for batch in batches.plan(epoch)]) for epoch in (0, 1)]
        rows = [row[row >= 0] for batch in batches.plan(0) for row in batch.rows_bc]
    np.testing.assert_array_equal(*epochs)
    assert sorted(epochs[0]) == list(range(400)), "every pair once"
    assert max(lengths_nk[row].sum(0).max() for row in rows if len(row)) <= 32
    key_n = lengths_nk.sum(1) if name == "by-length" else np.arange(400)
    # A row that is still open takes a later pair, so the order holds up to a few rows.
    assert np.corrcoef(key_n[epochs[0]], np.arange(400))[0, 1] > 0.9
    assert abs(np.corrcoef(key_n[shuffled], np.arange(400))[0, 1]) < 0.3


# Texts, differences, signs and the queue


def test_a_smaller_text_is_part_of_a_larger_one() -> None:
    pairs = [(str(number), f"A{number}") for number in range(50)]
    few, many = texts.part(pairs, 10), texts.part(pairs, 20)
    assert many[:10] == few != pairs[:10]
    assert len(set(many)) == 20
    assert texts.lowered(few)[0][1] == few[0][1].lower()


def test_a_difference_is_that_of_the_scores_and_pairs_the_sentences() -> None:
    references = [line for line in LINES for _ in range(5)]
    worse = [line.replace("a", "o") for line in references]
    found = compare(references, worse, references)
    assert found["low"] < found["difference"] < found["high"] < 0
    assert compare(worse, worse, references) == {"difference": 0.0, "low": 0.0, "high": 0.0}


def record(row: str, seed: int, bleu: float = 20.0, **changes: Any) -> dict[str, Any]:
    """Returns a record as `run.py` makes it."""
    line = {"step": 50, "loss": 3.0, "nll": 2.5, "learning_rate": 5e-4, "gradient_norm": 0.5, "non_pad_share": 0.9}
    test = {"sacrebleu": bleu, "chrf": 45.0, "nll": 2.0, "unigrams": 55.0, "length_ratio": 0.98, "signature": "s"}
    return {
        "study": "bleu",
        "part": "training",
        "row": row,
        "seed": seed,
        "failed": "",
        "minutes": 4.0,
        "test": test | {"empty": 0.0, "copied": 0.0, "at_limit": 0.0},
        "against_base": {"difference": bleu - 20.0, "low": bleu - 21.0, "high": bleu - 19.0},
        "log": [line],
        "valid": [{"step": 50, "loss": 2.8, "nll": 2.0}],
        "valid_subwords": 4000,
        "pairs": {"read": 1000, "kept": 1000},
        "epochs": 4.0,
        "steps": 1200,
        "parameters": 1,
        "git": [{"commit": "0" * 40, "dirty": False}],
        "device": {"kind": "cpu", "count": 1, "cpus": 1, "cpu": "x"},
        "versions": {},
    } | changes


def test_signs_are_what_differs_from_the_base_and_not_what_other_subwords_explain() -> None:
    base = record("base", 0)
    assert signs.signs(base, base) == []
    slow = record("x", 0, log=[{**base["log"][0], "learning_rate": 5e-3, "nll": 5.0}])
    assert signs.signs(slow, base) == [
        "learning rate at step 50: 5.0e-03, not 5.0e-04",
        "training nll 5.00, not 2.50",
        "validation nll minus training nll: 2.50 less than the base's",
    ]
    other = slow | {"valid_subwords": 8000, "pairs": {"read": 1000, "kept": 900}}
    assert signs.signs(other, base)[1:] == [
        "10.0 % of the pairs dropped",
        "validation has 8,000 target subwords, not 4,000",
    ]
    short = record("x", 0, test=base["test"] | {"length_ratio": 0.5, "empty": 0.2})
    assert signs.signs(short, base) == ["length ratio 0.50, not 0.98", "20 % of the translations empty"]
    assert signs.signs(record("x", 0, failed="the loss is no longer finite"), base) == ["the loss is no longer finite"]


def test_the_queue_begins_with_the_base_has_every_row_twice_and_then_the_curve() -> None:
    order = [*queue.runs()]
    rows = len(design.ROWS)
    assert order[0] == ("base", 0) and order[rows] == ("base", 1)
    assert {row for row, _ in order[:rows]} == {row for row, _ in order[rows : 2 * rows]} == set(design.ROWS)
    assert {row for row, _ in order[2 * rows :]} == set(curve.ROWS)
    assert len(order) == len(set(order))


def test_every_row_has_a_config_that_differs_from_the_base_where_no_patch_does() -> None:
    base = design.get_config()
    for name in (*design.ROWS, *curve.ROWS):
        cfg = run.config_of(name)
        assert (cfg == base) == (name in ("base", *FAULTS) and name != "source-eos"), name
    with pytest.raises(ValueError, match="there is no row 'x'"):
        run.config_of("x")


def test_only_rows_of_the_bases_corpus_are_compared_with_its_translations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base-0"
    base.mkdir()
    (base / run.TRANSLATIONS).write_text("a b c d\n")

    def scored(model_run: object, spec: str) -> Scored:
        lines = ["a b c d"] if "multi30k" in spec else ["e", "f"]
        return Scored(lines, lines, {})

    monkeypatch.setattr(run, "train", lambda cfg, workdir: 0)
    monkeypatch.setattr(run, "open_run", lambda workdir: None)
    monkeypatch.setattr(run, "score", scored)
    monkeypatch.setattr(run, "_record", lambda row, cfg, workdir, **further: further)

    def compared(row: str, workdir: Path) -> object:
        return run.train_and_score(row, run.config_of(row), workdir, base)["against_base"]

    assert compared("untied", tmp_path) == {"difference": 0.0, "low": 0.0, "high": 0.0}
    assert compared("base", base) is None
    assert compared("10k-small", tmp_path) is None


# The tables


def runs_of(bleus: dict[str, tuple[float, ...]]) -> Any:
    """Returns the study's rows, with these BLEUs of seeds 0 and 1."""
    records = [record(row, seed, bleu) for row, values in bleus.items() for seed, bleu in enumerate(values)]
    return study.rows(Records([], [], [], [], records))


def test_the_spread_of_one_run_is_pooled_over_the_rows_that_trained() -> None:
    runs = runs_of({"base": (20.0, 21.0), "untied": (18.0, 20.0), "future": (0.0, 5.0), "padding": (15.0,)})
    # Variances 0.5 and 2; 0 and 5 are below half of the base's, and one seed has no variance.
    assert study.pooled(runs) == (pytest.approx(1.25**0.5), 2)
    assert study.half_interval(runs) == pytest.approx(4.303 * 1.25**0.5, rel=1e-3)  # t of two degrees


@pytest.mark.parametrize(
    ("name", "bleus", "verdict"),
    [
        ("untied", (18.0, 18.2), "shown"),
        ("untied", (22.0, 22.2), "refuted"),
        ("untied", (20.0, 20.0), "neither"),
        ("untied", (18.0,), "open"),
        ("leak", (22.0, 22.2), "shown"),
        ("step-0", (20.0, 20.3), "shown"),
        ("step-0", (18.0, 18.0), "refuted"),
        ("step-0", (19.0, 19.4), "neither"),
    ],
)
def test_a_claim_is_judged_by_the_interval_of_its_difference(name: str, bleus: tuple[float, ...], verdict: str) -> None:
    assert study.verdict(name, runs_of({"base": (20.0, 20.2), name: bleus})).word == verdict


def test_rows_stand_by_the_bleu_they_lose_and_show_the_signs_of_both_seeds(tmp_path: Path) -> None:
    records = [record("base", 0), record("base", 1), record("untied", 0, 19.0), record("untied", 1, 18.0)]
    short = {**record("future", 0, 1.0)["test"], "length_ratio": 0.5}
    records += [record("future", 0, test=short), record("future", 1, test={**short, "empty": 0.5})]
    records.append(record("undivided", 0, failed="the loss is no longer finite", test=None, against_base=None))
    found = Records([], [], [], [], records)
    rows = [line[:3] for line in study.training(found).rows[:4]]
    # The dagger of a commit that is not in the repository.
    assert [change.removesuffix(" †") for change, *_ in rows] == [
        design.ROWS[name].change for name in ("base", "undivided", "future", "untied")
    ]
    assert rows[1][1] == "0.00"
    table = study.training(found)
    by_change: dict[str, dict[str, str]] = {}
    for line in table.rows:
        by_change[line[0].removesuffix(" †")] = dict(zip(table.head, line, strict=True))
    assert by_change["the decoder sees the future"]["what the log shows"] == "length ratio 0.50, not 0.98"
    assert by_change["embeddings not tied"]["what the log shows"] == "nothing"
    assert by_change["embeddings not tied"]["over sentences"] == "−2.0 to +0.0; −3.0 to −1.0"
    study.plot(found, tmp_path / "figure.svg")
    assert "embeddings not tied" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_readings_and_the_curve_say_what_has_run_and_what_has_not() -> None:
    greedy = {"bleu": 40.25, "difference": -1.45, "low": -1.88, "high": -1.02}
    reading = {"study": "bleu", "part": "readings", "readings": {"greedy": greedy}}
    small = record("3k-small", 0, 5.0, part="curve", foreign=record("base", 0, 1.0)["test"])
    found = Records([], [], [], [], [reading, small])
    cells = {line[0]: line[1:4] for line in study.readings(found).rows}
    assert cells["greedy"] == ("40.25", "−1.45", "−1.88 to −1.02")
    assert cells["a beam of 16"][0] == "not run"
    rows = {line[0]: line for line in study.curve_table(found).rows}
    assert rows["3k-small"][6:10] == ("5.00", "45.00", "1.00", "45.00")
    assert rows["163k-medium"][6:10] == ("not run",) * 4


def test_the_mean_of_the_sentences_is_not_the_score_of_all() -> None:
    references = [*LINES, "Nichts davon stimmt hier ."]
    translations = [*LINES, "x"]
    reading = MeanOfSentences(scorer(effective_order=True), translations, references)
    assert reading.bleu == pytest.approx(100 * len(LINES) / (len(LINES) + 1), abs=0.1)
    found = compare_readings(Reading(scorer(), translations, references), reading)
    assert found["low"] < found["difference"] < found["high"]


def test_the_queue_goes_on_behind_what_is_recorded_and_ends_where_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (run.folder_of("base", 0) / "record.json", queue.RECORDS):
        path.parent.mkdir(parents=True)
    write_text(run.folder_of("base", 0) / "record.json", "{}\n")
    write_text(queue.RECORDS, json.dumps({"study": "bleu", "part": "training", "row": "quarter", "seed": 0}) + "\n")
    begun: list[str] = []

    def pretend(command: list[str], **options: Any) -> Any:
        begun.append(" ".join(command[-2:]))
        return SimpleNamespace(returncode=1 if len(begun) == 1 else 130)

    monkeypatch.setattr(queue.subprocess, "run", pretend)
    with pytest.raises(SystemExit, match="130"):
        queue.main([])
    assert begun == ["--row=quarter-longer --seed=0", "--row=fourfold-shorter --seed=0"]

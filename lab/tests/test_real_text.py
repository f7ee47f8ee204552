"""Benchmarks of decoding, of an update and of words: fair to all contenders, and what is wrong is said at the start."""

from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from lab.benchmarks import real_text
from tests import tiny
from tests.extras import needed
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.model.config import ModelConfig


def test_a_wrong_reference_is_known_before_anything_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_text, "export", lambda options, folder: pytest.fail("begun"))
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("one\ntwo\n")
    options = SimpleNamespace(source=tmp_path / "a", reference=tmp_path / "b", workdir="x", rounds=1)
    with pytest.raises(UserError, match=r"^unequal line counts"):
        real_text.main(options)


def test_contenders_have_the_same_processors_and_run_once_before_they_are_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lab.benchmarks import decoding

    calls: list[str] = []
    threads: list[tuple[int, int]] = []

    def model(config, params, folder, kind, **options):
        threads.append((options["inter_threads"], options["intra_threads"]))
        Path(folder).mkdir()
        (Path(folder) / "model.bin").write_bytes(b"weights")
        return kind

    def timed(work):
        calls.append("timed")
        work()
        return decoding.Sample(1.0, 1.0)

    fakes = {
        "cpus": lambda: 7,
        "problem": lambda *arguments: (None, None),
        "our_search": lambda *arguments: lambda: calls.append("ours"),
        "ctranslate2_model": model,
        "their_search": lambda peer, *arguments: lambda: calls.append(peer),
        "_print_agreement": lambda *arguments: None,
        "timed": timed,
    }
    for name, fake in fakes.items():
        monkeypatch.setattr(decoding, name, fake, raising=False)
    decoding.time_one_batch(SimpleNamespace(vocab_size=100, sentences=8, beam=1, rounds=1))
    assert threads == [(7, 1), (7, 1)]
    assert set(calls[: calls.index("timed")]) == {"ours", "float32", "int8"}


def test_fewer_sentences_than_processors_have_several_each() -> None:
    from lab.benchmarks.decoding import threads

    assert threads(8, 1) == {"inter_threads": 1, "intra_threads": 8}
    assert threads(8, 3) == {"inter_threads": 3, "intra_threads": 2}


def test_a_batch_is_divided_among_what_runs_at_once() -> None:
    from lab.benchmarks.decoding import their_search

    peer = mock.Mock(num_translators=2)
    their_search(peer, ModelConfig(vocab_size=10), np.full((5, 3), 7, np.int32), beam=4)()
    assert peer.translate_batch.call_args.kwargs["max_batch_size"] == 3


def test_a_disturbed_round_is_dropped_whichever_contender_it_is_of() -> None:
    from lab.benchmarks.decoding import Sample, _print_medians

    samples = {
        "busy": [Sample(1.0, 2.0), Sample(5.0, 1.0)],
        "never busy": [Sample(3.0, 1.0), Sample(9.0, 0.5)],
    }
    assert _print_medians(samples) == {"busy": 1.0, "never busy": 3.0}


def test_a_training_step_of_uneven_rows_is_refused_in_one_line() -> None:
    from tests import commands

    done = commands.run("lab.benchmarks.training_step", "--tokens=2000")
    said = "error: --tokens=2000: it must be a multiple of --length=32\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_a_training_step_without_pytorch_times_ours() -> None:
    import subprocess
    import sys

    from tests.conftest import ROOT

    code = "import sys; sys.modules['torch'] = None; from lab.benchmarks.training_step import contenders; "
    code += "print(*contenders())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {name.partition("-")[0] for name in done.stdout.split()} == {"ours"}
    assert "torch-fused: not run; it needs PyTorch: pip install -e '.[bench]'\n" in done.stderr


def test_a_bag_of_words_is_for_classifiers(tmp_path: Path) -> None:
    import json

    from tests import commands
    from vaswani.configs.common import default

    (tmp_path / "config.json").write_text(json.dumps(default().to_dict()))
    done = commands.run("lab.benchmarks.bag_of_words", f"--workdir={tmp_path}")
    said = f"error: --workdir={tmp_path}: this run's task is translation; this is for classification\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_the_table_says_by_what_each_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    from vaswani.configs.common import default

    monkeypatch.setattr(real_text, "version", lambda package: "1")
    contender = real_text.Contender("ctranslate2", "float32", 1)
    call = real_text.Call(1.0, 1.0, 3, ["a"])
    options = SimpleNamespace(workdir="x", source="y", rounds=1, single=True)
    made = real_text.table(options, default(), {contender: call}, {contender: call}, {contender: [call]}, None)
    assert any("n^alpha" in note and "((5 + n) / 6)^alpha" in note for note in made.notes)
    assert "each line in a separate call" in made.notes


def test_a_wrong_source_is_known_before_anything_is_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_text, "export", lambda options, folder: pytest.fail("begun"))
    options = SimpleNamespace(source=tmp_path / "a", reference=None, workdir="x", rounds=1)
    with pytest.raises(UserError, match=r"/a: no such file$"):
        real_text.main(options)
    (tmp_path / "a").touch()
    with pytest.raises(UserError, match=r"/a: the file is empty"):
        real_text.main(options)


def test_flags_of_decoding_that_time_nothing_are_refused() -> None:
    from lab.benchmarks.decoding import check
    from tests import commands

    for other in ({"reference": "F", "single": False}, {"reference": None, "single": True}):
        with pytest.raises(UserError, match=r"^--reference and --single are for the lines of --source"):
            check(SimpleNamespace(workdir=None, source=None, **other))
    told = commands.run("lab.benchmarks.decoding", "--help").stdout
    for flag in ("--rounds: timed runs of each", "--sentences: sentences in the batch", "--beam: beam size of both"):
        assert f"{flag} (a positive integer;" in told


@pytest.mark.parametrize("kind", ["the empty translation is the best", "few learned positions"])
def test_both_engines_search_among_the_same_translations(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctranslate2 = needed("ctranslate2")
    run = tiny.random_run(N=1, positions="learned", max_positions=40)  # which never ends a sentence by itself
    if kind == "the empty translation is the best":
        run = tiny.ending_run()
        bias_v = run.params["output_bias"].copy()
        bias_v[EOS] += 20
        run = run._replace(params=run.params | {"output_bias": bias_v})
    monkeypatch.setattr(real_text, "open_run", lambda workdir: run)
    options = SimpleNamespace(workdir="x", exported=tmp_path)
    real_text.export(options, tmp_path)
    ours, _ = real_text.our_engine(options, "float32", "full")(["The dog sleeps."])
    translator = mock.Mock(wraps=ctranslate2.Translator)
    monkeypatch.setattr(ctranslate2, "Translator", translator)
    theirs, _ = real_text.their_engine(options, "float32", 2)(["The dog sleeps."])
    assert translator.call_args.kwargs.items() >= {"inter_threads": 2, "intra_threads": 1}.items()
    assert (ours == [""]) == (theirs == [""]) == kind.startswith("the empty")

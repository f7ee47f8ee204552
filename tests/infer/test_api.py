"""`from vaswani.infer import load_run`: the documented example runs, and agrees with the commands."""

import json
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from unittest import mock

import jax
import numpy as np
import pytest

from tests import tiny
from vaswani import infer
from vaswani.errors import UserError, note
from vaswani.infer.api import LoadedRun
from vaswani.infer.attention.maps import attention_maps
from vaswani.infer.scores import bleu
from vaswani.infer.translate.translator import translate_one
from vaswani.run.sharding import data_mesh

SOURCES, REFERENCES = [x for x, _ in tiny.PAIRS], [y for _, y in tiny.PAIRS]


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.write_run(tmp_path_factory.mktemp("api") / "run")


@pytest.fixture(scope="module")
def model(workdir: Path) -> LoadedRun:
    return infer.load_run(workdir, "latest")


def test_the_documented_example_runs_and_is_of_ten_lines(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line[4:] for line in (infer.__doc__ or "").splitlines() if line.startswith("    ")]
    assert len(lines) <= 10
    example = "\n".join(lines)
    assert "builtin:tatoeba" in example
    exec(compile(example.replace("builtin:tatoeba", str(workdir)), "example", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 3 and "tok:13a" in printed[1] and "(2, 2, " in printed[2]


def test_translations_are_the_commands(model: LoadedRun) -> None:
    assert model.translate(SOURCES) == [translate_one(model.run, source) for source in SOURCES]
    assert model.translate([]) == []
    with pytest.raises(UserError, match="alpha is nan"):
        model.translate(SOURCES, alpha=float("nan"))
    for search in (model.translate, model.hypotheses):
        with pytest.raises(UserError, match=r"^stopping is 'early'; it must be one of exact, full"):
            search(SOURCES, stopping="early")


def test_as_much_is_searched_at_a_time_as_the_run_was_loaded_with(
    workdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("vaswani.infer.api.Translator", translator)
    for call in ("translate", "hypotheses"):
        with pytest.raises(KeyboardInterrupt):
            getattr(infer.load_run(workdir, "latest", batch_tokens=96), call)(SOURCES)
        assert translator.call_args.kwargs == {"batch_tokens": 96, "split_sentences": False}
    with pytest.raises(UserError, match="batch_tokens is 0; it must be a whole number, at least 1, or None"):
        infer.load_run(workdir, "latest", batch_tokens=0)


# Wrong calls, and what is said of them. `model` is a loaded run of `workdir`.
WRONG = {
    "load_run(None)": "workdir is None; it must be the folder of a run, a string or a Path",
    "load_run(5)": "workdir is 5; it must be the folder of a run, a string or a Path",
    "load_run('nowhere')": "workdir=nowhere: no such folder",
    "load_run(workdir, 1.5)": "checkpoint '1.5' is not a choice; write one of latest, STEP, ",
    "load_run(workdir, 999)": "no checkpoint at step 999; there are 1, 2, 3, 4",
    "load_run('builtin:quickstart', 5)": "builtin:quickstart has only checkpoint 370, not 5",
    "load_run(workdir, batch_tokens='5')": "batch_tokens is '5'; it must be a whole number, at least 1, or None ",
    "load_run(workdir, batch_tokens=1.5)": "batch_tokens is 1.5; it must be a whole number",
    "load_run(workdir, beam=3)": "load_run() got an unexpected keyword argument 'beam'",
    "model.translate(None)": "lines is None; it must be a string, or a list of strings",
    "model.translate(b'abc')": "lines is b'abc'; it must be a string, or a list of strings",
    "model.translate(['a', 2])": "lines[1] is 2; it must be a string",
    "model.translate([['a']])": "lines[0] is ['a']; it must be a string",
    "model.translate({'a': 1})": "lines is {'a': 1}; it must be a string, or a list of strings",
    "model.translate({'a'})": "lines is {'a'}; it must be a string, or a list of strings",
    "model.translate('a\\nb')": "lines has a line feed in it: give a list of lines, or split_sentences=True",
    "model.hypotheses(['a\\n', 'b\\nc'])": "lines[1] has a line feed in it: give a list of lines, or split_sentences",
    "model.translate('a', beam='4')": "beam is '4'; it must be a whole number from 1 to 1000",
    "model.translate('a', beam=2.0)": "beam is 2.0; it must be a whole number from 1 to 1000",
    "model.translate('a', beam=True)": "beam is True; it must be a whole number from 1 to 1000",
    "model.translate('a', beam=0)": "beam is 0; it must be from 1 to 1000",
    "model.translate('a', alpha='1')": "alpha is '1'; it must be a number from 0 to 10",
    "model.translate('a', extra_length=1.5)": "extra_length is 1.5; it must be a whole number from 0 to 10000",
    "model.translate('a', stopping=5)": "stopping is 5; it must be one of exact, full",
    "model.translate('a', beem=4)": "Decoding.__init__() got an unexpected keyword argument 'beem'",
    "model.hypotheses('a', '2')": "nbest is '2'; it must be a whole number from 1 to 1000",
    "model.hypotheses('a', None)": "nbest is None; it must be a whole number from 1 to 1000",
    "model.score(None, 'a')": "sources is None; it must be a string, or a list of strings",
    "model.score(['a'], [5])": "references[0] is 5; it must be a string",
    "model.score('a', 'b', 5)": "language is 5; it must be a string",
    "model.attention_maps(['a'])": "source is ['a']; it must be a string",
    "model.attention_maps('a', 5)": "target is 5; it must be a string",
    "model.trace(None)": "source is None; it must be a string",
    "model.trace('a', 'b', [1])": "patch is [1]; it must be {name: {position: value}}",
    "model.trace('a', 'b', {'encoder': None})": "patch is {'encoder': None}; it must be {name: {position: value}}",
    "model.trace('a', 'b', {'encoder': {'x': 0}})": "patch is {'encoder': {'x': 0}}; it must be {name: {position",
    "model.logit_lens(None)": "trace is None; it must be what `trace(source)` returns",
}


def test_a_wrong_call_is_told_in_words_of_python_and_nothing_else_is_printed(workdir: Path) -> None:
    """In a process of its own: in the tests jaxtyping would refuse the types before our code sees them."""
    program = (
        "import json, sys\n"
        "from vaswani.infer import load_run\n"
        "from vaswani.errors import UserError\n"
        "workdir, *calls = sys.argv[1:]\n"
        "model = load_run(workdir)\n"
        "told = []\n"
        "for call in calls:\n"
        "    try:\n"
        "        told.append(f'nothing: {eval(call)}')\n"
        "    except Exception as error:\n"
        "        told.append(f'{type(error).__name__}: {error}')\n"
        "print(json.dumps(told))\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program, str(workdir), *WRONG], cwd=root, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    for call, told in zip(WRONG, json.loads(done.stdout), strict=True):
        kind = "TypeError" if "unexpected keyword" in told else "UserError"
        assert told.startswith(f"{kind}: {WRONG[call]}"), f"{call}: {told}"


def test_what_a_command_would_note_is_a_warning(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        note("line 1 is too long", "warning")
        raise KeyboardInterrupt

    monkeypatch.setattr("vaswani.infer.api.Translator", interrupted)
    with pytest.warns(UserWarning, match="^average:9 asks for 9; the run has 4 checkpoints$"):
        loaded = infer.load_run(workdir, "average:9")
    for call in (loaded.translate, loaded.hypotheses):
        with pytest.warns(UserWarning, match="^line 1 is too long$"), pytest.raises(KeyboardInterrupt):
            call(SOURCES)
    assert capsys.readouterr().err == ""
    copy = shutil.copytree(workdir, tmp_path / "run")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"task": "masked_lm"}))
    with pytest.raises(UserError, match=r"^workdir=\S*: this run's task is masked_lm, not translation$"):
        infer.load_run(copy)


def test_scores_have_every_reading_of_the_models_own_translations(model: LoadedRun) -> None:
    scores = model.score(SOURCES, REFERENCES)
    expected = bleu.all_scores(model.translate(SOURCES), REFERENCES, "de")
    assert {name: scores[name] for name in bleu.METRICS} == {name: expected[name] for name in bleu.METRICS}
    assert scores["perplexity"] > 1 and set(scores["signatures"]) == {*bleu.METRICS, "perplexity"}
    assert "moses:fr" in model.score(SOURCES, REFERENCES, "fr")["signatures"]["bleu_tok"]
    with pytest.raises(UserError, match="4 sources and 3 references"):
        model.score(SOURCES, REFERENCES[:3])
    with pytest.raises(UserError, match="0 sources and 0 references"):
        model.score([], [])


def test_a_string_is_one_line_and_not_its_letters(model: LoadedRun) -> None:
    source = SOURCES[0]
    reference = REFERENCES[0]
    assert model.translate(source) == model.translate([source])[0]
    assert model.score(source, reference) == model.score([source], [reference])
    with pytest.raises(UserError, match="1 source and 4 references"):
        model.score(source, REFERENCES)


def test_a_line_of_several_sentences_is_warned_of_or_split(model: LoadedRun) -> None:
    pair = " ".join(SOURCES[:2])
    first, second = model.translate(SOURCES[:2])
    said = r"^several sentences in 2 of 3 lines: .*; split_sentences=True translates each$"
    for call in (model.translate, model.hypotheses):
        with pytest.warns(UserWarning, match=said) as warned:
            call([pair, SOURCES[0], pair])
        assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.translate(pair, split_sentences=True) == f"{first} {second}"
        assert model.translate("\n".join(SOURCES[:2]), split_sentences=True) == f"{first} {second}"
        assert model.hypotheses(pair, split_sentences=True)[0][0].text == f"{first} {second}"
        assert model.translate([f"{SOURCES[0]}\n"]) == [first], "as reading a file leaves it"
        assert model.score([pair], [pair])["perplexity"] > 1


@pytest.mark.slow
def test_hypotheses_are_ranked_and_the_first_are_the_translations(model: LoadedRun) -> None:
    found = model.hypotheses(SOURCES, nbest=3, beam=4)
    assert [best.text for best, *_ in found] == model.translate(SOURCES, beam=4)
    for hypotheses in found:
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert len(scores) <= 3 and scores == sorted(scores, reverse=True)
    assert len(model.hypotheses(SOURCES[0])) == 1
    with pytest.raises(UserError, match="nbest is 4, more than the beam of 2"):
        model.hypotheses(SOURCES, nbest=4, beam=2)


def test_a_run_says_what_it_is(model: LoadedRun, workdir: Path) -> None:
    assert re.fullmatch(rf"LoadedRun\('{workdir}': translation, step \d+, [\d,]+ parameters\)", repr(model))


def test_maps_are_of_the_given_target_or_the_models_own(model: LoadedRun) -> None:
    run, source = model.run, SOURCES[0]
    for target in (REFERENCES[0], None):
        forced = translate_one(run, source) if target is None else target
        expected = attention_maps(run.model_config, run.params, run.tokenizer, source, forced)
        for kind, found in model.attention_maps(source, target).items():
            assert found.queries == expected[kind].queries and found.keys == expected[kind].keys
            np.testing.assert_array_equal(found.weights_nhts, expected[kind].weights_nhts)


def test_importing_the_package_loads_no_jax() -> None:
    code = "import sys, vaswani.infer.score; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0


def test_the_readme_shows_the_documented_example() -> None:
    lines = [line[4:] for line in (infer.__doc__ or "").splitlines() if line.startswith("    ")]
    example = "\n".join(line for line in lines if line)
    readme = (Path(__file__).parent.parent.parent / "README.md").read_text()
    shown = readme.partition("```python\n")[2].partition("```")[0]
    assert "\n".join(line for line in shown.splitlines() if line) == example


def test_parameters_are_on_the_device_before_the_first_call(model: LoadedRun) -> None:
    assert all(leaf.sharding.mesh == data_mesh() for leaf in jax.tree.leaves(model.run.params))


def test_the_language_of_the_corpus_may_name_a_country(model: LoadedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model.run.config.data, "train", "text:x.{en,zh-CN}")
    assert "tok:zh" in model.score(SOURCES, REFERENCES)["signatures"]["sacrebleu"]

"""The flags of `python -m infer.translate` reach the translator: its output is that of one made by hand."""

from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import pytest

from tests import commands, tiny
from vaswani.infer.runs import Run, open_run
from vaswani.infer.translate.__main__ import main
from vaswani.infer.translate.stream import Lines, translate_stream
from vaswani.infer.translate.translator import Translator
from vaswani.search.options import Decoding, Sampling


class Case(NamedTuple):
    """Flags, what they mean to the translator and to what writes its translations, and the input."""

    flags: str
    decoding: Decoding
    nbest: int = 1
    scores: bool = False
    require: str = ""
    mbr: str = ""
    max_input: int = 512
    split_sentences: bool = False
    text: str = "The dog sleeps.\nWe read a new book.\n"


PLAIN = Decoding(beam=1, alpha=0.6, extra_length=3)  # of a run of tests/tiny.py
CASES = {
    # With so many beams the empty translation is among them, unless there is a least length.
    "search": Case(
        "--beam=100 --alpha=0.0 --extra_length=2 --stopping=full --nbest=4 --min_length=3 --no_repeat=1",
        Decoding(beam=100, alpha=0.0, extra_length=2, stopping="full", nbest=4, min_length=3, no_repeat=1),
        nbest=4,
    ),
    "groups": Case(
        "--beam=4 --nbest=4 --groups=2 --diversity=3.0",
        Decoding(beam=4, alpha=0.6, extra_length=3, nbest=4, groups=2, diversity=3.0),
        nbest=4,
    ),
    "samples": Case(
        "--sample --nbest=3 --seed=3 --temperature=2.0 --top_k=50 --top_p=0.7",
        Decoding(beam=1, alpha=0.6, extra_length=3, nbest=3, sampling=Sampling(3, 2.0, 50, 0.7)),
        nbest=3,
    ),
    "risk": Case(
        "--sample --nbest=8 --mbr=bleu --scores",
        Decoding(beam=1, alpha=0.6, extra_length=3, nbest=8, sampling=Sampling()),
        nbest=8,
        scores=True,
        mbr="bleu",
    ),
    "prefix": Case(
        "--require=prefix --scores",
        PLAIN,
        scores=True,
        require="prefix",
        text="The dog sleeps.\tDer Hund\nWe read.\t\n",
    ),
    "characters": Case(
        "--require=characters --scores",
        PLAIN,
        scores=True,
        require="characters",
        text="The dog sleeps.\tDer Hu\nWe read.\t\n",
    ),
    "sentences": Case("--split_sentences", PLAIN, split_sentences=True, text="The dog sleeps. We read.\n"),
    "pieces": Case("--max_input=64", PLAIN, max_input=64, text="The dog sleeps. " * 20 + "\n"),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(tiny.write_run(tmp_path_factory.mktemp("flags") / "run"), "latest")


def translated(run: Run, case: Case) -> str:
    """Returns what the translator of a case writes."""
    sizes = {"max_input": case.max_input, "split_sentences": case.split_sentences}
    translator = Translator(run.model_config, run.tokenizer, case.decoding, **sizes)
    work = Lines(
        translator,
        run.params,
        nbest=case.nbest,
        scores=case.scores,
        require=case.require,
        mbr=case.mbr,
    )
    outputs = translate_stream(work, case.text.encode().splitlines(keepends=True), chunk=9)
    return b"".join(outputs).decode()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_flags_say_how_to_translate(run: Run, name: str) -> None:
    case = CASES[name]
    arguments = (f"--workdir={run.workdir}", "--checkpoint=latest", *case.flags.split())
    done = commands.run("infer.translate", *arguments, text=case.text)
    assert done.returncode == 0, done.stderr
    assert done.stdout == translated(run, case)
    assert done.stdout != translated(run, Case("", PLAIN, text=case.text)), "the flags make a difference"


class Options(SimpleNamespace):
    """Flags as absl has them: by attribute, and by name as objects with a value."""

    def __getitem__(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(value=getattr(self, name))


@pytest.mark.parametrize(("given", "searched"), [(None, None), (96, 96)])
def test_as_many_positions_are_searched_at_a_time_as_the_flag_says(
    given: int | None, searched: int | None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr("vaswani.infer.translate.__main__.Translator", translator)
    flags = Options(
        workdir=str(run.workdir),
        checkpoint="latest",
        beam=None,
        alpha=None,
        extra_length=None,
        stopping=None,
        nbest=1,
        sample=False,
        min_length=0,
        no_repeat=0,
        groups=1,
        diversity=0.5,
        max_input=512,
        batch_tokens=given,
        split_sentences=False,
    )
    with pytest.raises(KeyboardInterrupt):
        main(flags)
    assert translator.call_args.kwargs == {"max_input": 512, "batch_tokens": searched, "split_sentences": False}


def test_the_flag_to_split_sentences_is_refused_where_a_line_must_be_whole() -> None:
    done = commands.run("infer.translate", "--workdir=none", "--split_sentences", "--require=prefix", text="a\tb\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --split_sentences translates a line in parts: leave out --explain and --require\n"


@pytest.mark.parametrize("flag", ["columns", "explain"])
def test_a_flag_without_its_value_is_refused(flag: str) -> None:
    done = commands.run("infer.translate", "--workdir=none", f"--{flag}=", text="The dog sleeps.\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: --{flag}= is empty: give it a value, or leave it out\n"

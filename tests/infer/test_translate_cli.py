"""`python -m infer.translate` as a filter: bytes in, bytes out, line by line."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

from vaswani.data.lines import LONGEST_LINE
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.infer.translate.required import Required
from vaswani.infer.translate.stream import (
    Arriving,
    Columns,
    Lines,
    _with_required,
    chunks,
    formatted,
    lines_of,
    translate_stream,
)
from vaswani.infer.translate.translator import Hypothesis, Translation, Translator
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.search.options import Decoding


class Echo(Translator):
    """A fake translator: answers in capitals and records its inputs."""

    tokenizer = SimpleNamespace(unknown=lambda texts: 0)

    def __init__(self, split_sentences=False):
        self.asked = []
        self.split_sentences = split_sentences

    def translate(self, params, texts, *, first_line, progress=lambda done: None, required=()):
        assert not required
        self.asked.append((first_line, list(texts)))
        progress(len(texts))
        return [Translation((Hypothesis(text.upper(), -0.5, -1.0, ()),)) for text in texts]


def command(*arguments):
    """Runs a command with nothing on standard input."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run([sys.executable, "-m", *arguments], input="", capture_output=True, text=True, env=environment)


def filtered(source, *, chunk=2, nbest=1, scores=False):
    echo = Echo()
    outputs = translate_stream(Lines(echo, {}, nbest, scores), io.BytesIO(source), chunk=chunk)
    return b"".join(outputs), echo.asked


def test_line_i_in_is_line_i_out_and_only_a_line_feed_ends_a_line():
    written, asked = filtered("a\n\nb\x0bc\u2028\x85\rd\nlast without end".encode())
    assert written == "A\n\nB\x0bC\u2028\x85\rD\nLAST WITHOUT END\n".encode()
    assert asked == [(1, ["a", ""]), (3, ["b\x0bc\u2028\x85\rd", "last without end"])]


def test_a_carriage_return_before_the_line_feed_is_no_text_as_in_a_corpus():
    written, asked = filtered(b"a\r\nb\r\n")
    assert (written, asked) == (b"A\nB\n", [(1, ["a", "b"])])
    with pytest.raises(UserError, match=r"^standard input: its lines end in bare carriage returns; write line feeds"):
        filtered(b"a\rb\r")
    texts, (wanted,) = _with_required(["a\tb\tc\r"], "phrases")
    assert (texts, wanted) == (["a"], Required(phrases=("b", "c")))
    echo = Echo()
    written = b"".join(translate_stream(Columns(echo, {}, (2,)), io.BytesIO(b"a\tb\r\n"), chunk=5))
    assert written == b"a\tB\n" and echo.asked == [(1, ["b"])]


@pytest.mark.parametrize("columns", ["1,1", "2,3,2", "0", "-1", "x", "1,", "1.5", "9" * 5000])
def test_columns_that_are_no_different_numbers_are_refused(columns):
    done = command("infer.translate", "--workdir=none", f"--columns={columns}")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "columns are different numbers from 1 to 999999" in done.stderr


def test_no_input_is_no_output():
    assert filtered(b"") == (b"", [])


def test_progress_stays_off_standard_output(capsys):
    filtered(b"a\nb\nc\n")
    out, err = capsys.readouterr()
    assert out == "" and "3 lines" in err


@pytest.mark.parametrize("splits", [False, True])
def test_lines_of_several_sentences_are_counted_once_at_the_end(splits, capsys):
    source = io.BytesIO(b"One. Two.\nOne.\nOne. Two. Three.\n")
    list(translate_stream(Lines(Echo(splits), {}, 1, False), source, chunk=2))
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert len(warned) == (0 if splits else 1)
    assert all("several sentences in 2 of 3 lines: " in line and "--split_sentences" in line for line in warned)


def test_invalid_utf8_names_the_line_and_keeps_the_lines_before():
    outputs = translate_stream(Lines(Echo(), {}, 1, False), io.BytesIO(b"a\nb\nc\nd\xff\ne\n"), chunk=2)
    assert [next(outputs), next(outputs)] == [b"A\nB\n", b"C\n"]
    with pytest.raises(UserError, match=r"standard input, line 4: not UTF-8 \(byte 0xff at column 2\)"):
        next(outputs)


def test_each_chunk_is_answered_before_the_next_is_read():
    source = io.BytesIO(b"a\nb\n")
    outputs = translate_stream(Lines(Echo(), {}, 1, False), source, chunk=1)
    assert next(outputs) == b"A\n"
    assert source.tell() == 2


def test_chunks_hold_their_size():
    assert list(chunks(io.BytesIO(b"1\n2\n3\n"), 2)) == [["1", "2"], ["3"]]


def test_a_byte_order_mark_is_no_part_of_the_first_line():
    assert list(chunks(io.BytesIO(b"\xef\xbb\xbf1\n\xef\xbb\xbf2\n"), 1)) == [["1"], ["\ufeff2"]]


@pytest.mark.parametrize("comes_slowly", [False, True])
def test_an_endless_line_does_not_fill_the_memory(tmp_path: Path, comes_slowly: bool) -> None:
    path = tmp_path / "endless"
    path.write_bytes(b"a\n" + b"b" * LONGEST_LINE + b"\n" + b"c" * (3 * LONGEST_LINE))
    with path.open("rb") as file:
        found = chunks(Arriving(file.fileno()) if comes_slowly else lines_of(file), 9)
        first = next(found)
        assert [first[0], len(first[1]), len(first)] == ["a", LONGEST_LINE, 2]
        with pytest.raises(UserError, match="line 3: longer than 16,777,216 bytes"):
            next(found)
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) < 2.1 * LONGEST_LINE


def test_layouts():
    translation = Translation((Hypothesis("Hund", -0.25, -0.5, ()), Hypothesis("Hunde", -1.5, -2.0, ())))
    assert formatted(translation, 7, 1, scores=False) == "Hund\n"
    assert formatted(translation, 7, 1, scores=True) == "Hund\t-0.250000\n"
    assert formatted(translation, 7, 2, scores=False) == "7 ||| Hund ||| -0.250000\n7 ||| Hunde ||| -1.500000\n"


def test_a_real_translator_fits_the_filter(tmp_path):
    tokenizer = Tokenizer.train(["the dog sleeps", "a cat"], 274, tmp_path / "tokenizer.model")
    config = ModelConfig(tokenizer.vocab_size, N=1, d_model=8, d_ff=8, h=1, d_k=8, d_v=8)
    translator = Translator(config, tokenizer, Decoding(beam=1, alpha=0.0, extra_length=1))
    params = init_params(Transformer(config), jax.random.key(0))
    (output,) = translate_stream(Lines(translator, params, 1, True), [b"dog\n", b"\n", b"cat\n"], chunk=9)
    lines = output.decode().split("\n")
    assert len(lines) == 4 and lines[1] == "\t0.000000" and lines[3] == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workdir=nowhere"], "error: workdir=nowhere: no such folder"),
        (["--workdir=x", "--beam=0"], "--beam"),
        (["--workdir=x", "in.txt"], "error: unexpected argument 'in.txt'"),
        (["--workdir=x", "--temperature=0.7"], "error: --temperature is for sampling: add --sample"),
        (["--workdir=x", "--sample", "--beam=4"], "error: --beam is for searching: it has no effect with --sample"),
        (["--workdir=x", "--diversity=1"], "error: --diversity is for several groups of beams: add --groups"),
        (["--workdir=nowhere", "--sample", "--seed=3", "--top_p=0.9"], "error: workdir=nowhere: no such folder"),
    ],
)
def test_errors_are_one_line(arguments, message):
    done = command("infer.translate", *arguments)
    assert done.returncode == 2 and done.stdout == ""
    assert message in done.stderr and len(done.stderr.splitlines()) == 1, json.dumps(done.stderr)


@pytest.mark.parametrize(
    "option",
    ["--alpha=nan", "--alpha=inf", "--alpha=-1", "--beam=2000", "--extra_length=2147483648", "--nbest=100000",
     "--seed=99999999999999999999", "--seed=-1", "--temperature=nan", "--temperature=inf", "--temperature=0",
     "--top_p=nan", "--top_p=2", "--top_k=2147483648"],
)  # fmt: skip
def test_decoding_options_that_make_no_sense_are_refused_before_anything_is_read(option):
    """In one line that names the flag and its allowed values, whatever the run."""
    sample = ["--sample"] if option.startswith(("--seed", "--temp", "--top", "--nbest")) else []
    done = command("infer.translate", "--workdir=nowhere", option, *sample)
    assert done.returncode == 2 and done.stdout == ""
    assert f"flag {option}" in done.stderr and "must be from" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("module", ["infer", "infer.parse"])
def test_every_evaluation_checks_them_too(module):
    done = command(module, "--workdir=nowhere", "--split=test", "--alpha=nan")
    assert done.returncode == 2 and "flag --alpha=nan" in done.stderr and done.stderr.count("\n") == 1

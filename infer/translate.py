"""Translates standard input, line by line, to standard output.

python -m infer.translate --workdir=runs/quickstart < in.txt > out.txt
python -m infer.translate --workdir=runs/quickstart --beam=8 --nbest=3 < in.txt
python -m infer.translate --workdir=runs/quickstart --sample --top_p=0.9 --nbest=5 --seed=1 < in.txt

Line i of the output translates line i of the input; only a line feed ends a line. Output is written after each chunk of
lines (--chunk; on a terminal after each line), progress goes to stderr. What is printed for a line:

(default)     TEXT
--scores      TEXT <tab> SCORE
--nbest=K     LINE ||| TEXT ||| SCORE, K times or fewer, best first; lines count from 0, as in Moses

SCORE is log p / ((5 + n)/6)^alpha, with natural logarithms and n subwords, EOS included; for samples it is log p.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import jax
from absl import flags

from base.errors import UserError, run
from base.progress import Progress
from infer.decoding import Sampling
from infer.options import check, decoding, define_decoding_flags, define_run_flags
from infer.runs import open_run
from infer.translator import Translation, Translator

CHUNK = 1_000
OUTPUT_CLOSED = 141  # what a shell reports for SIGPIPE


def chunks(source: Iterable[bytes], size: int) -> Iterator[list[str]]:
    """Yields lines of UTF-8 text without their line feeds, `size` at a time.

    Raises:
      UserError: a line is not UTF-8; the lines before it are yielded first.
    """
    lines: list[str] = []
    for number, line in enumerate(source, 1):
        try:
            lines.append(line.removesuffix(b"\n").decode("utf-8"))
        except UnicodeDecodeError as error:
            if lines:
                yield lines
            raise UserError(
                f"standard input, line {number}: not UTF-8 (byte 0x{line[error.start]:02x} at column {error.start + 1})"
            ) from error
        if len(lines) == size:
            yield lines
            lines = []
    if lines:
        yield lines


def formatted(translation: Translation, line: int, nbest: int, scores: bool) -> str:
    """Returns the output for one line; see the top of this file."""
    if nbest > 1:
        return "".join(f"{line} ||| {text} ||| {score:.6f}\n" for text, score, _, _ in translation.hypotheses)
    best = translation.hypotheses[0]
    return f"{best.text}\t{best.score:.6f}\n" if scores else f"{best.text}\n"


def translate_stream(
    translator: Translator, params: Any, source: Iterable[bytes], *, chunk: int, nbest: int, scores: bool
) -> Iterator[bytes]:
    """Yields the output for each chunk of the lines of `source`."""
    done = 0

    def report(rows: int) -> None:
        progress.update(done + rows)

    with Progress("translating", "lines") as progress:
        for lines in chunks(source, chunk):
            translations = translator.translate(params, lines, first_line=done + 1, progress=report)
            yield "".join(
                formatted(translation, line, nbest, scores) for line, translation in enumerate(translations, done)
            ).encode()
            done += len(lines)
            progress.update(done)
        progress.finish(f"{done:,} lines")


def main(argv: list[str]) -> int:
    """Runs the command; flags below."""
    options = flags.FLAGS
    model_run = open_run(options.workdir, options.checkpoint)
    sampling = Sampling(options.seed, options.temperature, options.top_k, options.top_p) if options.sample else None
    chosen = decoding(model_run.config, nbest=options.nbest, sampling=sampling)
    chunk = options.chunk or (1 if sys.stdin.isatty() else CHUNK)
    outputs = translate_stream(
        Translator(model_run.model_config, model_run.tokenizer, chosen, max_input=options.max_input),
        jax.device_put(model_run.params),
        sys.stdin.buffer,
        chunk=chunk,
        nbest=options.nbest,
        scores=options.scores,
    )
    return write_stream(outputs)


def write_stream(outputs: Iterable[bytes]) -> int:
    """Writes each output to standard output at once, and returns the exit status."""
    try:
        for output in outputs:
            sys.stdout.buffer.write(output)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Otherwise Python flushes standard output at exit, which fails with a message.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED
    return 0


if __name__ == "__main__":
    define_run_flags()
    define_decoding_flags()
    flags.DEFINE_integer("nbest", 1, "translations (or samples) per line; more than 1 prints LINE ||| TEXT ||| SCORE")
    flags.DEFINE_boolean("scores", False, "print TEXT <tab> SCORE")
    flags.DEFINE_boolean("sample", False, "draw translations at random instead of searching")
    flags.DEFINE_float("temperature", 1.0, "for --sample: below 1 sharper, above 1 flatter")
    flags.DEFINE_integer("top_k", 0, "for --sample: from the K most likely subwords only; 0 is all")
    flags.DEFINE_float("top_p", 1.0, "for --sample: from the fewest subwords that reach this probability")
    flags.DEFINE_integer("seed", 0, "for --sample")
    check("nbest", "temperature", "top_k", "top_p", "seed")
    flags.DEFINE_integer(
        "chunk", None, "lines to read before translating them; default: 1,000, or 1 on a terminal", lower_bound=1
    )
    flags.DEFINE_integer(
        "max_input", 512, "source subwords beyond which a line is translated in pieces", lower_bound=64
    )
    run(main, stray="text is read from standard input: < FILE")

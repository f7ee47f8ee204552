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

import sys

from absl import flags

from infer.decoding import Sampling
from infer.options import check, decoding, define_decoding_flags, define_run_flags, start

CHUNK = 1_000


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    import jax  # only now: a mistyped flag is answered without it

    from infer.runs import open_run
    from infer.stream import prompted, translate_stream, write
    from infer.translator import Translator

    options = flags.FLAGS
    model_run = open_run(options.workdir, options.checkpoint)
    sampling = Sampling(options.seed, options.temperature, options.top_k, options.top_p) if options.sample else None
    chosen = decoding(model_run.config, nbest=options.nbest, sampling=sampling)
    interactive = sys.stdin.isatty()
    outputs = translate_stream(
        Translator(model_run.model_config, model_run.tokenizer, chosen, max_input=options.max_input),
        jax.device_put(model_run.params),
        prompted(sys.stdin.buffer) if interactive else sys.stdin.buffer,
        chunk=options.chunk or (1 if interactive else CHUNK),
        nbest=options.nbest,
        scores=options.scores,
        interactive=interactive,
    )
    write(outputs)


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
    start(main, stray="text is read from standard input: < FILE")

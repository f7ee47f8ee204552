"""Translates standard input, line by line, to standard output.

python -m infer.translate --workdir=runs/quickstart < in.txt > out.txt
python -m infer.translate --workdir=runs/quickstart --beam=8 --nbest=3 < in.txt
python -m infer.translate --workdir=runs/quickstart --sample --top_p=0.9 --nbest=5 --seed=1 < in.txt
python -m infer.translate --workdir=runs/quickstart --explain=beam.html < in.txt    # also draws each search

python -m infer.translate --workdir=runs/a,runs/b < in.txt                    # an ensemble, of one tokenizer
python -m infer.translate --workdir=runs/quickstart --sample --nbest=16 --mbr=chrf < in.txt
python -m infer.translate --workdir=runs/quickstart --require=phrases < text_tab_phrase_tab_phrase.tsv
python -m infer.translate --workdir=runs/quickstart --columns=2,3 < table.tsv
python -m infer.translate --workdir=runs/quickstart --split_sentences < paragraphs.txt

Line i of the output translates line i of the input; only a line feed ends a line. Output is written after each chunk of
lines (--chunk). On a terminal a chunk is one line; from a pipe it ends early when no more lines arrive; to a pipe the
first chunk is 8 lines. Progress goes to stderr. What is printed for a line:

(default)     TEXT
--scores      TEXT <tab> SCORE
--nbest=K     LINE ||| TEXT ||| SCORE, K times or fewer, best first; lines count from 0, as in Moses
              a ||| within TEXT is written &#124;&#124;&#124;, and infer.rescore reads it so

SCORE is log p / ((5 + n)/6)^alpha, or log p / n^alpha where the run has decode.length_penalty=power, with natural
logarithms and n subwords, EOS included; for samples it is log p.
"""

import os
import re
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from absl import flags

from vaswani.data.corpus import target_language
from vaswani.data.lines import lines_left
from vaswani.errors import UserError
from vaswani.files import output_file
from vaswani.infer.options import (
    decoding,
    define_batch_flag,
    define_decoding_flags,
    define_run_flags,
    start,
    within_limits,
)
from vaswani.infer.runs import as_one, open_runs
from vaswani.infer.translate.consensus import METRICS
from vaswani.infer.translate.explain import explained
from vaswani.infer.translate.stream import Arriving, Columns, Lines, lines_of, prompted, translate_stream, write
from vaswani.infer.translate.translator import Translator
from vaswani.run.sharding import data_mesh, place_params
from vaswani.search.options import Sampling

CHUNK = 1_000  # lines
FIRST = 8  # lines of the first chunk, if the output is read by another program
RULES = ("min_length", "no_repeat", "groups", "diversity")
# With and without --sample: the flags that have no effect, what they are for, and what to do.
UNUSED = {
    True: (("beam", "alpha", "stopping"), "searching", "it has no effect with --sample"),
    False: (("temperature", "top_k", "top_p", "seed"), "sampling", "add --sample"),
}


def check(options: Any) -> None:
    """Raises a `UserError` if the flags contradict each other, or one has no effect."""
    names, purpose, cure = UNUSED[options.sample]
    for name in names:
        if options[name].present:
            raise UserError(f"--{name} is for {purpose}: {cure}")
    if options["diversity"].present and options.groups == 1:
        raise UserError("--diversity is for several groups of beams: add --groups")
    for name in ("columns", "explain"):
        if options[name].present and not options[name].value:
            raise UserError(f"--{name}= is empty: give it a value, or leave it out")
    if options.columns and (options.nbest > 1 or options.scores or options.require):
        raise UserError("--columns keeps a table's form: leave out --nbest, --scores and --require")
    if options.mbr and not (options.sample and options.nbest > 1):
        raise UserError("--mbr chooses among samples: give --sample and --nbest=16, or more")
    if options.split_sentences and (options.explain or options.require):
        raise UserError("--split_sentences translates a line in parts: leave out --explain and --require")
    if options.explain:
        _check_explain(options)


def _check_explain(options: Any) -> None:
    """Raises a `UserError` if the page cannot be written, or another flag asks for more than a plain search."""
    output_file("explain", options.explain, (".html",))
    if options.sample or options.groups > 1 or options.require or options.columns:
        raise UserError("--explain draws a plain search: leave out --sample, --groups, --require and --columns")
    if options["max_input"].present:
        raise UserError("--explain draws the search of a whole line, which --max_input may cut: leave it out")


def are_columns(columns: list[str]) -> bool:
    """Returns whether these are different numbers from 1 to 999999."""
    are_numbers = all(re.fullmatch("[1-9][0-9]{0,5}", column) for column in columns)
    return are_numbers and len(columns) == len(set(columns))


def define_output_flags() -> None:
    """Defines what is read and printed."""
    flags.DEFINE_integer("nbest", 1, "translations (or samples) per line; above 1 prints LINE ||| TEXT ||| SCORE")
    flags.DEFINE_boolean("scores", False, "print TEXT <tab> SCORE")
    flags.DEFINE_list(
        "columns",
        [],
        "translate these columns, from 1, of tab-separated lines, and keep the others",
    )
    flags.register_validator(
        "columns",
        are_columns,
        "columns are different numbers from 1 to 999999",
    )
    flags.DEFINE_integer(
        "chunk",
        None,
        "lines to read before translating them; default: 1,000, or 1 on a terminal",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "max_input",
        512,
        "maximum source length in subwords; a longer line is translated in pieces",
        lower_bound=64,
    )
    flags.DEFINE_boolean(
        "split_sentences",
        False,
        "translate the sentences of a line one by one, and join them; scores are sums",
    )
    flags.DEFINE_string(
        "explain",
        None,
        "also write this page, NAME.html: the beam of each line as a tree, with what was pruned; for up to 20 lines",
    )
    within_limits("nbest")


def define_search_flags() -> None:
    """Defines what a translation must be like."""
    flags.DEFINE_integer("min_length", 0, "least number of subwords in a translation")
    flags.DEFINE_integer(
        "no_repeat",
        0,
        "no-repeat n-gram size: no sequence of this many subwords occurs twice; 0 is off",
    )
    flags.DEFINE_integer(
        "groups",
        1,
        "with --nbest: groups of beams, each penalised for repeating those before it",
    )
    flags.DEFINE_float("diversity", 0.5, "for --groups: diversity penalty")
    flags.DEFINE_enum(
        "require",
        "",
        ["", "prefix", "characters", "phrases"],
        "lines are TEXT <tab> PREFIX, whose subwords begin the translation, or (characters) whose last word may go on; "
        "or TEXT <tab> PHRASE <tab> ..., which it must all contain",
    )
    within_limits("min_length", "no_repeat", "groups", "diversity")


def define_sampling_flags() -> None:
    """Defines how translations are drawn at random."""
    flags.DEFINE_boolean("sample", False, "draw translations at random instead of searching")
    flags.DEFINE_float("temperature", 1.0, "for --sample: below 1 sharper, above 1 flatter")
    flags.DEFINE_integer("top_k", 0, "for --sample: from the K most likely subwords only; 0 is all")
    flags.DEFINE_float(
        "top_p",
        1.0,
        "for --sample: from the fewest subwords that reach this probability",
    )
    flags.DEFINE_integer("seed", 0, "for --sample")
    flags.DEFINE_enum(
        "mbr",
        "",
        ["", *METRICS],
        "for --sample: print the sample of minimum Bayes risk, by this metric",
    )
    within_limits("temperature", "top_k", "top_p", "seed")


def main(options: Any) -> None:
    """Translates standard input with a run, or with an ensemble of runs."""
    runs = open_runs(options.workdir, options.checkpoint)
    sampling = None
    if options.sample:
        sampling = Sampling(options.seed, options.temperature, options.top_k, options.top_p)
    rules = {name: options[name].value for name in RULES}
    chosen = decoding(options, runs[0].config, nbest=options.nbest, sampling=sampling, **rules)

    model_config, params = as_one(runs)
    params = place_params(data_mesh(), params)
    tokenizer = runs[0].tokenizer
    translator = Translator(
        model_config,
        tokenizer,
        chosen,
        max_input=options.max_input,
        batch_tokens=options.batch_tokens,
        split_sentences=options.split_sentences,
    )

    interactive = sys.stdin.isatty()
    chunk = options.chunk or (1 if interactive else CHUNK)
    total = None if interactive else lines_left(sys.stdin.fileno())
    source: Iterable[bytes] = lines_of(sys.stdin.buffer)
    if interactive:
        source = prompted(sys.stdin.buffer)
    elif total is None:
        source = Arriving(sys.stdin.fileno())
    if options.explain:
        source = explained(source, model_config, params, tokenizer, chosen, Path(options.explain))
    first = None if interactive or options.chunk else first_chunk(sys.stdout.fileno())
    work: Lines | Columns
    if options.columns:
        work = Columns(translator, params, [int(column) for column in options.columns])
    else:
        work = Lines(
            translator,
            params,
            nbest=options.nbest,
            scores=options.scores,
            require=options.require,
            mbr=options.mbr,
            language=target_language(runs[0].config.data.train),
        )
    outputs = translate_stream(work, source, chunk=chunk, first=first, total=total, interactive=interactive)
    write(outputs)


def first_chunk(output: int) -> int | None:
    """Returns the lines of the first chunk, None for as many as of the others, given the output's descriptor.

    Who reads the output as it comes, such as `head`, need not wait for a whole chunk.
    """
    is_pipe = stat.S_ISFIFO(os.fstat(output).st_mode)
    return FIRST if is_pipe else None


if __name__ == "__main__":
    define_run_flags()
    define_decoding_flags()
    define_batch_flag()
    define_output_flags()
    define_search_flags()
    define_sampling_flags()
    hint = "text is read from standard input: < FILE"
    start(main, hint=hint, check=check)

"""What `python -m infer.translate` does once its flags have been checked."""

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax

from data.corpus import target_language
from data.lines import lines_left
from infer.options import decoding
from infer.runs import as_one, open_runs
from infer.translate.explain import explained
from infer.translate.options import FULL_BATCH, Sampling
from infer.translate.stream import Arriving, Columns, Lines, lines_of, prompted, translate_stream, write
from infer.translate.translator import Translator

CHUNK = 1_000  # lines
FIRST = 8  # lines of the first chunk, if the output is read by another program
RULES = ("min_length", "no_repeat", "groups", "diversity")


def main(options: Any) -> None:
    """Translates standard input with a run, or with an ensemble of runs."""
    runs = open_runs(options.workdir, options.checkpoint)
    sampling = None
    if options.sample:
        sampling = Sampling(options.seed, options.temperature, options.top_k, options.top_p)
    rules = {name: options[name].value for name in RULES}
    chosen = decoding(options, runs[0].config, nbest=options.nbest, sampling=sampling, **rules)

    model_config, params = as_one(runs)
    params = jax.device_put(params)
    tokenizer = runs[0].tokenizer
    batch_tokens = options.batch_tokens or FULL_BATCH
    translator = Translator(model_config, tokenizer, chosen, max_input=options.max_input, batch_tokens=batch_tokens)

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

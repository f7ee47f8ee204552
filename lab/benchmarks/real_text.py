"""Times the translation of real sentences by a trained run: ours and CTranslate2's, on one processor and on two.

Ours is timed with both kinds of stopping (see `search.beam`); CTranslate2's search is that of "full".

What is timed begins and ends with text. Each contender has processes of its own, which see no more processors than it
may use. The first finds no compiled programs; the second finds those of the first, and stays for the warm rounds, in
which the contenders take turns.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from vaswani.compiled import DIRECTORY
from vaswani.data.lines import read_lines
from vaswani.errors import UserError
from vaswani.infer.convert.check import penalty_note
from vaswani.infer.runs import open_run
from vaswani.infer.scores.bleu import sacrebleu
from vaswani.infer.scores.pairs import read_pair
from vaswani.infer.translate.options import make_decoding
from vaswani.infer.translate.translator import Translator
from vaswani.run.folder import cpu_model
from vaswani.run.sharding import data_mesh, place_params
from vaswani.train.table import Table, as_text, number

BATCH = 2_048  # CTranslate2's source subwords in a batch, as many as ours; it sorts sentences by length, too
LONGEST = 256  # subwords of CTranslate2's outputs
HEAD = ("contender", "threads", "first s", "second s", "warm s", "CPU ms/line", "sentences/s", "tokens/s", "BLEU")

Translate = Callable[[list[str]], tuple[list[str], int]]  # to the texts, and how many subwords they have with EOS


class Contender(NamedTuple):
    """Whose search, "ours STOPPING" or "ctranslate2"; in what arithmetic, on how many processors."""

    engine: str
    arithmetic: str
    threads: int


class Call(NamedTuple):
    """One translation of all sentences: wall seconds, and those of all processors together."""

    wall: float
    cpu: float
    tokens: int
    texts: list[str]


def contenders() -> list[Contender]:
    """Returns all contenders, those on two processors only if there are two."""
    kinds = (
        ("ours exact", "float32"),
        ("ours exact", "bfloat16"),
        ("ours full", "float32"),
        ("ctranslate2", "float32"),
        ("ctranslate2", "int8"),
    )
    most = min(2, len(os.sched_getaffinity(0)))
    return [Contender(*kind, threads) for threads in range(1, most + 1) for kind in kinds]


# In a contender's process


def serve(options: Any) -> None:
    """Translates the source once for each line of standard input, as the contender that the flags name."""
    engine, arithmetic, threads = options.contender
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, processors[: int(threads)])
    if engine == "ctranslate2":
        translate = their_engine(options, arithmetic, int(threads))
    else:
        translate = our_engine(options, arithmetic, engine.removeprefix("ours "))
    lines = list(read_lines(Path(options.source)))
    counted = 0.0  # what the process took to get here belongs to its first call
    for _ in sys.stdin:
        calls = [translate(some) for some in ([[line] for line in lines] if options.single else [lines])]
        texts = [text for call, _ in calls for text in call]
        tokens = sum(number for _, number in calls)
        print(json.dumps({"cpu": time.process_time() - counted, "tokens": tokens, "texts": texts}), flush=True)
        counted = time.process_time()


def our_engine(options: Any, arithmetic: str, stopping: str) -> Translate:
    """Returns what `python -m infer.translate` does."""
    run = open_run(options.workdir)
    config = dataclasses.replace(run.model_config, dtype=arithmetic)
    translator = Translator(config, run.tokenizer, make_decoding(run.config.decode, stopping=stopping))
    params = place_params(data_mesh(), run.params)

    def translate(lines: list[str]) -> tuple[list[str], int]:
        found = translator.translate(params, lines)
        tokens = sum(len(translation.hypotheses[0].tokens) + 1 for translation in found)
        return [translation.text for translation in found], tokens

    return translate


def their_engine(options: Any, arithmetic: str, threads: int) -> Translate:
    """Returns what CTranslate2 does with the same parameters, beam and alpha."""
    import ctranslate2
    import sentencepiece

    folder = Path(options.exported) / arithmetic
    decode = json.loads((folder / "decode.json").read_text())
    # As its user would set it: a batch on each processor, not one on all.
    kind = {"device": "cpu", "compute_type": arithmetic}
    translator = ctranslate2.Translator(str(folder), inter_threads=threads, intra_threads=1, **kind)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))

    def translate(lines: list[str]) -> tuple[list[str], int]:
        sources = pieces.encode(lines, out_type=str)
        found = translator.translate_batch(sources, max_batch_size=BATCH, batch_type="tokens", **decode)
        outputs = [result.hypotheses[0] for result in found]
        return pieces.decode(outputs), sum(len(output) + 1 for output in outputs)

    return translate


# In the process that compares them


class Process:
    """A contender's process; `programs` is the folder in which ours keeps what it compiles."""

    def __init__(self, contender: Contender, exported: Path, programs: Path) -> None:
        chosen_flags = [f"--contender={part}" for part in contender]
        command = [
            sys.executable,
            "-m",
            "lab.benchmarks.decoding",
            *sys.argv[1:],
            f"--exported={exported}",
            *chosen_flags,
        ]
        environment = {name: value for name, value in os.environ.items() if name != DIRECTORY}
        self._command = " ".join(command)
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment | {"XDG_CACHE_HOME": str(programs)},
        )

    def call(self, began: float | None = None) -> Call:
        """Has the process translate; the wall seconds count from `began`, if given.

        Raises:
          UserError: the process has ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        began = time.perf_counter() if began is None else began
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        wall = time.perf_counter() - began
        if not line:
            raise UserError(f"a contender ended without an answer: {self._command}")
        return Call(wall, **json.loads(line))

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def export(options: Any, folder: Path) -> ConfigDict:
    """Writes the run for CTranslate2, and how it is to search; returns its config.

    Raises:
      UserError: CTranslate2 is not installed, or cannot hold the model.
    """
    try:
        from vaswani.infer.convert import ctranslate2
    except ImportError as error:
        raise UserError("this needs CTranslate2: pip install -e '.[bench]'") from error
    run = open_run(options.workdir)
    decode = run.config.decode
    search = {  # as in the README of the export
        "beam_size": decode.beam,
        "length_penalty": decode.alpha,
        "max_decoding_length": min(run.model_config.limit or LONGEST, LONGEST),
        "min_decoding_length": 0,
        "suppress_sequences": [["<pad>"], ["<s>"]],
    }
    for arithmetic in ("float32", "int8"):
        path = folder / arithmetic
        path.mkdir()
        ctranslate2.write(run, path, arithmetic)
        (path / "decode.json").write_text(json.dumps(search))
    return run.config


def main(options: Any) -> None:
    """Prints the table, and ratios of the warm times."""
    # A wrong file is to be known before anything is timed.
    references = None
    if options.reference:
        _, references = read_pair(options.source, options.reference)
    elif not list(read_lines(Path(options.source))):
        raise UserError(f"--source={options.source}: the file is empty; there is nothing to translate")
    with tempfile.TemporaryDirectory() as name, ExitStack() as processes:
        exported = Path(name) / "exported"
        exported.mkdir()
        config = export(options, exported)
        first = {}
        second = {}
        running = {}
        for contender in contenders():
            programs = Path(name) / "-".join(map(str, contender))
            programs.mkdir(mode=0o700)
            alone = Process(contender, exported, programs)
            first[contender] = alone.call(alone.began)
            alone.close()
            process = Process(contender, exported, programs)
            processes.callback(process.close)
            second[contender] = process.call(process.began)
            running[contender] = process
            print(f"{' '.join(map(str, contender))}: {first[contender].wall:.1f} s", file=sys.stderr)
        warm: dict[Contender, list[Call]] = {contender: [] for contender in running}
        for _ in range(options.rounds):
            for contender, process in running.items():
                warm[contender].append(process.call())
    print(as_text(table(options, config, first, second, warm, references)))
    for threads in sorted({contender.threads for contender in warm}):
        _print_ratios({contender: calls for contender, calls in warm.items() if contender.threads == threads})


def _print_ratios(warm: dict[Contender, list[Call]]) -> None:
    """Prints the time of each of CTranslate2's relative to that of each of ours in float32, by their shortest calls."""
    ours = [contender for contender in warm if contender.engine != "ctranslate2" and contender.arithmetic == "float32"]
    theirs = [contender for contender in warm if contender.engine == "ctranslate2"]
    for their in theirs:
        for our in ours:
            times = shortest(warm[their]) / shortest(warm[our])
            pair = f"{their.engine} {their.arithmetic} / {our.engine} {our.arithmetic}"
            print(f"{pair}, {our.threads} threads: {times:.2f} x the time")


def shortest(calls: list[Call]) -> float:
    """Returns the wall seconds of the shortest call."""
    return min(call.wall for call in calls)


def table(
    options: Any,
    config: ConfigDict,
    first: dict[Contender, Call],
    second: dict[Contender, Call],
    warm: dict[Contender, list[Call]],
    references: list[str] | None,
) -> Table:
    """Returns a row for each contender; of the warm rounds the shortest."""
    rows: list[tuple[str, ...]] = []
    for contender, calls in warm.items():
        seconds = shortest(calls)
        texts = calls[0].texts
        bleu = sacrebleu(texts, references, lowercase=config.data.lowercase) if references else None
        rows.append(
            (
                f"{contender.engine} {contender.arithmetic}",
                str(contender.threads),
                number(first[contender].wall, 1),
                number(second[contender].wall, 1),
                number(seconds),
                number(1e3 * min(call.cpu for call in calls) / len(texts)),
                f"{len(texts) / seconds:,.0f}",
                f"{calls[0].tokens / seconds:,.0f}",
                "" if bleu is None else number(bleu.value),
            )
        )
    versions = ", ".join(f"{package} {version(package)}" for package in ("jax", "ctranslate2"))
    notes = [
        f"{options.workdir}, {len(texts):,} sentences of {options.source}; {cpu_model()}; {versions}",
        "first, second: a process from its start to the last translation, without and with compiled programs to load",
        f"warm: the shortest of {options.rounds} rounds, in which the contenders take turns",
        *(["each line in a separate call"] if options.single else []),
        penalty_note("CTranslate2", config.decode.length_penalty),
    ]
    if bleu:
        notes.append(f"BLEU: {bleu.signature}")
    return Table("decoding", "Translating real sentences", HEAD, rows, notes)

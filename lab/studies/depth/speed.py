"""Times how fast runs translate, in turn: sentences of the test split for each second of the processor.

    python -m infer --workdir=RUN --split=test              # of each run, before
    python -m lab.studies.depth.speed --workdir=RUN --workdir=RUN2 [--rounds=3]

All runs are in one process, and translate as their configs decode: each once, which compiles and is not timed, and then
--rounds times in turn. Seconds are of the processor, so other work on the machine counts little. The median of the
rounds is added to the newest evaluation of the test split, so that a record of the run has both.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from absl import flags

from vaswani.infer.options import define_run_flags, start


def main(options: Any) -> None:
    from lab.evaluation import evaluation_file
    from vaswani.data.sources import open_corpus
    from vaswani.files import write_json
    from vaswani.infer.api import load
    from vaswani.read_json import read_json

    files = {}
    counts = {}
    translate = {}
    for workdir in options.workdir:
        model = load(workdir, options.checkpoint, None, options.accept_changes)
        sources = [source for source, _ in open_corpus(model.run.config.data.test).pairs()]
        files[workdir] = evaluation_file(model.run)
        counts[workdir] = len(sources)
        translate[workdir] = partial(model.translate, sources)
    for workdir, seconds in seconds_in_turn(translate, options.rounds).items():
        speed = counts[workdir] / statistics.median(seconds)
        by_round = ", ".join(f"{one:.2f}" for one in seconds)
        print(f"{workdir}: {speed:.1f} sentences a second; seconds of the processor: {by_round}", flush=True)
        path = files[workdir]
        write_json(path, {**read_json(path, dict), "sentences_per_second": speed})


def seconds_in_turn(work: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Returns the processor's seconds for each piece of work, by round; before the first each is done once."""
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for do in work.values():
        do()
    for _ in range(rounds):
        for name, do in work.items():
            before = time.process_time()
            do()
            seconds[name].append(time.process_time() - before)
    return seconds


if __name__ == "__main__":
    define_run_flags(several=True)
    flags.DEFINE_integer("rounds", 3, "timed translations by each run", lower_bound=1)
    start(main, hint="runs are given as --workdir=DIR --workdir=DIR2")

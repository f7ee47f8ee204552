"""Measures how cost grows: of an update, of a search, of a corpus, of several devices; and what saves some of it.

    python -m lab.benchmarks.cost [--only=update,layers,search,corpus,devices,savings] [--rounds=5]

Writes a record for each, and lab/docs/cost.md. One size at a time is doubled, from a small model and batch; each round
times every size once. Times are those of the processors, since the machine may be shared. Exponents are slopes of lines
fitted, by least squares, to the logarithms of the three largest sizes. The corpus, of up to 4.5 million pairs, takes
most of the time, and 3 GiB of disk. Devices are simulated: their programs are compiled and not run. Savings need the
text of Multi30k (python -m data.download multi30k).
"""

import sys
from importlib.metadata import version

from absl import flags

from vaswani.command import run
from vaswani.errors import UserError

NAMES = ["update", "layers", "search", "corpus", "devices", "savings"]


def main(argv: list[str]) -> None:
    """Measures what is asked for and writes a record after each."""
    from lab.benchmarks.cost import (
        corpus,
        devices,
        growth,
        savings,
        sizes,
        table,
    )  # only now: a mistyped flag needs no jax
    from vaswani.run.folder import device

    options = flags.FLAGS
    measures = {
        "update": lambda: growth.grown(sizes.UPDATE, growth.update, options.rounds),
        "layers": lambda: growth.grown(sizes.LAYERS, growth.update, options.rounds),
        "search": lambda: growth.grown(sizes.SEARCH, growth.search, options.rounds),
        "corpus": corpus.measured,
        "devices": devices.measured,
        "savings": lambda: savings.measured(options.rounds),
    }
    about = {"device": device(), "versions": {name: version(name) for name in ("jax", "jaxlib")}}
    for name in options.only:
        table.write(name, about | measures[name]())
        print(f"{table.RECORDS / name}.json and {table.PAGE} are written", file=sys.stderr, flush=True)


def check(options: flags.FlagValues) -> None:
    """Raises a `UserError` for a name that is none."""
    for name in options.only:
        if name not in NAMES:
            raise UserError(f"--only={name}: it must be of {', '.join(NAMES)}")


if __name__ == "__main__":
    flags.DEFINE_list("only", NAMES, "what to measure")
    flags.DEFINE_integer("rounds", 5, "how often each size is timed", lower_bound=1)
    run(main, hint="what to measure is given as --only=NAME,NAME", check=check)

"""Patches activations on sentences of known translation: does the word that depends on them change, and no other?

    python -m lab.patching --workdir=runs/quickstart [--cases=200] [--json]
    python -m lab.patching --workdir=runs/quickstart --record     # also writes lab/patching/record.json and the page

Each case is two sentences of `grammar:test` that differ in one noun, of the same gender and number, so that their
translations differ in one noun, too. While the model reads the first, activations of the second take the place of its
own; the noun has moved if the model, which has read the translation up to it, now expects the second noun's subword.
As a control, everything but the noun's activations is patched, and nothing should move.

Only cases where the model expects the right noun in both sentences are counted. Runs that translate English to German
with subwords can be measured. See docs/inside.md.
"""

from typing import Any

from absl import flags

from vaswani.infer.options import define_run_flags, start


def main(options: Any) -> None:
    from lab.patching.command import main as measure

    measure(options)


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_integer("cases", 200, "pairs of sentences", lower_bound=1)
    flags.DEFINE_bool("json", False, "print JSON instead of a table")
    flags.DEFINE_bool("record", False, "also write lab/patching/record.json, and its table into docs/inside.md")
    start(main, hint="the run is given as --workdir=DIR")

"""Our own studies: a table and a figure each, made from finished runs; and the claims, with a verdict on each.

    python -m lab STUDY|all [--runs=DIR] [--plot=FILE] [--markdown | --csv] [--commands]
    python -m lab cards [--runs=DIR] [--markdown | --csv]

Runs are found and recognised as by `python -m paper`; DIR may be several folders with commas between them. By default
those are the folders of our own records. `all` prints all studies. `cards` lists the main claims that the tables of
`paper` and the studies make, with a verdict on each and a command that repeats one of its runs.

The studies need evaluations of the test split, some of the validation split: --commands prints how to run and score
each row. --plot draws a study's figure.
"""

from absl import flags

from lab.studies.index import STUDIES
from vaswani.command import run
from vaswani.errors import UserError
from vaswani.run import unchanged

lines = [f"  {name:15}{question}\n" for name, question in STUDIES.items()]
__doc__ = f"{__doc__}\n{''.join(lines)}"
WHAT = (*STUDIES, "cards", "all")


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    if len(argv) != 2 or argv[1] not in WHAT:
        raise UserError(f"{' '.join(argv[1:]) or 'no study'}: give one of {', '.join(WHAT)}; --help explains")
    if options.markdown and options.csv:
        raise UserError("--markdown and --csv: give one of them")
    from lab.command import show  # only now: it loads jax

    show(argv[1], options)


if __name__ == "__main__":
    places = "paper/records,lab/studies"
    flags.DEFINE_string("runs", places, "folders with runs and records, at any depth; commas between several")
    flags.DEFINE_string("plot", None, "also draw the study's figure into this file: .svg, .png or .pdf")
    flags.DEFINE_bool("markdown", False, "print Markdown")
    flags.DEFINE_bool("csv", False, "print comma-separated values, each row beginning with the name of its table")
    unchanged.define_flag()
    flags.DEFINE_bool("commands", False, "also print the command that runs each row")
    run(main)

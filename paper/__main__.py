"""The paper's tables, its numbers next to ours, made from finished runs.

    python -m paper table1|table2|table3|table4|all --runs=DIR [--markdown | --csv] [--commands]
    python -m paper table1 --plot=table1.svg

All run folders below DIR are read (of `python -m train`, evaluated by `python -m infer`), and all records made by
`python -m paper.results`; DIR may be several folders with commas between them. A run is recognised by its recorded
config, not by its name; runs of other configs are ignored. A row shows the mean of its seeds, for two or more ± their
standard deviation; a dagger marks runs whose code cannot be checked out again. A row that has not run says so;
--commands prints how to run it. Tables 2 and 4 need evaluations of the test split, Table 3 of the validation split
(`python -m infer --split=valid`). Table 1 needs the record of `python -m paper.table1`. `all` prints the four tables.

--plot draws Table 1. `python -m paper.figures` draws the paper's Figures 3 to 5 of a run, and `python -m train.runs DIR
--plot=FILE.svg` learning curves.
"""

from absl import flags

from vaswani.command import run
from vaswani.errors import UserError
from vaswani.run import unchanged

TABLES = ("table1", "table2", "table3", "table4")
WHAT = (*TABLES, "all")


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    if len(argv) != 2 or argv[1] not in WHAT:
        raise UserError(f"{' '.join(argv[1:]) or 'no table'}: give one of {', '.join(WHAT)}; --help explains")
    if options.markdown and options.csv:
        raise UserError("--markdown and --csv: give one of them")
    if options.plot is not None and argv[1] != "table1":
        raise UserError(f"--plot={options.plot}: only table1 is drawn there")
    from vaswani.paper.command import show  # only now: it loads jax

    show(argv[1], options)


if __name__ == "__main__":
    flags.DEFINE_string("runs", "paper/records", "folders with runs and records, at any depth; commas between several")
    flags.DEFINE_string("plot", None, "also draw Table 1 into this file: .svg, .png or .pdf")
    flags.DEFINE_bool("markdown", False, "print Markdown")
    flags.DEFINE_bool("csv", False, "print comma-separated values, each row beginning with the name of its table")
    unchanged.define_flag()
    flags.DEFINE_bool("commands", False, "also print the command that runs each row")
    run(main)

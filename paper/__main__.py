"""The paper's tables, its numbers beside ours, made from finished runs.

    python -m paper table1|table2|table3|table4|all --runs=DIR [--markdown | --csv] [--html=FILE] [--commands]
    python -m paper figures --runs=DIR --output=FOLDER

DIR is searched, with all folders in it, for run folders (of `python -m train`, evaluated by `python -m infer`) and for
the records that `python -m paper.results` makes of them. A run is recognised by the config that it has recorded, not by
its name; runs of other configs are passed over. A row shows the mean of its seeds, of two or more ± their standard
deviation. A row that has not run says so, and --commands prints how to run it. Tables 2 and 4 want evaluations of the
test split, Table 3 of the validation split (`python -m infer --split=valid`). Table 1 is measured by
`python -m paper.table1`, and its record found in DIR like the others.

--html writes one page that needs no network, with the tables, learning curves, figures and attention maps. The latter
two, and what `figures` writes into FOLDER, are drawn by the newest finished run in DIR that still has checkpoints.
"""

from absl import flags

from base.errors import UserError, run

WHAT = ("table1", "table2", "table3", "table4", "figures", "all")


def main(argv: list[str]) -> None:
    """Entry point; flags below."""
    options = flags.FLAGS
    if len(argv) != 2 or argv[1] not in WHAT:
        raise UserError(f"{' '.join(argv[1:]) or 'no table'}: give one of {', '.join(WHAT)}; --help explains")
    if options.markdown and options.csv:
        raise UserError("--markdown and --csv: give one of them")
    from paper.command import show  # only now: a mistyped flag is not worth loading jax

    show(argv[1], options)


if __name__ == "__main__":
    flags.DEFINE_string("runs", "results", "folder with runs and records, at any depth")
    flags.DEFINE_string("html", None, "also write the tables, learning curves and figures as one page into this file")
    flags.DEFINE_string("output", "figures", "folder for `figures`; made if absent")
    flags.DEFINE_bool("markdown", False, "print Markdown")
    flags.DEFINE_bool("csv", False, "print comma-separated values, each row beginning with the name of its table")
    flags.DEFINE_bool("commands", False, "also print the command that runs each row")
    run(main)

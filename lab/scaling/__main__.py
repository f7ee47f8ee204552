"""Compiles base and big for TPU slices and nodes of GPUs with `python -m train.compile`, and writes docs/scaling.md.

    python -m lab.scaling          # compiles what has no record yet (minutes each), then rewrites the tables

TPUs need `pip install -e '.[tpu]'`, GPUs '.[aot-gpu]'. With a scan over layers, one layer is compiled instead of six. A
record, a line of paper/records/compiled.jsonl, is the command's own report, with its arguments, config and compiler
versions. It is made again if its arguments change or its line is deleted. The tables are made from the records alone.
"""

import sys
from pathlib import Path

from lab.scaling import cases as scaling
from vaswani.command import run
from vaswani.files import write_text
from vaswani.paper.markers import replace_block
from vaswani.paper.records import save

PAGE = Path("docs/scaling.md")
BEGIN = "<!-- tables: made by `python -m lab.scaling` -->"
END = "<!-- end of tables -->"


def main(argv: list[str]) -> None:
    made = scaling.read_records()
    for case in scaling.cases():
        if case.name in made and made[case.name]["arguments"] == list(case.arguments):
            continue
        print(f"{case.name}: {' '.join(case.arguments)}", file=sys.stderr)
        made[case.name] = scaling.make_record(case)
        save(scaling.RECORDS, made[case.name])
    tables = scaling.tables(made)
    write_text(PAGE, replace_block(PAGE, BEGIN, END, tables))


if __name__ == "__main__":
    run(main, hint="there are no options")

"""Compiles base and big for TPU slices and nodes of GPUs with `python -m train.compile`, and writes docs/scaling.md.

    python -m train.scaling          # compiles what results/aot lacks (minutes each), then rewrites the tables

TPUs need the extra `tpu`, GPUs `aot-gpu`. With a scan over layers, one layer is compiled instead of six. A record in
results/aot is the command's own report, with its arguments, config and compiler versions. It is made again if its
arguments change or the file is deleted. The tables are made from the records alone.
"""

import sys
from pathlib import Path

from base.command import run
from base.files import write_json, write_text
from base.markers import rewritten
from train.aot import scaling

PAGE = Path("docs/scaling.md")
BEGIN = "<!-- tables: made by `python -m train.scaling` -->"
END = "<!-- end of tables -->"


def main(argv: list[str]) -> None:
    scaling.RECORDS.mkdir(parents=True, exist_ok=True)
    for case in scaling.cases():
        path = scaling.RECORDS / f"{case.name}.json"
        if path.exists() and scaling.read_record(path)["arguments"] == list(case.arguments):
            continue
        print(f"{case.name}: {' '.join(case.arguments)}", file=sys.stderr)
        write_json(path, scaling.make_record(case))
    tables = scaling.tables(scaling.read_records())
    write_text(PAGE, rewritten(PAGE, BEGIN, END, tables))


if __name__ == "__main__":
    run(main, hint="there are no options")

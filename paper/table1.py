"""Measures Table 1: what layers of each type cost, how much of it is sequential, and how long paths are.

    python -m paper.table1 [--output=paper/records/table1.json]

Takes a few minutes. Writes the record from which `python -m paper table1` makes the table, and prints the table; what
is measured, and how, is described in paper/tables/table1.py.
"""

from absl import flags

from vaswani.command import run
from vaswani.files import output_file, write_json, writing
from vaswani.paper.tables.table1 import make_record, table
from vaswani.train.table import as_text


def main(argv: list[str]) -> None:
    output = output_file("output", flags.FLAGS.output)

    record = make_record()
    with writing(f"--output={output}"):
        write_json(output, record)
    print(as_text(table(record)))


if __name__ == "__main__":
    flags.DEFINE_string("output", "paper/records/table1.json", "file to write the record to")
    run(main, hint="the only option is --output=FILE.json")

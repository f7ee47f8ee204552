"""Records a finished run of a study, and rewrites the pages and figures made from the records.

    python -m lab.results --workdir=runs/attention --name=layers/attention-seed0     # a line of layers' records
    python -m lab.results --workdir=runs/norms --name=norms --split=valid            # a sweep: a record of every point
    python -m lab.results --workdir=runs/a,runs/b,runs/c --name=g2p/kor-ensemble     # of three, in the first's folder
    python -m lab.results                                                            # rewrites the pages and figures

NAME begins with the study: its records are the lines of lab/studies/STUDY/records.jsonl. What a record holds, and which
runs are refused, is as in `python -m paper.results`. lab/docs/tables.md (what `python -m lab all` prints, and the
records trained again), lab/docs/claims.md (`python -m lab cards`) and a figure of each study that has run, figure.svg
in its folder, are made from these records and from those of paper/records; docs/bleu.md has one study's tables.
"""

from pathlib import Path
from typing import Any

from absl import flags

from lab import cards
from lab.command import make
from lab.ensembles import make_ensemble_record
from lab.reproduce import repeated
from lab.studies.index import studies
from vaswani.command import run
from vaswani.errors import UserError
from vaswani.files import folder, folders, write_text
from vaswani.paper.markers import replace_block
from vaswani.paper.records import Records, find_records, save
from vaswani.paper.results import RECORDS, check_name, define_flags, record_runs
from vaswani.train.table import as_markdown

FOLDER = Path("lab/studies")
TABLES = Path("lab/docs/tables.md")
CLAIMS = Path("lab/docs/claims.md")
BLEU = Path("docs/bleu.md")
BEGIN = "<!-- results: made by `python -m lab.results` -->"
END = "<!-- end of results -->"


def file_of(name: str) -> Path:
    """Returns the file of the record STUDY/NAME.

    Raises:
      UserError: there is no such study.
    """
    study, _, _ = name.partition("/")
    known = sorted({path.parent.name for path in FOLDER.glob("*/*.py")})
    if study not in known:
        raise UserError(f"--name={name}: it must begin with a study, like layers/NAME; they are {', '.join(known)}")
    return FOLDER / study / "records.jsonl"


def pages(records: Records) -> dict[Path, str]:
    """Returns the pages that are made of these records, as they ought to be.

    Raises:
      UserError: a record is damaged, or the lines between which tables are put are missing in a page.
    """
    if records.notes:
        raise UserError(records.notes[0].removeprefix("left out: "))
    of_studies = [table for tables in make("all", records).values() for table in tables]
    all_tables = [as_markdown(table) for table in [*of_studies, repeated.table()]]
    of_bleu = [as_markdown(table) for table in studies()["bleu"].tables(records)]
    claims = map(as_markdown, cards.tables(cards.cards(records)))
    made = {TABLES: "\n\n".join(all_tables), CLAIMS: "\n\n".join(claims), BLEU: "\n\n".join(of_bleu)}
    return {page: replace_block(page, BEGIN, END, text) for page, text in made.items()}


def draw(records: Records, output: Path) -> list[Path]:
    """Draws the figure of each study that has run into its folder in `output`; returns the files.

    Raises:
      UserError: a file cannot be written.
    """
    drawn: list[Path] = []
    for name, study in studies().items():
        if any(row.scored for row in study.rows(records).values()):
            drawn.append(output / name / "figure.svg")
            drawn[-1].parent.mkdir(parents=True, exist_ok=True)
            study.plot(records, drawn[-1])
    return drawn


def record(options: Any) -> None:
    """Writes the records that the flags ask for: of a run, of a sweep, or of the ensemble of several runs."""
    places = folders("workdir", options.workdir) if options.workdir else []
    if len(places) < 2:
        record_runs(options, file_of)
        return
    check_name(options)
    workdirs = [folder("workdir", place) for place in places]
    together = make_ensemble_record(workdirs, options.split, allow_dirty=options.allow_dirty)
    save(file_of(options.name), {"name": options.name, **together})


def main(argv: list[str]) -> None:
    record(flags.FLAGS)
    records = find_records(RECORDS, FOLDER)
    for page, text in pages(records).items():
        write_text(page, text)
    draw(records, FOLDER)


if __name__ == "__main__":
    define_flags()
    run(main, hint="the run is given as --workdir=DIR")

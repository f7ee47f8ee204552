"""Table 4: English constituency parsing, F1 on section 23 of the Wall Street Journal."""

from vaswani.paper.published import TABLE4
from vaswani.paper.records import PARSING, Records
from vaswani.paper.rows import caveat_notes, row_runs, run_notes
from vaswani.paper.tables.cost import cost
from vaswani.train.table import Table, difference, mean, number

CONFIGS = {"WSJ only, discriminative": "configs/parsing.py:wsj", "semi-supervised": "configs/parsing.py:semi"}
SMALL = "configs/parsing.py:small"
NOTES = [
    "ours: every sentence counts, and the gold trees' tags decide which tokens are punctuation, which is not scored; "
    "EVALB goes by each tree's own tags and leaves out sentences in which that changes the number of words",
]


def tables(records: Records) -> list[Table]:
    """Returns the paper's rows next to ours, and the scaled-down model."""
    return [full(records), small(records)]


def full(records: Records) -> Table:
    """Returns F1 of every parser of the paper, and ours."""
    head = ("parser", "training", "F1: paper", "F1: ours", "F1: delta", "seeds", "cost")
    lines: list[tuple[str, ...]] = []
    ours = {training: row_runs(records, config, "test", "f1") for training, config in CONFIGS.items()}
    for published in TABLE4:
        printed = number(published.f1, 1)
        if not published.parser.startswith("Transformer"):
            lines.append((published.parser, published.training, printed, "", "", "", ""))
            continue
        row = ours[published.training]
        lines.append(
            (
                row.label(published.parser),
                published.training,
                printed,
                row.shown("f1"),
                difference(mean(row.values("f1")), published.f1),
                str(len(row.scored)),
                cost(row.scored),
            )
        )
    notes = [*NOTES, *run_notes(ours), *caveat_notes(ours)]
    return Table("table4", "Table 4: constituency parsing, WSJ section 23", head, lines, notes)


def small(records: Records) -> Table:
    """Returns every measure of our parser on the trees of the built-in corpus, for which the paper has no numbers."""
    name = "Transformer, scaled-down model"
    row = row_runs(records, SMALL, "test", "f1")
    measures = [row.shown(measure) for measure in PARSING]
    line = (row.label(name), *measures, str(len(row.scored)), cost(row.scored))
    head = ("parser", *PARSING, "seeds", "cost")
    notes = [*NOTES, *row.notes, *caveat_notes({name: row})]
    return Table("table4-small", "Table 4, scaled-down model: trees of the built-in corpus", head, [line], notes)

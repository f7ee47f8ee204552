"""Table 4: English constituency parsing, F1 on section 23 of the Wall Street Journal."""

from base.table import NOT_RUN, Table, difference, mean, number, spread
from paper.published import TABLE4
from paper.records import Found, find
from paper.tables.cost import paid

CONFIGS = {"WSJ only, discriminative": "configs/parsing.py:wsj", "semi-supervised": "configs/parsing.py:semi"}
SMALL = "configs/parsing.py:small"
MEASURES = ("f1", "precision", "recall", "complete_match", "tagging_accuracy", "repaired_share")


def tables(found: Found) -> list[Table]:
    """The paper's rows with ours beside its own, and the small twin."""
    return [full(found), small(found)]


def full(found: Found) -> Table:
    """F1 of every parser of the paper, and ours."""
    head = ("parser", "training", "F1: paper", "F1: ours", "F1: delta", "seeds", "cost")
    lines: list[tuple[str, ...]] = []
    notes: list[str] = []
    for published in TABLE4:
        cells: tuple[str, ...] = ("",) * 4
        if published.parser.startswith("Transformer"):
            row = find(found, CONFIGS[published.training], "test", "f1")
            f1 = row.values("f1")
            shown = spread(f1) or row.missing or NOT_RUN
            cells = (shown, difference(mean(f1), published.f1), str(len(row.scored)), paid(row.scored))
            notes += row.notes
        lines.append((published.parser, published.training, number(published.f1, 1), *cells))
    return Table("table4", "Table 4: constituency parsing, WSJ section 23", head, lines, notes)


def small(found: Found) -> Table:
    """Our parser on the trees of the built-in corpus, in every measure. The paper has nothing beside it."""
    row = find(found, SMALL, "test", "f1")
    shown = [spread(row.values(measure)) or row.missing or NOT_RUN for measure in MEASURES]
    line: tuple[str, ...] = ("Transformer, small twin", *shown, str(len(row.scored)), paid(row.scored))
    title = "Table 4, small twin: trees of the built-in corpus"
    return Table("table4-small", title, ("parser", *MEASURES, "seeds", "cost"), [line], row.notes)

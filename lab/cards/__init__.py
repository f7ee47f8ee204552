"""The list of cards: each claim that the tables and studies make, and what the records say of it."""

from collections.abc import Sequence

from lab.cards import of_tables
from lab.cards.card import Card, counts, table
from lab.studies.index import studies
from vaswani.paper.records import Records
from vaswani.train.table import Table


def cards(records: Records) -> list[Card]:
    """Makes a card for each claim, in the order of docs/tables.md and of lab/docs/tables.md."""
    made = of_tables.cards(records)
    for study in studies().values():
        made += study.cards(records)
    return made


def tables(made: Sequence[Card]) -> list[Table]:
    """Counts the verdicts, and lists the cards, in a table for each thing that they are about."""
    by_subject: dict[str, list[Card]] = {}
    for card in made:
        by_subject.setdefault(card.about, []).append(card)
    return [counts(made), *(table(about, of_subject) for about, of_subject in by_subject.items())]

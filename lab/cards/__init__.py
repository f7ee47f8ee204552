"""The list of cards: each claim that the tables and studies make, and what the records say of it."""

from collections.abc import Sequence

from base.table import Table
from lab.cards import of_studies, of_tables
from lab.cards.card import Card, counts, table
from paper.records import Records


def cards(records: Records) -> list[Card]:
    """Returns a card for each claim, in the order of docs/tables.md."""
    return [*of_tables.cards(records), *of_studies.cards(records)]


def tables(made: Sequence[Card]) -> list[Table]:
    """Returns how many claims have which verdict, and the cards, a table for each thing that they are about."""
    by_subject: dict[str, list[Card]] = {}
    for card in made:
        by_subject.setdefault(card.about, []).append(card)
    return [counts(made), *(table(about, of_subject) for about, of_subject in by_subject.items())]

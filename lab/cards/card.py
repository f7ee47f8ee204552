"""A card: one claim, the published number, ours, how sure it is, what it cost, and how to repeat one of its runs.

The verdict of a claim is one of these:

- "shown", "refuted", "neither": by the rule of a design, or, where no design fixed one, by a two-sided t-test over the
  seeds, corrected by Holm's method where a table compares several rows: below 5 %, the claim is shown if the sign is
  the claimed one, and refuted if it is the opposite. A claim that there is no difference, or none above, is refuted
  only if the 95 % interval lies wholly beyond a margin. Of runs whose code cannot be checked out neither is said.
- "met", "not met": whether a published number, or what a design predicts of a number, is reached; "neither" if the
  mean does not reach it and the interval does not exclude it.
- "did not train": with every seed the row ends with more than twice the perplexity of the row that it is compared with,
  so its difference says nothing of what it changes.
- "open": there are too few seeds to say. "not run": there is no record.
- "no rule": measured, with no published number and no rule that could have failed.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from lab.reproduce.command import RECORDS, obstacle
from vaswani.paper.records import RunRecord
from vaswani.paper.rows import RowRuns
from vaswani.paper.tables.cost import cost
from vaswani.paper.tables.trend import LEVEL, did_train, holm, p_values_of, paired_differences, shown_p_value
from vaswani.train.intervals import half_interval, with_interval
from vaswani.train.table import NOT_RUN, Code, Table, mean, number

OPEN, NO_RULE, UNTRAINED = "open", "no rule", "did not train"
VERDICTS = ("shown", "refuted", "neither", "met", "not met", UNTRAINED, OPEN, NOT_RUN, NO_RULE)
NO_NUMBER = "-"  # nothing is published
MARGIN = 0.03  # nats: below the smallest difference that the second design of Table 3 calls one
NO_SEEDS: Float[np.ndarray, " seeds"] = np.array([])  # where the number is not a mean over seeds
HEAD = (
    "claim",
    "published",
    "ours",
    "95 % interval",
    "p",
    "seeds",
    "verdict",
    "cost of a run",
    "commits",
    "repeats one of its runs",
)


class Verdict(NamedTuple):
    """What the rule of a design says: one of `VERDICTS`, and the sentence that a table has in its notes."""

    word: str
    sentence: str

    @classmethod
    def shown(cls, what: str) -> "Verdict":
        """Says what is shown."""
        return cls("shown", f"shown; {what}")

    @classmethod
    def refuted(cls, what: str) -> "Verdict":
        """Says what is so instead."""
        return cls("refuted", f"refuted; {what}")

    @classmethod
    def open(cls, why: str) -> "Verdict":
        """Says what is lacking."""
        return cls(OPEN, f"open, because {why}")


NEITHER = Verdict("neither", "neither shown nor refuted")


class Card(NamedTuple):
    """A claim, and what the records say of it, in words.

    `about` is the table or study. `interval` is ± half of the 95 % t interval of the mean over the seeds, or from where
    to where it reaches; `p` is two-sided, in brackets by Holm's method; `cost` is of a run of the first row; `caveats`
    are those of the runs, as in `paper.provenance`.
    """

    about: str
    claim: str
    published: str
    ours: str
    interval: str
    p: str
    seeds: str
    verdict: str
    cost: str
    commits: str
    command: str
    caveats: tuple[str, ...] = ()

    def without_runs(self) -> "Card":
        """Leaves out what is said of runs: those of a row alone with which others are compared say nothing of it."""
        return self._replace(cost="", commits="", command="", caveats=())

    def by_rule(self, verdict: Verdict) -> "Card":
        """Puts the verdict of a study's own rule in place of that by p, but where nothing has run."""
        return self if self.verdict == NOT_RUN else self._replace(verdict=verdict.word)


class Claim(NamedTuple):
    """What is claimed of some rows: the first is the one that the claim is about, others are what it is compared with.

    `values` has a number of each seed, mostly the difference of two rows. `sign` is that of the difference if the claim
    is true, 0 if the claim is that there is none; where a claim says that there is none, or none above, the interval
    must lie wholly beyond `margin` to refute it. `ours` is "" where the mean of the values is the number to show.
    """

    text: str
    rows: Sequence[RowRuns]
    values: Float[np.ndarray, " seeds"] = NO_SEEDS
    sign: int = 0
    published: str = NO_NUMBER
    ours: str = ""
    margin: float = 0.0


def between(text: str, row: RowRuns, base: RowRuns, key: str, sign: int, published: str = NO_NUMBER) -> Claim:
    """Makes a claim about a row's score minus another's, for each seed that both have."""
    return Claim(text, [row, base], paired_differences(row, base, key), sign, published)


def counts(cards: Sequence[Card]) -> Table:
    """Counts the cards of each verdict: those of what was counted, which have no seeds, and those of trained models."""
    counted = [card.verdict for card in cards if not card.seeds]
    of_models = [card.verdict for card in cards if card.seeds]
    found: list[tuple[str, ...]] = []
    for verdict in VERDICTS:
        found.append((verdict, str(counted.count(verdict)), str(of_models.count(verdict))))
    head = ("verdict", "claims: counted", "claims: trained")
    return Table("cards-verdicts", "Verdicts", head, found, [])


def table(about: str, cards: Sequence[Card]) -> Table:
    """Returns the cards of one table or study as a table."""
    lines: list[tuple[str, ...]] = []
    marked: dict[str, list[str]] = {}
    for card in cards:
        claim = f"{card.claim} †" if card.caveats else card.claim
        command = Code(card.command) if card.command.startswith("python ") else card.command
        lines.append(
            (
                claim,
                card.published,
                card.ours,
                card.interval,
                card.p,
                card.seeds,
                card.verdict,
                card.cost,
                card.commits,
                command,
            )
        )
        for caveat in card.caveats:
            marked.setdefault(caveat, []).append(card.claim)
    notes = [f"† {caveat}: {'; '.join(claims)}" for caveat, claims in marked.items()]
    return Table(f"cards-{about}", about, HEAD, lines, notes)


def compare(about: str, claims: Sequence[Claim], digits: int) -> list[Card]:
    """Makes the card of each claim about a difference, by a t-test over the seeds, by Holm if there are several."""
    p_values = p_values_of({claim.text: claim.values for claim in claims})
    corrected = holm(p_values)
    cards: list[Card] = []
    for claim in claims:
        card = measure(about, claim, digits)
        if not len(claim.values):
            card = card.without_runs()
        verdict = verdict_by_sign(claim.values, corrected.get(claim.text), claim.sign)
        within = claim.margin > 0 and not is_beyond(claim.values, claim.margin)
        if (verdict == "refuted" and within) or (verdict in ("shown", "refuted") and card.caveats):
            verdict = "neither"
        cards.append(card._replace(p=shown_p(p_values, claim.text), verdict=verdict))
    return cards


def measure(about: str, claim: Claim, digits: int) -> Card:
    """Makes the card of a claim with the mean of its values and its interval, and no verdict yet."""
    middle, _, half = with_interval(claim.values, digits).partition(" ± ")
    runs = [scored.run for row in claim.rows for scored in row.scored]
    return Card(
        about=about,
        claim=claim.text,
        published=claim.published,
        ours=claim.ours or middle,
        interval=f"± {half}" if half else "",
        p="",
        seeds=str(len(claim.values)),
        verdict=NO_RULE if len(claim.values) else NOT_RUN,
        cost=cost(claim.rows[0].scored),
        commits=", ".join(dict.fromkeys(commit for run in runs for commit in commits_of(run))),
        command=command_of(runs),
        caveats=tuple(dict.fromkeys(caveat for run in runs for caveat in run.caveats)),
    )


def shown_mean(row: RowRuns, key: str, digits: int = 2) -> str:
    """Returns the mean of a score over the seeds, or in few words why there is none."""
    return number(mean(row.values(key)), digits) or row.missing or NOT_RUN


def shown_seeds(counts: Sequence[int]) -> str:
    """Shows how many seeds the rows of a claim have: one number, or from the fewest to the most."""
    fewest, most = min(counts), max(counts)
    return str(most) if fewest == most else f"{fewest} to {most}"


def shown_p(p_values: Mapping[str, float], name: str) -> str:
    """Returns p as it is and, of several comparisons, in brackets by Holm; "" if there is none."""
    if name not in p_values:
        return ""
    shown = shown_p_value(p_values[name])
    return shown if len(p_values) == 1 else f"{shown} ({shown_p_value(holm(p_values)[name])})"


def verdict_by_sign(differences: Float[np.ndarray, " seeds"], p: float | None, sign: int) -> str:
    """Judges by p whether the mean difference has the claimed sign."""
    if not len(differences):
        return NOT_RUN
    if p is None:
        return OPEN
    if p >= LEVEL:
        return "neither"
    return "shown" if np.sign(differences.mean()) == sign else "refuted"


def if_trained(cards: Sequence[Card], claims: Sequence[Claim]) -> list[Card]:
    """Puts "did not train" in place of the verdict on a row that did not, beside the row it is compared with."""
    judged: list[Card] = []
    for card, claim in zip(cards, claims, strict=True):
        row, base = claim.rows
        judged.append(card if did_train(row, base) else card._replace(verdict=UNTRAINED))
    return judged


def is_beyond(values: Float[np.ndarray, " seeds"], margin: float) -> bool:
    """Tells whether the 95 % t interval of the mean lies wholly beyond the margin, on one side of it."""
    half = half_interval(values)
    return half is not None and bool(abs(values.mean()) - half > margin)


def met(is_met: bool) -> str:
    """Returns the verdict on a condition that holds, or does not."""
    return "met" if is_met else "not met"


def verdict_by_number(above: Float[np.ndarray, " seeds"]) -> str:
    """Judges whether a number is reached, by the mean of how much each seed is above it, and by p if it is not.

    One seed has no p, and counts as it is.
    """
    if not len(above):
        return NOT_RUN
    if above.mean() >= 0:
        return "met"
    p = p_values_of({"": above}).get("")
    return "not met" if p is None or p < LEVEL else "neither"


def commits_of(run: RunRecord) -> list[str]:
    """Returns the commits of a run's launches, as short as git's; [] where they were not recorded."""
    return [launch["git"]["commit"][:7] for launch in run.launches if launch["git"]]


def command_of(runs: Sequence[RunRecord]) -> str:
    """Returns the command that repeats the first run that can be, else why none can; "" if none has a record."""
    recorded = [run for run in runs if run.record and any(map(run.path.resolve().is_relative_to, RECORDS))]
    reasons: list[str] = []
    for run in recorded:
        reason = obstacle(run)
        if not reason:
            return f"python -m lab.reproduce {run.record}"
        reasons.append(reason)
    return f"not repeatable: {reasons[0]}" if reasons else ""

"""Head roles over runs that differ in their seed alone: is a relation followed in every one of them?"""

from collections.abc import Sequence
from typing import Any

from base.table import Table, as_text, spread
from infer.attention.kinds import KINDS, TITLES
from paper.heads.measure import stands_out
from paper.heads.roles import RELATIONS, label

HEAD = ("relation", "accuracy", "untrained", "fixed distance", "stands out")


def seeds_table(every: Sequence[dict[str, Any]]) -> str:
    """Returns, of the results of `paper.heads.measure.judge` for each run, means and standard deviations as text.

    The best head is another one in each run; relations that a run has no case of are left out.
    """
    return "\n\n".join(map(as_text, seeds_tables(every)))


def seeds_tables(every: Sequence[dict[str, Any]]) -> list[Table]:
    """Returns a table for each kind of attention, and one of the alignment."""
    made = [Table(f"heads-seeds-{kind}", f"{TITLES[kind]}, {len(every)} runs", HEAD, [], []) for kind in KINDS]
    for table, kind in zip(made, KINDS, strict=True):
        for relation in RELATIONS:
            roles = [result["roles"][kind][relation] for result in every if relation in result["roles"][kind]]
            if len(roles) == len(every):
                table.rows.append(_row(label(relation, kind), roles))
    made[-1].notes.extend(
        [
            "accuracy of each run's best head in %, mean ± standard deviation over the runs",
            "stands out: in how many runs the head's interval lies above its baselines",
        ]
    )
    return [*made, _alignment(every)]


def _row(name: str, roles: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    accuracies = [_percent([role[key]["accuracy"] for role in roles]) for key in ("best", "untrained", "fixed")]
    return (name, *accuracies, f"{sum(map(stands_out, roles))} of {len(roles)}")


def _alignment(every: Sequence[dict[str, Any]]) -> Table:
    rows: list[tuple[str, ...]] = []
    for key, name in (("best_layer", "average of the best layer"), ("best_head", "best head")):
        trained = [result["alignment"][key]["error"] for result in every]
        untrained = [result["alignment"]["untrained"][key]["error"] for result in every]
        rows.append((name, _percent(trained), _percent(untrained)))
    return Table("heads-seeds-alignment", "alignment error rate, in %", ("links of", "error", "untrained"), rows, [])


def _percent(shares: Sequence[float]) -> str:
    return spread([100 * share for share in shares], 1)

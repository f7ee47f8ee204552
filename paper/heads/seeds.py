"""Head roles over runs that differ in their seed alone: is a relation followed in every one of them?"""

from collections.abc import Sequence
from typing import Any

from base.table import Table, as_text, spread
from infer.attention.kinds import KINDS, TITLES
from paper.heads.measure import relation_label, stands_out
from paper.heads.roles import RELATIONS


def seeds_text(results: Sequence[dict[str, Any]]) -> str:
    """Returns, of the results of `paper.heads.measure.measure_heads`, means and standard deviations as text.

    The best head is another one in each run; relations that a run has no case of are left out.
    """
    notes = [
        f"{len(results)} runs: accuracy of each one's best head in %, mean ± standard deviation over the runs",
        "stands out: in how many runs the head's interval lies above its baselines",
    ]
    tables = [_roles_table(kind, results) for kind in KINDS]
    tables.append(_alignment_table(results))
    return "\n\n".join(["\n".join(notes), *map(as_text, tables)])


def _roles_table(kind: str, results: Sequence[dict[str, Any]]) -> Table:
    """Returns the accuracies of the best heads over the runs, beside their baselines."""
    rows: list[tuple[str, ...]] = []
    for relation in RELATIONS:
        roles = [result["roles"][kind][relation] for result in results if relation in result["roles"][kind]]
        if len(roles) < len(results):
            continue
        best = [100 * role["best"]["accuracy"] for role in roles]
        untrained = [100 * role["untrained"]["accuracy"] for role in roles]
        fixed = [100 * role["fixed"]["accuracy"] for role in roles]
        above = sum(map(stands_out, roles))
        label = relation_label(kind, relation)
        rows.append((label, spread(best, 1), spread(untrained, 1), spread(fixed, 1), f"{above} of {len(roles)}"))
    head = ("relation", "accuracy", "untrained", "fixed distance", "stands out")
    return Table("", TITLES[kind], head, rows, [])


def _alignment_table(results: Sequence[dict[str, Any]]) -> Table:
    """Returns the alignment error rates of the best layer and the best head over the runs."""
    rows: list[tuple[str, ...]] = []
    for key, label in (("best_layer", "average of the best layer"), ("best_head", "best head")):
        trained = [100 * result["alignment"][key]["error"] for result in results]
        untrained = [100 * result["alignment"]["untrained"][key]["error"] for result in results]
        rows.append((label, spread(trained, 1), spread(untrained, 1)))
    return Table("", "alignment error rate, in %", ("weights", "error", "untrained"), rows, [])

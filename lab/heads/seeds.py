"""Head roles over runs that differ only in their seed: is a relation followed in every one of them?"""

from collections.abc import Sequence
from typing import Any

from lab.heads.roles import RELATIONS
from lab.heads.text import relation_label, stands_out
from vaswani.infer.attention.kinds import KINDS, TITLES
from vaswani.train.table import Table, as_text, spread


def seeds_text(results: Sequence[dict[str, Any]]) -> str:
    """Returns, of the results of `lab.heads.measure.measure_heads`, means and standard deviations as text.

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
    """Returns the accuracies of the best heads over the runs, next to their baselines."""
    rows: list[tuple[str, ...]] = []
    for relation in RELATIONS:
        of_kind = [result["roles"][kind] for result in results]
        roles = [by_relation[relation] for by_relation in of_kind if relation in by_relation]
        if len(roles) < len(results):
            continue
        above = sum(map(stands_out, roles))
        rows.append(
            (
                relation_label(kind, relation),
                _accuracies(roles, "best"),
                _accuracies(roles, "untrained"),
                _accuracies(roles, "fixed"),
                f"{above} of {len(roles)}",
            )
        )
    head = ("relation", "accuracy", "untrained", "fixed distance", "stands out")
    return Table("", TITLES[kind], head, rows, [])


def _accuracies(roles: Sequence[dict[str, Any]], of: str) -> str:
    """Returns the mean accuracy of the best head or of a baseline, and its spread over the runs, in percent."""
    return spread([100 * role[of]["accuracy"] for role in roles], 1)


def _alignment_table(results: Sequence[dict[str, Any]]) -> Table:
    """Returns the alignment error rates of the best layer and the best head over the runs."""
    rows: list[tuple[str, ...]] = []
    alignments = [result["alignment"] for result in results]
    labels = {"best_layer": "average of the best layer", "best_head": "best head"}
    for key, label in labels.items():
        trained = [100 * alignment[key]["error"] for alignment in alignments]
        untrained = [100 * alignment["untrained"][key]["error"] for alignment in alignments]
        rows.append((label, spread(trained, 1), spread(untrained, 1)))
    head = ("weights", "error", "untrained")
    return Table("", "alignment error rate, in %", head, rows, [])

"""Head roles over runs that differ in their seed alone: is a relation followed in every one of them?"""

from collections.abc import Sequence
from typing import Any

from base.table import spread
from infer.attention.kinds import KINDS, TITLES
from paper.heads.measure import stands_out
from paper.heads.roles import RELATIONS


def seeds_table(every: Sequence[dict[str, Any]]) -> str:
    """Returns, of the results of `paper.heads.measure.judge` for each run, means and standard deviations as text.

    The best head is another one in each run; relations that a run has no case of are left out.
    """
    lines = [
        f"{len(every)} runs: accuracy of each one's best head in %, mean ± standard deviation over the runs",
        "stands out: in how many runs the head's interval lies above its baselines",
    ]
    for kind in KINDS:
        lines += ["", f"{TITLES[kind]:<38} {'accuracy':<14} {'untrained':<14} {'fixed distance':<14}  stands out"]
        for relation, label in RELATIONS.items():
            roles = [found["roles"][kind][relation] for found in every if relation in found["roles"][kind]]
            if len(roles) == len(every):
                name = label if kind != "cross" else f"{label}, translated"
                columns = (
                    spread([100 * role[key]["accuracy"] for role in roles], 1) for key in ("best", "untrained", "fixed")
                )
                lines.append(
                    f"  {name:<36} {' '.join(f'{column:<14}' for column in columns)}  "
                    f"{sum(map(stands_out, roles))} of {len(roles)}"
                )
    lines += ["", f"{'alignment error rate, in %':<38} {'error':<14} {'untrained':<14}"]
    for key, name in (("best_layer", "average of the best layer"), ("best_head", "best head")):
        trained = [100 * found["alignment"][key]["error"] for found in every]
        fresh = [100 * found["alignment"]["untrained"][key]["error"] for found in every]
        lines.append(f"  {name:<36} {spread(trained, 1):<14} {spread(fresh, 1):<14}")
    return "\n".join(line.rstrip() for line in lines)

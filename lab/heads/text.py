"""Head roles and alignment errors as tables of text."""

from typing import Any

from lab.heads.roles import RELATIONS
from vaswani.infer.attention.kinds import KINDS, TITLES
from vaswani.train.table import Table, as_text, number


def heads_text(result: dict[str, Any]) -> str:
    """Returns the result of `measure_heads` as text: the best head of every relation, then the alignment.

    A relation is marked where the head's interval lies above both other baselines' intervals and above the null.
    """
    notes = [
        f"best heads, chosen on {result['chosen_on']} and scored on {result['scored_on']}",
        "accuracies in %, with 95 % intervals; null: 95th percentile of the best of as many random heads",
        "*: above the null, and its interval above the best untrained head's and the best fixed distance's",
    ]
    tables = [_roles_table(kind, result["roles"][kind]) for kind in KINDS]
    tables.append(_alignment_table(result["alignment"]))
    return "\n\n".join(["\n".join(notes), *map(as_text, tables)])


def _roles_table(kind: str, roles: dict[str, Any]) -> Table:
    """Returns the best head of each relation, next to its baselines."""
    rows: list[tuple[str, ...]] = []
    for relation, role in roles.items():
        best = role["best"]
        fixed = role["fixed"]
        mark = " *" if stands_out(role) else ""
        rows.append(
            (
                relation_label(kind, relation),
                str(best["layer"]),
                str(best["head"]),
                _with_interval(best, "accuracy") + mark,
                _with_interval(role["untrained"], "accuracy"),
                f"{_with_interval(fixed, 'accuracy')} at {fixed['distance']:+d}",
                number(100 * role["luck"], 1),
                f"{role['cases']:,}",
            )
        )
    head = ("relation", "layer", "head", "accuracy", "untrained", "fixed distance", "null", "cases")
    return Table("", TITLES[kind], head, rows, [])


def _alignment_table(alignment: dict[str, Any]) -> Table:
    """Returns the alignment error rates of the best layer and the best head, and of the diagonal."""
    layer = alignment["best_layer"]
    head = alignment["best_head"]
    labels = {
        "best_layer": f"average of the best layer, {layer['layer']}",
        "best_head": f"best head, {head['layer']}.{head['head']}",
    }
    rows: list[tuple[str, ...]] = []
    for key, label in labels.items():
        trained = _with_interval(alignment[key], "error")
        rows.append((label, trained, _with_interval(alignment["untrained"][key], "error")))
    rows.append(("the diagonal", _with_interval(alignment["diagonal"], "error"), ""))
    return Table("", "alignment error rate, all links sure, in %", ("weights", "error", "untrained"), rows, [])


def relation_label(kind: str, relation: str) -> str:
    """Returns a relation's label in a table; over the encoder it leads to the translation of a token."""
    label = RELATIONS[relation]
    return f"{label}, translated" if kind == "cross" else label


def stands_out(role: dict[str, Any]) -> bool:
    """Returns whether a head is better than its baselines: above the null, and its interval above both of theirs."""
    bounds = (role["luck"], role["untrained"]["high"], role["fixed"]["high"])
    return bool(role["best"]["low"] > max(bounds))


def _with_interval(share: dict[str, Any], key: str) -> str:
    """Returns a share and its 95 % interval, in percent and of one width."""
    return f"{100 * share[key]:5.1f}  {100 * share['low']:5.1f} to {100 * share['high']:5.1f}"

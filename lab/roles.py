"""Writes what each attention head of a run does into the run, as roles.json, which the explorer shows.

    python -m lab.roles --workdir=RUN

For each relation of the grammar ("verb → its subject") `python -m lab.heads` finds the head that follows it best, and
how often. Those that do better than every baseline of that command are heads with a role: the file names them, with
their accuracies on the test sentences, their 95 % intervals, and the parameters that they were measured with. A run
that was measured already, into its evaluations/heads.json, is not measured again.
"""

from typing import Any

from vaswani.infer.options import define_run_flags, start


def roles_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the heads with a role from the result of `lab.heads`: layers and heads count from 1."""
    from lab.heads.text import relation_label, stands_out

    roles = []
    for kind, relations in result["roles"].items():
        for relation, role in relations.items():
            if stands_out(role):
                roles.append(
                    {"kind": kind, "relation": relation_label(kind, relation), "cases": role["cases"], **role["best"]}
                )
    return roles


def main(options: Any) -> None:
    """Measures a run's heads, unless it has the result, and writes its roles."""
    from lab.heads.measure import load_or_measure
    from vaswani.files import write_json
    from vaswani.infer.explorer.export import ROLES
    from vaswani.infer.runs import open_run

    model_run = open_run(options.workdir, options.checkpoint)
    result = load_or_measure(model_run)
    path = model_run.workdir / ROLES
    about = {name: result[name] for name in ("params_sha256", "scored_on")}
    write_json(path, {**about, "roles": roles_of(result)})
    print(path)


if __name__ == "__main__":
    define_run_flags()
    start(main, hint="the run is given as --workdir=DIR")

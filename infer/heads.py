"""Shows what each attention head does on sentences of known structure: head roles and alignment error.

python -m infer.heads --workdir=runs/quickstart [--sentences=500] [--json]

The built-in grammar knows which noun a relative pronoun refers to, which particle belongs to a verb, which antecedent
to a pronoun, and which word translates which. A head's accuracy on such a relation is how often its largest weight is
on the right token. The best head is chosen on sentences of `grammar:valid` and scored on `grammar:test`; neither is
trained on. There are two baselines: the best fixed distance, chosen in the same way, and a random visible token.

The result is saved in the run, as evaluations/heads.json. See infer/attention/heads.py for the definitions.
"""

import json

from absl import flags

from infer.options import define_run_flags, start


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    from infer.attention.heads import judge, keep, table
    from infer.runs import open_run

    options = flags.FLAGS
    model_run = open_run(options.workdir, options.checkpoint)
    found = judge(model_run, options.sentences)
    print(json.dumps(found, indent=1) if options.json else table(found))
    keep(model_run.workdir / "evaluations" / "heads.json", found)


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_integer("sentences", 500, "grammar sentences to choose heads on, and as many to score", lower_bound=1)
    flags.DEFINE_bool("json", False, "print JSON instead of tables")
    start(main, stray="the run is given as --workdir=DIR")

"""Shows what each attention head does on sentences of known structure: head roles and alignment error.

python -m infer.heads --workdir=runs/quickstart [--sentences=2500] [--cases=400] [--ablate] [--json]
python -m infer.heads --workdir=runs/a --workdir=runs/b --workdir=runs/c

The built-in grammar knows which noun a relative pronoun refers to, which particle belongs to a verb, which antecedent
to a pronoun, and which word translates which. A head's accuracy on such a relation is how often its largest weight is
on the right token. The best head is chosen on sentences of `grammar:valid` and scored on `grammar:test`; no run is
trained on either. For rare relations more sentences are read, until each has --cases cases.

There are four baselines: the best head of the same model before its first update, the best fixed distance, chosen in
the same way, a random visible token, and luck: what the best of as many random heads exceeds once in 20 times. With
--ablate each head is left out in turn, to see whether translation needs the best one. Runs that differ in their seed
alone, each given as --workdir, are summarised in one more table.

The result is saved in the run, as evaluations/heads.json. See infer/attention/heads.py for the definitions.
"""

import json

from absl import flags

from base.errors import UserError
from infer.options import define_run_flags, start


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    from infer.attention.ablation import ablate, ablation_table
    from infer.attention.heads import direction, judge, keep, table
    from infer.attention.sample import sample
    from infer.attention.seeds import seeds_table
    from infer.runs import open_run

    options = flags.FLAGS
    every = []
    for workdir in options.workdir:
        model_run = open_run(workdir, options.checkpoint)
        if (units := model_run.tokenizer.units) != "subwords":
            raise UserError(f"--workdir={workdir}: this run's units are {units}; heads are judged by subwords")
        found = judge(model_run, options.sentences, options.cases)
        if options.ablate:
            test = sample("test", options.sentences, options.cases, direction(model_run))
            found["ablation"] = ablate(model_run, found["roles"], test)
        keep(model_run.workdir / "evaluations" / "heads.json", found)
        every.append(found)
        if not options.json:
            named = [f"{workdir}, step {found['step']}:\n"] if len(options.workdir) > 1 else []
            ablated = ["", ablation_table(found["ablation"])] if options.ablate else []
            print("\n".join([*named, table(found), *ablated]), end="\n\n" if named else "\n", flush=True)
    if options.json:
        print(json.dumps(every if len(every) > 1 else every[0], indent=1))
    elif len(every) > 1:
        print(seeds_table(every))


if __name__ == "__main__":
    define_run_flags(several=True)
    flags.DEFINE_integer("sentences", 2500, "grammar sentences to choose heads on, and as many to score", lower_bound=1)
    flags.DEFINE_integer("cases", 400, "cases of each rare relation, for which more sentences are read", lower_bound=0)
    flags.DEFINE_bool("ablate", False, "also leave out each head in turn; takes minutes")
    flags.DEFINE_bool("json", False, "print JSON instead of tables; a list if there are several runs")
    start(main, stray="the run is given as --workdir=DIR")

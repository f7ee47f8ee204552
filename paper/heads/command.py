"""What `python -m paper.heads` does once its flags have been checked."""

import json
from typing import Any

from base.errors import UserError
from infer.runs import open_run
from paper.heads.ablation import ablate, ablation_table
from paper.heads.measure import direction, judge, keep, table
from paper.heads.sample import sample
from paper.heads.seeds import seeds_table


def main(options: Any) -> None:
    """Measures the heads of each run, saves the result in it, and prints it."""
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

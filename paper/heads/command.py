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
    every: list[dict[str, Any]] = []
    for workdir in options.workdir:
        model_run = open_run(workdir, options.checkpoint)
        units = model_run.tokenizer.units
        if units != "subwords":
            raise UserError(f"--workdir={workdir}: this run's units are {units}; heads are judged by subwords")
        judged = judge(model_run, options.sentences, options.cases)
        if options.ablate:
            test = sample("test", options.sentences, options.cases, direction(model_run))
            judged["ablation"] = ablate(model_run, judged["roles"], test)
        keep(model_run.workdir / "evaluations" / "heads.json", judged)
        every.append(judged)
        if not options.json:
            several = len(options.workdir) > 1
            parts = [f"{workdir}, step {judged['step']}:"] if several else []
            parts.append(table(judged))
            if options.ablate:
                parts.append(ablation_table(judged["ablation"]))
            print("\n\n".join(parts), end="\n\n" if several else "\n", flush=True)
    if options.json:
        print(json.dumps(every if len(every) > 1 else every[0], indent=1))
    elif len(every) > 1:
        print(seeds_table(every))

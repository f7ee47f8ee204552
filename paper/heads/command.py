"""What `python -m paper.heads` does once its flags have been checked."""

import json
import sys
from typing import Any

from infer.runs import open_run
from paper.heads.ablation import ablate, ablation_text, check_own_layers
from paper.heads.measure import direction, measure_heads, save
from paper.heads.sample import sample
from paper.heads.seeds import seeds_text
from paper.heads.text import heads_text


def main(options: Any) -> None:
    """Measures the heads of each run, saves the result in it, and prints it."""
    several = len(options.workdir) > 1
    results = []
    for workdir in options.workdir:
        result = _measured(workdir, options)
        results.append(result)
        if not options.json:
            _print_tables(workdir if several else None, result)
    if options.json:
        print(json.dumps(results if several else results[0], indent=1))
    elif several:
        print(seeds_text(results))


def _measured(workdir: str, options: Any) -> dict[str, Any]:
    """Returns the result of one run, and saves it there."""
    model_run = open_run(workdir, options.checkpoint)
    if options.ablate:
        check_own_layers(model_run)
    result = measure_heads(model_run, options.sentences, options.cases)
    if options.ablate:
        test = sample("test", options.sentences, options.cases, direction(model_run))
        result["ablation"] = ablate(model_run, result["roles"], test)
    save(model_run.workdir / "evaluations" / "heads.json", result)
    return result


def _print_tables(workdir: str | None, result: dict[str, Any]) -> None:
    """Prints the tables of one run, under its folder if that is given."""
    if workdir is not None:
        print(f"{workdir}, step {result['step']}:\n")
    print(heads_text(result))
    if "ablation" in result:
        print(f"\n{ablation_text(result['ablation'])}")
    if workdir is not None:
        print()
    sys.stdout.flush()

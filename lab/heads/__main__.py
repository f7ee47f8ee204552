"""Shows what each attention head does on sentences of known structure: head roles and alignment error.

python -m lab.heads --workdir=runs/quickstart [--sentences=2500] [--cases=400] [--ablate] [--json] [--output=DIR]
python -m lab.heads --workdir=runs/a --workdir=runs/b --workdir=runs/c

The built-in grammar knows which noun a relative pronoun refers to, which subject and which particle belong to a verb,
which antecedent to a pronoun, and which word translates which. A head's accuracy on such a relation is how often its
largest weight is on the right token. The best head is chosen on sentences of `grammar:valid` and scored on
`grammar:test`; no run is trained on either. For rare relations more sentences are read, until there are --cases cases.

There are four baselines: the best head of the same model before its first update; the best fixed distance, chosen in
the same way; a random visible token; and the null, which is the 95th percentile of the best accuracy of an equal number
of random heads. With --ablate each head is left out in turn, to see whether translation needs the best one. Runs that
differ only in their seed, each given as --workdir, are summarised in one more table.

The result is saved in the run, as evaluations/heads.json. --output draws it into a folder: how often each head follows
each relation, and the weights of the best layer over one true alignment. lab/heads/measure.py has the definitions.
"""

import json
import sys
from typing import Any

from absl import flags

from lab.heads.ablation import ablate, ablation_text, check_own_layers
from lab.heads.figures import draw
from lab.heads.measure import measure_heads, save
from lab.heads.sample import sample
from lab.heads.seeds import seeds_text
from lab.heads.text import heads_text
from vaswani.errors import UserError
from vaswani.files import output_folder, writing
from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import Run, open_run
from vaswani.paper.grammar_runs import direction


def main(options: Any) -> None:
    """Measures the heads of each run, saves the result in it, and prints it."""
    several = len(options.workdir) > 1
    if several and options.output:
        raise UserError("--output: give one run, whose figures they are")
    results = []
    for workdir in options.workdir:
        result = _measured(open_run(workdir, options.checkpoint), options)
        results.append(result)
        if options.json:
            continue
        tables = [heads_text(result)]
        if options.ablate:
            tables.append(ablation_text(result["ablation"]))
        if several:
            tables = [f"{workdir}, step {result['step']}:", *tables]
        print("\n\n".join(tables), end="\n\n" if several else "\n", flush=True)
    if options.json:
        print(json.dumps(results if several else results[0], indent=1))
    elif several:
        print(seeds_text(results))


def _measured(model_run: Run, options: Any) -> dict[str, Any]:
    """Returns what the flags ask to measure of a run, which it saves in the run, and draws if they ask for that."""
    if options.ablate:
        check_own_layers(model_run)
    result = measure_heads(model_run, options.sentences, options.cases)
    if options.ablate:
        test = sample("test", options.sentences, options.cases, direction(model_run))
        result["ablation"] = ablate(model_run, result["roles"], test)
    save(model_run.workdir / "evaluations" / "heads.json", result)
    if options.output:
        output = output_folder("output", options.output)
        with writing(f"--output={output}"):
            output.mkdir(parents=True, exist_ok=True)
        for path in draw(model_run, result, output):
            print(path, file=sys.stderr)
    return result


if __name__ == "__main__":
    define_run_flags(several=True)
    flags.DEFINE_integer("sentences", 2500, "grammar sentences to choose heads on, and as many to score", lower_bound=1)
    flags.DEFINE_integer("cases", 400, "cases of each rare relation, for which more sentences are read", lower_bound=0)
    flags.DEFINE_bool("ablate", False, "also leave out each head in turn; takes minutes")
    flags.DEFINE_bool("json", False, "print JSON instead of tables; a list if there are several runs")
    flags.DEFINE_string("output", None, "folder for heads.svg and alignment.svg, of one run")
    start(main, hint="the run is given as --workdir=DIR")

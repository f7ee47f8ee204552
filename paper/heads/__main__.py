"""Shows what each attention head does on sentences of known structure: head roles and alignment error.

python -m paper.heads --workdir=runs/quickstart [--sentences=2500] [--cases=400] [--ablate] [--json]
python -m paper.heads --workdir=runs/a --workdir=runs/b --workdir=runs/c

The built-in grammar knows which noun a relative pronoun refers to, which subject and which particle belong to a verb,
which antecedent to a pronoun, and which word translates which. A head's accuracy on such a relation is how often its
largest weight is on the right token. The best head is chosen on sentences of `grammar:valid` and scored on
`grammar:test`; no run is trained on either. For rare relations more sentences are read, until each has --cases cases.

There are four baselines: the best head of the same model before its first update; the best fixed distance, chosen in
the same way; a random visible token; and the null, which is the 95th percentile of the best accuracy of an equal number
of random heads. With --ablate each head is left out in turn, to see whether translation needs the best one. Runs that
differ in their seed alone, each given as --workdir, are summarised in one more table.

The result is saved in the run, as evaluations/heads.json. See paper/heads/measure.py for the definitions.
"""

from absl import flags

from base.command import imported
from infer.options import define_run_flags, start

if __name__ == "__main__":
    define_run_flags(several=True)
    flags.DEFINE_integer("sentences", 2500, "grammar sentences to choose heads on, and as many to score", lower_bound=1)
    flags.DEFINE_integer("cases", 400, "cases of each rare relation, for which more sentences are read", lower_bound=0)
    flags.DEFINE_bool("ablate", False, "also leave out each head in turn; takes minutes")
    flags.DEFINE_bool("json", False, "print JSON instead of tables; a list if there are several runs")
    start(imported("paper.heads.command"), hint="the run is given as --workdir=DIR")

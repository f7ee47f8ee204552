"""Trains a recorded run again, with the code and the command of its record, and compares what it scores.

    python -m lab.reproduce layers/attention-seed0                   # a record of lab/studies/layers/records.jsonl
    python -m lab.reproduce layers/attention-seed0 --workdir=DIR     # keeps the new run in DIR/run
    python -m lab.reproduce layers/attention-seed0 --save            # a line of lab/reproduce/repeated.jsonl

The commit of the record is cloned into DIR/code, by default in a temporary folder, and trained and evaluated there by
this Python, with the packages that are installed now. On the same kind of processor and with the same packages the
parameters are the same, bit for bit. Elsewhere rounding differs: the loss in nats, of which perplexity is the
exponential, may then differ by 0.017 nats, by three standard deviations of its row's seeds if
that is more, or by --tolerance. Where it differs by more the verdict is "NOT repeated" or, if the processors differ,
"another processor". Other scores are printed, but not judged. The exit status is 0 if it does not differ by more, else
1.

A run that began with another's parameters or subwords (--init, data.tokenizer) cannot be repeated alone.
"""

from absl import flags

from vaswani.command import run
from vaswani.errors import UserError


def main(argv: list[str]) -> int:
    if len(argv) != 2:
        raise UserError(f"{' '.join(argv[1:]) or 'no record'}: give the name of one record, such as quickstart")
    from lab.reproduce.command import main as reproduce  # loads jax, which a mistyped flag need not wait for

    return reproduce(argv[1], flags.FLAGS)


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "folder to create for the code and the run; default: a temporary one")
    flags.DEFINE_float("tolerance", None, "nats by which the loss may differ; default: 0.017, or more", lower_bound=0.0)
    flags.DEFINE_bool("save", False, "add the verdict to lab/reproduce/repeated.jsonl, which lab.results prints")
    run(main)

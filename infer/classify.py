"""Classifies each line of standard input with a text classifier.

echo "The dogs sleep." | python -m infer.classify --workdir=runs/number

Line i of the output is the class of line i of the input, a tab, and the probability that the model gives it.
"""

from base.command import imported
from infer.options import define_run_flags, start

if __name__ == "__main__":
    define_run_flags()
    start(imported("infer.texts.classes"), hint="lines are read from standard input")

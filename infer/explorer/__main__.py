"""Writes a page in which a translator runs: one file, which needs no network and no server.

python -m infer.explorer --workdir=builtin:tatoeba --output=explorer.html [--source="The dog sleeps."]

The page contains the parameters, the subwords, and the model in JavaScript: it translates what is typed into it, draws
the model with this sentence's attention and probabilities, and opens every part of it down to its numbers. Parameters
are rounded to 16 bits, and the page says how much that changes.

Five sentences to try are taken from --examples, from explorer.json in the run folder, or from the run's test corpus:
{"examples": [{"title": "A bank to swim to", "source": "The old cat swam to the bank yesterday."}]}

It is for runs of task=translation with attention and sinusoidal or learned positions, of up to five million parameters,
and with words or subwords learned here; python -m infer.demo serves a page of others.
"""

from pathlib import Path
from typing import Any

from absl import flags

from vaswani.files import output_file, write_text, writing
from vaswani.infer.explorer.export import as_json, page
from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import open_run


def check(options: Any) -> None:
    """Raises a `UserError` if the page cannot be written."""
    output_file("output", options.output, (".html",))


def main(options: Any) -> None:
    """Writes the page of a run."""
    output = output_file("output", options.output, (".html",))
    model_run = open_run(options.workdir, options.checkpoint)
    examples = Path(options.examples) if options.examples else None
    text = page(as_json(model_run, options.source, examples))
    with writing(f"--output={options.output}"):
        write_text(output, text)
    print(options.output)


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_string("output", None, "the page to write, FILE.html")
    flags.DEFINE_string("source", "", "the sentence that it opens with; default: the first example")
    flags.DEFINE_string("examples", None, "a JSON file with sentences to try, as explorer.json in a run folder")
    flags.mark_flag_as_required("output")
    start(main, hint="the run is given as --workdir=DIR", check=check)

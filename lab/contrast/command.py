"""What `python -m lab.contrast` does once its flags have been checked."""

import re
from typing import Any

import numpy as np

from lab.contrast.pairs import Pairs, minimal_pairs, shown
from lab.contrast.sentences import RELATIONS
from lab.evaluation import evaluation_file
from lab.grammar.sentences import RICH_SPLITS
from vaswani.data.sources import open_corpus
from vaswani.errors import UserError
from vaswani.files import write_json
from vaswani.infer.runs import Run, open_run
from vaswani.infer.scores.perplexity import line_log_probs
from vaswani.paper.grammar_runs import direction
from vaswani.read_json import read_json
from vaswani.train.intervals import wilson
from vaswani.train.table import Table, as_text, number


def main(options: Any) -> None:
    """Measures each run, prints the result, and adds it to the newest evaluation of the test split."""
    for workdir in options.workdir:
        model_run = open_run(workdir, options.checkpoint)
        path = evaluation_file(model_run)
        found = measure(model_run, minimal_pairs(_split(model_run), options.sentences, options.cases))
        print(as_text(table(workdir, found)), flush=True)  # first, since the run may not be writable
        write_json(path, {**read_json(path, dict), "contrasts": found})


def _split(model_run: Run) -> str:
    """Returns the grammar's split that a run is tested on.

    Raises:
      UserError: it is tested on another corpus, or one that there is not, or translates German to English.
    """
    spec = model_run.config.data.test
    match = re.fullmatch(r"grammar:((?:rich:)?\w+)(?::\d+)?", spec)
    of_file = re.fullmatch(r"tsv:(?:.*/)?rich-(\w+)\.tsv", spec)  # as `lab.corpora` proposes to name it
    split = match[1] if match else f"rich:{of_file[1]}" if of_file else ""
    if not split or direction(model_run):
        raise UserError(
            f"--workdir={model_run.workdir}: its data.test is {spec}; pairs are made of the built-in grammar, from "
            "English to German, as in grammar:test"
        )
    if split not in RICH_SPLITS:
        open_corpus(spec)  # raises for a split that the grammar lacks
    return split


def measure(model_run: Run, pairs: Pairs) -> list[dict[str, Any]]:
    """Returns for each relation and band the number of pairs, and of how many the right one is more probable."""
    flat = [pair for cell in pairs.values() for pair in cell]
    english = [source for source, _, _ in flat]
    right = [german for _, german, _ in flat]
    wrong = [german for _, _, german in flat]

    def log_probs(german: list[str]) -> np.ndarray:
        return line_log_probs(model_run.model_config, model_run.params, model_run.tokenizer, english, german)

    is_better = log_probs(right) > log_probs(wrong)
    found: list[dict[str, Any]] = []
    start = 0
    for (relation, band), cell in pairs.items():
        end = start + len(cell)
        hits = int(is_better[start:end].sum())
        found.append({"relation": relation, "words": list(band), "cases": len(cell), "right": hits})
        start = end
    return found


def table(workdir: str, found: list[dict[str, Any]]) -> Table:
    """Returns what was measured of one run."""
    rows: list[tuple[str, ...]] = []
    for cell in found:
        low, high = wilson(cell["right"], cell["cases"])
        share = cell["right"] / cell["cases"]
        distance = shown(tuple(cell["words"]))
        interval = f"{number(100 * low, 1)} to {number(100 * high, 1)}"
        rows.append((RELATIONS[cell["relation"]], distance, number(100 * share, 1), interval, str(cell["cases"])))
    head = ("what is wrong", "distance in words", "accuracy in %", "95 % interval", "pairs")
    return Table("contrast", workdir, head, rows, ["the right sentence is more probable than that with a wrong word"])

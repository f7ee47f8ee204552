"""What `python -m lab.patching` does once its flags have been checked."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lab.patching.pairs import minimal_pairs
from vaswani.errors import UserError
from vaswani.files import write_json, write_text
from vaswani.infer.evaluate.record import provenance
from vaswani.infer.inside.trace import Patch, Trace, trace
from vaswani.infer.runs import Run, open_run
from vaswani.paper.grammar_runs import direction
from vaswani.paper.markers import replace_block
from vaswani.progress import Progress
from vaswani.run.folder import as_json
from vaswani.train.intervals import wilson
from vaswani.train.table import Table, as_markdown, as_text

RECORD = Path("lab/patching/record.json")
PAGE = Path("docs/inside.md")
BEGIN = "<!-- patching: made by `python -m lab.patching --workdir=runs/quickstart --record` -->"
END = "<!-- end of patching -->"
SEARCHED = 50  # pairs of sentences for each case, before the model is said to translate too few of them


class Case(NamedTuple):
    """Two traced sentences; in the first, the places of the noun's subwords and of what predicts its translation."""

    source: str
    target: str
    first: Trace
    second: Trace
    places: list[int]
    predicting: int


def main(options: Any) -> None:
    """Prints how often each patch moves the noun."""
    run = open_run(options.workdir, options.checkpoint)
    is_of_the_grammar = run.config.data.train.startswith("grammar:")
    if not is_of_the_grammar or run.tokenizer.units != "subwords":
        raise UserError(f"--workdir={run.workdir}: patching needs a run of data.train=grammar:.. with subwords")
    if direction(run):
        raise UserError(f"--workdir={run.workdir}: it translates German to English; patching needs the other direction")
    result = measure(run, options.cases)
    if options.json:
        print(json.dumps(result, indent=1))
    else:
        print(as_text(table(result)))
    if options.record:
        write_json(RECORD, {**result, "config": as_json(run.config)})
        write_text(PAGE, page(result))


def page(result: dict[str, Any]) -> str:
    """Returns the page with the table of the result in it, without the title, which the text before it says."""
    return replace_block(PAGE, BEGIN, END, as_markdown(table(result)._replace(title="")))


def measure(run: Run, cases: int) -> dict[str, Any]:
    """Returns the cases, and in how many of them each patch moved the noun.

    Raises:
      UserError: the model expects the right noun in too few sentences to find so many cases.
    """
    moved: Counter[str] = Counter()
    found = 0
    with Progress("patching", "cases", total=cases) as progress:
        wanted = itertools.islice(find_cases(run, cases * SEARCHED), cases)
        for case in progress.count(wanted):
            found += 1
            for name, patch in patches(run.model_config.N, case).items():
                patched = trace(run, case.source, case.target, patch)
                has_moved = best(patched, case.predicting) == best(case.second, case.predicting)
                moved[name] += int(has_moved)
    if found < cases:
        raise UserError(f"--workdir={run.workdir}: this model translates too few nouns for --cases={cases}")
    return {**provenance(run, "grammar:test", "test"), "seed": run.config.seed, "cases": cases, "moved": moved}


def find_cases(run: Run, pairs: int) -> Iterator[Case]:
    """Yields a case of each pair of sentences whose noun is one stretch of subwords and rightly expected in both."""
    for first, second in itertools.islice(minimal_pairs("test"), pairs):
        one = trace(run, *first)
        other = trace(run, *second)
        places = _differing(one.source, other.source)
        stretch = list(range(places[0], places[-1] + 1))
        if len(one.source) != len(other.source) or places != stretch:
            continue
        predicting = _differing(one.predicted, other.predicted)[0]
        translations = (first[1], second[1])
        right = [run.tokenizer.target.encode(text)[predicting] for text in translations]
        expected = [best(one, predicting), best(other, predicting)]
        if expected == right:
            yield Case(*first, one, other, places, predicting)


def patches(layers: int, case: Case) -> dict[str, Patch]:
    """Returns the patches by what they replace: the values are the second sentence's, at the same places."""
    other = case.second.activations

    def at(names: Sequence[str], places: Sequence[int]) -> Patch:
        return {name: {place: other[name][place] for place in places} for name in names}

    elsewhere = [place for place in range(len(case.first.source)) if place not in case.places]
    named: dict[str, Patch] = {"encoder/embedding, the noun": at(["encoder/embedding"], case.places)}
    for n in range(layers - 1):
        named[f"encoder/layer_{n}, the noun"] = at([f"encoder/layer_{n}"], case.places)
    named["encoder, the noun"] = at(["encoder"], case.places)
    named["encoder, all but the noun"] = at(["encoder"], elsewhere)
    cross = [f"decoder/layer_{n}/cross_attention" for n in range(layers)]
    for name in cross:
        named[f"{name}, where the noun is predicted"] = at([name], [case.predicting])
    named["cross_attention of all layers, where the noun is predicted"] = at(cross, [case.predicting])
    return named


def best(trace: Trace, position: int) -> int:
    """Returns the token that is expected at a position."""
    return int(trace.activations["logits"][position].argmax())


def table(result: dict[str, Any]) -> Table:
    """Returns the shares as a table, with their 95 % intervals."""
    cases = result["cases"]
    rows: list[tuple[str, ...]] = []
    for name, hits in result["moved"].items():
        low, high = wilson(hits, cases)
        rows.append((name, f"{100 * hits / cases:.1f}", f"{100 * low:.1f} to {100 * high:.1f}"))
    head = ("patched", "moved, %", "95 % interval")
    notes = [
        f"{cases} pairs of sentences of {result['data']} that differ in a noun; seed {result['seed']}, step "
        f"{result['step']}, parameters {result['params_sha256'][:8]}"
    ]
    return Table("patching", "How often a patch moves the noun of the translation", head, rows, notes)


def _differing(first: Sequence[str], second: Sequence[str]) -> list[int]:
    """Returns the places where two rows differ, at least one."""
    return [place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b]

"""Tables of the rows, from their records.

python -m benchmarks.accelerator.report results/accelerator > docs/accelerator.md
"""

import sys
from pathlib import Path
from typing import Any

from base.table import NOT_RUN, Table, as_markdown, number
from benchmarks.accelerator.record import MINUTES, read_record

ABOUT = {
    "step": "One update in bfloat16, 25,000 positions a side",
    "corpus": "The base recipe on real text (small corpora, not WMT14)",
    "multi30k": "Multi30k with the published recipe; published 41.02 tokenised and lower-cased",
    "table3": "The scaled-down models of Table 3, on the validation split",
    "numerics": "What must agree",
    "decoding": "Beam search, beam 4, 20 tokens of every sentence",
    "tests": "Tests on the device",
}
COLUMNS = {  # what a table shows of a part; the record has more
    "step": ("tflops", "milliseconds", "tokens_per_second", "mfu", "memory_gib"),
    "corpus": ("sacrebleu", "bleu_tok", "bleu_paper", "perplexity", "updates", "training_minutes"),
    "multi30k": ("bleu_tok_lc", "sacrebleu", "perplexity", "updates", "training_minutes"),
    "table3": ("perplexity", "sacrebleu", "updates", "training_minutes"),
    "numerics": ("train_percent", "valid_percent", "packed", "causal", "cross", "equal", "whole_rate", "free_rate"),
    "decoding": ("milliseconds", "sentences_per_second", "tokens_per_second"),
    "tests": ("outcome",),
}


def tables(folder: Path) -> list[Table]:
    """Returns a table for each row; of a row without a record, one line that says so.

    Raises:
      UserError: a record is damaged.
    """
    return [table(row, read_record(folder / f"{row}.json")) for row in MINUTES]


def table(row: str, record: dict[str, Any]) -> Table:
    """Returns one row's parts, and why those that are missing are."""
    parts = dict(record["parts"])
    if not record["finished"]:
        reason = record.get("failed", "not in the time that it had" if parts else NOT_RUN)
        parts["the rest" if parts else row] = {"failed": reason, "seconds": None}
    columns = [key for key in (*COLUMNS[row], "failed", "seconds") if any(key in found for found in parts.values())]
    lines = [(name, *(_cell(found.get(column)) for column in columns)) for name, found in parts.items()]
    head = ("part", *(column.replace("_", " ") for column in columns))
    machine = ", ".join(f"{name} {version}" for name, version in record.get("machine", {}).items())
    return Table(row, ABOUT[row], head, lines, [*ratios(row, record["parts"]), *([machine] if machine else [])])


def ratios(row: str, parts: dict[str, Any]) -> list[str]:
    """Returns what ours is to the other engine, where both were measured."""
    peer = {"step": "PyTorch", "decoding": "CTranslate2, float16"}.get(row, "")
    rates = {name: found["tokens_per_second"] for name, found in parts.items() if "tokens_per_second" in found}
    lines = []
    for name, rate in rates.items():
        group, _, form = name.partition(": ")
        if form.startswith("ours") and (other := rates.get(f"{group}: {peer}")):
            lines.append(f"{name}: {rate / other:.2f} x the tokens per second of {peer}")
    return lines


def page(folder: Path) -> str:
    """Returns the document."""
    made = tables(folder)
    state = "" if any(one.rows[0][0] != one.name for one in made) else "\n\nNot run on a GPU yet."
    text = "Made by `python -m benchmarks.accelerator.report results/accelerator` from what "
    text += "`python -m benchmarks.accelerator` measured; `--help` says how." + state
    return "\n\n".join(["# On an accelerator", text, *map(as_markdown, made)]) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if abs(value) >= 1_000 else number(value, 0 if isinstance(value, int) else 3)
    return str(value)


if __name__ == "__main__":
    print(page(Path(sys.argv[1])), end="")

"""Tables of the rows, from their records.

python -m lab.benchmarks.accelerator.report lab/benchmarks/records/accelerator > lab/docs/accelerator.md

A folder `before` beside the records has those of earlier code, and a README.md that says what was changed.
"""

from pathlib import Path
from typing import Any

from lab.benchmarks.accelerator.record import MINUTES, read_record
from vaswani.command import run
from vaswani.errors import UserError
from vaswani.paper.published import TABLE3, TIMES
from vaswani.table import NOT_RUN, Table, as_markdown, number

ABOUT = {
    "step": "One update in bfloat16, 25,000 positions a side",
    "trainer": "The trainer itself, compared with the bare update of the same model",
    "corpus": "The base recipe on real text (small corpora, not WMT14)",
    "multi30k": "Multi30k with the published recipe; published 41.02 tokenised and lower-cased",
    "table3": "The scaled-down models of Table 3, on the validation split",
    "numerics": "What must agree",
    "decoding": "Beam search, beam 4, 20 tokens of every sentence",
    "tests": "Tests on the device",
}
COLUMNS = {  # what a table shows of a part; the record has more
    "step": (
        "tflops",
        "milliseconds",
        "target_tokens_per_second",
        "mfu",
        "mfu_data_sheet",
        "memory_gib",
        "loss_ours",
        "loss_pytorch",
    ),
    "trainer": ("updates", "milliseconds", "target_tokens_per_second", "bare_milliseconds", "share", "overall_share"),
    "corpus": ("sacrebleu", "bleu_tok", "bleu_paper", "perplexity", "updates", "training_minutes"),
    "multi30k": ("bleu_tok_lc", "sacrebleu", "perplexity", "updates", "training_minutes"),
    "table3": ("perplexity", "sacrebleu", "updates", "training_minutes"),
    "numerics": (
        "train_percent",
        "valid_percent",
        "packed",
        "causal",
        "cross",
        "logits",
        "logits_einsum",
        "gradient",
        "gradient_einsum",
        "unpacked",
        "equal",
        "whole_rate",
        "free_rate",
        "free_loss_percent",
    ),
    "decoding": ("milliseconds", "sentences_per_second", "tokens_per_second"),
    "tests": ("outcome",),
}
HEADINGS = {  # where the name in the record would not say enough
    "tflops": "TFLOP/s",
    "mfu": "MFU %, of the measured peak",
    "mfu_data_sheet": "MFU %, of the data sheet",
    "memory_gib": "memory, GiB",
    "share": "bare, % of the trainer's",
    "overall_share": "with checkpoints, %",
    "seconds": "measured in, s",
}
RATES = {"step": "target_tokens_per_second", "decoding": "tokens_per_second"}
CTRANSLATE2 = (
    "CTranslate2's own kernels are PTX for sm_86, which the driver compiles at first use; with CUDA 13 alone its cuBLAS"
    " is that of CUDA 13 under the name of CUDA 12's"
)


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
        if parts:
            missing = "the rest"
            usual_reason = "not in the time that it had"
        else:
            missing = row
            usual_reason = NOT_RUN
        parts[missing] = {"failed": record.get("failed", usual_reason), "seconds": None}
    columns = [key for key in (*COLUMNS[row], "failed", "seconds") if any(key in found for found in parts.values())]
    lines = [(name, *(_cell(found.get(column)) for column in columns)) for name, found in parts.items()]
    head = ("part", *(HEADINGS.get(column, column.replace("_", " ")) for column in columns))
    notes = ratios(row, record["parts"])
    if row == "step":
        notes += hours(record["parts"])
    for when in ("machine", "before", "after"):
        facts = record.get(when, {})
        if facts:
            notes.append(f"{when}: " + ", ".join(f"{name} {fact}" for name, fact in facts.items()))
    return Table(row, ABOUT[row], head, lines, notes)


def ratios(row: str, parts: dict[str, Any]) -> list[str]:
    """Returns what ours is to the fastest form of the other engine, where both were measured."""
    peer = {"step": "PyTorch", "decoding": "CTranslate2"}.get(row)
    if peer is None:
        return []
    rates = {name: found.get(RATES[row]) for name, found in parts.items()}
    lines = []
    for name, rate in rates.items():
        group, _, form = name.partition(": ")
        others = {other: value for other, value in rates.items() if value and other.startswith(f"{group}: {peer}")}
        if rate and form.startswith("ours") and others:
            best = max(others, key=others.__getitem__)
            lines.append(f"{name}: {rate / others[best]:.2f} x the tokens per second of {best.partition(': ')[2]}")
    if row == "decoding" and lines:
        lines.append(CTRANSLATE2)
    return lines


def hours(parts: dict[str, Any]) -> list[str]:
    """Returns how long the paper's base and big would train, with the fastest form of ours that has its mask."""
    lines = []
    for name, time in TIMES.items():
        milliseconds = {
            form: found["milliseconds"]
            for form, found in parts.items()
            if form.startswith(f"{name}: ours") and "no mask" not in form and "milliseconds" in found
        }
        if not milliseconds:
            continue
        fastest = min(milliseconds, key=milliseconds.__getitem__)
        updates = 1_000 * TABLE3[name].steps
        ours = updates * milliseconds[fastest] / 3.6e6
        theirs = f"{time.hours:.0f} on {time.devices} {time.device}"
        lines.append(f"{fastest}: {updates:,} updates, the paper's, would take {ours:.1f} hours (the paper: {theirs})")
    return lines


def page(folder: Path) -> str:
    """Returns the document."""
    made = tables(folder)
    state = "" if any(one.rows[0][0] != one.name for one in made) else "\n\nNot run on a GPU yet."
    text = "Made by `python -m lab.benchmarks.accelerator.report lab/benchmarks/records/accelerator` from what "
    text += "`python -m lab.benchmarks.accelerator` measured; `--help` says how." + state
    sections = ["# On an accelerator", text, *map(as_markdown, made)]
    before = folder / "before"
    if before.is_dir():
        changes = (before / "README.md").read_text(encoding="utf-8").strip()
        sections += [changes, *(as_markdown(one) for one in tables(before) if one.rows[0][0] != one.name)]
    return "\n\n".join(sections) + "\n"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 1_000:
        return f"{value:,.0f}"
    return number(value, 1 if abs(value) >= 10 else 3)


def main(argv: list[str]) -> None:
    """Prints the document of the folder that the command line names."""
    if len(argv) != 2:
        raise UserError(
            f"{' '.join(argv[1:]) or 'no folder'}: give the folder of the records, lab/benchmarks/records/accelerator"
        )
    folder = Path(argv[1])
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; give that of the records, lab/benchmarks/records/accelerator")
    print(page(folder), end="")


if __name__ == "__main__":
    run(main)

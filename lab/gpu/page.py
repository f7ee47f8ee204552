"""The page lab/docs/accelerator.md, from lab/gpu/records.jsonl.

python -m lab.gpu.page > lab/docs/accelerator.md

To record a sitting, add the lines of its OUTPUT/records.jsonl first.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lab.gpu import program
from lab.gpu.parts import PARTS
from lab.gpu.sitting import RECORDS, read_records
from vaswani.command import run
from vaswani.paper.published import TABLE3, TIMES
from vaswani.read_json import read_json_lines
from vaswani.train.table import NOT_RUN, Table, as_markdown, number

OURS = Path(__file__).with_name(RECORDS)
PROGRAMS = Path(__file__).with_name("programs.jsonl")
ABOUT = {
    "public log": "Training curves that strangers published (lab/studies/public_logs)",
    "published": "Published models, further seeds",
    "step": "One update in bfloat16, 25,000 positions a side",
    "trainer": "The trainer itself, compared with the bare update of the same model",
    "tatoeba": "The base model on Tatoeba, to its end",
    "numerics": "What must agree",
    "layers": "An update of a language model with each layer, 16,384 positions, float32, the einsum",
    "decoding": "Beam search, beam 4, 20 tokens of every sentence",
    "tests": "Tests on the device",
    "table 3": "Table 3's rows at the paper's sizes, on Tatoeba's validation split",
}
COLUMNS = {  # what a table shows of a part; the record has more
    "public log": ("test", "bleu", "best_step", "seconds"),
    "published": ("bleu_as_is", "exact_match", "sacrebleu", "perplexity", "updates", "training_minutes"),
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
    "tatoeba": ("sacrebleu", "bleu_tok", "perplexity", "updates", "training_minutes"),
    "numerics": (
        *("packed", "causal", "cross"),
        *("logits", "logits_einsum", "gradient", "gradient_einsum", "unpacked", "equal"),
    ),
    "layers": ("milliseconds", "memory_gib"),
    "decoding": ("milliseconds", "sentences_per_second", "tokens_per_second"),
    "tests": ("outcome",),
    "table 3": ("perplexity", "sacrebleu", "updates", "training_minutes"),
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
LESS = ("no mask", "1,000 subwords", "no dropout")  # forms that do less than the paper's model
RATES = {"step": "target_tokens_per_second", "decoding": "tokens_per_second"}
PEERS = {"step": "PyTorch", "decoding": "CTranslate2"}
CTRANSLATE2 = (
    "CTranslate2's own kernels are PTX for sm_86, which the driver compiles at first use; with CUDA 13 alone its cuBLAS"
    " is that of CUDA 13 under the name of CUDA 12's"
)
HEAD = """# On a GPU

Made by `python -m lab.gpu.page` from `lab/gpu/records.jsonl`.

## How to run it

In a clone, with one card of 40 GiB or more, this command trains and measures for 13 minutes:

```
python -m lab.gpu --minutes=13
```

It needs `pip install -e '.[cuda,bench]'` and the corpora `multi30k_spacy`, `multi30k_published`, `sigmorphon2021` and
`tatoeba`, 9 MB in all, in the folder where `python -m data.download` puts its own, or in one that `--corpora` names;
`lab/studies/public_logs/design.py` and `configs/tatoeba.py` say what the first and the last are. Where there is no git
checkout, give the commit as `--commit=HASH`. Ten minutes and then three do as much as thirteen: the same command goes
on with what has no record. To go on with another machine, take `runs/gpu/records.jsonl` and `runs/gpu/caches` (the
compiled programs) along, and `runs/gpu/runs` (checkpoints) if a training was stopped in the middle.

`python -m lab.gpu --rehearse` does every part in miniature on a CPU. What a sitting has found becomes a table of this
page when the lines of its `records.jsonl` are added to ours.

## The parts

In the order of their worth. A part that does not fit in what is left is skipped and named.
"""
PROGRAM = """`python -m lab.gpu.program --model=base` compiles an update for an H100, without a GPU (extra `aot-gpu`),
and counts its kernels and their bytes. The floor is that of an H200: each kernel's bytes at full bandwidth or its
products at the peak, whichever takes longer. Nothing of it is measured.

In base the compiler joins the products of queries, keys and values, and copies the results apart again; with
`--xla_gpu_dot_merger_threshold_mb=0` it does not, and in big it does not in any case. `one pass` is the maximum and the
sum of exponentials of the loss in one reduction, where there were two (`tasks/loss.py:one_pass`, on CUDA alone).

Tried and left: Adam on all vectors as one, which took more kernels, not fewer, since the results are copied apart
again; `optax.flatten` would change the layout of checkpoints, too. The kernels that derive dropout's seeds, and those
of the gradient's norm, are as they were. Not done: a fused kernel (Pallas) for the loss, or for dropout, residual and
layer norm."""
# What was changed between the sittings whose commit is not known.
EARLIER = """The same with earlier code, on another machine with the same GPU. In a trace of it, which is not kept, the
loss had a third of base's update, about twice the time that PyTorch needs for its own. There were 32 chunks of 776
positions; each read the matrix of 37,000 subwords, added its part of the gradient to a matrix of that size, and passed
over its logits five times. Now three passes do (`tasks/loss.py`), and with `loss.chunk=8192` there are four chunks."""
SITTINGS = {"unknown": "Commit unknown", "unknown, earlier": "Commit unknown, before that"}
NOTES = {"unknown, earlier": EARLIER}


def page(records: list[dict[str, Any]]) -> str:
    """Returns the document."""
    sections = [
        HEAD + "\n" + as_markdown(parts(records)),
        as_markdown(program.table("program", programs(), [])),
        PROGRAM.strip(),
    ]
    codes = list(dict.fromkeys((record["commit"], str(record["machine"]["device"])) for record in records))
    for commit, device in codes:
        of_code = [one for one in records if (one["commit"], one["machine"]["device"]) == (commit, device)]
        sections.append(f"## {SITTINGS.get(commit, commit)}: {device}")
        sections += [NOTES[commit]] if commit in NOTES else []
        sections += [as_markdown(table(group, found)) for group, found in grouped(of_code)]
    return "\n\n".join(sections) + "\n"


def parts(records: list[dict[str, Any]]) -> Table:
    """Returns the parts that there are, and where each has a result."""
    rows: list[tuple[str, ...]] = []
    for part in PARTS:
        found = [one for one in records if one["part"] == part.name and "failed" not in one["found"]]
        commits = [one["commit"][:12] for one in found if one["commit"] not in SITTINGS]
        rows.append((part.name, f"{part.seconds:.0f}", ", ".join(dict.fromkeys(commits)) or NOT_RUN))
    return Table("parts", "", ("part", "seconds, estimated", "result at commit"), rows, [])


def programs() -> dict[str, dict[str, float]]:
    """Returns the sums of each recorded program, by its model and options."""
    found: dict[str, dict[str, float]] = {}
    for record in read_json_lines(PROGRAMS, {"model": str, "flags": str, "one_pass": bool, "kinds": dict}):
        name = ", ".join(filter(None, (record["model"], record["flags"], "one pass" if record["one_pass"] else "")))
        found[name] = record["kinds"]["all"]
    return found


def grouped(records: list[dict[str, Any]]) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    """Yields each kind of part that has records, and these."""
    for group in ABOUT:
        found = [record for record in records if record["part"].startswith(f"{group}: ")]
        if found:
            yield group, found


def table(group: str, records: list[dict[str, Any]]) -> Table:
    """Returns a line for each part of a kind, or for each run of it."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        name = record["part"].removeprefix(f"{group}: ")
        runs = record["found"].get("runs", {})
        found |= {f"{name}, {run}": one for run, one in runs.items()}
        if not runs:
            found[name] = record["found"] | {"seconds": record["seconds"]}
    columns = [
        key for key in (*COLUMNS[group], "failed", "seconds") if any(one.get(key) is not None for one in found.values())
    ]
    lines = [(name, *(_cell(one.get(column)) for column in columns)) for name, one in found.items()]
    head = ("part", *(HEADINGS.get(column, column.replace("_", " ")) for column in columns))
    notes = ratios(group, found)
    if group == "step":
        notes += hours(found)
    facts = {"machine": records[0]["machine"], "before": records[0]["found"].get("before")}
    facts["after"] = records[-1]["found"].get("after")
    for when, values in facts.items():
        if values:
            notes.append(f"{when}: " + ", ".join(f"{name} {value}" for name, value in values.items()))
    return Table(group, ABOUT[group], head, lines, notes)


def ratios(group: str, found: dict[str, Any]) -> list[str]:
    """Returns the ratio of our rate to the other engine's fastest, where both were measured."""
    if group not in PEERS:
        return []
    rates = {name: one.get(RATES[group]) for name, one in found.items()}
    lines = []
    for name, rate in rates.items():
        model, _, form = name.partition(": ")
        others = {
            other: value for other, value in rates.items() if value and other.startswith(f"{model}: {PEERS[group]}")
        }
        if rate and form.startswith("ours") and others:
            best = max(others, key=others.__getitem__)
            lines.append(f"{name}: {rate / others[best]:.2f} x the tokens per second of {best.partition(': ')[2]}")
    if group == "decoding" and lines:
        lines.append(CTRANSLATE2)
    return lines


def hours(found: dict[str, Any]) -> list[str]:
    """Returns how long the paper's models would train, with the fastest form of ours that does all their work."""
    lines = []
    for name, time in TIMES.items():
        milliseconds = {
            form: one["milliseconds"]
            for form, one in found.items()
            if form.startswith(f"{name}: ours") and not any(less in form for less in LESS) and "milliseconds" in one
        }
        if not milliseconds:
            continue
        fastest = min(milliseconds, key=milliseconds.__getitem__)
        updates = 1_000 * TABLE3[name].steps
        ours = updates * milliseconds[fastest] / 3.6e6
        theirs = f"{time.hours:.0f} on {time.devices} {time.device}"
        lines.append(f"{fastest}: {updates:,} updates, the paper's, would take {ours:.1f} hours (the paper: {theirs})")
    return lines


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
    """Prints the document."""
    print(page(read_records(OURS)), end="")


if __name__ == "__main__":
    run(main, hint="it takes nothing")

"""What went before the second design: why two rows of the first are worse than base, with its one schedule for all."""

from vaswani.paper.records import Records
from vaswani.paper.rows import caveat_notes, row_runs, run_notes
from vaswani.paper.tables.cost import cost
from vaswani.paper.tables.table3 import FILE, changed
from vaswani.paper.tables.trend import INTERVAL, UNTRAINED, did_train, paired_differences, tested
from vaswani.train.intervals import with_interval
from vaswani.train.table import Table

# Scaled-down models, each with the one that it is compared with: as the paper's rows, and with the suspect taken away.
COMPARED = (("C3", "base"), ("C3-pre", "base-pre"), ("big", "base"), ("big-drop", "base"))


def why(records: Records) -> Table:
    """Returns the experiments on scaled-down models that are worse than base; configs/ablations.py predicted them."""
    models = {name: row_runs(records, f"{FILE}:{name}:small", "valid") for pair in COMPARED for name in pair}
    head = ("row", "changed", "minus", "log perplexity: difference", "BLEU: difference", "perplexity", "seeds", "cost")
    logs = {name: paired_differences(models[name], models[minus], "perplexity") for name, minus in COMPARED}
    bleu = {name: paired_differences(models[name], models[minus], "sacrebleu") for name, minus in COMPARED}
    rows: list[tuple[str, ...]] = [
        (
            models[name].label(name),
            changed(f"{name}:small"),
            minus,
            with_interval(logs[name], 3),
            with_interval(bleu[name], 2),
            models[name].shown("perplexity", 3),
            str(len(models[name].scored)),
            cost(models[name].scored),
        )
        for name, minus in COMPARED
    ]
    untrained = [name for name, minus in COMPARED if not did_train(models[name], models[minus])]
    notes = [
        *(f"{name} {UNTRAINED}" for name in untrained),
        f"difference: mean over the seeds that both rows have, {INTERVAL}",
        *tested(logs, "log perplexity"),
        *tested(bleu, "BLEU"),
        *run_notes(models),
        *caveat_notes(models),
    ]
    return Table(
        "second-why", "Table 3 scaled down, first design: why C3 and big are worse than base", head, rows, notes
    )

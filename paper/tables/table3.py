"""Table 3: variations of the base model, at the paper's size and as scaled-down models.

Rows of the paper's size stand next to the paper's numbers. The scaled-down models are other models on another task:
only their differences from their own base row can be compared with the paper, see paper/tables/trend.py.
"""

import math

from vaswani.configs.ablations import ALL
from vaswani.keys import flat
from vaswani.model.parameter_count import parameter_count
from vaswani.paper.published import TABLE3, TIMES
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns, caveat_notes, load, row_runs, run_notes
from vaswani.paper.tables.cost import cost
from vaswani.paper.tables.trend import INTERVAL, UNTRAINED, design, did_train, paired_differences, summary
from vaswani.tasks.config import model_config
from vaswani.train.intervals import with_interval
from vaswani.train.table import Table, difference, mean, number, spread

FILE = "configs/ablations.py"
SETTING = "perplexity: of a subword, without label smoothing; development set, no checkpoints averaged"
HEAD = (
    "row",
    "changed",
    "perplexity: paper",
    "perplexity: ours",
    "perplexity: delta",
    "BLEU: paper",
    "BLEU: ours",
    "BLEU: delta",
    "sacreBLEU",
    "parameters: paper",
    "parameters: ours",
    "seeds",
    "cost: paper",
    "cost: ours",
)
SMALL_HEAD = (
    "row",
    "changed",
    "log perplexity − base: paper",
    "log perplexity − base: ours",
    "BLEU − base: paper",
    "BLEU − base: ours",
    "perplexity",
    "sacreBLEU",
    "parameters",
    "seeds",
    "cost",
)


def tables(records: Records) -> list[Table]:
    """Returns the rows at both scales."""
    return [full(records), small(records)]


def full(records: Records) -> Table:
    """Returns the rows of the paper's size next to its numbers."""
    notes = [SETTING, "BLEU: tokenised, compounds split, as in the paper; compare with other papers by sacreBLEU"]
    runs = {name: row_runs(records, f"{FILE}:{name}", "valid") for name in TABLE3}
    rows: list[tuple[str, ...]] = []
    for name, row in runs.items():
        paper = TABLE3[name]
        time = TIMES.get(name)
        rows.append(
            (
                row.label(name),
                changed(name),
                number(paper.perplexity),
                row.shown("perplexity"),
                difference(mean(row.values("perplexity")), paper.perplexity),
                number(paper.bleu, 1),
                row.shown("bleu_paper"),
                difference(mean(row.values("bleu_paper")), paper.bleu),
                spread(row.values("sacrebleu")),
                f"{paper.parameters}e6" if paper.parameters else "",
                f"{parameters(f'{FILE}:{name}', row):,}",
                str(len(row.scored)),
                f"{time.hours:g} h, {time.devices} x {time.device}" if time else "",
                cost(row.scored),
            )
        )
    notes += [
        "parameters: ours follow from the paper's equations with one shared vocabulary of 37,000; no vocabulary size "
        f"gives both {TABLE3['base'].parameters}e6 and {TABLE3['big'].parameters}e6",
        *run_notes(runs),
        *caveat_notes(runs),
    ]
    return Table("table3", "Table 3: variations of the base model, newstest2013 English-German", HEAD, rows, notes)


def small(records: Records) -> Table:
    """Returns the scaled-down models: how far each row is from base, in the paper and here.

    A row that did not train has no line: how far it is from base says nothing of what it changes.
    """
    models = {name: row_runs(records, f"{FILE}:{name}:small", "valid") for name in TABLE3}
    base = models["base"]
    paper_base = TABLE3["base"]
    rows: list[tuple[str, ...]] = []
    untrained = [name for name, row in models.items() if not did_train(row, base)]
    for name, row in models.items():
        if name in untrained:
            continue
        paper = TABLE3[name]
        rows.append(
            (
                row.label(name),
                changed(f"{name}:small"),
                difference(math.log(paper.perplexity), math.log(paper_base.perplexity), 3),
                with_interval(paired_differences(row, base, "perplexity"), 3) if name != "base" else "",
                difference(paper.bleu, paper_base.bleu, 1),
                with_interval(paired_differences(row, base, "sacrebleu"), 2) if name != "base" else "",
                row.shown("perplexity", 3),
                row.shown("sacrebleu"),
                f"{parameters(f'{FILE}:{name}:small', row):,}",
                str(len(row.scored)),
                cost(row.scored),
            )
        )
    notes = [
        SETTING,
        f"− base, ours: mean over the seeds that both rows have, {INTERVAL}; perplexity and sacreBLEU: mean over the "
        "seeds, ± standard deviation",
        *(f"{name} {UNTRAINED}; the notes below count it, as the design does" for name in untrained),
        *run_notes(models),
        *design(models),
        *summary(models, "perplexity", lambda name: TABLE3[name].perplexity),
        *summary(models, "sacrebleu", lambda name: TABLE3[name].bleu),
        *caveat_notes(models),
    ]
    title = "Table 3, scaled-down models: an eighth of the width, half of the layers, built-in corpus"
    return Table("table3-small", title, SMALL_HEAD, rows, notes)


def changed(argument: str) -> str:
    """Returns a row's changes, as "h 1, d_k 512", with the values of its size."""
    values = flat(load(f"{FILE}:{argument}").to_dict())
    changes: list[str] = []
    for key in ALL[argument.partition(":")[0]]:
        value = f"{values[key]:,}" if key == "steps" else values[key]
        changes.append(f"{key.rpartition('.')[2]} {value}")
    return ", ".join(changes)


def parameters(name: str, row: RowRuns) -> int:
    """Returns the exact number of parameters: of the run, or by formula for the vocabulary that the config asks for."""
    if row.scored:
        return row.scored[0].scores["params"]
    cfg = load(name)
    return parameter_count(model_config(cfg, cfg.data.vocab_size))

"""Table 3: variations of the base model, at the paper's size and as small twins.

Rows of the paper's size stand beside the paper's numbers. Small twins are models and a task of their own: only how far
a row lies from their base row can be held against the paper, which is what `trend` sums up.
"""

import statistics
from collections.abc import Callable, Sequence

from base.table import NOT_RUN, Table, difference, mean, number, spread
from configs.ablations import ROWS
from model.config import parameter_count
from paper.published import TABLE3, TIMES
from paper.records import Found, Row, find, load
from paper.tables.cost import paid
from run.folder import model_config

FILE = "configs/ablations.py"
ASK = "perplexity: of a subword, without label smoothing; development set, no checkpoints averaged"


def tables(found: Found) -> list[Table]:
    """Both scales."""
    return [full(found), small(found)]


def full(found: Found) -> Table:
    """The rows of the paper's size beside what it prints."""
    head = (
        *("row", "changed", "perplexity: paper", "perplexity: ours", "perplexity: delta"),
        *("BLEU: paper", "BLEU: ours", "BLEU: delta", "sacreBLEU", "parameters: paper", "parameters: ours"),
        *("seeds", "cost: paper", "cost: ours"),
    )
    notes = [ASK, "BLEU: tokenised, compounds split, as the paper's; sacreBLEU is what compares across papers"]
    rows: list[tuple[str, ...]] = []
    for name, paper in TABLE3.items():
        row = find(found, f"{FILE}:{name}", "valid")
        perplexities, bleu = row.values("perplexity"), row.values("bleu_paper")
        printed = f"{paper.parameters}e6" if paper.parameters else ""
        time = TIMES.get(name)
        rows.append(
            (
                name,
                changed(name),
                *(number(paper.perplexity), spread(perplexities) or row.missing or NOT_RUN),
                difference(mean(perplexities), paper.perplexity),
                *(number(paper.bleu, 1), spread(bleu) or row.missing or NOT_RUN, difference(mean(bleu), paper.bleu)),
                spread(row.values("sacrebleu")),
                *(printed, f"{parameters(f'{FILE}:{name}', row):,}"),
                str(len(row.scored)),
                f"{time.hours:g} h, {time.devices} x {time.device}" if time else "",
                paid(row.scored),
            )
        )
        notes += row.notes
    notes.append(
        "parameters: with one shared vocabulary of 37,000 the equations give what stands under ours; no vocabulary "
        f"gives both {TABLE3['base'].parameters}e6 and {TABLE3['big'].parameters}e6"
    )
    return Table("table3", "Table 3: variations of the base model, newstest2013 English-German", head, rows, notes)


def small(found: Found) -> Table:
    """The small twins: how far from its base row a row lies, in the paper and here."""
    twins = {name: find(found, f"{FILE}:{name}:small", "valid") for name in TABLE3}
    head = (
        *("row", "changed", "perplexity − base: paper", "perplexity − base: ours"),
        *("BLEU − base: paper", "BLEU − base: ours", "perplexity", "sacreBLEU", "parameters", "seeds", "cost"),
    )
    base, paper_base, notes = twins["base"], TABLE3["base"], [ASK]
    rows: list[tuple[str, ...]] = []
    for name, row in twins.items():
        paper, perplexities, bleu = TABLE3[name], row.values("perplexity"), row.values("sacrebleu")
        rows.append(
            (
                name,
                changed(f"{name}:small"),
                difference(paper.perplexity, paper_base.perplexity),
                difference(mean(perplexities), mean(base.values("perplexity")), 3),
                difference(paper.bleu, paper_base.bleu, 1),
                difference(mean(bleu), mean(base.values("sacrebleu"))),
                *(spread(perplexities, 3) or row.missing or NOT_RUN, spread(bleu) or row.missing or NOT_RUN),
                f"{parameters(f'{FILE}:{name}:small', row):,}",
                str(len(row.scored)),
                paid(row.scored),
            )
        )
        notes += row.notes
    notes += trend(twins, "perplexity", lambda name: TABLE3[name].perplexity)
    notes += trend(twins, "sacrebleu", lambda name: TABLE3[name].bleu)
    title = "Table 3, small twins: a quarter of the width, half of the layers, built-in corpus"
    return Table("table3-small", title, head, rows, notes)


def trend(twins: dict[str, Row], key: str, paper: Callable[[str], float]) -> list[str]:
    """In how many rows ours and the paper's lie on the same side of base, and Spearman's correlation of the rows."""
    names = [name for name, row in twins.items() if row.scored]
    if "base" not in names or len(names) < 3:
        return []
    ours = {name: statistics.fmean(twins[name].values(key)) for name in names}
    moved = [name for name in names if name != "base" and paper(name) != paper("base")]
    same = sum((ours[name] > ours["base"]) == (paper(name) > paper("base")) for name in moved)
    sides = [[paper(name) for name in names], list(ours.values())]
    line = f"{key}: on the paper's side of base in {same} of {len(moved)} rows that differ from it there"
    if all(len(set(side)) > 1 for side in sides):
        line += f"; rank correlation of {len(names)} rows {statistics.correlation(*map(ranks, sides)):.2f}"
    return [line]


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each value among all, equal ones sharing the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]


def changed(argument: str) -> str:
    """What a row sets, as "h 1, d_k 512", with the values of its size."""
    cfg = load(f"{FILE}:{argument}")
    keys = ROWS[argument.partition(":")[0]]
    return ", ".join(f"{key.rpartition('.')[2]} {_value(cfg, key)}" for key in keys)


def _value(cfg: object, key: str) -> object:
    for part in key.split("."):
        cfg = getattr(cfg, part)
    return f"{cfg:,}" if key == "steps" else cfg


def parameters(name: str, row: Row) -> int:
    """Exact number of parameters: of the run, or by formula with the vocabulary that the config asks for."""
    if row.scored:
        return row.scored[0].scores["params"]
    cfg = load(name)
    return parameter_count(model_config(cfg, cfg.data.vocab_size))

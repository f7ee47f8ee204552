"""Table 2: BLEU on newstest2014, and training operations."""

from vaswani.errors import UserError
from vaswani.infer.scores.bleu import TABLED
from vaswani.paper.published import BIG_EN_FR_IN_THE_PROCEEDINGS, SUSTAINED, TABLE2, TIMES
from vaswani.paper.records import Records
from vaswani.paper.rows import RowRuns, caveat_notes, identity, load, row_runs
from vaswani.paper.tables.cost import analytic_flops, cost, paper_flops, run_flops, xla_flops
from vaswani.paper.tables.paired import compare_rows
from vaswani.paper.tables.table3 import FILE as TABLE3_FILE
from vaswani.paper.tables.trend import INTERVAL, UNTRAINED, did_train, paired_differences, tested
from vaswani.run.folder import as_json
from vaswani.train.intervals import with_interval
from vaswani.train.table import NOT_RUN, Table, difference, mean, number, spread

PAIRS = {"en-de": "English-German", "en-fr": "English-French"}
SIZES = ("base", "big")
# The variant of BLEU that is compared with the paper's column: compounds were split for German only.
READING = {"en-de": "bleu_paper", "en-fr": "bleu_tok"}
Rows = dict[tuple[str, str, str], RowRuns]  # by size, pair and scale
OPERATIONS_HEAD = (
    "model",
    "pair",
    "paper: printed",
    "paper: hours x rate",
    "ours: hours x rate",
    "ours: analytic",
    "ours: XLA",
    "XLA / analytic",
    "cost",
)


def config_of(size: str, pair: str, scale: str = "") -> str:
    """Returns the config of a Transformer row; `scale` is "" or ":small"."""
    return f"configs/{size}.py:{pair}{scale}"


def tables(records: Records) -> list[Table]:
    """Returns BLEU of each pair, the scaled-down models, every reading, and operations."""
    rows: Rows = {
        (size, pair, scale): _row(records, config_of(size, pair, scale))
        for scale in ("", ":small")
        for pair in PAIRS
        for size in SIZES
    }
    return [*(bleu(rows, pair) for pair in PAIRS), small(rows), readings(rows), operations(records, rows)]


def _row(records: Records, name: str) -> RowRuns:
    """Returns the runs of a config or, where there are none, the runs of its variant for an accelerator."""
    row = row_runs(records, name, "test")
    if row.scored or row.missing or name.endswith(":small"):
        return row
    # A row of the variant for TPUs is the same: how attention is computed makes no other run.
    packed = row_runs(records, f"{name}:gpu", "test")
    if packed.scored:
        return packed._replace(notes=[*packed.notes, f"{name}: trained in packed rows, as {name}:gpu is"])
    return packed if packed.missing else row


def bleu(rows: Rows, pair: str) -> Table:
    """Returns one language pair: the paper's systems, and ours next to its Transformers."""
    head = ("model", "BLEU: paper", "BLEU: ours", "BLEU: delta", "sacreBLEU", "seeds", "cost: paper", "cost: ours")
    lines: list[tuple[str, ...]] = []
    notes: list[str] = []
    for system in TABLE2:
        if pair not in system.bleu:
            continue
        printed = f"{system.bleu[pair]:g}"
        size = size_of(system.model)
        if size is None:
            lines.append((system.model, printed, "", "", "", "", "", ""))
            continue
        row = rows[size, pair, ""]
        time = TIMES[size]
        lines.append(
            (
                row.label(system.model),
                printed,
                row.shown(READING[pair]),
                difference(mean(row.values(READING[pair])), system.bleu[pair]),
                spread(row.values("sacrebleu")),
                str(len(row.scored)),
                f"{time.hours:g} h, {time.devices} x {time.device}",
                cost(row.scored),
            )
        )
        notes += row.notes
    if pair == "en-fr":
        notes.append(f"Transformer (big): {BIG_EN_FR_IN_THE_PROCEEDINGS} in the proceedings")
    notes += paired(rows, pair, "")
    reading = "tokenised, compounds split, quotes normalised" if pair == "en-de" else "tokenised"
    notes.append(f"ours: {reading}, as in the paper, as far as is known; compare with other papers by sacreBLEU")
    notes += _caveats(rows, pair, "")
    return Table(f"table2-{pair}", f"Table 2: BLEU on newstest2014, {PAIRS[pair]}", head, lines, notes)


def small(rows: Rows) -> Table:
    """Returns the scaled-down models, of which only big minus base compares with the paper: the corpus is built in."""
    head = ("model", "pair", "big − base: paper", "big − base: ours", "sacreBLEU", "perplexity", "seeds", "cost")
    lines: list[tuple[str, ...]] = []
    notes: list[str] = []
    printed = {(size_of(system.model), pair): value for system in TABLE2 for pair, value in system.bleu.items()}
    step_of = {
        pair: paired_differences(rows["big", pair, ":small"], rows["base", pair, ":small"], "sacrebleu")
        for pair in PAIRS
    }
    for pair in PAIRS:
        for size in SIZES:
            row = rows[size, pair, ":small"]
            if not did_train(row, rows["base", pair, ":small"]):
                notes.append(f"{size}, {pair}: {UNTRAINED}")
                del step_of[pair]
                continue
            papers = ""
            ours = ""
            if size == "big":
                papers = difference(printed["big", pair], printed["base", pair], 1)
                ours = with_interval(step_of[pair], 2)
            lines.append(
                (
                    row.label(f"Transformer ({size}), scaled-down model"),
                    pair,
                    papers,
                    ours,
                    row.shown("sacrebleu"),
                    spread(row.values("perplexity"), 3),
                    str(len(row.scored)),
                    cost(row.scored),
                )
            )
            notes += row.notes
        notes += paired(rows, pair, ":small") + _caveats(rows, pair, ":small")
        notes += counted_once(pair) + averages_whole_runs(pair)
    notes.append("the built-in corpus stands in for both pairs, reversed for en-fr; 1,000 test sentences")
    notes.append(f"big − base: mean over the seeds that both have, {INTERVAL}")
    notes += tested(step_of, "big − base, sacreBLEU")
    title = "Table 2, scaled-down models: an eighth of the width, half of the layers, built-in corpus"
    return Table("table2-small", title, head, lines, notes)


def counted_once(pair: str) -> list[str]:
    """Returns a note if a pair's scaled-down models are also in Table 3, so that nobody counts them twice."""
    for size in SIZES:
        here = as_json(load(config_of(size, pair, ":small")))
        there = as_json(load(f"{TABLE3_FILE}:{size}:small"))
        if identity(here) != identity(there):
            return []
    return [
        f"{pair}: the same models, trained alike, as base and big among Table 3's scaled-down models, here scored on "
        "the test split with averaged checkpoints: one experiment, not two"
    ]


def averages_whole_runs(pair: str) -> list[str]:
    """Returns a note for each size whose scaled-down model is the average of all checkpoints, the first included."""
    notes: list[str] = []
    for size in SIZES:
        cfg = load(config_of(size, pair, ":small"))
        count = int(cfg.decode.checkpoint.removeprefix("average:"))
        if count * cfg.checkpoint.every >= cfg.steps:
            notes.append(
                f"{size}, {pair}: the average of the last {count} checkpoints, one every {cfg.checkpoint.every} of "
                f"{cfg.steps:,} updates, which is of the whole run, its beginning included"
            )
    return notes


def readings(rows: Rows) -> Table:
    """Returns every reading of each of our systems, with the signatures as notes."""
    shown = ("perplexity", *TABLED)
    head = ("model", "pair", *shown)
    lines: list[tuple[str, ...]] = []
    names_of: dict[str, list[str]] = {}
    for (size, pair, scale), row in rows.items():
        if not row.scored or not did_train(row, rows["base", pair, scale]):
            continue
        name = f"{size}{', scaled-down model' if scale else ''}"
        values = [spread(row.values(key)) for key in shown]
        lines.append((row.label(name), pair, *values))
        for key, signature in row.scored[0].scores["signatures"].items():
            if key in shown:
                names_of.setdefault(f"{key}: {signature}", []).append(f"{name} {pair}")
    notes = [f"{signature} ({'; '.join(names)})" for signature, names in names_of.items()]  # names have commas
    notes += [note for pair in PAIRS for scale in ("", ":small") for note in _caveats(rows, pair, scale)]
    return Table("table2-readings", "Table 2: every score of our systems", head, lines, notes or [NOT_RUN])


def operations(records: Records, rows: Rows) -> Table:
    """Returns training operations; paper/tables/cost.py explains the columns."""
    lines: list[tuple[str, ...]] = []
    for system in TABLE2:
        size = size_of(system.model)
        for pair, flops in system.flops.items():
            if size is None:
                lines.append((system.model, pair, _power(flops), "", "", "", "", "", ""))
                continue
            printed = (_power(flops), _power(paper_flops(size)))
            ours = _operations(records, rows, size, pair, "")
            lines.append((rows[size, pair, ""].label(system.model), pair, *printed, *ours))
            ours = _operations(records, rows, size, pair, ":small")
            lines.append((rows[size, pair, ":small"].label(f"{system.model}, scaled-down model"), pair, "", "", *ours))
    rates = ", ".join(f"{device} {rate / 1e12:g}" for device, rate in SUSTAINED.items())
    notes = [
        "hours x rate: time x devices x sustained rate, the paper's formula, an upper bound; its rates are, in 1e12/s, "
        f"{rates}, and other devices have none",
        "analytic: matrix products of all updates, from train/aot/flops.py, for rows as long as the middle bucket's",
        "XLA: the compiler's count of the same updates, where a report of train.compile is found",
        "energy: no run has measured it",
        *(note for pair in PAIRS for scale in ("", ":small") for note in _caveats(rows, pair, scale)),
    ]
    return Table("table2-flops", "Table 2: training operations (FLOPs)", OPERATIONS_HEAD, lines, notes)


def _operations(records: Records, rows: Rows, size: str, pair: str, scale: str) -> tuple[str, ...]:
    """Returns our cells of a row: hours x rate, analytic, XLA's count, XLA's over the analytic one, and the cost."""
    row = rows[size, pair, scale]
    cfg = load(config_of(size, pair, scale))
    analytic = analytic_flops(cfg)
    xla = xla_flops(records, cfg)
    timed = [run_flops(scored) for scored in row.scored]
    return (
        _power(mean([flops for flops in timed if flops is not None])),
        _power(analytic),
        _power(xla),
        number(None if xla is None else xla / analytic, 3),
        cost(row.scored) or NOT_RUN,
    )


def paired(rows: Rows, pair: str, scale: str) -> list[str]:
    """Returns a line on whether big is better than base by more than chance; none without translations of both."""
    try:
        test = compare_rows(rows["base", pair, scale], rows["big", pair, scale])
    except UserError as error:
        return [f"no paired test of base and big, {pair}: {error}"]
    if test is None:
        return []
    base, big = test.scores
    of_base, of_big = test.intervals
    models = ", scaled-down models" if scale else ""
    return [
        f"paired approximate randomisation, {pair}{models}: base {base:.2f} ± {of_base:.2f}, "
        f"big {big:.2f} ± {of_big:.2f}, two-sided p {test.p:.3f} ({test.signature})"
    ]


def _caveats(rows: Rows, pair: str, scale: str) -> list[str]:
    of_scale = ", scaled-down model" if scale else ""
    return caveat_notes({f"{size}{of_scale} {pair}": rows[size, pair, scale] for size in SIZES})


def size_of(model: str) -> str | None:
    """Returns "base" or "big" for the paper's own rows."""
    return next((size for size in SIZES if model == f"Transformer ({size})"), None)


def _power(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}".replace("e+", "e")

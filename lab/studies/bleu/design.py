r"""Why is my BLEU lower? One change a row from a base that trains in minutes; and how much text a model needs.

Readers of every translation codebase ask it, and the answers they get are guesses. Here a small model of Multi30k is
trained again and again, each time with one thing wrong or different: what does it cost, and what in the log says so?

Ours:  docs/bleu.md, made from the records.
Cost:  the base: 4 to 5 minutes of one CPU core that trains in bfloat16 (train/cpu_matmuls.py); all rows: about four
       hours.

The design, fixed before the first run (pilots of the base, with seed 98, were looked at on validation only):

- `ROWS`: the base, and one change of it a row. What a config has no key for is a patch (`faults.py`); what is a change
  of the text is written beside the runs (`texts.py`). Seeds 0 and 1 of every row. Nothing is chosen from any run.
- Measured: sacreBLEU on test_2016_flickr, which is the same for every row, by the average of the last five checkpoints,
  a beam of 4 and an alpha of 0.6; the loss on validation; and what a log shows (`signs.py`).
- A row's difference is the mean of its seeds minus the mean of the base's. The spread s of one run is pooled over the
  rows with both seeds whose BLEU is at least half the base's: a row with seeds x and y has the variance (x - y)^2 / 2.
  The difference of two means of two runs each then has the variance s^2, so its 95 % interval is s times the t quantile
  with as many degrees of freedom as rows were pooled. Next to it stands, seed by seed, the interval over the test
  sentences (paired bootstrap, the same draws for both systems), which knows nothing of seeds.
- `sign` is what each row claims of BLEU. -1 (it costs) and +1 (it raises) are shown if the interval lies wholly on that
  side of 0, refuted if it lies wholly on the other, else neither. 0 (it costs nothing worth a search) is shown if the
  interval lies wholly within 1 BLEU on either side of 0, refuted if wholly beyond, else neither. No verdict before both
  seeds of the row and of the base. Of so many rows, one interval in twenty misses by chance.
- A sign in the log counts as giving the row away if `signs.py` prints it for both seeds; its thresholds are fixed here,
  too. Expected: every fault that costs more than 5 BLEU has one.

    python -m lab.studies.bleu.run --row=base --seed=0          # one run: it trains, is scored, and leaves record.json
    python -m lab.studies.bleu.queue                            # all of them, seed by seed; again, and it goes on
    cat runs/bleu/*/record.json >> lab/studies/bleu/records.jsonl
    python -m lab.results

    python -m train --config=lab/studies/bleu/design.py:untied --workdir=runs/untied    # a row without a patch

A run whose loss is no longer finite counts as 0 BLEU. The raw files are those of configs/multi30k.py (python -m
data.download multi30k). `curve.py` has the second part, `readings.py` the causes that need no training.
"""

from typing import Any, NamedTuple

from ml_collections import ConfigDict

from lab.studies.texts import TEXTS
from vaswani.configs.common import default
from vaswani.data.corpora import corpus_folder

SEEDS = (0, 1)
STEPS = 1_200


class Row(NamedTuple):
    """A change of the base: in words, our key for it, its `sign`, and the config's values that differ."""

    change: str
    key: str
    sign: int
    settings: dict[str, Any]


def keyed(change: str, sign: int, **settings: Any) -> Row:
    """Returns a row that differs in these keys of the config; they are written with __ for the dot."""
    by_key = {key.replace("__", "."): value for key, value in settings.items()}
    return Row(change, ", ".join(key for key in by_key if key != "checkpoint.every"), sign, by_key)


def fault(change: str, sign: int) -> Row:
    """Returns a row that `faults.py` patches: no key does this."""
    return Row(change, "none: our code does this right", sign, {})


ROWS: dict[str, Row] = {
    "base": Row("nothing", "", 0, {}),
    # The batch.
    "quarter": keyed("a quarter of the tokens an update", -1, data__tokens_per_batch=512),
    "quarter-longer": keyed(
        "a quarter of the tokens, four times the updates",
        0,
        data__tokens_per_batch=512,
        steps=4 * STEPS,
        checkpoint__every=200,
    ),
    "fourfold-shorter": keyed(
        "four times the tokens, a quarter of the updates",
        -1,
        data__tokens_per_batch=8_192,
        steps=STEPS // 4,
        checkpoint__every=12,
    ),
    # The rate.
    "no-warmup": keyed("no warm-up", -1, optim__warmup=1),
    "undivided": keyed("the rate not divided by sqrt(d_model)", -1, optim__lr=128**0.5),
    "step-0": fault("the rate's step counted from 0", 0),
    # Regularisation and embeddings.
    "smoothing-0": keyed("no label smoothing", -1, loss__eps_ls=0.0),
    "dropout-0": keyed("no dropout", 1, model__P_drop=0.0),
    "untied": keyed("embeddings not tied", -1, model__tie_embeddings=False),
    "unscaled": keyed("embeddings not times sqrt(d_model)", -1, model__scale_embeddings=False),
    "decoder-positions": fault("no positions in the decoder", -1),
    # Masks.
    "padding": fault("padding is attended to", -1),
    "neighbours": fault("packed sentences attend to each other", -1),
    "future": fault("the decoder sees the future", -1),
    # The text.
    "subwords-500": keyed("500 subwords", 0, data__vocab_size=500),
    "subwords-32000": keyed("32,000 subwords", -1, data__vocab_size=32_000),
    "source-eos": fault("no EOS after the source", 0),
    "lowercase": Row("training text lower-cased, test not", "data.lowercase, which does both", -1, {}),
    "leak": Row("the test pairs are in the training text, too", "none: compare the files", 1, {}),
    "file-order": fault("pairs in the order of the file", 0),
    "by-length": fault("pairs from the shortest to the longest", -1),
    # Last, since it takes four times as long.
    "fourfold": keyed("four times the tokens an update", 1, data__tokens_per_batch=8_192),
}
CHANGED_TEXTS = ("lowercase", "leak")


def get_config(row: str = "base") -> ConfigDict:
    """Returns the config of a row; raises `ValueError` if there is none of that name."""
    if row not in ROWS:
        raise ValueError(f"there is no row {row!r}; the rows are {', '.join(ROWS)}")
    folder = corpus_folder("multi30k")
    cfg = default()
    cfg.steps = STEPS

    train = f"{TEXTS}/{row}/train.{{en,de}}" if row in CHANGED_TEXTS else f"{folder}/train.{{en,de}}.gz"
    cfg.data.train = f"text:{train}"
    cfg.data.valid = f"text:{folder}/val.{{en,de}}.gz"
    cfg.data.test = f"text:{folder}/test_2016_flickr.{{en,de}}.gz"
    cfg.data.vocab_size = 4_000
    cfg.data.max_length = 64
    cfg.data.tokens_per_batch = 2_048
    cfg.data.batching = "pack"
    cfg.data.pack_length = 64
    if row == "source-eos":  # which prepared ids would otherwise have
        cfg.data.cache = f".cache/bleu-{row}"

    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 2, 128, 512
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 32, 32
    cfg.model.dropout_bits = "hash"

    cfg.optim.warmup = 400
    cfg.checkpoint.every = 50
    cfg.eval.every = 400
    cfg.eval.bleu_sentences = 0
    cfg.cpu_bfloat16 = True
    cfg.update_from_flattened_dict(ROWS[row].settings)
    return cfg

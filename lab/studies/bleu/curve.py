"""How much text, and which model: BLEU and chrF by the number of pairs, on text of the same kind and of another.

The second part of the study, run after all rows of `design.py`. A row is PAIRS-SIZE, as 10k-small.

The design, fixed before the first run:

- Text: Tatoeba's training pairs in one random order, the same for all, of which a row has the first 3,000 to all
  163,471. Validation and test are whole; none of their sentences is in the training text. The test text of
  LibreOffice's help, technical prose, is also scored: none of it is trained on.
- What changes with the text is in `TEXT`: subwords, dropout and updates, chosen beforehand by rule of thumb and not
  tuned. Fewer pairs get fewer subwords, more dropout, more epochs. Sizes are in `SIZES`, both where they may differ.
- One seed; a second one at 10,000 and 100,000 pairs. No verdict: a figure and a table. Expected: ten times the text
  gives 10 to 15 BLEU; the smaller model is ahead at 3,000 pairs and behind at 100,000; on the help text every model is
  below 10 BLEU.
"""

from typing import NamedTuple

from ml_collections import ConfigDict

from lab.studies.texts import TEXTS
from vaswani.configs.common import default
from vaswani.data.corpora import corpus_folder


class Text(NamedTuple):
    """Pairs to train on, and the settings that go with so many."""

    pairs: int
    subwords: int
    dropout: float
    updates: int


TEXT = {
    "3k": Text(3_000, 1_000, 0.3, 800),
    "10k": Text(10_000, 2_000, 0.3, 1_200),
    "30k": Text(30_000, 4_000, 0.2, 1_800),
    "100k": Text(100_000, 8_000, 0.1, 3_000),
    "163k": Text(163_471, 8_000, 0.1, 3_600),
}
SIZES = {"small": 64, "medium": 128}  # d_model; two layers of both stacks, d_ff four times as wide
SEEDS = {  # of each row
    "3k-small": (0,),
    "3k-medium": (0,),
    "10k-small": (0, 1),
    "10k-medium": (0, 1),
    "30k-medium": (0,),
    "100k-small": (0,),
    "100k-medium": (0, 1),
    "163k-medium": (0,),
}
ROWS = tuple(SEEDS)


def get_config(row: str = "10k-medium") -> ConfigDict:
    """Returns the config of a row; raises `ValueError` if there is none of that name."""
    if row not in ROWS:
        raise ValueError(f"there is no row {row!r}; the rows are {', '.join(ROWS)}")
    pairs, size = row.split("-")
    text = TEXT[pairs]
    folder = corpus_folder("tatoeba")
    cfg = default()
    cfg.steps = text.updates

    cfg.data.train = f"text:{TEXTS}/{pairs}/train.{{en,de}}"
    cfg.data.valid = f"text:{folder}/split.en-de.valid.{{en,de}}.gz"
    cfg.data.test = f"text:{folder}/split.en-de.test.{{en,de}}.gz"
    cfg.data.vocab_size = text.subwords
    cfg.data.max_length = 64
    cfg.data.tokens_per_batch = 2_048
    cfg.data.batching = "pack"
    cfg.data.pack_length = 64

    cfg.model.N, cfg.model.d_model = 2, SIZES[size]
    cfg.model.d_ff = 4 * cfg.model.d_model
    cfg.model.h = 4
    cfg.model.d_k = cfg.model.d_v = cfg.model.d_model // 4
    cfg.model.P_drop = text.dropout
    cfg.model.dropout_bits = "hash"

    cfg.optim.warmup = 400
    cfg.checkpoint.every = 50
    cfg.eval.every = 400
    cfg.eval.bleu_sentences = 0
    cfg.cpu_bfloat16 = True
    return cfg


def source() -> str:
    """Returns the whole training text, of which each row has a part."""
    return f"text:{corpus_folder('tatoeba')}/split.en-de.train.{{en,de}}.gz"


def foreign() -> str:
    """Returns the text of another kind, on which every row is also scored."""
    return f"text:{corpus_folder('libreoffice_help')}/test.{{en,de}}.gz"

"""Small twins of the paper's rows: a quarter of every width and half of the layers, on the built-in corpus.

The second part of a config's argument selects the twin: `configs/ablations.py:A1:small`. A twin changes the same things
as its row, in proportion, so twins can be compared with each other as the paper's rows can; their numbers are not the
paper's. Everything that is not scaled down here is the row's own: heads, dropout, smoothing, positions, Adam, the shape
of the schedule, decoding.

Cost: 1 to 7 minutes each on one core of a busy machine (results/table3-small); the big one has not been run.
"""

from ml_collections import ConfigDict

SHORTER = 400  # times fewer updates: 250 for the paper's 100,000
WARMUP = 100
FACTOR = 0.5  # on the paper's schedule, which would peak at 8.8e-3 after such a short warm-up


def choose(argument: str, rows: tuple[str, ...]) -> tuple[str, bool]:
    """Returns the row that the argument of --config names, and whether it asks for the small twin.

    Raises:
      ValueError: there is no such row, or it is followed by something other than "small".
    """
    row, colon, size = argument.partition(":")
    if row not in rows or (colon and size != "small"):
        raise ValueError(f"there is no row {argument!r}; the rows are {', '.join(rows)}, each also as ROW:small")
    return row, bool(colon)


def small(cfg: ConfigDict, direction: str = "{en,de}") -> ConfigDict:
    """Turns the config of one of the paper's rows into its small twin, in place, and returns it.

    `direction` is that of the built-in corpus; the reverse stands for the paper's second language pair.
    """
    for split, count in (("train", 40_000), ("valid", 500), ("test", 1_000)):
        cfg.data[split] = f"grammar:{split}:{count}:{direction}"
    cfg.data.vocab_size = 1_800
    cfg.data.tokens_per_batch = 2_048
    cfg.data.max_length = 64
    cfg.data.batching = "pack"
    cfg.data.pack_length = 64
    cfg.data.buckets = (16, 32, 64)

    cfg.model.N //= 2
    for width in ("d_model", "d_ff", "d_k", "d_v"):
        cfg.model[width] //= 4
    cfg.model.dropout_bits = "hash"

    cfg.steps //= SHORTER
    cfg.optim.warmup = WARMUP
    cfg.optim.lr = FACTOR
    cfg.checkpoint.every = cfg.steps // 20
    cfg.eval.every = cfg.steps // 2
    cfg.eval.bleu_sentences = 0
    return cfg

"""A language model of Shakespeare's plays, character by character, for a CPU.

    python -m data.download shakespeare
    python -m train --config=configs/char_lm.py --workdir=runs/char_lm
    python -m infer --workdir=runs/char_lm --split=valid
    python -m infer.generate --workdir=runs/char_lm --prompt=ROMEO: --length=300

configs/char_lm.py:FILE reads your own text. The first nine tenths are for training.
Ours:  no run is on record. The loss is of the whole last tenth in rows of 64, each read without the text before it.
Cost:  3 minutes on one of the two threads of a CPU core.
Sizes, rows and updates are as in nanoGPT's CPU preset, whose published loss is 1.88, over random rows that each have
one more character of context than ours. The recipe is our own: ALiBi, a peak rate of 3e-3, no weight decay.
"""

from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.data.corpora import corpus_folder


def get_config(file: str = "") -> ConfigDict:
    """Returns the run on a text, by default Shakespeare's."""
    file = file or f"{corpus_folder('shakespeare')}/input.txt"
    cfg = default()
    cfg.task = "language_model"
    cfg.steps = 2_000

    cfg.data.train, cfg.data.valid = f"chars:{file}:train", f"chars:{file}:valid"
    cfg.data.vocab_size = 0  # all characters of the text
    cfg.data.batching = "window"
    cfg.data.pack_length = 64
    cfg.data.tokens_per_batch = 12 * 64

    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 4, 128, 512
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 32, 32
    cfg.model.P_drop = 0.0
    cfg.model.norm = "pre"
    cfg.model.activation = "gelu"
    # Faster on a CPU, see docs/cpu.md.
    cfg.model.scan_layers = True
    cfg.model.remat = "full"
    cfg.model.positions = "alibi"  # so that it can write beyond the 64 characters of a training row

    cfg.loss.eps_ls = 0.0

    cfg.optim.schedule = "cosine"
    cfg.optim.lr = 3e-3
    cfg.optim.warmup = 100
    cfg.optim.b2 = 0.99
    cfg.optim.clip_norm = 1.0

    cfg.checkpoint.every = 500
    cfg.eval.every = 500
    cfg.eval.bleu_sentences = 0
    cfg.decode.checkpoint = "latest"
    return cfg

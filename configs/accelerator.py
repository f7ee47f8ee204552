"""The keys with which one accelerator was measured, for base and big: `configs/base.py:en-de:gpu` and `:tpu`.

They change how an update is computed, how it is filled and what is saved, not the recipe: the batch is still 25,000
positions a side, and the averaged checkpoints are still 1,500 (base) or 600 (big) updates apart.

- Compute in bfloat16, dropout bits from a counter, logits of 8,192 positions at a time. On a GPU attention is cuDNN's,
  on a TPU the einsum of the definition, since no fused kernel has been measured there.
- Packed sequences of 256: one function to compile instead of up to 15 (half a minute to two each on a GPU), and a step
  has more tokens, since fewer of its positions are padding. `python -m data.prepare`, with `:gpu` and without, prints
  both as "epoch": for the news corpus of configs/news.py in 16,000 subwords, one sequence length instead of 13, and
  96.2 % of the target positions instead of 82.5 %.
- A checkpoint every ten minutes, the most that a preemption costs, until the last ones, which are averaged. One every
  1,500 updates is one in 54 seconds on an H200. Validation stays where it was, at every 1,500 or 600 updates.

Not run on WMT14. Measured with these keys but for checkpoints and validation: lab/docs/accelerator.md (an H200).
"""

from ml_collections import ConfigDict

ATTENTION = {"gpu": "cudnn", "tpu": "einsum"}


def accelerated(cfg: ConfigDict, device: str) -> ConfigDict:
    """Turns the config of one of the paper's models into that for a "gpu" or a "tpu", in place, and returns it."""
    cfg.model.dtype = "bfloat16"
    cfg.model.dropout_bits = "hash"
    cfg.model.attention_impl = ATTENTION[device]
    cfg.loss.chunk = 8_192
    cfg.data.batching = "pack"
    cfg.checkpoint.every_minutes = 10.0
    return cfg

"""The decoding options of a run, and how many sentences are decoded together. Nothing here imports jax."""

from typing import Any

from ml_collections import ConfigDict

from vaswani.search.options import Decoding

OF_CONFIG = ("beam", "alpha", "extra_length", "length_penalty", "stopping")  # keys of `config.decode`
FULL_BATCH = 2_048  # source positions of a full batch on a CPU, padding included; several are decoded at once
ACCELERATED = 8  # times as many on an accelerator, in one batch: an H200 is then three times as fast
NARROW_BEAM = 4  # the largest beam with which all that fit in memory; wider beams and ensembles have fewer


def make_decoding(decode: ConfigDict, **given: Any) -> Decoding:
    """Returns the options of `decode`, a run's `config.decode`, with those that are given; None is not given.

    Raises:
      UserError: as `Decoding`.
    """
    options = {name: decode[name] for name in OF_CONFIG}
    options |= {name: value for name, value in given.items() if value is not None}
    return Decoding(**options)


def full_batch(platform: str, caches: int) -> int:
    """Returns the source positions of a full batch, padding included, on a device of a platform, as jax names it.

    `caches` is how many each sentence has, one for each hypothesis and model; with many an accelerator has no more
    positions than a CPU.
    """
    if platform == "cpu":
        return FULL_BATCH
    return FULL_BATCH * max(1, ACCELERATED * NARROW_BEAM // max(NARROW_BEAM, caches))

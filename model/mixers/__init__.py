"""What moves information between positions, and what each kind of mixer can do; `model/block.py` chooses among them.

Every mixer is a Flax module `(x, positions, mask, cache, noise) -> (y, cache, weights)`:

- whole rows, with a mask: x [b,t,d], without a cache in training; with one, they are what every beam of a search begins
  with, and the cache is filled with them;
- one more token of each of m beams, without a mask: x [b,m,d], with a cache, which knows what each beam may see.

`init_cache(rows, beams, slots)` makes the cache, whose `select` and `grow` a search calls. Weights are None where there
are none, and cost nothing where they are not used.
"""

from typing import NamedTuple


class Abilities(NamedTuple):
    """What a mixer can do; `ModelConfig` refuses what it cannot."""

    weights: bool  # has attention weights, which can be shown
    relative: bool  # positions that act inside attention: rotary, ALiBi
    kernels: bool  # model.attention_impl other than einsum


MIXERS = {
    "attention": Abilities(weights=True, relative=True, kernels=True),
    "restricted": Abilities(weights=True, relative=True, kernels=False),
    "strided": Abilities(weights=True, relative=True, kernels=False),
    "linear": Abilities(weights=False, relative=False, kernels=False),
    "recurrent": Abilities(weights=False, relative=False, kernels=False),
    "convolution": Abilities(weights=False, relative=False, kernels=False),
}

"""What moves information between positions: `model/block.py` chooses, and configs/rules.py has what goes with each.

Every mixer is a Flax module `(x, positions, mask, cache, noise) -> (y, cache, weights)`:

- whole rows, with a mask: x [b,t,d], without a cache in training; with one, they are what every beam of a search begins
  with, and the cache is filled with them;
- one more token of each of m beams, without a mask: x [b,m,d], with a cache, which knows what each beam may see.

`init_cache(rows, beams, slots)` makes the cache, whose `select` and `grow` a search calls. Weights are None where there
are none, and cost nothing where they are not used.
"""

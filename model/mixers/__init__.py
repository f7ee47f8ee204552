"""What moves information between positions: `model/block.py` chooses, and configs/rules.py has what goes with each.

Every mixer is a Flax module:

- `(x, positions, mask, cache, noise) -> (y, cache, weights)` mixes whole rows x [b,t,d]. There is no cache in training;
  in a search these rows are what every beam begins with, and the cache is filled with them. Weights are None where
  there are none, and cost nothing where they are not used.
- `step(x, positions, cache) -> (y, cache)` takes one more token of each of m beams, x [b,m,d].
- `init_cache(rows, beams, slots)` makes the cache, whose `select` and `grow` a search calls.
"""

"""What moves information between positions, and what each kind of mixer can do; `model/block.py` chooses among them.

Every mixer is a Flax module `(x, positions, mask, cache, noise) -> (y, cache, weights)`:

- whole rows, with a mask: x [b,t,d], without a cache in training; with one, they are what every beam of a search begins
  with, and the cache is filled with them;
- one more token of each of m beams, without a mask: x [b,m,d], with a cache, which knows what each beam may see.

`init_cache(rows, beams, slots)` makes the cache, whose `select` and `grow` a search calls. Weights are None where there
are none, and cost nothing where they are not used.
"""

from typing import Any, NamedTuple

from vaswani.model.positions import KINDS


class Abilities(NamedTuple):
    """What a mixer can do; `ModelConfig` refuses what it cannot."""

    weights: bool  # has attention weights, which can be shown
    relative: bool  # positions that act inside attention: rotary, ALiBi
    kernels: bool  # model.attention_impl other than einsum
    # Projections to heads, with their biases, their norms, and initial values that model.norm=deep multiplies.
    heads: bool


MIXERS = {
    "attention": Abilities(weights=True, relative=True, kernels=True, heads=True),
    "restricted": Abilities(weights=True, relative=True, kernels=False, heads=True),
    "strided": Abilities(weights=True, relative=True, kernels=False, heads=True),
    "linear": Abilities(weights=False, relative=False, kernels=False, heads=True),
    "recurrent": Abilities(weights=False, relative=False, kernels=False, heads=False),
    "convolution": Abilities(weights=False, relative=False, kernels=False, heads=False),
}


def check_mixer(config: Any) -> None:
    """Rejects, of a `ModelConfig`, what the mixer does not support, and options that it would ignore."""
    mixer = f"model.mixer={config.mixer!r}"
    can = MIXERS[config.mixer]
    if not can.relative and config.encoding.relative:
        absolute = [name for name, kind in KINDS.items() if not kind().relative]
        raise ValueError(
            f"{mixer} does not use relative positions such as {config.positions!r}; set model.positions to one of "
            f"{', '.join(absolute)}"
        )
    if config.encoding.distances and config.mixer != "attention":
        raise ValueError(f"{mixer} has no relative vectors; model.positions=shaw needs model.mixer=attention")
    if config.norm == "deep" and not can.heads:
        raise ValueError(f"{mixer} has no initial values for model.norm=deep; take post or pre")
    if config.mixer == "recurrent" and config.d_model % 2:
        raise ValueError(f"{mixer} needs an even model.d_model, half for each direction; {config.d_model} is odd")
    if not can.kernels and config.attention_impl not in ("auto", "einsum"):
        raise ValueError(f"{mixer} has no kernel and no chunks; set model.attention_impl=einsum")

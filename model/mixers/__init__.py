"""What moves information between positions, and what each kind of mixer can do; `model/block.py` chooses among them."""

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

"""Where activations live on several devices: each device has its own rows of a batch."""

import math

import jax
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float


def row_axes() -> tuple[str, ...]:
    """Returns the axes of the ambient mesh that batch rows are divided along: all but `tensor`."""
    return tuple(axis for axis in jax.sharding.get_abstract_mesh().axis_names if axis != "tensor")


def by_rows(x_btd: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
    """Returns x itself; under FSDP it is sharded by rows, if the mesh divides them.

    FSDP shards parameters along d_model, and left to itself the compiler would shard activations likewise: every device
    would compute a part of every row's products, to be summed over the devices. On any other mesh the compiler chooses
    well. In any case it decides whether to shard the width along `tensor`.
    """
    mesh = jax.sharding.get_abstract_mesh()
    # A batch that the devices do not divide stays as the compiler has it.
    parts = math.prod(mesh.shape[axis] for axis in row_axes())
    if mesh.shape.get("fsdp", 1) == 1 or x_btd.shape[0] % parts:
        return x_btd
    return jax.lax.with_sharding_constraint(x_btd, P(row_axes(), P.UNCONSTRAINED, P.UNCONSTRAINED))

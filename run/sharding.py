"""How arrays are sharded over devices: a mesh with named axes, and one table from parameter paths to axes.

The axes are `data` (batch rows), `fsdp` (batch rows, and parameters along d_model) and `tensor` (heads, d_ff and
vocabulary). The compiler derives the collectives from the table; the model code does not mention sharding.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from vaswani.data.pipeline import ProcessShard
from vaswani.errors import UserError

AXES = ("data", "fsdp", "tensor")
ROWS = P(("data", "fsdp"))  # a batch: rows along both axes

# First match wins. Paths in the optimiser state end like the parameters' paths (`opt_state/0/mu/embed`), so one table
# covers the whole state. Vectors and counters that match no rule are small, and replicated. A matrix that matches no
# rule is an error, since replicating it silently could cost most of the memory that sharding saves.
RULES = (
    (r"/v_(row|col)/", P()),  # Adafactor's factors of second moments
    (r"(embed|softmax)$", P("tensor", "fsdp")),  # [v,d]
    (r"(positions|classes)$", P(None, "fsdp")),  # [l,d], [c,d]
    # This one and a convolution's kernel are not sharded along tensor: on a mesh with all three axes, XLA mixes up the
    # rows of activations whose width is sharded so, if the rows are few.
    (r"head_w$", P("fsdp", None)),  # [d,d]
    (r"relative_bias$", P(None, "tensor")),  # [r,h]
    (r"relative_[kv]$", P()),  # [r,k], a few dozen rows
    (r"/w[qkv]$", P("fsdp", "tensor", None)),  # [d,h,k]
    (r"/b[qkv]$", P("tensor", None)),  # [h,k]
    (r"attention/energy$", P("tensor", None)),  # [h,k]
    (r"/wo$", P("tensor", None, "fsdp")),  # [h,e,d]
    (r"recurrent/w[xh]$", P(None, "fsdp", None, None)),  # [r,d,4,e]; along tensor every step would communicate
    (r"convolution/kernel$", P(None, "fsdp", None, None)),  # [w,d,2,d]
    (r"/kernel$", P("fsdp", None)),  # [d,d] of recurrent translators; along tensor every step would communicate
    (r"patch$", P(None, "fsdp")),  # [p,d]
    (r"head$", P("fsdp", None)),  # [d,v]
    (r"/(w1|feed_forward/v)$", P("fsdp", "tensor")),  # [d,f]
    (r"/b1$", P("tensor")),  # [f]
    (r"/w2$", P("tensor", "fsdp")),  # [f,d]
)

# The subwords' matrices, whose size the tokenizer decides. One that `tensor` does not divide is not sharded along it.
# Padding it instead would need masked logits, and files of another size.
VOCABULARY = re.compile(r"(embed|softmax)$")


def mesh_shape(cfg: ConfigDict, devices: int) -> tuple[int, ...]:
    """Returns the sizes of the axes (data, fsdp, tensor); one that is -1 in `config.mesh` takes the remaining devices.

    Raises:
      UserError: the product of the sizes is not the number of devices.
    """
    sizes = [cfg[axis] for axis in AXES]
    given = [size for size in sizes if size != -1]
    named = ", ".join(f"mesh.{axis}={size}" for axis, size in zip(AXES, sizes, strict=True))
    if sizes.count(-1) > 1 or min(given) < 1:
        raise UserError(f"config: {named}; each must be at least 1, and one may be -1 for the remaining devices")
    shape = sizes.copy()
    if -1 in shape:
        shape[shape.index(-1)] = devices // math.prod(given)
    if math.prod(shape) != devices:
        raise UserError(f"config: {named} do not divide {devices} device(s); set one to -1 for the remaining devices")
    return tuple(shape)


def data_mesh() -> Mesh:
    """Returns a mesh of all devices along `data`: parameters replicated, batches sharded by rows."""
    devices = jax.devices()
    return _mesh((len(devices), 1, 1), devices)


def make_mesh(cfg: ConfigDict, devices: Sequence[Any] | None = None) -> Mesh:
    """Returns the mesh of `config.mesh` over `devices` (by default all, on every host).

    Raises:
      UserError: the product of the sizes is not the number of devices.
    """
    devices = jax.devices() if devices is None else list(devices)
    return _mesh(mesh_shape(cfg, len(devices)), devices)


def _mesh(shape: tuple[int, ...], devices: Sequence[Any]) -> Mesh:
    """Returns a mesh of this shape, with nearby chips adjacent.

    The chips of a host form a block of the mesh, so the rows that a host reads are also contiguous. `jax.make_mesh`
    does not ensure that, and refuses devices of several GPU nodes or TPU slices.
    """
    axis_types = (AxisType.Auto,) * len(AXES)
    hosts = {device.process_index for device in devices}
    hosts_along = _hosts_along(shape, len(hosts))
    if math.prod(hosts_along) == 1:
        return jax.make_mesh(shape, AXES, axis_types=axis_types, devices=devices)
    chips_along = [size // along for size, along in zip(shape, hosts_along, strict=True)]
    if hosts_along[1] > 1 and chips_along[0] > 1:
        # A block's rows would not be contiguous: of data=4 and fsdp=3 on three hosts, every third part of a batch.
        by_host = sorted(devices, key=lambda device: device.process_index)
        return Mesh(np.array(by_host).reshape(shape), AXES, axis_types=axis_types)
    grid = mesh_utils.create_hybrid_device_mesh(chips_along, hosts_along, devices, process_is_granule=True)
    return Mesh(grid, AXES, axis_types=axis_types)


def _hosts_along(shape: Sequence[int], hosts: int) -> list[int]:
    """Returns the number of hosts along each axis, most along the first, so that each host's chips form a block.

    A mesh of 8 x 1 x 4 chips of 16 hosts has 8 x 1 x 2 hosts: each holds a block of 1 x 1 x 2 chips.
    """
    hosts_along = []
    remaining = hosts
    for size in shape:
        here = math.gcd(size, remaining)
        hosts_along.append(here)
        remaining //= here
    if remaining > 1:  # the hosts do not divide the axes, and no arrangement makes blocks
        return [1] * len(shape)
    return hosts_along


def placed_shapes(tree: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Returns the shapes of `tree` (from `jax.eval_shape`), each with its sharding on the mesh by `RULES`.

    A vocabulary that the axis `tensor` does not divide is not sharded along it.

    Raises:
      UserError: another dimension is not divisible by the size of its mesh axis.
      ValueError: an array of two or more dimensions matches no rule.
    """

    def place(path: tuple[Any, ...], leaf: Any) -> jax.ShapeDtypeStruct:
        # Not `flatten_dict`, since a training state is not made only of dicts.
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        spec = _spec(name, leaf.shape)
        if len(spec) == 2 and VOCABULARY.search(name) and leaf.shape[0] % mesh.shape["tensor"]:
            spec = P(None, spec[1])
        for size, axis in zip(leaf.shape, spec, strict=False):
            if axis is not None and size % mesh.shape[axis]:
                raise UserError(
                    f"config: mesh.{axis}={mesh.shape[axis]} does not divide {size}, a dimension of {name} "
                    f"{tuple(leaf.shape)}; choose a divisor of it"
                )
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, spec))

    return jax.tree_util.tree_map_with_path(place, tree)


def _spec(name: str, shape: tuple[int, ...]) -> P:
    """Returns the mesh axes of an array's dimensions, by the first of `RULES` that its path `name` matches."""
    if shape in ((), (1,)):  # (1,) stands in Adafactor's state for what is kept elsewhere
        return P()
    for pattern, spec in RULES:
        if re.search(pattern, name):
            return spec
    if len(shape) > 1:
        raise ValueError(f"run/sharding.py: no rule names {name} {tuple(shape)}; add one for this matrix")
    return P()


def shardings(tree: Any) -> Any:
    """Returns the sharding of each array, or placed shape, of `tree`."""
    return jax.tree.map(lambda leaf: leaf.sharding, tree)


def row_parts(mesh: Mesh | AbstractMesh) -> int:
    """Returns the number of shards of a batch's rows: the axes data and fsdp together."""
    return mesh.shape["data"] * mesh.shape["fsdp"]


def process_shard(mesh: Mesh, microbatches: int = 1) -> ProcessShard:
    """Returns the rows of a batch that this process's devices hold, padded so that `microbatches` divides each shard.

    Raises:
      UserError: the rows are not contiguous, so the process cannot read them in one piece.
    """
    parts = row_parts(mesh)
    part_of_device = NamedSharding(mesh, ROWS).addressable_devices_indices_map((parts,))
    own_parts = set()
    for index in part_of_device.values():
        if index is not None:
            start, _, _ = index[0].indices(parts)
            own_parts.add(start)
    first = min(own_parts)
    end = max(own_parts) + 1
    if len(own_parts) != end - first:
        raise UserError(
            "config: mesh.tensor spans hosts, so their rows are not contiguous; let it divide the devices of a host"
        )
    return ProcessShard(first, end, parts, parts * microbatches)


def place_rows(mesh: Mesh, own: Any) -> Any:
    """Returns global arrays, sharded by rows over the mesh, from a tree of arrays of this process's own rows."""
    sharding = NamedSharding(mesh, ROWS)
    shard = process_shard(mesh)

    def place(own_b: np.ndarray) -> jax.Array:
        rows_of_part = len(own_b) // (shard.end - shard.first)
        rows = rows_of_part * shard.parts
        first_row = rows_of_part * shard.first

        def rows_of_device(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            begin, end, _ = index[0].indices(rows)
            return own_b[begin - first_row : end - first_row]

        shape = (rows, *own_b.shape[1:])
        return jax.make_array_from_callback(shape, sharding, rows_of_device)

    return jax.tree.map(place, own)


def shard_rows(mesh: Mesh, whole_b: np.ndarray) -> jax.Array:
    """Returns a global array, sharded by rows over the mesh, from one that every process holds in full."""
    return jax.make_array_from_callback(whole_b.shape, NamedSharding(mesh, ROWS), lambda index: whole_b[index])


def place_params(mesh: Mesh, params: Any) -> Any:
    """Returns parameters, from the host or from devices, sharded according to the table."""
    return jax.tree.map(place_array, params, shardings(placed_shapes(params, mesh)))


def place_array(whole: Any, sharding: Any) -> jax.Array:
    """Returns a sharded array, given the whole of it on the host of every process, or on devices."""
    if isinstance(whole, jax.Array) or jax.process_count() == 1:
        return jax.device_put(whole, sharding)
    # `device_put` would gather the copies of all processes on every device, to compare them.
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def fetch(tree: Any) -> Any:
    """Gathers global arrays into full numpy arrays in every process."""
    if jax.process_count() > 1:
        return process_allgather(tree, tiled=True)
    return jax.device_get(tree)

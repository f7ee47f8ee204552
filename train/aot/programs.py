"""Compiles a run's programs ahead of time, for TPUs, GPUs or this machine, and reads the compiler's analysis of them.

Nothing is executed, and TPUs and GPUs need not be there: jax compiles for a description of the hardware, with the
compiler in `libtpu` or in jax's CUDA plugin.
"""

import importlib.util
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils, topologies
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import PRNGKeyArray
from ml_collections import ConfigDict

from vaswani.data.batching import Batch
from vaswani.data.plans import rows_per_batch
from vaswani.data.row_lengths import check_lengths, row_lengths
from vaswani.errors import UserError, one_line, pip_install
from vaswani.infer.translate.options import full_batch, make_decoding
from vaswani.machine import most_allowed
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.run.sharding import AXES, ROWS, make_mesh, mesh_shape, placed_shapes, row_parts, shardings
from vaswani.search.searches import run_search
from vaswani.tasks.translation import objective
from vaswani.tokens import Tokens
from vaswani.train import cpu_matmuls
from vaswani.train.aot import gpus
from vaswani.train.aot.flops import recomputed_flops, update_flops
from vaswani.train.aot.gpus import TARGETS, open_gpus
from vaswani.train.aot.hardware import CHIPS, GIB, Chip
from vaswani.train.aot.hlo import collectives, kernels, traffic, unordered_scatters
from vaswani.train.optim import optimizer
from vaswani.train.start import memory_of
from vaswani.train.step import TrainState, init_state, make_train_step

LOCAL = "local"  # the topology of this machine
SEARCH_LENGTH = 32  # source positions of the batch that beam search is compiled for
Counts = dict[str, Any]  # of a program, on each device: a `Counter` for each kind
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class TooLarge(Exception):
    """A program does not fit into its device's memory: the bytes needed (at least) and available."""

    def __init__(self, needed: int, available: int):
        super().__init__(f"needs {needed / GIB:.2f} GiB per device; {available / GIB:.2f} GiB are available")
        self.needed = needed
        self.available = available


def open_topology(name: str, slices: int) -> tuple[Chip | None, list[Any]]:
    """Returns the chip of a topology such as "v5e:4x4" or "h100:8", and the devices of `slices` slices of it.

    Of `LOCAL` these are jax's devices, which need no description: the chip is None.

    Raises:
      UserError: there is no such topology, or the compiler is not installed.
    """
    if name == LOCAL:
        if slices > 1:
            raise UserError(f"--slices={slices}: only TPUs have slices; give their --topology")
        return None, jax.devices()
    generation, _, layout = name.partition(":")
    if generation in TARGETS:
        if slices > 1:
            raise UserError(f"--slices={slices}: only TPUs have slices; {name} is one node")
        return CHIPS[generation], open_gpus(name)
    known = [key for key, chip in CHIPS.items() if chip.name.startswith("TPU")]
    if generation not in known:
        raise UserError(
            f"--topology={name}: it must be {LOCAL}, one of {', '.join(known)}, a colon and a layout, like v5e:4x4, or"
            f" one of {', '.join(TARGETS)}, a colon and a number, like h100:8"
        )
    if importlib.util.find_spec("libtpu") is None:
        raise UserError(f"the TPU compiler is not installed; {pip_install('tpu')}")
    options: dict[str, Any] = {"num_slices": slices} if slices > 1 else {}
    if set(layout.split("x")) == {"1"}:
        options["chips_per_host_bounds"] = (1, 1, 1)
    if generation == "v4":
        options["chip_config_name"] = "megacore"  # a chip is one device, as on Cloud TPU
    try:
        return CHIPS[generation], topologies.get_topology_desc(name, "tpu", **options).devices
    except jax.errors.JaxRuntimeError as error:
        reason = str(error).partition(": ")[2].splitlines()[0]
        raise UserError(f"--topology={name}: {reason}; write, for example, v5e:4x4 or v5p:2x2x2") from error


def topology_mesh(cfg: ConfigDict, devices: Sequence[Any], slices: int) -> Mesh:
    """Returns the mesh of `config.mesh`; slices, connected by a slow network, are split along the axis `data`.

    Raises:
      UserError: the product of the sizes is not the number of devices, or the slices do not divide `data`.
    """
    if slices == 1:
        return make_mesh(cfg, devices)
    data, fsdp, tensor = mesh_shape(cfg, len(devices))
    if data % slices:
        raise UserError(
            f"config: mesh.data={data} is not a multiple of --slices={slices}; slices can only split the batch"
        )
    grid = mesh_utils.create_hybrid_device_mesh((data // slices, fsdp, tensor), (slices, 1, 1), devices)
    return Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def batch_shapes(cfg: ConfigDict, mesh: Mesh) -> list[tuple[int, int, int]]:
    """Returns each batch shape of a run, shortest first: planned rows, rows padded to the mesh, sequence length."""
    # What training would refuse is not worth compiling.
    longest_pair = np.full((1, 2), cfg.data.max_length, np.int32)
    check_lengths(longest_pair, cfg.data)
    multiple = row_parts(mesh) * cfg.optim.accumulate
    shapes = []
    for length in row_lengths(cfg.data):
        planned = rows_per_batch(cfg.data.tokens_per_batch, length)
        padded = planned + -planned % multiple
        shapes.append((planned, padded, length))
    return shapes


class Update(NamedTuple):
    """A train step, compiled for one shape of batch."""

    step: Any  # (state, batch, key) -> (state, Sums); the old state is donated
    init: Callable[[PRNGKeyArray], TrainState]
    shapes: TrainState  # of the state, with their shardings
    facts: dict[str, Any]  # the size of the batch, and bytes of memory on a device


def train_step(cfg: ConfigDict, config: ModelConfig, mesh: Mesh, rows: int, length: int) -> Update:
    """Compiles one step on `rows` rows of `length` positions per side.

    Raises:
      TooLarge: it does not fit.
    """
    tx = optimizer(cfg.optim, config.base_width, cfg.steps, config.d_model / config.base_width)
    goal = objective(cpu_matmuls.compute_config(cfg, config), cfg.loss.eps_ls, cfg.loss.chunk)
    init = partial(init_state, goal.init, tx)
    placed = placed_shapes(jax.eval_shape(init, jax.random.key(0)), mesh)
    options = cpu_matmuls.compiler_options(cfg, mesh.devices.flat[0].platform)
    step: Any = make_train_step(goal, tx, cfg.optim.accumulate, shardings(placed), options)
    ids_bt: Any = jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=NamedSharding(mesh, ROWS))
    side = Tokens(ids_bt, ids_bt, ids_bt)
    batch = Batch(side, side, ids_bt)
    key = jax.ShapeDtypeStruct((), jax.random.key(0).dtype, sharding=NamedSharding(mesh, P()))
    with jax.set_mesh(mesh), gpus.cudnn_for(mesh.devices.flat[0]):
        compiled = _compile(step.lower(placed, batch, key))
    facts = {"rows": rows, "length": length, "state_bytes": _bytes_per_device(placed), "memory": memory(compiled, mesh)}
    return Update(compiled, init, placed, facts)


def update_costs(cfg: ConfigDict, config: ModelConfig, mesh: Mesh, rows: int, length: int) -> dict[str, Any]:
    """Returns FLOPs, traffic in bytes, and collectives of one step on each device, as the compiler counts them.

    The compiler counts the body of a loop once, however often it runs. So the programs that it counts here have no
    loops over layers, chunks of the softmax or microbatches. They have one layer in each stack, and two: each further
    layer costs as much as the second, and each microbatch as much as a separate step.
    """
    without_loops = cfg.copy_and_resolve_references()
    without_loops.loss.chunk = 0
    without_loops.optim.accumulate = 1
    rows_of_one = rows // cfg.optim.accumulate

    def count(encoder: int, decoder: int) -> Counts:
        depths: dict[str, Any] = {"N": encoder, "N_encoder": 0, "N_decoder": 0}
        if encoder != decoder:
            depths |= {"N_encoder": encoder, "N_decoder": decoder}
        unrolled = replace(config, scan_layers=False, **depths)
        return counts(train_step(without_loops, unrolled, mesh, rows_of_one, length).step, mesh)

    encoder, decoder = config.depths
    one = count(1, 1)
    total: Counts = {name: Counter(counted) for name, counted in one.items()}
    # Stacks of equal depth are counted together, others one at a time.
    further = {(2, 2): encoder - 1} if encoder == decoder else {(2, 1): encoder - 1, (1, 2): decoder - 1}
    for depths, layers in further.items():
        two = count(*depths)
        for name in one:
            for key in one[name] | two[name]:
                total[name][key] += layers * (two[name][key] - one[name][key])
    for counted in total.values():
        for key in counted:
            counted[key] *= cfg.optim.accumulate
    shape = (config, rows, length, length)
    analytic = (update_flops(*shape) + recomputed_flops(*shape)) / mesh.size
    return {"rows": rows, "length": length, "flops_analytic": analytic, **as_facts(total, mesh)}


def search_program(cfg: ConfigDict, config: ModelConfig, mesh: Mesh) -> dict[str, Any]:
    """Compiles beam search for a full batch of short sentences, as `infer.translate.translator` forms them.

    Raises:
      TooLarge: it does not fit.
    """
    length = min(SEARCH_LENGTH, config.limit or SEARCH_LENGTH)
    rows = full_batch(mesh.devices.flat[0].platform, cfg.decode.beam) // length
    rows += -rows % row_parts(mesh)
    abstract_params = jax.eval_shape(partial(init_params, Transformer(config)), jax.random.key(0))
    params = placed_shapes(abstract_params, mesh)
    source_bs = jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=NamedSharding(mesh, ROWS))
    search = jax.jit(partial(run_search, Transformer(config), make_decoding(cfg.decode)))
    with jax.set_mesh(mesh), gpus.cudnn_for(mesh.devices.flat[0]):
        compiled = _compile(search.lower(params, source_bs))
    counted = as_facts(counts(compiled, mesh), mesh)
    return {"rows": rows, "length": length, "memory": memory(compiled, mesh), **counted}


def memory(compiled: Any, mesh: Mesh) -> dict[str, int]:
    """Returns a program's bytes of memory on each device; raises `TooLarge` if they are more than is `available`."""
    sizes = memory_of(compiled)
    most = available(mesh.devices.flat[0])
    if most is not None and sizes["peak"] > most:
        raise TooLarge(sizes["peak"], most)
    return sizes


def counts(compiled: Any, mesh: Mesh) -> Counts:
    """Counts what a program does on each device: once what is in a loop, however often that runs.

    For GPUs also its library calls (whose FLOPs do not count), and scatters whose updates may add in any order.
    """
    text = compiled.as_text()
    is_gpu = mesh.devices.flat[0].platform == "gpu"
    cost: Any = gpus.cost_analysis(compiled) if is_gpu else compiled.cost_analysis()
    totals = Counter({"flops": cost["flops"], "traffic": traffic(text), "scatters": unordered_scatters(text)})
    slices = len({getattr(device, "slice_index", 0) for device in mesh.devices.flat})
    number = Counter[tuple[str, int]]()
    sent = Counter[tuple[str, int]]()
    for collective in collectives(text, mesh.size, slices):
        number[collective.kind, collective.group] += 1
        sent[collective.kind, collective.group] += collective.bytes
    return {"totals": totals, "number": number, "sent": sent, "kernels": kernels(text)}


def as_facts(counted: Counts, mesh: Mesh) -> dict[str, Any]:
    """Returns counts as they stand in a report."""
    totals, number, sent = counted["totals"], counted["number"], counted["sent"]
    is_gpu = mesh.devices.flat[0].platform == "gpu"
    more = gpus.order_of_sums(dict(counted["kernels"]), totals["scatters"]) if is_gpu else {}
    return {
        "flops": totals["flops"],
        "traffic": totals["traffic"],
        "collectives": [
            {"kind": kind, "group": group, "count": number[kind, group], "bytes": sent[kind, group]}
            for kind, group in sorted(number)
        ],
        **more,
    }


def available(device: Any) -> int | None:
    """Returns the bytes of a device that jax may use; None for a TPU elsewhere, whose compiler itself refuses.

    CPU devices share the machine's memory, or as much of it as a container or a job may use.
    """
    if device not in jax.devices():
        return gpus.available(device) if device.platform == "gpu" else None
    stats = device.memory_stats() or {}
    if "bytes_limit" in stats:
        return stats["bytes_limit"]
    return most_allowed() // jax.local_device_count()


def _compile(lowered: Any) -> Any:
    """Returns the program; raises `TooLarge`, or `UserError` if the compiler refuses it for another reason."""
    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        reason = _too_large(str(error)) or UserError(f"the compiler refuses this run: {one_line(str(error))}")
        raise reason from error


def _too_large(message: str) -> TooLarge | None:
    """Returns the numbers in the compiler's out-of-memory message; None for any other message."""
    size = r"([\d.]+)([KMGT]?)B?"
    for pattern in (rf"Used {size} of {size} hbm", rf"total .*?\({size}\) exceeds available HBM \({size}\)"):
        match = re.search(pattern, message)
        if match:
            needed = round(float(match[1]) * _UNITS[match[2]])
            available = round(float(match[3]) * _UNITS[match[4]])
            return TooLarge(needed, available)
    return None


def _bytes_per_device(placed: Any) -> int:
    total = 0
    for leaf in jax.tree.leaves(placed):
        elements = math.prod(leaf.sharding.shard_shape(leaf.shape))
        total += elements * np.dtype(leaf.dtype).itemsize
    return total

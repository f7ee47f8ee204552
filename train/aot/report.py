"""The report of `train.compile`: what each program of a run needs, and an estimate of the time per step."""

import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import jax
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.ids import UNK
from vaswani.model.mixers.kernels import PLATFORMS
from vaswani.model.parameter_count import parameter_count
from vaswani.numbers import pluralize
from vaswani.run.folder import as_json, device
from vaswani.run.sharding import AXES
from vaswani.tasks.config import model_config
from vaswani.train.aot import gpus, programs
from vaswani.train.aot.hardware import ASSUMPTIONS, CHIPS, DISPATCH, GIB, Chip
from vaswani.train.aot.local import EXTRAPOLATED, time_steps
from vaswani.train.aot.programs import LOCAL


def report(cfg: ConfigDict, topology: str, slices: int, *, with_search: bool) -> dict[str, Any]:
    """Compiles `cfg` for the topology and returns the memory of its programs, and the costs of a step.

    On this machine (`LOCAL`) the times of a few steps replace the estimates. Stops at a program that does not fit;
    `refused` then names it and the bytes needed and available.

    Raises:
      UserError: config, topology and slices are inconsistent.
    """
    _check_vocabulary(cfg.data.vocab_size)
    if cfg.cpu_bfloat16 and topology != LOCAL:
        raise UserError(f"config: cpu_bfloat16 is True; it must be False for {topology}, which is no CPU")
    chip, devices = programs.open_topology(topology, slices)
    mesh = programs.topology_mesh(cfg.mesh, devices, slices)
    _check_attention(cfg.model.attention_impl, devices[0].platform, topology)
    config = model_config(cfg, cfg.data.vocab_size)
    shapes = programs.batch_shapes(cfg, mesh)
    _, longest_rows, longest = shapes[-1]
    planned, rows, length = shapes[len(shapes) // 2]
    _check_limit(config.limit, longest)
    made: dict[str, Any] = {
        "topology": topology,
        "slices": slices,
        "devices": mesh.size,
        "mesh": {axis: mesh.shape[axis] for axis in AXES},
        "parameters": parameter_count(config),
        "batches": [dict(zip(("planned", "rows", "length"), shape, strict=True)) for shape in shapes],
        "versions": compiler_versions(topology),
        "config": as_json(cfg),
    }
    if chip is None:
        made |= {"device": device(), "memory": programs.available(devices[0])}
    # On this machine the longest batch may also be the middle one, whose steps are timed.
    update = cache(partial(programs.train_step, cfg, config, mesh))
    compilers: dict[str, Callable[[], dict[str, Any]]] = {
        "train_longest": lambda: update(longest_rows, longest).facts,
        "train_middle": lambda: programs.update_costs(cfg, config, mesh, rows, length),
    }
    if with_search:
        compilers["search"] = lambda: programs.search_program(cfg, config, mesh)
    made |= _compile_all(compilers, place(topology))
    if "refused" in made:
        return made
    if chip is None:
        made["timed"] = time_steps(cfg, config, mesh, update(rows, length))
    else:
        made["estimate"] = estimate(chip, made["train_middle"], planned * length, cfg.steps)
    return made


def _check_vocabulary(size: int) -> None:
    """Raises a `UserError` unless there is a vocabulary, of more than the special tokens."""
    if not size:
        raise UserError("data.vocab_size is 0, and no text is read here to count it: give --config.data.vocab_size")
    special_tokens = UNK + 1
    if size <= special_tokens:
        raise UserError(f"data.vocab_size is {size}; it must exceed {special_tokens}, the number of special tokens")


def _check_attention(impl: str, platform: str, topology: str) -> None:
    """Raises a `UserError` if this implementation of attention is not for the platform of the topology."""
    if PLATFORMS.get(impl, platform) != platform:
        raise UserError(
            f"config: model.attention_impl is {impl!r}, for {PLATFORMS[impl]}s; {place(topology)} needs another"
        )


def _check_limit(limit: int | None, longest: int) -> None:
    """Raises a `UserError` if the longest rows are longer than the model allows."""
    if limit is not None and limit < longest:
        raise UserError(f"config: model.max_positions is {limit}; it must be at least {longest}, as long as the rows")


def _compile_all(compilers: dict[str, Callable[[], dict[str, Any]]], where: str) -> dict[str, Any]:
    """Returns the facts of each program by its name, up to one that does not fit, which `refused` then describes."""
    made: dict[str, Any] = {}
    for name, compile_ in compilers.items():
        print(f"compiling {name} for {where} ...", file=sys.stderr)
        try:
            made[name] = compile_()
        except programs.TooLarge as error:
            made["refused"] = {"program": name, "needed": error.needed, "available": error.available}
            break
    return made


def place(topology: str) -> str:
    """Returns a topology's name in messages."""
    return "this machine" if topology == LOCAL else topology


def compiler_versions(topology: str) -> dict[str, str]:
    """Returns the versions of the packages that compile for a topology."""
    if topology == LOCAL:
        return {"jax": jax.__version__}
    compiler = gpus.PLUGIN if topology.partition(":")[0] in gpus.TARGETS else "libtpu"
    return {"jax": jax.__version__, compiler: version(compiler)}


def estimate(chip: Chip, program: dict[str, Any], positions: int, steps: int) -> dict[str, float]:
    """Returns lower and upper estimates of the time per step, and the rates that follow; see ASSUMPTIONS.

    Args:
      chip: the device.
      program: facts of the train step.
      positions: target positions per step, without the rows that pad the batch to the mesh.
      steps: in the whole run.
    """
    collectives = program["collectives"]
    within_slice = sum(_bytes_sent(collective) for collective in collectives if collective["kind"] != "send")
    between_slices = sum(_bytes_sent(collective) for collective in collectives if collective["kind"] == "send")
    seconds = {
        "compute": program["flops_analytic"] / chip.peak,
        "memory": program["traffic"] / chip.memory_bandwidth,
        "links": within_slice / chip.link,
        "network": between_slices / chip.network,
    }
    least = max(DISPATCH, *seconds.values())
    most = max(DISPATCH, sum(seconds.values()))
    return {
        **{f"{name}_seconds": value for name, value in seconds.items()},
        "step_seconds_least": least,
        "step_seconds_most": most,
        "positions_per_second_most": positions / least,
        "positions_per_second_least": positions / most,
        "hours_least": steps * least / 3600,
        "hours_most": steps * most / 3600,
    }


def _bytes_sent(collective: dict[str, Any]) -> float:
    """Returns the bytes that a device sends in a ring of its group; an all-reduce goes round twice."""
    rounds = 2 if collective["kind"] in ("all-reduce", "send") else 1  # slices send gradients and get them back reduced
    return rounds * collective["bytes"] * (collective["group"] - 1) / collective["group"]


def as_text(made: dict[str, Any]) -> str:
    """Returns the report as text."""
    devices, memory = _devices(made)
    mesh = " ".join(f"{axis}={size}" for axis, size in made["mesh"].items())
    dtype = made["config"]["model"]["dtype"]
    lines = [
        devices,
        f"mesh {mesh}; {made['parameters']:,} parameters, {dtype}; per device:",
    ]
    titles = {"train_longest": "step", "train_middle": "step", "search": "beam search"}
    for name, title in titles.items():
        if name in made:
            program = made[name]
            lines.append(f"{title}, {program['rows']} rows x {program['length']} positions per side")
            if "memory" in program:
                lines.append(_memory_line(program["memory"], memory))
            if "collectives" in program:
                lines += _count_lines(program)
    if "estimate" in made:
        lines += _estimate_lines(made["estimate"], made["train_middle"]["length"], made["config"]["steps"])
    if "timed" in made:
        lines += _timed_lines(made["timed"], made["train_middle"]["length"], made["config"]["steps"])
    return "\n".join(lines)


def _devices(made: dict[str, Any]) -> tuple[str, int]:
    """Returns the line about the devices, and the bytes of memory that each has."""
    if "device" in made:
        here = made["device"]
        cpu = f"{here['cpu']}, CPUs: {here['cpus']}"
        memory = made["memory"]
        return f"{here['count']} x {here['kind']}, {memory / GIB:.1f} GiB a device; {cpu}", memory
    generation, _, _ = made["topology"].partition(":")
    chip = CHIPS[generation]
    slices = f"{made['slices']} slices of " if made["slices"] > 1 else ""
    chips = f"{pluralize(made['devices'], f'{chip.name} chips')}, {chip.memory / GIB:.0f} GiB each"
    return f"{slices}{made['topology']}, {chips}", chip.memory


def _memory_line(sizes: dict[str, int], available: int) -> str:
    peak = sizes["peak"]
    parts = ", ".join(f"{name} {size / GIB:.3f}" for name, size in sizes.items() if name != "peak")
    return f"  memory      {peak / GIB:.3f} GiB, {peak / available:.1%} of the device's ({parts})"


def _count_lines(program: dict[str, Any]) -> list[str]:
    lines = []
    if "flops_analytic" in program:
        flops = program["flops"]
        analytic = program["flops_analytic"]
        lines.append(f"  FLOPs       {flops:.4g}; matmuls {analytic:.4g}; ratio {flops / analytic:.3f}")
    for collective in program["collectives"]:
        kind = collective["kind"]
        megabytes = collective["bytes"] / 1e6
        lines.append(f"  {kind:<18} {collective['count']}, of {megabytes:.3f} MB, in groups of {collective['group']}")
    if not program["collectives"]:
        lines.append("  no collectives")
    for kernel, times in program.get("kernels", {}).items():
        lines.append(f"  {kernel:<18} {pluralize(times, 'calls')}")
    if "deterministic" in program:
        lines.append(f"  deterministic {'yes' if program['deterministic'] else _nondeterministic(program)}")
    return lines


def _nondeterministic(program: dict[str, Any]) -> str:
    """Returns the counts of operations that add in no fixed order."""
    gradients = sum(times for kernel, times in program["kernels"].items() if kernel.endswith(gpus.GRADIENT))
    return (
        f"no: {pluralize(program['unordered_scatters'], 'scatters')} and {pluralize(gradients, 'gradients')} of cuDNN "
        "add in any order; XLA_FLAGS=--xla_gpu_deterministic_ops=true fixes the order"
    )


def _estimate_lines(estimated: dict[str, float], length: int, steps: int) -> list[str]:
    milliseconds = {name: 1e3 * estimated[f"{name}_seconds"] for name in ("compute", "memory", "links", "network")}
    parts = ", ".join(f"{name} {value:.2f}" for name, value in milliseconds.items())
    fastest = 1e3 * estimated["step_seconds_least"]
    slowest = 1e3 * estimated["step_seconds_most"]
    return [
        f"estimated step, {length} positions per row: {fastest:.2f} to {slowest:.2f} ms ({parts})",
        f"  {estimated['positions_per_second_least']:,.0f} to {estimated['positions_per_second_most']:,.0f} "
        f"target positions/s; {_span(estimated['hours_least'], estimated['hours_most'])} "
        f"for {pluralize(steps, 'steps')}",
        f"  {ASSUMPTIONS}",
    ]


def _span(*hours: float) -> str:
    """Returns one or two times in hours, or in minutes or seconds if they are short."""
    unit, scale = "hours", 1
    if max(hours) < 1:
        unit, scale = ("minutes", 60) if max(hours) * 60 >= 1 else ("seconds", 3600)
    return f"{' to '.join(f'{scale * one:.2f}' for one in hours)} {unit}"


def _timed_lines(timed: dict[str, Any], length: int, steps: int) -> list[str]:
    seconds = ", ".join(f"{one:.3f}" for one in timed["seconds"])
    rate = f"{timed['flops_per_second']:.4g} FLOPs/s"
    if "utilisation" in timed:
        rate += f", {timed['utilisation']:.1%} of the peak in bfloat16"
    return [
        f"timed steps, {length} positions per row: {seconds} s ({rate})",
        f"estimated {_span(timed['minutes'] / 60)} for {pluralize(steps, 'steps')}",
        f"  {EXTRAPOLATED}",
    ]


def refusal(made: dict[str, Any]) -> str:
    """Returns one line about the program that does not fit."""
    refused = made["refused"]
    needed = refused["needed"] / GIB
    available = refused["available"] / GIB
    return (
        f"does not fit: {refused['program']} needs {needed:.2f} GiB per device, and {place(made['topology'])} has"
        f" {available:.2f}; more devices, mesh.fsdp, mesh.tensor, optim.accumulate or model.remat reduce that"
    )

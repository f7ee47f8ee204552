"""The report of `train.compile`: what each program of a run needs, and an estimate of the time per update."""

import sys
from importlib.metadata import version
from typing import Any

import jax
from ml_collections import ConfigDict

from base.errors import UserError
from model.config import parameter_count
from model.mixers.kernels import PLATFORMS
from run.folder import as_json, model_config
from run.sharding import AXES
from train.aot import gpus, programs
from train.aot.hardware import ASSUMPTIONS, CHIPS, GIB, Chip


def report(cfg: ConfigDict, topology: str, slices: int, *, with_search: bool) -> dict[str, Any]:
    """Compiles `cfg` for the topology and returns `train.aot.programs.facts` of each program.

    Stops at a program that does not fit; `refused` then names it and the bytes needed and available.

    Raises:
      UserError: config, topology and slices are inconsistent.
    """
    if not cfg.data.vocab_size:
        raise UserError("data.vocab_size is 0, and no text is read here to count it: give --config.data.vocab_size")
    chip, devices = programs.open_topology(topology, slices)
    mesh = programs.topology_mesh(cfg.mesh, devices, slices)
    impl = cfg.model.attention_impl
    if PLATFORMS.get(impl, devices[0].platform) != devices[0].platform:
        raise UserError(f"config: model.attention_impl is {impl!r}, for {PLATFORMS[impl]}s; {topology} needs another")
    config = model_config(cfg, cfg.data.vocab_size)
    shapes = programs.batch_shapes(cfg, mesh)
    _, longest_rows, longest = shapes[-1]
    planned, rows, length = shapes[len(shapes) // 2]
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

    def compile_middle() -> dict[str, Any]:
        if length == longest:
            return made["train_longest"]
        return programs.train_step(cfg, config, mesh, rows, length)

    compilers = {
        "train_longest": lambda: programs.train_step(cfg, config, mesh, longest_rows, longest),
        "train_middle": compile_middle,
    }
    if with_search:
        compilers["search"] = lambda: programs.search_program(cfg, config, mesh)
    for name, compile_ in compilers.items():
        print(f"compiling {name} for {topology} ...", file=sys.stderr)
        try:
            made[name] = compile_()
        except programs.TooLarge as error:
            made["refused"] = {"program": name, "needed": error.needed, "available": error.available}
            return made
    made["estimate"] = estimate(chip, made["train_middle"], planned * length, cfg.steps)
    return made


def compiler_versions(topology: str) -> dict[str, str]:
    """Returns the versions of the packages that compile for a topology."""
    compiler = gpus.PLUGIN if topology.partition(":")[0] in gpus.TARGETS else "libtpu"
    return {"jax": jax.__version__, compiler: version(compiler)}


def estimate(chip: Chip, program: dict[str, Any], positions: int, steps: int) -> dict[str, float]:
    """Returns lower and upper estimates of the time per update, and the rates that follow; see ASSUMPTIONS.

    Args:
      chip: the device.
      program: facts of the train step.
      positions: target positions per update, without the rows that pad the batch to the mesh.
      steps: updates in the whole run.
    """
    collectives = program["collectives"]
    within_slice = sum(_sent(collective) for collective in collectives if collective["kind"] != "send")
    between_slices = sum(_sent(collective) for collective in collectives if collective["kind"] == "send")
    seconds = {
        "compute": program["flops_analytic"] / chip.peak,
        "memory": program["traffic"] / chip.memory_bandwidth,
        "links": within_slice / chip.link,
        "network": between_slices / chip.network,
    }
    least = max(seconds.values())
    most = sum(seconds.values())
    return {
        **{f"{name}_seconds": value for name, value in seconds.items()},
        "step_seconds_least": least,
        "step_seconds_most": most,
        "positions_per_second_most": positions / least,
        "positions_per_second_least": positions / most,
        "hours_least": steps * least / 3600,
        "hours_most": steps * most / 3600,
    }


def _sent(collective: dict[str, Any]) -> float:
    """Returns the bytes that a device sends in a ring of its group; an all-reduce goes round twice."""
    rounds = 2 if collective["kind"] in ("all-reduce", "send") else 1  # slices send gradients and get them back reduced
    return rounds * collective["bytes"] * (collective["group"] - 1) / collective["group"]


def as_text(made: dict[str, Any]) -> str:
    """Returns the report as text."""
    generation, _, _ = made["topology"].partition(":")
    chip = CHIPS[generation]
    slices = f"{made['slices']} slices of " if made["slices"] > 1 else ""
    mesh = " ".join(f"{axis}={size}" for axis, size in made["mesh"].items())
    dtype = made["config"]["model"]["dtype"]
    lines = [
        f"{slices}{made['topology']}, {made['devices']} {chip.name} chips with {chip.memory / GIB:.0f} GiB each",
        f"mesh {mesh}; {made['parameters']:,} parameters, {dtype}; per device:",
    ]
    titles = {"train_longest": "update", "train_middle": "update", "search": "beam search"}
    for name, title in titles.items():
        is_repeated = name == "train_middle" and made.get(name) == made.get("train_longest")
        if name in made and not is_repeated:
            program = made[name]
            lines.append(f"{title}, {program['rows']} rows x {program['length']} positions per side")
            lines += _program_lines(program, chip)
    if "estimate" in made:
        lines += _estimate_lines(made["estimate"], made["train_middle"]["length"], made["config"]["steps"])
    return "\n".join(lines)


def _program_lines(program: dict[str, Any], chip: Chip) -> list[str]:
    memory = program["memory"]
    peak = memory["peak"]
    parts = ", ".join(f"{name} {memory[name] / GIB:.3f}" for name in memory if name != "peak")
    lines = [f"  memory      {peak / GIB:.3f} GiB, {peak / chip.memory:.1%} of HBM ({parts})"]
    if "flops_analytic" in program:
        flops = program["flops"]
        analytic = program["flops_analytic"]
        lines.append(f"  FLOPs       {flops:.4g}; matrix products {analytic:.4g}; ratio {flops / analytic:.3f}")
    for collective in program["collectives"]:
        kind = collective["kind"]
        megabytes = collective["bytes"] / 1e6
        lines.append(f"  {kind:<18} {collective['count']}, of {megabytes:.3f} MB, in groups of {collective['group']}")
    if not program["collectives"]:
        lines.append("  no collectives")
    for kernel, times in program.get("kernels", {}).items():
        lines.append(f"  {kernel:<18} called {times} times")
    if "deterministic" in program:
        lines.append(f"  deterministic {'yes' if program['deterministic'] else _unordered(program)}")
    return lines


def _unordered(program: dict[str, Any]) -> str:
    """Returns what adds in no fixed order."""
    gradients = sum(times for kernel, times in program["kernels"].items() if kernel.endswith(gpus.GRADIENT))
    return (
        f"no: {program['unordered_scatters']} scatters and {gradients} gradients of cuDNN add in any order;"
        " XLA_FLAGS=--xla_gpu_deterministic_ops=true gives them one"
    )


def _estimate_lines(estimated: dict[str, float], length: int, steps: int) -> list[str]:
    milliseconds = {name: 1e3 * estimated[f"{name}_seconds"] for name in ("compute", "memory", "links", "network")}
    parts = ", ".join(f"{name} {value:.2f}" for name, value in milliseconds.items())
    fastest = 1e3 * estimated["step_seconds_least"]
    slowest = 1e3 * estimated["step_seconds_most"]
    return [
        f"estimated update, {length} positions per row: {fastest:.2f} to {slowest:.2f} ms ({parts})",
        f"  {estimated['positions_per_second_least']:,.0f} to {estimated['positions_per_second_most']:,.0f} "
        f"target positions/s; {estimated['hours_least']:.2f} to {estimated['hours_most']:.2f} hours "
        f"for {steps:,} updates",
        f"  {ASSUMPTIONS}",
    ]


def refusal(made: dict[str, Any]) -> str:
    """Returns one line about the program that does not fit."""
    refused = made["refused"]
    needed = refused["needed"] / GIB
    available = refused["available"] / GIB
    return (
        f"does not fit: {refused['program']} needs {needed:.2f} GiB per device, and {made['topology']} has"
        f" {available:.2f}; more devices, mesh.fsdp, mesh.tensor, optim.accumulate or model.remat reduce that"
    )

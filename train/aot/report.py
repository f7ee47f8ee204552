"""The report of `train.compile`: what each program of a run needs, and an estimate of the time per update."""

import sys
from importlib.metadata import version
from typing import Any

import jax
from ml_collections import ConfigDict

from model.config import parameter_count
from run.folder import as_json, model_config
from run.sharding import AXES
from train.aot import programs
from train.aot.hardware import ASSUMPTIONS, CHIPS, GIB, Chip


def report(cfg: ConfigDict, topology: str, slices: int, *, with_search: bool) -> dict[str, Any]:
    """Compiles `cfg` for the topology and returns `train.aot.programs.facts` of each program.

    Stops at a program that does not fit; `refused` then names it and the bytes needed and available.

    Raises:
      UserError: config, topology and slices are inconsistent.
    """
    chip, devices = programs.open_topology(topology, slices)
    mesh = programs.topology_mesh(cfg.mesh, devices, slices)
    config = model_config(cfg, cfg.data.vocab_size)
    shapes = programs.batch_shapes(cfg, mesh)
    (_, longest_rows, longest), (planned, rows, length) = shapes[-1], shapes[len(shapes) // 2]
    made: dict[str, Any] = {
        "topology": topology,
        "slices": slices,
        "devices": mesh.size,
        "mesh": {axis: mesh.shape[axis] for axis in AXES},
        "parameters": parameter_count(config),
        "batches": [dict(zip(("planned", "rows", "length"), shape, strict=True)) for shape in shapes],
        "versions": {"jax": jax.__version__, "libtpu": version("libtpu")},
        "config": as_json(cfg),
    }
    compilers = {
        "train_longest": lambda: programs.train_step(cfg, config, mesh, longest_rows, longest),
        "train_middle": lambda: (
            made["train_longest"] if longest == length else programs.train_step(cfg, config, mesh, rows, length)
        ),
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


def estimate(chip: Chip, program: dict[str, Any], positions: int, steps: int) -> dict[str, float]:
    """Returns lower and upper estimates of the time per update, and the rates that follow; see ASSUMPTIONS.

    Args:
      chip: the device.
      program: facts of the train step.
      positions: target positions per update, without the rows that pad the batch to the mesh.
      steps: updates in the whole run.
    """
    seconds = {"compute": program["flops_analytic"] / chip.peak, "memory": program["traffic"] / chip.memory_bandwidth}
    seconds["links"] = sum(_sent(e) for e in program["collectives"] if e["kind"] != "send") / chip.link
    seconds["network"] = sum(_sent(e) for e in program["collectives"] if e["kind"] == "send") / chip.network
    least, most = max(seconds.values()), sum(seconds.values())
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
    chip, mesh = CHIPS[made["topology"].partition(":")[0]], made["mesh"]
    slices = f"{made['slices']} slices of " if made["slices"] > 1 else ""
    lines = [
        f"{slices}{made['topology']}, {made['devices']} {chip.name} chips with {chip.memory / GIB:.0f} GiB each",
        f"mesh {' '.join(f'{axis}={size}' for axis, size in mesh.items())};"
        f" {made['parameters']:,} parameters, {made['config']['model']['dtype']}; per device:",
    ]
    titles = {"train_longest": "update", "train_middle": "update", "search": "beam search"}
    for name in titles:
        if name in made and (name != "train_middle" or made[name] != made["train_longest"]):
            program = made[name]
            lines.append(f"{titles[name]}, {program['rows']} rows x {program['length']} positions per side")
            lines += _program(program, chip)
    if "estimate" in made:
        e = made["estimate"]
        parts = (f"{name} {1e3 * e[f'{name}_seconds']:.2f}" for name in ("compute", "memory", "links", "network"))
        lines += [
            f"estimated update, {made['train_middle']['length']} positions per row: {1e3 * e['step_seconds_least']:.2f}"
            f" to {1e3 * e['step_seconds_most']:.2f} ms ({', '.join(parts)})",
            f"  {e['positions_per_second_least']:,.0f} to {e['positions_per_second_most']:,.0f} target positions/s;"
            f" {e['hours_least']:.2f} to {e['hours_most']:.2f} hours for {made['config']['steps']:,} updates",
            f"  {ASSUMPTIONS}",
        ]
    return "\n".join(lines)


def _program(program: dict[str, Any], chip: Chip) -> list[str]:
    memory = program["memory"]
    parts = ", ".join(f"{name} {memory[name] / GIB:.3f}" for name in memory if name != "peak")
    lines = [f"  memory      {memory['peak'] / GIB:.3f} GiB, {memory['peak'] / chip.memory:.1%} of HBM ({parts})"]
    if "flops_analytic" in program:
        flops, analytic = program["flops"], program["flops_analytic"]
        lines.append(f"  FLOPs       {flops:.4g}; matrix products {analytic:.4g}; ratio {flops / analytic:.3f}")
    for e in program["collectives"]:
        lines.append(f"  {e['kind']:<18} {e['count']}, of {e['bytes'] / 1e6:.3f} MB, in groups of {e['group']}")
    return lines if program["collectives"] else [*lines, "  no collectives"]


def refusal(made: dict[str, Any]) -> str:
    """Returns one line about the program that does not fit."""
    needed, available = (made["refused"][key] / GIB for key in ("needed", "available"))
    return (
        f"does not fit: {made['refused']['program']} needs {needed:.2f} GiB per device, and {made['topology']} has"
        f" {available:.2f}; more devices, mesh.fsdp, mesh.tensor, optim.accumulate or model.remat reduce that"
    )

"""Compiles a run for TPUs without owning one: does it fit, what does it send, how long might it take?

    python -m train.compile --config=configs/base.py --config.model.dtype=bfloat16 --topology=v5e:4x4
    python -m train.compile --config=configs/big.py --topology=v5e:4x4 --slices=2 --config.mesh.fsdp=4 --json

A topology is a TPU generation (v4, v5e, v5p, v6e) and the layout of its chips: v5e:2x2, v6e:4x4, v5p:2x2x2. The train
step is compiled for the longest rows, which need the most memory, and for those of the middle bucket, from which the
time is estimated; beam search for a full batch of short sentences. Needs `pip install -e '.[tpu]'`, and takes minutes
at the sizes of the paper. Nothing is executed.

Exit status: 0 it fits, 1 it does not (one line on stderr says what it needs and what there is), 2 a wrong flag or key.
"""

import json
import os
import sys
from importlib.metadata import version
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from base.errors import UserError, run
from configs.common import default
from train.aot.hardware import CHIPS, GIB, Chip
from train.check import check

ASSUMPTIONS = (
    "an estimate, not a measurement: matrix products at the peak of bfloat16 (which TPUs also use for float32, by"
    " default), memory traffic as the compiler counts it, at full bandwidth (more than reaches HBM, for some stays on"
    " the chip), exchanges in rings of neighbours at full bandwidth; the first time has all three at once, the second"
    " one after the other; no waiting for data, validation or checkpoints"
)
# Compiling happens here and only here: the compiler looks for no machine, and shares its library with other processes.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


def prepare() -> None:
    """Sets the environment for compiling; before jax is imported."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def report(cfg: ConfigDict, topology: str, slices: int, *, with_search: bool) -> dict[str, Any]:
    """Compiles `cfg` for the topology; see `ahead.facts` for what is known of each program.

    Where a program does not fit, `refused` says which, and what it needs and has, in bytes; no other follows it.

    Raises:
      UserError: config, topology and slices do not go together.
    """
    import jax

    from model.config import parameter_count
    from run.folder import as_json, model_config
    from run.sharding import AXES
    from train.aot import programs as ahead

    chip, devices = ahead.open_topology(topology, slices)
    mesh = ahead.topology_mesh(cfg.mesh, devices, slices)
    config = model_config(cfg, cfg.data.vocab_size)
    shapes = ahead.batch_shapes(cfg, mesh)
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
    programs = {
        "train_longest": lambda: ahead.train_step(cfg, config, mesh, longest_rows, longest),
        "train_middle": lambda: (
            made["train_longest"] if longest == length else ahead.train_step(cfg, config, mesh, rows, length)
        ),
    }
    if with_search:
        programs["search"] = lambda: ahead.search(cfg, config, mesh)
    for name, compile_ in programs.items():
        print(f"compiling {name} for {topology} ...", file=sys.stderr)
        try:
            made[name] = compile_()
        except ahead.TooLarge as error:
            made["refused"] = {"program": name, "needed": error.needed, "available": error.available}
            return made
    made["estimate"] = estimate(chip, made["train_middle"], planned * length, cfg.steps)
    return made


def estimate(chip: Chip, program: dict[str, Any], positions: int, steps: int) -> dict[str, float]:
    """Seconds that an update cannot be faster than, by what is used, and what follows from them; see ASSUMPTIONS.

    Args:
      chip: the device.
      program: facts of the train step.
      positions: target positions of one update, without rows that only fill the mesh.
      steps: updates in the whole run.
    """
    seconds = {"compute": program["flops_analytic"] / chip.peak, "memory": program["traffic"] / chip.memory_bandwidth}
    seconds["links"] = sum(_sent(e) for e in program["exchanges"] if e["kind"] != "send") / chip.link
    seconds["network"] = sum(_sent(e) for e in program["exchanges"] if e["kind"] == "send") / chip.network
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


def _sent(exchange: dict[str, Any]) -> float:
    """Bytes that leave a device, in a ring of its group: an all-reduce goes round twice."""
    rounds = 2 if exchange["kind"] in ("all-reduce", "send") else 1  # what is sent between slices is to be reduced
    return rounds * exchange["bytes"] * (exchange["group"] - 1) / exchange["group"]


def as_text(found: dict[str, Any]) -> str:
    """The report for a reader."""
    chip, mesh = CHIPS[found["topology"].partition(":")[0]], found["mesh"]
    slices = f"{found['slices']} slices of " if found["slices"] > 1 else ""
    lines = [
        f"{slices}{found['topology']}, {found['devices']} chips {chip.name} of {chip.memory / GIB:.0f} GiB",
        f"mesh {' '.join(f'{axis}={size}' for axis, size in mesh.items())};"
        f" {found['parameters']:,} parameters, {found['config']['model']['dtype']}; for each device:",
    ]
    titles = {"train_longest": "update", "train_middle": "update", "search": "beam search"}
    for name in titles:
        if name in found and (name != "train_middle" or found[name] != found["train_longest"]):
            program = found[name]
            lines.append(f"{titles[name]}, {program['rows']} rows x {program['length']} positions a side")
            lines += _program(program, chip)
    if "estimate" in found:
        e = found["estimate"]
        parts = (f"{name} {1e3 * e[f'{name}_seconds']:.2f}" for name in ("compute", "memory", "links", "network"))
        lines += [
            f"estimated update, {found['train_middle']['length']} positions a row: {1e3 * e['step_seconds_least']:.2f}"
            f" to {1e3 * e['step_seconds_most']:.2f} ms ({', '.join(parts)})",
            f"  {e['positions_per_second_least']:,.0f} to {e['positions_per_second_most']:,.0f} target positions/s;"
            f" {e['hours_least']:.2f} to {e['hours_most']:.2f} hours for {found['config']['steps']:,} updates",
            f"  {ASSUMPTIONS}",
        ]
    return "\n".join(lines)


def _program(program: dict[str, Any], chip: Chip) -> list[str]:
    memory = program["memory"]
    parts = ", ".join(f"{name} {memory[name] / GIB:.3f}" for name in memory if name != "peak")
    lines = [f"  memory      {memory['peak'] / GIB:.3f} GiB, {memory['peak'] / chip.memory:.1%} of HBM ({parts})"]
    if "flops_analytic" in program:
        flops, analytic = program["flops"], program["flops_analytic"]
        lines.append(f"  FLOPs       {flops:.4g}; in matrix products {analytic:.4g}; ratio {flops / analytic:.3f}")
    for e in program["exchanges"]:
        lines.append(f"  {e['kind']:<18} {e['count']}, of {e['bytes'] / 1e6:.3f} MB, in groups of {e['group']}")
    return lines if program["exchanges"] else [*lines, "  nothing is exchanged"]


def refusal(found: dict[str, Any]) -> str:
    """One line about the program that does not fit."""
    needed, available = (found["refused"][key] / GIB for key in ("needed", "available"))
    return (
        f"does not fit: {found['refused']['program']} needs {needed:.2f} GiB a device, and {found['topology']} has"
        f" {available:.2f}; more devices, mesh.fsdp, mesh.tensor, optim.accumulate or model.remat need less"
    )


def main(argv: list[str]) -> int:
    """See the module's docstring."""
    options = flags.FLAGS
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; keys are set as --config.KEY=VALUE")
    check(options.config, default())
    prepare()
    found = report(options.config, options.topology, options.slices, with_search=options.search)
    print(json.dumps(found, indent=1) if options.json else as_text(found))
    if "refused" in found:
        print(refusal(found), file=sys.stderr)
    return 1 if "refused" in found else 0


if __name__ == "__main__":
    config_flags.DEFINE_config_file("config", None, "the experiment, a file of configs/", lock_config=True)
    flags.DEFINE_string("topology", None, "TPU generation and layout, like v5e:4x4")
    flags.DEFINE_integer("slices", 1, "slices of that topology, joined by the data-centre network", lower_bound=1)
    flags.DEFINE_boolean("search", True, "also compile beam search")
    flags.DEFINE_boolean("json", False, "print everything as JSON")
    flags.mark_flags_as_required(["config", "topology"])
    run(main, default().to_dict())

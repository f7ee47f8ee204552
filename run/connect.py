"""Connects the processes of a run that uses several, by its flags or by what a cluster manager provides."""

import re
from typing import Any

from absl import flags

from base import compiled
from base.errors import UserError


def define_flags() -> None:
    """Defines --coordinator, --processes and --process, for every command that several processes share."""
    flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0, if no cluster manager provides it")
    flags.DEFINE_integer("processes", None, "number of processes; used with --coordinator", lower_bound=1)
    flags.DEFINE_integer("process", None, "index of this process, from 0; used with --coordinator", lower_bound=0)


def connect(options: Any, *, stops_together: bool = False) -> None:
    """Connects to the other processes of this run, by its flags; to be called before jax looks for devices.

    Cloud TPU slices, Slurm steps, Open MPI and Kubernetes jobs are detected (`jax.distributed`). Elsewhere the three
    flags are needed, except on a single machine. With `stops_together` jax takes SIGTERM for itself, so that all
    processes can agree on the step to stop after (`run.distributed.all_stop`).

    Raises:
      UserError: only some of the flags are given, one cannot be right, or the other processes do not answer.
    """
    import jax  # only now: a mistyped flag is answered without it

    coordinator = options.coordinator
    processes = options.processes
    process = options.process
    missing = [value is None for value in (coordinator, processes, process)]
    if any(missing) and not all(missing):
        raise UserError("--coordinator, --processes and --process go together: give all three or none")
    if coordinator is not None:
        _check(coordinator, processes, process)
    if jax.distributed.is_initialized():
        return
    jax.config.update("jax_enable_preemption_service", stops_together)
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except ValueError as error:
        # Without a coordinator no cluster manager was found: on a single machine there is nothing to connect to.
        if coordinator is not None:
            raise UserError(f"--coordinator={coordinator}: {str(error).splitlines()[0]}") from error
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        given = "this cluster manager's job" if coordinator is None else f"--coordinator={coordinator}"
        raise UserError(f"{given}: no connection to the other processes ({reason})") from error
    else:
        # Only process 0 keeps programs, perhaps where the others cannot read them. XLA may divide the tuning of a
        # program for GPUs among all processes, and one that has loaded it would take no part.
        # One process may be connected to itself alone: on a TPU VM of one host, in a Slurm step of one task.
        if compiled.is_own_folder() and jax.process_count() > 1:
            jax.config.update("jax_enable_compilation_cache", False)


def _check(coordinator: str, processes: int, process: int) -> None:
    """Raises a `UserError` unless these flags can be right."""
    if not re.fullmatch(r".+:\d{1,5}", coordinator):
        raise UserError(f"--coordinator={coordinator}: it must be HOST:PORT, like 10.0.0.1:1234")
    if process >= processes:
        raise UserError(f"--process={process}: it must be from 0 to {processes - 1}, since --processes={processes}")

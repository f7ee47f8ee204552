"""Connects the processes of a run that uses several, by its flags or by what a cluster manager provides."""

import os
import re
from typing import Any

from absl import flags

from vaswani import compiled
from vaswani.errors import UserError, note

# What a cluster manager tells the processes of several TPU slices, in this order: how many, which one, and where the
# first is. A job that replaces a preempted slice may find stale ones.
_OF_SLICES = ("MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS")


def define_flags() -> None:
    """Defines --coordinator, --processes and --process, for every command that several processes may run together."""
    flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0, if no cluster manager provides it")
    flags.DEFINE_integer(
        "processes",
        None,
        "number of processes; used with --coordinator, or 1 without it: only this one, whatever else was started",
        lower_bound=1,
    )
    flags.DEFINE_integer("process", None, "index of this process, from 0; used with --coordinator", lower_bound=0)


def connect(options: Any, *, stops_together: bool = False) -> None:
    """Connects to the other processes of this run, by its flags; to be called before jax looks for devices.

    Cloud TPU slices, Slurm steps, Kubernetes and Open MPI 4 jobs are detected (`jax.distributed`). Elsewhere the three
    flags are needed, except on a single machine. A single process, or one with --processes=1, is not connected. With
    `stops_together` jax takes SIGTERM for itself, so that all processes can agree on the step to stop after
    (`run.distributed.all_stop`).

    Raises:
      UserError: only some of the flags are given, one cannot be right, or the other processes do not answer; or the
        variables of several TPU slices cannot be right.
    """
    import jax  # only now: a mistyped flag is answered without it

    coordinator = options.coordinator
    processes = options.processes
    process = options.process
    _check_slices(processes)
    if (coordinator, processes, process) == (None, 1, None):
        return
    missing = [value is None for value in (coordinator, processes, process)]
    if any(missing) and not all(missing):
        raise UserError("--coordinator, --processes and --process go together: give all three or none")
    if coordinator is not None:
        _check(coordinator, processes, process)
    if jax.distributed.is_initialized():
        return
    jax.config.update("jax_enable_preemption_service", stops_together)
    try:
        if coordinator is None and _launched_together() == 1:
            _check_alone()
            return
        jax.distributed.initialize(coordinator, processes, process)
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        given = "this cluster manager's job" if coordinator is None else f"--coordinator={coordinator}"
        raise UserError(f"{given}: no connection to the other processes ({reason})") from error
    else:
        # Only process 0 keeps programs, perhaps where the others cannot read them. XLA may divide the tuning of a
        # program for GPUs among all processes, and one that has loaded it would take no part.
        # With all three flags, a process may be connected only to itself.
        if compiled.is_own_folder() and jax.process_count() > 1:
            jax.config.update("jax_enable_compilation_cache", False)


def _check_slices(processes: int | None) -> None:
    """Drops the variables of several slices where there is one, and says for how many jax is about to wait.

    With wrong ones it would wait for slices that do not exist, without a word.
    """
    given = {name: os.environ[name] for name in _OF_SLICES if os.environ.get(name)}
    if not given:
        return
    listed = ", ".join(f"{name}={value}" for name, value in given.items())
    slices, index, _ = (given.get(name, "") for name in _OF_SLICES)
    if processes == 1 or slices == "1":
        for name in given:
            del os.environ[name]
        note(f"this run is of one slice, so these variables are ignored: {listed}")
        return
    can_be = len(given) == len(_OF_SLICES) and slices.isdecimal() and index.isdecimal() and int(index) < int(slices)
    if not can_be or (processes or 0) % int(slices):
        raise UserError(
            f"{listed}: this cannot be right, and is perhaps left from before a preemption; for one slice unset these "
            "variables; several slices need all three, and a slice id below their number, which must divide --processes"
        )
    note(f"waiting for {slices} slices ({listed}); if there are fewer, end this and unset these variables")


def _launched_together() -> int:
    """Returns the number of processes that a cluster manager has started together; 1 if there is none.

    `jax.distributed.initialize` would connect a single one to itself, by a port that follows from the machine or the
    job. A second command there would use the same port, and jax would end both.
    """
    from jax._src.clusters import ClusterEnv  # jax has no public way to ask without connecting

    _, processes, _, _ = ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, 300)
    return processes or 1


def _check_alone() -> None:
    """Raises a `UserError` if Open MPI has started several processes unseen by jax, which may not know release 5."""
    size = os.environ.get("OMPI_COMM_WORLD_SIZE", "1")
    if size != "1":
        raise UserError(
            f"mpirun has started {size} processes, and this jax does not recognise this Open MPI; give "
            "--coordinator=HOST:PORT --processes=$OMPI_COMM_WORLD_SIZE --process=$OMPI_COMM_WORLD_RANK, in a shell for "
            "each process, or --processes=1"
        )


def _check(coordinator: str, processes: int, process: int) -> None:
    """Raises a `UserError` unless these flags can be right."""
    if not re.fullmatch(r".+:\d{1,5}", coordinator):
        raise UserError(f"--coordinator={coordinator}: it must be HOST:PORT, like 10.0.0.1:1234")
    if process >= processes:
        raise UserError(f"--process={process}: it must be from 0 to {processes - 1}, since --processes={processes}")

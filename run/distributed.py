"""Training in several processes: how they connect, which one writes, and how they stop together."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from absl import flags
from jax.experimental import multihost_utils

from base.errors import UserError

flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0, if no cluster manager provides it")
flags.DEFINE_integer("processes", None, "number of processes; used with --coordinator", lower_bound=1)
flags.DEFINE_integer("process", None, "index of this process, from 0; used with --coordinator", lower_bound=0)


def connect() -> None:
    """Connects to the other processes of this run; to be called before jax looks for devices.

    Cloud TPU slices, Slurm steps, Open MPI and Kubernetes jobs are detected (`jax.distributed`). Elsewhere the three
    flags are needed, except on a single machine.

    Raises:
      UserError: only some of the flags are given, or the other processes do not answer.
    """
    given = [flags.FLAGS[name].value for name in ("coordinator", "processes", "process")]
    if given != [None] * 3 and None in given:
        raise UserError("--coordinator, --processes and --process go together: give all three or none")
    if jax.distributed.is_initialized():
        return
    try:
        jax.distributed.initialize(*given)
    except ValueError:
        if given[0] is not None:
            raise
    except RuntimeError as error:
        raise UserError(f"--coordinator={given[0]}: no connection ({str(error).splitlines()[0]})") from error


def is_main() -> bool:
    """Returns whether this is process 0, the only one that writes shared files."""
    return jax.process_index() == 0


@contextmanager
def main_first(what: str) -> Iterator[None]:
    """Runs the block in process 0 first, then in the others, which find its result if they share a disk."""
    if not is_main():
        _meet(what)
    yield
    if is_main():
        _meet(what)


def all_stop(step: int, received: signal.Signals | None) -> signal.Signals | None:
    """Returns the signal to stop after `step`, the same in every process, whichever of them received it.

    With several processes, jax itself catches SIGTERM and agrees on a step that all of them can still reach.
    """
    if jax.process_count() == 1:
        return received
    return signal.SIGTERM if multihost_utils.reached_preemption_sync_point(step) else None


def main_says(answer: bool) -> bool:
    """Broadcasts process 0's answer, for decisions that depend on a clock and must be the same everywhere."""
    return answer if jax.process_count() == 1 else bool(multihost_utils.broadcast_one_to_all(answer))


def _meet(what: str) -> None:
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(what)

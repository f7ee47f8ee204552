"""Training in several processes: how they find each other, which one writes, and how they stop together."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import jax
from absl import flags
from jax.experimental import multihost_utils

from base.errors import UserError

flags.DEFINE_string("coordinator", None, "HOST:PORT of process 0, where no cluster manager provides it")
flags.DEFINE_integer("processes", None, "processes in all; goes with --coordinator", lower_bound=1)
flags.DEFINE_integer("process", None, "number of this process, from 0; goes with --coordinator", lower_bound=0)


def connect() -> None:
    """Joins the other processes of this run, before anything else asks jax for its devices.

    Cloud TPU slices, Slurm steps, Open MPI and Kubernetes jobs are detected (`jax.distributed`). Elsewhere the three
    flags are needed; on a single machine there is nothing to join.

    Raises:
      UserError: some of the flags, but not all; or the others do not answer.
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
    """Returns whether this is process 0, which writes what only one may write."""
    return jax.process_index() == 0


@contextmanager
def main_first(what: str) -> Iterator[None]:
    """Runs the block in process 0 first, then in the others, which find its result where they share a disk."""
    if not is_main():
        _meet(what)
    yield
    if is_main():
        _meet(what)


def all_stop(step: int, received: signal.Signals | None) -> signal.Signals | None:
    """Returns the signal to stop after `step`: the same answer in every process, whichever of them it reached.

    Where there are many, jax itself catches SIGTERM and agrees on a step that all of them can still reach.
    """
    if jax.process_count() == 1:
        return received
    return signal.SIGTERM if multihost_utils.reached_preemption_sync_point(step) else None


def main_says(answer: bool) -> bool:
    """Returns process 0's answer in every process: for what depends on a clock and must be done by all or none."""
    return answer if jax.process_count() == 1 else bool(multihost_utils.broadcast_one_to_all(answer))


def _meet(what: str) -> None:
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(what)

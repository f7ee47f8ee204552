"""Training in several processes: which one writes, and how they stop together."""

import hashlib
import itertools
import json
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from base.errors import UserError

_LONGEST_WAIT = 7 * 24 * 3600 * 1000  # milliseconds: a process may have a large corpus to prepare
_MEETINGS = itertools.count()  # the same in every process; no two barriers may have one name


def is_main() -> bool:
    """Returns whether this is process 0, the only one that writes shared files."""
    return jax.process_index() == 0


@contextmanager
def main_first(what: str, folder: Path | None = None) -> Iterator[None]:
    """Runs the block in process 0 first, then in the others, which find its result in `folder` if they share a disk.

    No process goes on before all have finished, since without a shared disk the others may take as long as process 0.
    """
    if not is_main():
        _meet(what)
        if folder is not None:
            _look_again(folder)
    yield
    if is_main():
        _meet(what)
    _meet(f"{what} everywhere")


def all_stop(step: int, received: signal.Signals | None) -> signal.Signals | None:
    """Returns the signal to stop after `step`, the same in every process, whichever of them received it.

    With several processes, jax itself catches SIGTERM and agrees on a step that all of them can still reach.
    """
    if jax.process_count() == 1:
        return received
    return signal.SIGTERM if multihost_utils.reached_preemption_sync_point(step) else None


def broadcast_from_main(answer: bool) -> bool:
    """Returns process 0's answer, for decisions that depend on a clock and must be the same everywhere."""
    if jax.process_count() == 1:
        return answer
    return bool(multihost_utils.broadcast_one_to_all(answer))


def check_same_data(manifests: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises a `UserError` in every process if one has read other data than process 0: its rows are of other batches.

    `manifests` are those of the data, by split, as `run.json` records them.
    """
    if jax.process_count() == 1:
        return
    sums = {name: manifest["sha256"] for name, manifest in manifests.items()}
    digest = hashlib.sha256(json.dumps(sums, sort_keys=True).encode()).digest()
    all_pk = multihost_utils.process_allgather(np.frombuffer(digest, np.uint32))
    others = [str(process) for process, own_k in enumerate(all_pk) if (own_k != all_pk[0]).any()]
    if others:
        keys = " and ".join(f"data.{name}" for name in sums)
        raise UserError(
            f"the data of process {', '.join(others)} are not those of process 0; {keys} must be the same on every host"
        )


def _look_again(folder: Path) -> None:
    """Has a network file system forget that something was absent which process 0 has made since.

    NFS goes on saying so for half a minute, unless the folder is opened that the name is in.
    """
    for place in (*reversed(folder.parents), folder):
        with suppress(OSError):
            os.close(os.open(place, os.O_RDONLY))


def _meet(what: str) -> None:
    """Waits for all processes, for as long as it takes; on CPUs a collective would fail after half a minute."""
    if jax.process_count() == 1:
        return
    from jax._src.distributed import global_state  # jax has no public way to meet but collectives

    assert global_state.client is not None
    global_state.client.wait_at_barrier(f"{what} {next(_MEETINGS)}", _LONGEST_WAIT)

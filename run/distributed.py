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
from jax._src.distributed import global_state
from jax.experimental import multihost_utils

from vaswani.errors import UserError
from vaswani.run.parameters import params_sha256

_LONGEST_WAIT = 7 * 24 * 3600 * 1000  # milliseconds: a process may have a large corpus to prepare
_PATHS = ("data.cache", "data.test", "data.tokenizer", "data.train", "data.valid")  # keys that name files
_MEETINGS = itertools.count()  # the same in every process; no two barriers may have one name


def is_main() -> bool:
    """Returns whether this is process 0, the only one that writes shared files."""
    return jax.process_index() == 0


@contextmanager
def main_first(what: str, folder: Path | None = None) -> Iterator[None]:
    """Runs the block in process 0 first, then in the others, which find its result in `folder` if they share a disk.

    No process goes on before all have finished, since without a shared disk the others may take as long as process 0.
    """
    # The others wait until process 0 has left the block, which it enters at once.
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


def check_same_config(config: Mapping[str, Any]) -> None:
    """Raises a `UserError` in every process if one has another config than process 0: it would make other steps.

    `config` has its values by dotted key. Files may have other names on each host; `check_same_data` compares them.
    """
    values = {key: value for key, value in config.items() if key not in _PATHS}
    _meet("config")
    _check_same("keys of the config", values, "give every host the same command, and the same code")


def check_same_data(manifests: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises a `UserError` in every process if one has read other data than process 0, so that batches do not match.

    `manifests` are the data's, by split, as `run.json` records them.
    """
    checksums = {name: manifest["sha256"] for name, manifest in manifests.items()}
    keys = " and ".join(f"data.{name}" for name in checksums)
    _check_same("data", checksums, f"{keys} must be the same on every host")


def check_same_params(params: Any) -> None:
    """Raises a `UserError` in every process if one has read other parameters than process 0.

    A training that still runs may have saved a checkpoint after one of them had looked for the latest.
    """
    if jax.process_count() > 1:
        _meet("parameters")
        _check_same("parameters", params_sha256(params), "name the checkpoint by its step, in a folder that all share")


def _check_same(what: str, values: Any, cure: str) -> None:
    """Raises a `UserError` in every process if these JSON values differ from process 0's."""
    if jax.process_count() == 1:
        return
    # Values of any size, as 32 bytes that all processes exchange: [p,k], k = 8 words for each process p.
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).digest()
    all_pk = multihost_utils.process_allgather(np.frombuffer(digest, np.uint32))
    others = [str(process) for process, own_k in enumerate(all_pk) if (own_k != all_pk[0]).any()]
    if others:
        raise UserError(f"the {what} of process {', '.join(others)} differ from process 0's; {cure}")


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
    # jax has no public way to meet but collectives.
    assert global_state.client is not None
    global_state.client.wait_at_barrier(f"{what} {next(_MEETINGS)}", _LONGEST_WAIT)

"""Processes wait for each other for as long as it takes, also where no collective would."""

import sys
import time

import jax
import pytest

from tests.run.test_distributed import finish, launch
from vaswani.run.distributed import broadcast_from_main, main_first

LONG = 40  # seconds: on CPUs jax's first collective fails after 30


@pytest.mark.long
def test_no_process_goes_on_until_each_has_finished() -> None:
    finish(launch(["tests.run.test_meeting"], 2, 1))


if __name__ == "__main__":
    flags = dict(argument.removeprefix("--").split("=") for argument in sys.argv[1:])
    jax.distributed.initialize(flags["coordinator"], int(flags["processes"]), int(flags["process"]))
    with main_first("data"):
        time.sleep(LONG)
    assert broadcast_from_main(jax.process_index() == 0)

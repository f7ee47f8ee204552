"""A function with the device's memory to itself."""

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Returns what a module's function returns in a new process, whose peak of memory is then the function's own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()

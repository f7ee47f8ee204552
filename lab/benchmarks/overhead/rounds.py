"""Alternates between the updates of the training loop and the same ones without it, in one training."""

import statistics
import time
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.run.checkpoint import Checkpoints
from vaswani.run.folder import device
from vaswani.run.records import read_launches
from vaswani.train import loop, program


class Span(NamedTuple):
    """How long something took: wall seconds, and processor seconds of all threads."""

    wall: float
    cpu: float

    @property
    def cpus(self) -> float:
        """How many processors it had."""
        return self.cpu / self.wall


class Clock:
    """Started when it is made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def read(self) -> Span:
        """Returns the time since the start."""
        return Span(time.perf_counter() - self._wall, time.process_time() - self._cpu)


class Update:
    """The jitted update in the place of the loop's, which remembers its batches and can make the same updates bare."""

    def __init__(self, step: Any) -> None:
        self._step = step
        self.lower = step.lower
        self._state: Any = None
        self._batches: list[tuple[Any, jax.Array]] = []
        self._programs = 0

    def __call__(self, state: Any, batch: Any, key: jax.Array) -> Any:
        """Makes one update of the loop."""
        if self._state is None:
            self._state = jax.tree.map(jnp.copy, state)
        self._batches.append((batch, key))
        return self._step(state, batch, key)

    def repeat(self) -> tuple[Span, int, bool]:
        """Makes the updates since the last call again; returns their time, target tokens, and whether any compiled."""
        batches = self._batches
        self._batches = []
        counts = []
        clock = Clock()
        for batch, key in batches:
            self._state, sums = self._step(self._state, batch, key)
            counts.append(sums.loss.tokens)
        jax.block_until_ready(self._state)
        span = clock.read()
        tokens = int(sum(map(float, counts)))
        programs = self._step._cache_size()
        has_compiled = programs > self._programs
        self._programs = programs
        return span, tokens, has_compiled


def small() -> ConfigDict:
    """Returns a small model on the grammar."""
    cfg = default()
    cfg.data.update({"train": "grammar:train:5000", "valid": "grammar:valid:8", "vocab_size": 1_000})
    cfg.data.update({"batching": "pack", "pack_length": 64, "max_length": 64, "tokens_per_batch": 2_048})
    cfg.model.update({"N": 3, "d_model": 256, "d_ff": 1_024, "h": 4})
    cfg.eval.bleu_sentences = 0
    return cfg


def measure(cfg: ConfigDict, workdir: Path, rounds: int, updates: int) -> dict[str, Any]:
    """Trains in `workdir` and prints a line a round; returns medians and every round, as JSON.

    The first round, which compiles, is one more.
    """
    every = {"validation": cfg.eval.every, "saving": cfg.checkpoint.every}
    cfg.eval.every = cfg.checkpoint.every = updates
    cfg.checkpoint.every_minutes = 0.0
    cfg.steps = (1 + rounds) * updates
    found = _rounds(cfg, workdir)
    warm = [one for one in found[1:] if not one["compiled"]]
    if not warm:
        raise UserError("every round has compiled a row length: more --updates, or fewer lengths in data.buckets")
    return {
        "device": device(),
        "versions": {name: version(name) for name in ("jax", "jaxlib")},
        "pairs": read_launches(workdir)[-1]["data"]["train"]["pairs"]["kept"],
        "updates": updates,
        "every": every,
        "median": {name: statistics.median(one[name] for one in warm) for name in warm[0] if name != "compiled"},
        "rounds": found,
    }


def _rounds(cfg: ConfigDict, workdir: Path) -> list[dict[str, Any]]:
    """Trains, with the loop's update, validation and saving replaced by timed ones; returns what each round took."""
    made: list[Update] = []
    found: list[dict[str, Any]] = []
    clock = Clock()
    compiled_in: Any = program
    validated_in: Any = loop
    make, validate, save = compiled_in.make_train_step, validated_in.validate, Checkpoints.save

    def make_update(*arguments: Any) -> Any:
        made.append(Update(make(*arguments)))
        return made[0]

    @wraps(validate)
    def timed_validation(*arguments: Any) -> dict[str, float]:
        looped = clock.read()
        timer = Clock()
        metrics = validate(*arguments)
        found.append({"looped": looped, "validation": timer.read().wall})
        return metrics

    @wraps(save)
    def timed_save(checkpoints: Checkpoints, *arguments: Any) -> None:
        nonlocal clock
        timer = Clock()
        save(checkpoints, *arguments)
        checkpoints.wait()
        saving = timer.read().wall
        found[-1] = _compared(found[-1], saving, *made[0].repeat())
        _print(len(found), found[-1])
        clock = Clock()

    compiled_in.make_train_step = make_update
    validated_in.validate = timed_validation
    Checkpoints.save = timed_save  # type: ignore[method-assign, assignment]
    status = loop.train(cfg, workdir)
    if status:
        raise SystemExit(status)
    return found


def _compared(timed: dict[str, Any], saving: float, bare: Span, tokens: int, has_compiled: bool) -> dict[str, Any]:
    """Returns what one round says: rates in target tokens a second, ratios of loop to bare, seconds of the rest."""
    looped = timed["looped"]
    return {
        "tokens": tokens,
        "bare_rate": tokens / bare.wall,
        "loop_rate": tokens / looped.wall,
        "share": bare.wall / looped.wall,
        "share_cpu": bare.cpu / looped.cpu,
        "bare_cpus": bare.cpus,
        "loop_cpus": looped.cpus,
        "validation": timed["validation"],
        "saving": saving,
        "compiled": has_compiled,
    }


def _print(number: int, one: dict[str, Any]) -> None:
    compiled = " (left out: it compiled)" if one["compiled"] else ""
    print(
        f"round {number}: bare {one['bare_rate']:,.0f} target tokens/s on {one['bare_cpus']:.2f} cpus, loop "
        f"{one['loop_rate']:,.0f} on {one['loop_cpus']:.2f}; loop / bare {one['share']:.3f}, of process time "
        f"{one['share_cpu']:.3f}; validation {one['validation']:.2f} s, saving {one['saving']:.2f} s{compiled}",
        flush=True,
    )

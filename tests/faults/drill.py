"""The fault drill: training is killed and stopped repeatedly, and must end as if nothing had happened.

    python -m tests.faults.drill [--gcs] [--kind=bucket] [--kills=50] [--terms=21] [--runs=3] [--seed=0] [--folder=DIR]

A tiny model, of the batching or the task that `--kind` names, is trained in `--runs` folders, with a checkpoint every
other update, saved while training continues, and a validation every tenth. Every launch ends with one fault: SIGKILL at
a random moment, or SIGTERM in a chosen phase. The next launch must resume from the newest checkpoint that was then
complete, without a warning. Finally every run is trained to the same update number as an undisturbed one: parameters,
optimiser state and the records of every update and validation must be equal bit for bit. With `--gcs` the disturbed
runs are in a bucket of an emulator. Prints a line per fault and a summary; exit status 0 if nothing was lost.
"""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from tests import tiny
from tests.emulator import BUCKET, SERVER, emulator
from tests.extras import reason, skipped
from tests.hurry import XLA_FLAGS
from tests.tasks.test_vision import written
from vaswani.run.parameters import params_sha256

ROOT = Path(__file__).parent.parent.parent
EVAL_EVERY, PATIENCE = 10, 300.0  # updates; seconds that anything may take on a busy machine
RANDOM = "anywhere"
PHASES = ("decode", "save", "compile", "validation", "step", "twice", "restore")
KINDS = ("bucket", "pack", "language_model", "masked_lm", "vision")  # the first two are of translation


class FaultError(Exception):
    """The drill failed: something was lost."""


class Launch:
    """One training process, with its stderr in a file that also shows its progress."""

    def __init__(self, run: "Run", cache: Path, *changes: str) -> None:
        self.run, self.before = run, run.newest()
        self.launches = self.launched()
        self.log = run.folder / f"{run.folder.name}-{len(list(run.folder.glob('*.log')))}.log"
        command = [sys.executable, "-m", "train", f"--config={run.config}", f"--workdir={run.place}", *changes]
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": XLA_FLAGS,
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_for(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if self.process.poll() is not None:
                raise FaultError(f"{self.log}: ended by itself with {self.process.returncode}: {self.text()[-300:]}")
            if time.monotonic() > deadline:
                self.process.kill()
                raise FaultError(f"{self.log}: waited {PATIENCE:.0f} s in vain")
            time.sleep(0.001)

    def end(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired as error:
            self.process.kill()
            raise FaultError(f"{self.log}: did not end within {PATIENCE:.0f} s of the signal") from error

    # How far it is:

    def holds_the_folder(self) -> bool:
        lock = self.run.workdir / "lock"
        return lock.exists() and f"pid {self.process.pid} " in lock.read_text()

    def launched(self) -> int:
        path = self.run.workdir / "run.json"
        return path.stat().st_mtime_ns if path.exists() else 0

    def compiles(self) -> bool:
        return self.launched() > self.launches  # written last before the first update

    def updates(self) -> list[int]:
        return [int(step) for step in re.findall(r"^step (\d+)/\d+ train", self.text(), re.MULTILINE)]

    def validates(self) -> bool:
        last = re.findall(r"^step (\d+)/\d+ (train|valid)", self.text(), re.MULTILINE)[-1:]
        return any(int(step) % EVAL_EVERY == 0 and kind == "train" for step, kind in last)

    def saves(self) -> bool:
        return bool(self.updates()) and self.run.partial()


class Run:
    """A folder in which training is disturbed."""

    def __init__(self, folder: Path, config: Path, bucket: Path | None = None) -> None:
        """Makes the folder; the run is in it, or in a bucket, whose objects are files below `bucket`."""
        self.folder, self.workdir, self.config = folder, folder / "run", config
        self.place = str(self.workdir)
        if bucket:
            self.workdir = bucket / folder.name
            self.place = f"gs://{BUCKET}/{folder.name}"
        folder.mkdir()

    def newest(self) -> int:
        """Returns the newest complete checkpoint, by its marker only; 0 if there is none."""
        complete = (self.workdir / "checkpoints").glob("*/commit_success.txt")
        return max((int(path.parent.name) for path in complete if path.parent.name.isdigit()), default=0)

    def partial(self) -> bool:
        """Returns whether a checkpoint is being written, or was when the process was killed."""
        written = (self.workdir / "checkpoints").glob("*/_CHECKPOINT_METADATA")  # of an emulator empty folders remain
        folders = [path.parent for path in written if path.parent.name.isdigit()]
        return any(not (path / "commit_success.txt").exists() for path in folders)


def configure(folder: Path, kind: str) -> Path:
    """Returns the config of a tiny model, whose validation is slow enough to be interrupted."""
    cfg = tiny.training_config(folder)
    for language in ("en", "de"):
        lines = (folder / f"valid.{language}").read_text().splitlines()
        (folder / f"valid.{language}").write_text("".join(f"{line}\n" for line in lines * 40))
    if kind == "pack":
        cfg.data.batching = "pack"
    elif kind != "bucket":
        cfg.task = kind
        cfg.data.train, cfg.data.valid = (f"lines:{folder}/{split}.en" for split in ("train", "valid"))
    if kind == "language_model":
        cfg.data.batching = "window"
    if kind == "vision":
        cfg.data.train = cfg.data.valid = written(folder)
        cfg.image.update({"height": 4, "width": 6, "patch_height": 2, "patch_width": 3, "classes": 3})
        cfg.model.positions, cfg.model.max_positions = "learned", 9
        cfg.data.tokens_per_batch = 18  # two images: many batches in a validation
    cfg.steps, cfg.log_every, cfg.checkpoint.every, cfg.eval.every = 1_000_000, 1, 2, EVAL_EVERY
    cfg.checkpoint.keep_last, cfg.checkpoint.keep_best = 2, 1
    return tiny.config_file(folder, cfg)


class Row(NamedTuple):
    """The outcome of a launch: updates done, newest complete checkpoint, exit status."""

    signal: str
    aim: str
    updates: str
    checkpoint: int
    status: int
    hit: str


def disturb(run: Run, phase: str, chance: random.Random, cache: Path) -> Row:
    """Launches training, ends it in `phase`, and checks the state that it leaves."""
    decoding = ("--config.eval.bleu_sentences=64", "--config.decode.extra_length=40") if phase == "decode" else ()
    with tempfile.TemporaryDirectory() as empty:
        there = Path(empty) if phase == "compile" else cache
        launch = Launch(run, there, *decoding)
        aim(launch, phase, chance)
        if phase == RANDOM:
            launch.process.kill()
        else:
            launch.process.terminate()
            if phase == "twice":
                time.sleep(chance.uniform(0, 0.2))
                launch.process.terminate()
        status = launch.end()
    return checked(launch, phase, status)


def aim(launch: Launch, phase: str, chance: random.Random) -> None:
    """Waits until `launch` is in `phase`, and then for a short random time."""
    if phase == RANDOM:
        since_start = chance.random() < 0.25  # else while it trains, validates and saves
        launch.wait_for(launch.holds_the_folder if since_start else launch.updates)
        time.sleep(chance.uniform(0, 1.5))
        return
    reached, seconds = {
        "restore": (launch.holds_the_folder, 0.1),
        "compile": (launch.compiles, 0.5),
        "step": (launch.updates, 0.5),
        "validation": (launch.validates, 0.03),
        "decode": (launch.validates, 0.5),
        "save": (launch.saves, 0.01),
        "twice": (launch.updates, 0.5),
    }[phase]
    launch.wait_for(reached)
    time.sleep(chance.uniform(0, seconds))


def checked(launch: Launch, phase: str, status: int) -> Row:
    """Raises `FaultError` unless the launch resumed where the previous one ended, and left what it should."""
    text, updates, left = launch.text(), launch.updates(), launch.run.newest()
    began = re.search(r"^resuming .* after step (\d+)$", text, re.MULTILINE)
    began_at = int(began[1]) if began else 0
    if (began or updates) and began_at != launch.before:
        raise FaultError(f"{launch.log}: went on from {began_at}, but {launch.before} was complete")
    if "Traceback" in text or "warning" in text.lower() or "error" in text:
        raise FaultError(f"{launch.log}: {text[-500:]}")
    if left < launch.before or (updates and left > updates[-1]):
        raise FaultError(f"{launch.log}: checkpoint {left} after {launch.before}")
    tmp = launch.run.partial()
    if phase == RANDOM:
        if status != -signal.SIGKILL:
            raise FaultError(f"{launch.log}: exit status {status} after SIGKILL")
        hit = "before its first update" if not updates else "mid-save" if tmp else "between saves"
    else:
        if status != 128 + signal.SIGTERM:
            raise FaultError(f"{launch.log}: exit status {status} after SIGTERM: {text[-300:]}")
        if updates and (left != updates[-1] or tmp):
            raise FaultError(f"{launch.log}: update {updates[-1]} was done, but checkpoint {left} is the newest")
        unvalidated = left % EVAL_EVERY == 0 and updates and f"step {left}/1000000 valid" not in text
        hit = "nothing to save" if not updates else "validation given up" if unvalidated else "saved"
    done = f"{updates[0]}-{updates[-1]}" if updates else "none"
    return Row("SIGKILL" if phase == RANDOM else "SIGTERM", phase, done, left, status, hit)


def finish(run: Run, steps: int, cache: Path) -> None:
    """Trains to update `steps`."""
    launch = Launch(run, cache, f"--config.steps={steps}")
    if launch.end() != 0:
        raise FaultError(f"{launch.log}: could not be finished: {launch.text()[-500:]}")


def state_sha256(run: Run, step: int) -> str:
    """Of every array of a checkpoint: parameters, optimiser, number of updates."""
    folder, handler = run.workdir / "checkpoints" / str(step) / "state", ocp.PyTreeCheckpointHandler()
    tree = handler.metadata(folder).tree
    as_numpy = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    return params_sha256(handler.restore(folder, args=ocp.args.PyTreeRestore(item=tree, restore_args=as_numpy)))


def losses(run: Run) -> dict[tuple[str, int], tuple[float, float]]:
    """Returns the records of each update and each validation."""
    lines = [json.loads(line) for line in (run.workdir / "metrics.jsonl").read_text().splitlines()]
    return {(line["kind"], line["step"]): (line["loss"], line["nll"]) for line in lines}


def differences(run: Run, whole: Run, steps: int) -> list[str]:
    """Returns the differences between the final states of the two runs."""
    ours, theirs = losses(run), losses(whole)
    wrong = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    states = [] if state_sha256(run, steps) == state_sha256(whole, steps) else ["final parameters or optimiser"]
    return states + [f"{len(wrong)} records, first {wrong[0]}" for _ in wrong[:1]]


def drill(
    folder: Path,
    kills: int,
    terms: int,
    runs: int,
    seed: int,
    cache: Path,
    kind: str = KINDS[0],
    bucket: Path | None = None,
) -> bool:
    """Prints the table and the summary; True if nothing was lost.

    Compiled programs are kept in `cache`. The runs are in folders of their own, or below the folder `bucket` of an
    emulator's, which is then running.
    """
    chance, config, started = random.Random(seed), configure(folder, kind), time.monotonic()
    terminated = PHASES if kind in ("bucket", "pack") else PHASES[1:]  # only translation decodes
    phases = [RANDOM] * kills + [terminated[number % len(terminated)] for number in range(terms)]
    chance.shuffle(phases)
    disturbed, failures, hits = [], [], Counter[tuple[str, str, str]]()
    print(f"{'run':<6}{'signal':<9}{'aimed at':<12}{'updates':<14}{'checkpoint':<12}{'status':<8}what it hit")
    for number in range(runs):
        run = Run(folder / f"run{number}", config, bucket)
        try:
            for phase in phases[number::runs]:
                row = disturb(run, phase, chance, cache)
                hits[row.signal, row.aim, row.hit] += 1
                print(
                    f"{number:<6}{row.signal:<9}{row.aim:<12}{row.updates:<14}{row.checkpoint:<12}{row.status:<8}{row.hit}",
                    flush=True,
                )
            disturbed.append(run)
        except FaultError as error:
            failures.append(f"run {number}: {error}")
    steps = max((run.newest() for run in disturbed), default=0) + 3  # not where a checkpoint falls by itself
    whole = Run(folder / "whole", config)
    finish(whole, steps, cache)
    for run in disturbed:
        try:
            finish(run, steps, cache)
            failures += [f"{run.folder.name}: {difference}" for difference in differences(run, whole, steps)]
        except FaultError as error:
            failures.append(f"{run.folder.name}: {error}")
    print("\nfaults  signal   aimed at    what it hit")
    for (name, aim_, hit), count in sorted(hits.items()):
        print(f"{count:>6}  {name:<9}{aim_:<12}{hit}")
    print(f"\n{sum(hits.values())} faults in {runs} runs of {steps} updates, {time.monotonic() - started:.0f} s")
    for failure in failures:
        print(f"LOST  {failure}")
    print(f"{len(failures)} lost; {'the others' if failures else 'all'} went on every time from the newest checkpoint,")
    print("and ended with the parameters, the optimiser and the records of the undisturbed run, bit for bit")
    return not failures


def main() -> int:
    """Runs the drill."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("kills", 50), ("terms", 21), ("runs", 3), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kind", choices=KINDS, default=KINDS[0], help="the batching of translation, or another task")
    parser.add_argument("--gcs", action="store_true", help="in a bucket of an emulator; extra gcs")
    parser.add_argument("--folder", type=Path, help="where to work, and leave everything; by default nothing is left")
    options = parser.parse_args()
    if options.gcs and skipped(SERVER):
        sys.exit(f"error: --gcs: {reason(SERVER)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        compiled = folder / "compiled"
        counts = options.kills, options.terms, options.runs, options.seed
        if not options.gcs:
            return 0 if drill(folder, *counts, compiled, options.kind) else 1
        with emulator(folder / "buckets"):
            return 0 if drill(folder, *counts, compiled, options.kind, folder / "buckets" / BUCKET) else 1


if __name__ == "__main__":
    sys.exit(main())

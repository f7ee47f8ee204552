"""The training loop."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.keys import flat
from vaswani.run.checkpoint import Checkpoints
from vaswani.run.distributed import all_stop, broadcast_from_main, check_same_config, check_same_data, is_main
from vaswani.run.folder import as_json, open_folder, record_launch
from vaswani.run.records import read_metrics
from vaswani.run.sharding import make_mesh, place_rows
from vaswani.run.signals import Signals
from vaswani.run.unchanged import check_unchanged
from vaswani.run.uploads import Uploads
from vaswani.tasks.config import model_config
from vaswani.tasks.task import Batch
from vaswani.train import cpu_matmuls
from vaswani.train.job import Job, open_job
from vaswani.train.metrics import NotFiniteError, Reporter
from vaswani.train.nans import naming_nans
from vaswani.train.profile import Profile
from vaswani.train.program import Program, make_program
from vaswani.train.schedule import Patience, Schedule, reason_to_save
from vaswani.train.start import compiled_memory, description
from vaswani.train.step import TrainState
from vaswani.train.trackers import Tracker, open_tracker
from vaswani.train.utilisation import batch_flops, peak_flops
from vaswani.train.validation import validate
from vaswani.train.warm_start import warm_start


class Training(NamedTuple):
    """What the steps, validations and checkpoints of one launch share."""

    cfg: ConfigDict
    job: Job
    mesh: Mesh
    program: Program
    schedule: Schedule
    patience: Patience
    checkpoints: Checkpoints
    reporter: Reporter
    signals: Signals
    profile: Profile


def train(
    cfg: ConfigDict,
    workdir: Path,
    init_from: str | None = None,
    *,
    config_line: str = "config: from a program",
    profile: tuple[int, int] | None = None,
    tracker: str | None = None,
) -> int:
    """Trains `cfg` in `workdir` until `cfg.steps`, resuming from the folder's latest checkpoint if it has one.

    A run without a checkpoint begins with parameters of the run that `init_from` names (`train.warm_start`), if any.
    `config_line` is what the log says of where the config comes from (`train.start.config_line`).
    `profile` is the first and the last step to trace (`train.profile`), `tracker` a name of `train.trackers`.

    With `eval.patience` it may end earlier; the same command then says so and trains no further.

    Returns the exit status: 0 when done, 130 after Ctrl-C and 143 after SIGTERM; the last step is then checkpointed
    and the same command resumes from it.

    Raises:
      UserError: the config, the data or the folder is at fault, or the loss is no longer finite.
      SystemExit: with the signal's status, if it arrived while there was nothing new to save.
    """
    # A wrong config is refused before anything is written.
    model_config(cfg, cfg.data.vocab_size or 1)
    cpu_matmuls.compiler_options(cfg, jax.default_backend())
    cfg.cpu_onednn = broadcast_from_main(cfg.cpu_onednn and cpu_matmuls.may_use_onednn(workdir))

    # What is opened is closed in the reverse order. Until there is a step to save, a signal ends the work at once.
    with ExitStack() as opened:
        signals = opened.enter_context(Signals(single=jax.process_count() == 1))
        opened.enter_context(open_folder(cfg, workdir))

        # Devices, and data and model of the task: the same in every process.
        mesh = make_mesh(cfg.mesh)
        check_same_config(flat(as_json(cfg)))
        job = open_job(cfg, workdir, mesh)
        check_same_data(job.manifests)

        # State: the latest checkpoint's, or a new one.
        program = make_program(cfg, job.objective, mesh)
        init_key, dropout_key = jax.random.split(jax.random.key(cfg.seed))
        checkpoints = Checkpoints(workdir / "checkpoints", cfg.checkpoint)
        state, init_record = _first_state(workdir, program, checkpoints, job, init_key, init_from)
        done = int(state.step)

        # Records: written only by process 0; the others have neither a folder nor a tracker.
        uploads = Uploads(workdir)
        trace = Profile(uploads, profile, first=done + 1)
        if is_main():
            record_launch(workdir, job.manifests, done, init_record)
        opened.enter_context(jax.set_mesh(mesh))
        opened.enter_context(closing(uploads))
        tracking = opened.enter_context(open_tracker(tracker if is_main() else None, workdir, as_json(cfg)))
        reporter = opened.enter_context(_reporter(cfg, workdir, program, done, tracking, uploads))
        opened.enter_context(closing(job.batches))
        opened.enter_context(closing(checkpoints))
        opened.enter_context(closing(trace))
        opened.enter_context(_naming_what_is_saved(checkpoints))

        # Only now: the reporter has dropped the validations that are made again.
        patience = Patience(cfg.eval.patience, read_metrics(workdir) if is_main() else [])
        schedule = Schedule.of(cfg)
        training = Training(cfg, job, mesh, program, schedule, patience, checkpoints, reporter, signals, trace)

        # Resume: what the launch before this one left undone.
        if done > 0:
            reporter.message(f"resuming {workdir} after step {done}")
            _validate_if_interrupted(training, state.params, done)

        # Steps, the last of which is validated and saved.
        ended = broadcast_from_main(patience.ended)
        if not ended and done < cfg.steps:
            for line in [config_line, *description(cfg, mesh, program.placed.params, job.manifests)]:
                reporter.message(line)
            ended = _make_updates(training, state, dropout_key)
        if ended:
            reporter.message(f"{workdir} has ended: {patience}")
    return signals.exit_code


def _first_state(
    workdir: Path,
    program: Program,
    checkpoints: Checkpoints,
    job: Job,
    key: PRNGKeyArray,
    init_from: str | None,
) -> tuple[TrainState, dict[str, Any] | None]:
    """Returns the state that a launch begins with, and a record of the run `init_from` if its parameters are in it.

    It is the latest checkpoint's, and the batches are moved to where that was saved; or a new one, made from `key`.
    """
    latest = checkpoints.latest()
    if latest is not None:
        check_unchanged(workdir, latest)
        state, position = checkpoints.restore(program.placed)
        job.batches.set_state(position)
        return state, None
    state = program.init(key)
    if init_from is None:
        return state, None
    params, record = warm_start(init_from, state.params, workdir)
    return state.replace(params=params), record


def _reporter(
    cfg: ConfigDict, workdir: Path, program: Program, done: int, tracker: Tracker | None, uploads: Uploads
) -> Reporter:
    """Returns the reporter of a run that has made `done` steps."""
    return Reporter(
        workdir if is_main() else None,
        program.rate,
        first=done + 1,
        last=cfg.steps,
        every=cfg.log_every,
        peak=peak_flops(),
        tracker=tracker,
        uploads=uploads,
    )


def _make_updates(training: Training, state: TrainState, key: PRNGKeyArray) -> bool:
    """Makes the steps that `state` lacks, until the last one, a signal, or the end of patience.

    Returns whether patience has ended.
    """
    cfg = training.cfg
    job = training.job
    program = training.program
    schedule = training.schedule
    reporter = training.reporter
    signals = training.signals
    first = int(state.step) + 1
    saved_at = time.monotonic()
    ended = False
    report_update: Callable[[], None] | None = None  # of the step that is in flight
    for step in range(first, schedule.steps + 1):
        # A batch: about as many tokens in each (section 5.1), its rows sharded over the mesh.
        batch = place_rows(training.mesh, next(job.batches))
        position = job.batches.get_state()
        if step == first:
            reporter.message("compiling the first step")
            reporter.message(compiled_memory(program.train_step.lower(state, batch, key).compile()))

        # The step is queued: the device works on it while the host goes on.
        is_diagnosed = cfg.diagnose_every and step % cfg.diagnose_every == 0
        with naming_nans(job.objective, state, batch, key):
            diagnosis = program.diagnose(state, batch, key) if is_diagnosed else {}
            training.profile.before(step, state)
            state, sums = program.train_step(state, batch, key)  # the first time, as compiled above
        if traced := training.profile.after(step, state):
            reporter.message(traced)
        signals.hold()

        # Only now is the result of the one before read, so that the device never waits for the host.
        if report_update:
            report_update()
        report_update = partial(reporter.update, step, sums, *_size(cfg, job, batch), diagnosis)

        # What follows this step; every process comes to the same answer.
        agreed = all_stop(step, signals.received)
        if agreed is not None:  # else a signal that has come since the line above would be forgotten
            signals.received = agreed
        overdue = schedule.reads_clock(step) and broadcast_from_main(_minutes_since(saved_at) > schedule.minutes)
        due = schedule.after(step, position, overdue)
        if not (due.validates or due.reason or signals.received):
            continue

        # Validation, then the checkpoint, which holds its metrics.
        report_update()  # raises before anything that is not finite is saved
        report_update = None
        with reporter.paused():
            metrics = _validate(training, step, state.params) if due.validates else None
            ended = broadcast_from_main(training.patience.ended)
            is_stopping = signals.received is not None
            reason = reason_to_save(due, ended, is_stopping)
            if reason:
                reporter.send()  # first, so that no step has a checkpoint and no record
                training.checkpoints.save(step, state, position, metrics, as_json(cfg), reason)
                saved_at = time.monotonic()
        if is_stopping or ended:
            break
    if ended:
        reporter.finish()
    return ended


def _size(cfg: ConfigDict, job: Job, batch: Batch) -> tuple[int, int]:
    """Returns how many positions a batch has, padding included, and the FLOPs of a step on it."""
    inputs = jax.eval_shape(job.objective.tokens, batch)  # their shapes: nothing is computed, or compiled
    positions = sum(tokens.ids_bt.size for tokens in inputs)
    return positions, batch_flops(cfg.task, job.objective, batch)


def _minutes_since(moment: float) -> float:
    """Returns the minutes since `moment`, a time of `time.monotonic`."""
    return (time.monotonic() - moment) / 60


def _validate(training: Training, step: int, params: dict) -> dict[str, float] | None:
    """Returns the metrics of step `step`, recorded; None if a signal comes first."""
    validate_params = partial(validate, training.job, training.program.eval_step, training.mesh)
    metrics = training.signals.attempt(validate_params, params)
    if metrics:
        training.reporter.record_validation(step, metrics)
        training.patience.add(metrics)
    return metrics


def _validate_if_interrupted(training: Training, params: dict, step: int) -> None:
    """Validates the checkpoint of step `step`, from which the run resumes, if a signal interrupted that."""
    due = training.schedule.after(step, training.job.batches.get_state())
    if not due.validates or training.checkpoints.about(step).metrics:
        return
    # A process may have been killed after it recorded this validation, before the checkpoint had the metrics.
    is_recorded = broadcast_from_main(training.patience.last_step == step)
    with training.reporter.paused():
        metrics = validate(training.job, training.program.eval_step, training.mesh, params)
        training.signals.hold()
        if not is_recorded:
            training.reporter.record_validation(step, metrics)
            training.patience.add(metrics)
        ended = broadcast_from_main(training.patience.ended)
        training.checkpoints.add_validation(step, metrics, ended)


@contextmanager
def _naming_what_is_saved(checkpoints: Checkpoints) -> Iterator[None]:
    """Turns a `NotFiniteError` into one that the user can act on."""
    try:
        yield
    except NotFiniteError as error:
        latest = checkpoints.latest()
        kept = f"checkpoint {latest} was" if latest else "no checkpoint was"
        cure = "A lower optim.lr or an optim.clip_norm may help"
        raise UserError(f"{error}; {kept} saved before it. {cure}") from error

"""The training loop."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh
from jaxtyping import PRNGKeyArray
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.keys import flat
from vaswani.run.changes import check_unchanged
from vaswani.run.checkpoint import Checkpoints
from vaswani.run.distributed import all_stop, broadcast_from_main, check_same_config, check_same_data, is_main
from vaswani.run.folder import as_json, open_folder, record_launch
from vaswani.run.outbox import Outbox
from vaswani.run.records import read_metrics
from vaswani.run.sharding import make_mesh, place_rows, placed_shapes, shardings
from vaswani.run.signals import Signals
from vaswani.tasks.config import model_config
from vaswani.tasks.task import Batches
from vaswani.train import cpu_bfloat16
from vaswani.train.diagnose import make_diagnosis
from vaswani.train.job import Job, open_job
from vaswani.train.metrics import NotFiniteError, Reporter
from vaswani.train.nans import naming_nans
from vaswani.train.optim import learning_rate, optimizer
from vaswani.train.patience import Patience, due
from vaswani.train.profile import Profile
from vaswani.train.start import compiled_memory, description
from vaswani.train.step import TrainState, init_state, make_eval_step, make_train_step
from vaswani.train.trackers import tracked
from vaswani.train.utilisation import batch_flops, peak_flops
from vaswani.train.validation import validate
from vaswani.train.warm_start import warm_start


class Training(NamedTuple):
    """What the updates, validations and checkpoints of one launch share."""

    cfg: ConfigDict
    job: Job
    mesh: Mesh
    train_step: Any  # jitted, so that it can also be lowered: (state, batch, key) -> (state, Sums)
    diagnose: Callable[..., dict[str, jax.Array]]
    validate: Callable[[dict], dict[str, float]]  # parameters to metrics
    checkpoints: Checkpoints
    reporter: Reporter
    patience: Patience
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
    `profile` is the first and the last update to trace (`train.profile`), `tracker` a name of `train.trackers`.

    With `eval.patience` it may end earlier; the same command then says so and trains no further.

    Returns the exit status: 0 when done, 130 after Ctrl-C and 143 after SIGTERM; the last update is then checkpointed
    and the same command resumes from it.

    Raises:
      UserError: the config, the data or the folder is at fault, or the loss is no longer finite.
      SystemExit: with the signal's status, if it arrived while there was nothing new to save.
    """
    # Config: a wrong one is refused before anything is written.
    model = model_config(cfg, cfg.data.vocab_size or 1)
    options = cpu_bfloat16.compiler_options(cfg.cpu_bfloat16)

    # Until there is an update to save, a signal ends the work at once.
    with Signals(alone=jax.process_count() == 1) as signals, open_folder(cfg, workdir):
        # Devices, and data and model of the task: the same in every process.
        mesh = make_mesh(cfg.mesh)
        check_same_config(flat(as_json(cfg)))
        job = open_job(cfg, workdir, mesh)
        check_same_data(job.manifests)

        # Optimiser (section 5.3), and from the shapes of the state where each of its arrays lies.
        width_ratio = model.d_model / model.base_width
        tx = optimizer(cfg.optim, model.base_width, cfg.steps, width_ratio)
        rate = partial(learning_rate, cfg.optim, model.base_width, cfg.steps)
        init_key, dropout_key = jax.random.split(jax.random.key(cfg.seed))
        init = partial(init_state, job.objective.init, tx)
        placed = placed_shapes(jax.eval_shape(init, init_key), mesh)

        # What is jitted; nothing is compiled before the first batch is there.
        accumulate = cfg.optim.accumulate
        train_step = make_train_step(job.objective, tx, accumulate, shardings(placed), options)
        diagnose = make_diagnosis(job.objective, tx, accumulate)
        eval_step = make_eval_step(job.objective, options)

        # State: the latest checkpoint's; else a new one, perhaps with parameters of another run.
        checkpoints = Checkpoints(workdir / "checkpoints", cfg.checkpoint)
        latest = checkpoints.latest()
        init_record = None
        if latest is not None:
            state = _restore(cfg, workdir, checkpoints, latest, placed, job.batches)
        else:
            state = jax.jit(init, out_shardings=shardings(placed))(init_key)
            if init_from is not None:
                params, init_record = warm_start(init_from, state.params, workdir)
                state = state.replace(params=params)
        done = int(state.step)

        # Records: by process 0 alone; the others have neither a folder nor a tracker.
        outbox = Outbox(workdir)
        trace = Profile(outbox, profile, first=done + 1)
        if is_main():
            record_launch(workdir, job.manifests, done, init_record)
        with (
            jax.set_mesh(mesh),
            closing(outbox),
            tracked(tracker if is_main() else None, workdir, as_json(cfg)) as open_tracker,
            Reporter(
                workdir if is_main() else None,
                rate,
                first=done + 1,
                last=cfg.steps,
                every=cfg.log_every,
                peak=peak_flops(),
                tracker=open_tracker,
                outbox=outbox,
            ) as reporter,
            closing(job.batches),
            closing(checkpoints),
            closing(trace),
            _naming_what_is_saved(checkpoints),
        ):
            # Only now: the reporter has dropped the validations that are made again.
            records = read_metrics(workdir) if is_main() else []
            patience = Patience(cfg.eval.patience, records)
            training = Training(
                cfg=cfg,
                job=job,
                mesh=mesh,
                train_step=train_step,
                diagnose=diagnose,
                validate=partial(validate, job, eval_step, mesh),
                checkpoints=checkpoints,
                reporter=reporter,
                patience=patience,
                signals=signals,
                profile=trace,
            )

            # Resume: what the launch before this one left undone.
            if done > 0:
                reporter.message(f"resuming {workdir} after update {done}")
                _validate_if_interrupted(training, state.params, done)

            # Updates, the last of which is validated and saved.
            ended = broadcast_from_main(patience.ended)
            if not ended and done < cfg.steps:
                for line in [config_line, *description(cfg, mesh, placed.params, job.manifests)]:
                    reporter.message(line)
                ended = _make_updates(training, state, dropout_key)
            if ended:
                reporter.message(f"{workdir} has ended: {patience}")
    return signals.exit_code


def _restore(
    cfg: ConfigDict, workdir: Path, checkpoints: Checkpoints, step: int, placed: TrainState, batches: Batches
) -> TrainState:
    """Returns the state of the latest checkpoint, that of `step`, and moves the batches to where it was saved."""
    check_unchanged(workdir, step)
    state, position = checkpoints.restore(placed)
    batches.set_state(position)
    # Section 6.1 averages the last checkpoints, which are to be those of an uninterrupted run: one that only a signal
    # saved makes way for the next.
    if checkpoints.reason(step) == "signal":
        checkpoints.mark_temporary(step)
    return state


def _make_updates(training: Training, state: TrainState, key: PRNGKeyArray) -> bool:
    """Makes the updates that `state` lacks, until the last one, a signal, or the end of patience.

    Returns whether patience has ended.
    """
    cfg = training.cfg
    job = training.job
    reporter = training.reporter
    signals = training.signals
    first = int(state.step) + 1
    saved_at = time.monotonic()
    ended = False
    report_update: Callable[[], None] | None = None  # of the update that is in flight
    for step in range(first, cfg.steps + 1):
        # A batch: about as many tokens in each (section 5.1), its rows sharded over the mesh.
        batch = place_rows(training.mesh, next(job.batches))
        position = job.batches.get_state()
        if step == first:
            reporter.message("compiling the first update")
            reporter.message(compiled_memory(training.train_step.lower(state, batch, key).compile()))

        # The update is queued: the device works on it while the host goes on.
        is_diagnosed = cfg.diagnose_every and step % cfg.diagnose_every == 0
        with naming_nans(job.objective, state, batch, key):
            diagnosis = training.diagnose(state, batch, key) if is_diagnosed else {}
            training.profile.before(step, state)
            state, sums = training.train_step(state, batch, key)  # the first time, the program compiled above
        for line in training.profile.after(step, state):
            reporter.message(line)
        signals.hold()

        # Only now is the result of the one before read, so that the device never waits for the host.
        if report_update:
            report_update()
        inputs = jax.eval_shape(job.objective.tokens, batch)  # their shapes: nothing is computed, or compiled
        positions = sum(tokens.ids_bt.size for tokens in inputs)
        flops = batch_flops(cfg.task, job.objective, batch)
        report_update = partial(reporter.update, step, sums, positions, flops, diagnosis)

        # What is to be done after this update; every process comes to the same answer.
        agreed = all_stop(step, signals.received)
        if agreed is not None:  # else a signal that has come since the line above would be forgotten
            signals.received = agreed
        stopping = signals.received is not None
        last = step == cfg.steps
        scheduled = _overdue(cfg, step, saved_at) or (_counts(cfg, step) and due(cfg.checkpoint, step, position))
        validating = not stopping and (due(cfg.eval, step, position) or last)
        if not (validating or scheduled or stopping):
            continue

        # Validation, then the checkpoint, which holds its metrics.
        report_update()  # raises before anything that is not finite is saved
        report_update = None
        with reporter.paused():
            metrics = signals.attempt(training.validate, state.params) if validating else None
            stopping = signals.received is not None
            if metrics:
                reporter.record_validation(step, metrics)
                training.patience.add(metrics)
                ended = broadcast_from_main(training.patience.ended)
            # The first that holds: the checkpoint would be there without the others.
            reasons = {"schedule": scheduled, "end": last, "patience": ended, "signal": stopping}
            reason = next((word for word, holds in reasons.items() if holds), None)
            if reason:
                reporter.send()  # first, so that no update has a checkpoint and no record
                training.checkpoints.save(step, state, position, metrics, as_json(cfg), reason)
                saved_at = time.monotonic()
        if stopping or ended:
            break
    if ended:
        reporter.finish()
    return ended


def _counts(cfg: ConfigDict, step: int) -> bool:
    """Returns whether checkpoints are due after so many updates or epochs, and not by the clock alone.

    With `checkpoint.every_minutes` only the last ones are: those that are averaged (section 6.1).
    """
    checkpoint = cfg.checkpoint
    averaged = checkpoint.keep_last * checkpoint.every
    return checkpoint.every_minutes == 0 or checkpoint.every_epochs > 0 or step > cfg.steps - averaged


def _overdue(cfg: ConfigDict, step: int, saved_at: float) -> bool:
    """Returns whether `checkpoint.every_minutes` have passed since `saved_at`, a time of `time.monotonic`."""
    # Processes must agree, which takes a collective: only at updates that are logged.
    if cfg.checkpoint.every_minutes <= 0 or step % cfg.log_every != 0:
        return False
    minutes = (time.monotonic() - saved_at) / 60
    return broadcast_from_main(minutes > cfg.checkpoint.every_minutes)


def _validate_if_interrupted(training: Training, params: dict, step: int) -> None:
    """Validates the checkpoint of update `step`, from which the run resumes, if a signal interrupted that."""
    position = training.job.batches.get_state()
    was_due = due(training.cfg.eval, step, position) or step >= training.cfg.steps
    if not was_due:
        return
    _, metrics = training.checkpoints.about(step)
    if metrics:
        return
    # A process may have been killed after it recorded this validation, before the checkpoint had the metrics.
    is_recorded = broadcast_from_main(training.patience.last_step == step)
    with training.reporter.paused():
        metrics = training.validate(params)
        training.signals.hold()
        if not is_recorded:
            training.reporter.record_validation(step, metrics)
            training.patience.add(metrics)
        ended = broadcast_from_main(training.patience.ended)
        if ended and training.checkpoints.reason(step) == "signal":  # uninterrupted, patience would have saved it
            training.checkpoints.set_reason(step, "patience")
        training.checkpoints.add_metrics(step, metrics)


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

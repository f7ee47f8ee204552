"""The training loop."""

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from base.errors import UserError
from run.changes import check_unchanged
from run.checkpoint import Checkpoints
from run.distributed import all_stop, is_main, main_says
from run.folder import as_json, model_config, open_folder, read_metrics, record_launch
from run.sharding import make_mesh, place_rows, placed_shapes, shardings
from run.signals import Signals
from train.metrics import NotFiniteError, Reporter
from train.optim import learning_rate, optimizer
from train.patience import Patience, due
from train.step import init_state, make_eval_step, make_train_step
from train.task import Task
from train.validation import validate
from train.warm_start import warm_start


def train(
    cfg: ConfigDict, workdir: Path, open_task: Callable[[ConfigDict, Path, Mesh], Task], init_from: str | None = None
) -> int:
    """Trains `cfg` in `workdir` until `cfg.steps`, resuming from the folder's latest checkpoint if it has one.

    `open_task` is the function `task` of a file in train/tasks/. A run without a checkpoint begins with parameters of
    the run that `init_from` names (`train.warm_start`), if any.

    With `eval.patience` it may end earlier; the same command then says so and trains no further.

    Returns the exit status: 0 when done, 130 after Ctrl-C and 143 after SIGTERM; the last update is then checkpointed
    and the same command resumes from it.

    Raises:
      UserError: the config, the data or the folder is at fault, or the loss is no longer finite.
      SystemExit: with the signal's status, if it arrived while there was nothing new to save.
    """
    model_config(cfg, cfg.data.vocab_size)  # a wrong one is refused before anything is written
    with Signals(alone=jax.process_count() == 1) as signals, open_folder(cfg, workdir):
        mesh = make_mesh(cfg.mesh)
        task = open_task(cfg, workdir, mesh)
        tx = optimizer(cfg.optim, cfg.model.d_model, cfg.steps)
        init_key, dropout_key = jax.random.split(jax.random.key(cfg.seed))
        init = partial(init_state, task.objective.init, tx)
        placed = placed_shapes(jax.eval_shape(init, init_key), mesh)
        train_step = make_train_step(task.objective, tx, cfg.optim.accumulate, shardings(placed))
        validation = partial(validate, task, make_eval_step(task.objective), mesh)
        batches = task.batches

        checkpoints = Checkpoints(workdir / "checkpoints", cfg.checkpoint)
        taken = None
        latest = checkpoints.latest()
        if latest is None:
            state = jax.jit(init, out_shardings=shardings(placed))(init_key)
            if init_from is not None:
                params, taken = warm_start(init_from, state.params, workdir)
                state = state.replace(params=params)
        else:
            check_unchanged(workdir, latest)
            state, position = checkpoints.restore(placed)
            batches.set_state(position)
        first = int(state.step) + 1
        if is_main():
            record_launch(workdir, task.manifests, first - 1, taken)

        rate = partial(learning_rate, cfg.optim, cfg.model.d_model, cfg.steps)
        saved_at = time.monotonic()
        folder = workdir if is_main() else None
        reporting = Reporter(folder, rate, first=first, last=cfg.steps, every=cfg.log_every)
        patience = Patience(cfg.eval.patience, read_metrics(workdir) if is_main() else [])
        with jax.set_mesh(mesh), reporting as reporter, closing(batches), closing(checkpoints):
            if first > 1:
                reporter.message(f"resuming {workdir} after update {first - 1}")
            pending = None  # the update in flight: its result is read only once the next one is queued
            try:
                position = batches.get_state()
                validated = first > 1 and (due(cfg.eval, first - 1, position) or first > cfg.steps)
                if validated and not checkpoints.about(first - 1)[1]:  # a signal interrupted the validation
                    with reporter.paused():
                        measured = validation(state.params)
                        signals.hold()
                        reporter.validation(first - 1, measured)
                        checkpoints.add_metrics(first - 1, measured)
                        patience.add(measured)
                ended = main_says(patience.ended)
                for step in range(first, first if ended else cfg.steps + 1):
                    batch = place_rows(mesh, next(batches))
                    position = batches.get_state()
                    state, sums = train_step(state, batch, dropout_key)
                    positions = sum(np.size(tokens.ids_bt) for tokens in task.objective.tokens(batch))
                    signals.hold()
                    if pending:
                        reporter.update(*pending)
                    pending = (step, sums, positions)

                    signals.received = all_stop(step, signals.received) or signals.received
                    stopping = signals.received is not None
                    overdue = False
                    if cfg.checkpoint.every_minutes > 0 and step % cfg.log_every == 0:
                        minutes = (time.monotonic() - saved_at) / 60
                        overdue = main_says(minutes > cfg.checkpoint.every_minutes)
                    validating = not stopping and (due(cfg.eval, step, position) or step == cfg.steps)
                    saving = stopping or overdue or due(cfg.checkpoint, step, position) or step == cfg.steps
                    if validating or saving:
                        reporter.update(*pending)  # raises before anything that is not finite is saved
                        pending = None
                        with reporter.paused():
                            metrics = signals.attempt(validation, state.params) if validating else None
                            stopping = signals.received is not None
                            if metrics:
                                reporter.validation(step, metrics)
                                patience.add(metrics)
                                ended = main_says(patience.ended)
                            if saving or stopping or ended:
                                checkpoints.save(step, state, position, metrics, as_json(cfg))
                                saved_at = time.monotonic()
                    if stopping or ended:
                        break
                if ended:
                    reporter.message(f"{workdir} has ended: {patience}")
            except NotFiniteError as error:
                kept = f"checkpoint {checkpoints.latest()} was" if checkpoints.latest() else "no checkpoint was"
                cure = "A lower optim.lr or an optim.clip_norm may help"
                raise UserError(f"{error}; {kept} saved before it. {cure}") from error
    return signals.exit_code

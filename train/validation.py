"""Validation during training: loss, unsmoothed perplexity, and the task's own metrics."""

from collections.abc import Callable

import jax
from jax.sharding import Mesh

from vaswani.numbers import from_nll
from vaswani.progress import Progress
from vaswani.run.distributed import is_main
from vaswani.run.sharding import place_rows
from vaswani.tasks.loss import Loss
from vaswani.tasks.task import Batch
from vaswani.train.job import Job


def validate(job: Job, eval_step: Callable[[dict, Batch], Loss], mesh: Mesh, params: dict) -> dict[str, float]:
    """Returns "loss" and "nll" in nats per validation token, "perplexity", and the metrics of `job.measure`."""
    loss_sum = 0.0
    nll_sum = 0.0
    tokens = 0.0
    batches = job.validation_batches()
    shown = Progress("validating", "batches", total=len(batches), is_summarised=False, enabled=is_main())
    with shown as progress:
        for batch in progress.count(batches):
            loss = jax.device_get(eval_step(params, place_rows(mesh, batch)))
            # NumPy would add float32 to a Python float in float32.
            loss_sum += float(loss.loss_sum)
            nll_sum += float(loss.nll_sum)
            tokens += float(loss.tokens)
    nll = nll_sum / tokens
    metrics = {"loss": loss_sum / tokens, "nll": nll, "perplexity": from_nll(nll)}
    return metrics | job.measure(params)

"""How well a run predicts what its task asks: masked tokens, classes of texts, classes of images."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float

from vaswani.data.pipeline import OnePass
from vaswani.infer.evaluate.record import provenance
from vaswani.infer.runs import Run, corpus_named, key_named, user_error_if_too_long
from vaswani.numbers import from_nll, pluralize
from vaswani.progress import Progress
from vaswani.run.averaging import named_steps
from vaswani.run.distributed import is_main
from vaswani.run.sharding import data_mesh, place_params, place_rows
from vaswani.tasks import task_of
from vaswani.tasks.task import Batch, Objective


class Sums(NamedTuple):
    """Sums over the predictions of batches: minus the log-probability in nats, how many are right, how many."""

    nll: float
    right: float
    predictions: float


def summing(objective: Objective) -> Callable[[dict, Batch], Float[Array, "3"]]:
    """Returns the jitted function of parameters and a batch that returns the three `Sums`."""

    @jax.jit
    def sums(params: dict, batch: Batch) -> Float[Array, "3"]:
        _, target_bt, weights_bt = objective.make_example(batch)
        log_probs_btv = jax.nn.log_softmax(objective.logits(params, batch))
        nll_bt = -jnp.take_along_axis(log_probs_btv, target_bt[..., None], axis=-1)[..., 0]
        right_bt = log_probs_btv.argmax(axis=-1) == target_bt
        all_bt3 = jnp.stack([nll_bt, right_bt, jnp.ones_like(nll_bt)], axis=-1)
        return jnp.sum(all_bt3, axis=(0, 1), where=weights_bt[..., None] != 0)

    return sums


def total(sums: Callable[[dict, Batch], Float[Array, "3"]], mesh: Mesh, params: dict, batches: OnePass[Batch]) -> Sums:
    """Returns the `Sums` of all batches, with `sums` of `summing`."""
    placed = place_params(mesh, params)
    total_3 = np.zeros(3)
    shown = Progress("predicting", "batches", total=len(batches), is_summarised=False, enabled=is_main())
    with jax.set_mesh(mesh), shown as progress:
        for batch in progress.count(batches):
            with user_error_if_too_long():
                batch_3 = sums(placed, place_rows(mesh, batch))
            total_3 += jax.device_get(batch_3)
    return Sums(*total_3.tolist())


def evaluate(model_run: Run, split: str, task: str | None = None) -> dict[str, Any]:
    """Returns the result record, of JSON values, of `split`: one of the run's config, or a corpus.

    `nll` is in nats a prediction and `accuracy` the share that the likeliest token or class gets right. The same tokens
    are masked each time, and `perplexity` is a masked token's. For spans, each token is predicted given those before
    it; their sentinels and EOS count as tokens. `task` is the run's by default.

    Raises:
      UserError: there is no such corpus, the run does not read such corpora, or a line is longer than the learned
        positions.
    """
    started = time.perf_counter()
    config = model_run.config
    evaluated = task_of(task or config.task)
    evaluation = evaluated.evaluation
    assert evaluation is not None, "translation and language models are evaluated by other files"
    spec = corpus_named(config, split)
    mesh = data_mesh()
    objective = evaluated.objective(config, model_run.model_config)
    with key_named(split):
        batches = evaluation.batches(config, model_run.text, spec, mesh)
    sums = total(summing(objective), mesh, model_run.params, batches)
    count = int(sums.predictions)
    nll = sums.nll / sums.predictions
    signatures = evaluation.signatures(config, model_run.text, count)
    perplexity = {"perplexity": from_nll(nll)} if "perplexity" in signatures else {}
    return {
        "nll": nll,
        **perplexity,
        "accuracy": sums.right / sums.predictions,
        "signatures": signatures,
        f"{evaluation.unit}s": count,
        "seconds": time.perf_counter() - started,
        **provenance(model_run, spec, split),
    }


def table(record: dict[str, Any]) -> str:
    """Returns the record of any task but translation as text."""
    unit = next(unit for unit in ("token", "text", "image") if f"{unit}s" in record)
    steps = named_steps(record["checkpoints"])
    article = "an" if unit == "image" else "a"
    lines = [
        f"{record['data']}: {pluralize(record[f'{unit}s'], f'{unit}s')}, {steps}",
        "",
        f"{'nll':<16} {record['nll']:8.4f}   nats {article} {unit}",
    ]
    signatures = record["signatures"]
    if "accuracy" in record and "accuracy" not in signatures:
        lines.append(f"{'accuracy':<16} {record['accuracy']:8.4f}   of the {unit}s")
    lines += [f"{name:<16} {record[name]:8.4f}   {signature}" for name, signature in signatures.items()]
    return "\n".join(lines)

"""What `python -m lab.gradients` does once its flags have been checked."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from lab.evaluation import evaluation_file
from vaswani.data.batching import Batch, TextBatch
from vaswani.data.pipeline import text_batches
from vaswani.errors import UserError
from vaswani.files import write_json
from vaswani.infer.runs import Run, open_run
from vaswani.model.config import ModelConfig
from vaswani.model.language_model import LanguageModel
from vaswani.read_json import read_json
from vaswani.tasks.texts import open_text
from vaswani.tokens import Tokens
from vaswani.train.table import Table, as_text

BANDS = ((0, 0), (1, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 127))  # of the printed table


def main(options: Any) -> None:
    """Measures each run, prints the result, and adds it to the newest evaluation of the test split."""
    for workdir in options.workdir:
        model_run = open_run(workdir, options.checkpoint, "language_model")
        path = evaluation_file(model_run)
        rows = first_rows(model_run, options.rows)
        norms_k = norms_by_distance(model_run.model_config, model_run.params, rows)
        print(as_text(table(workdir, norms_k)), flush=True)  # first, since the run may not be writable
        write_json(path, {**read_json(path, dict), "gradient_norms": norms_k.tolist()})


def first_rows(model_run: Run, rows: int) -> list[Batch | TextBatch]:
    """Returns the first rows of a run's test text, each a batch of its own.

    Raises:
      UserError: its rows are not windows, or the text has fewer.
    """
    cfg = model_run.config.copy_and_resolve_references()
    if cfg.data.batching != "window":
        raise UserError(f"--workdir={model_run.workdir}: its data.batching is {cfg.data.batching}; it must be window")
    cfg.data.tokens_per_batch = cfg.data.pack_length
    batches = text_batches(open_text(cfg, model_run.tokenizer, cfg.data.test), cfg.data)
    if len(batches) <= rows:  # the last row may be shorter
        raise UserError(f"--rows={rows}: {cfg.data.test} has {len(batches) - 1} whole rows; ask for at most as many")
    return [batch for batch, _ in zip(batches, range(rows), strict=False)]


def norms_by_distance(config: ModelConfig, params: dict, rows: Sequence[Batch | TextBatch]) -> Float[np.ndarray, " k"]:
    """Returns the mean of |d loss(t) / d x(t - k)| for k = 0, 1, .. up to the first token of a row."""
    model = LanguageModel(config)

    def losses(x_td: Float[Array, "t d"], params: dict, batch: Batch | TextBatch) -> Float[Array, " t"]:
        """The loss at each position, as a function of the vectors that the first layer reads."""
        logits_btv = model.apply({"params": params}, x_td[None], batch.target, method=above)
        log_probs_btv = jax.nn.log_softmax(logits_btv)
        return -jnp.take_along_axis(log_probs_btv[0], batch.labels_bt[0][:, None], axis=-1)[:, 0]

    @jax.jit
    def norms(params: dict, batch: Batch | TextBatch) -> Float[Array, "t s"]:
        x_btd = model.apply({"params": params}, batch.target, method=vectors)
        # [t,s,d]: each of the t losses by each of the s vectors.
        gradients_tsd = jax.jacrev(losses)(x_btd[0], params, batch)
        return jnp.linalg.norm(gradients_tsd, axis=-1)

    norms_rts = np.array([norms(params, batch) for batch in rows])
    # Distance k is the k-th diagonal below the main one; above it nothing reaches back in time.
    means = [np.diagonal(norms_rts, -k, axis1=1, axis2=2).mean() for k in range(norms_rts.shape[1])]
    return np.array(means)


def vectors(model: LanguageModel, tokens: Tokens) -> Float[Array, "b t d"]:
    """Returns the embeddings with their positions."""
    return model.embedding.encode(tokens.ids_bt, tokens.positions_bt, None)


def above(model: LanguageModel, x_btd: Float[Array, "b t d"], tokens: Tokens) -> Float[Array, "b t v"]:
    """Returns the logits, given the embeddings."""
    x_btd, _, _ = model.decoder(x_btd, tokens)
    return model.embedding.logits(x_btd)


def table(workdir: str, norms_k: Float[np.ndarray, " k"]) -> Table:
    """Returns the mean norm of each band of distances."""
    lines: list[tuple[str, ...]] = []
    for first, last in BANDS:
        if last < len(norms_k):
            distance = str(first) if first == last else f"{first} to {last}"
            lines.append((distance, f"{norms_k[first : last + 1].mean():.2e}"))
    return Table("gradients", workdir, ("distance t - s", "|d loss(t) / d x(s)|"), lines, [])

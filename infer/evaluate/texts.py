"""How well a language model predicts a text: nats and perplexity per token, and perplexity per byte."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from ml_collections import ConfigDict

from vaswani.data.batching import TextBatch
from vaswani.data.corpus import Corpus
from vaswani.data.pipeline import text_batches
from vaswani.data.prepared import Prepared
from vaswani.data.sources import open_corpus
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.infer.evaluate.record import provenance
from vaswani.infer.runs import Run, corpus_named, key_named, user_error_if_too_long
from vaswani.infer.translate.translator import note_unknown
from vaswani.numbers import from_nll
from vaswani.progress import Progress
from vaswani.run.distributed import is_main
from vaswani.run.sharding import data_mesh, place_params, place_rows, process_shard
from vaswani.tasks import task_of
from vaswani.tasks.task import Objective
from vaswani.tasks.texts import open_text


def by_place(objective: Objective) -> Callable[[dict, TextBatch], tuple[Float[Array, " t"], Int[Array, " t"]]]:
    """Returns a jitted function: for each place of a row, minus the log-probability in nats, and how many tokens."""

    @jax.jit
    def sums(params: dict, batch: TextBatch) -> tuple[Float[Array, " t"], Int[Array, " t"]]:
        _, target_bt, weights_bt = objective.make_example(batch)
        log_probs_btv = jax.nn.log_softmax(objective.logits(params, batch))
        log_probs_bt = jnp.take_along_axis(log_probs_btv, target_bt[..., None], axis=-1)[..., 0]
        real_bt = weights_bt != 0
        return -jnp.sum(log_probs_bt, axis=0, where=real_bt), jnp.sum(real_bt, axis=0)

    return sums


def evaluate(model_run: Run, split: str, row_length: int | None = None) -> dict[str, Any]:
    """Returns the result record, of JSON values, of `split`: one of the run's config, or a corpus.

    `nll` is in nats a token, every EOS counted, and `perplexity` its exponential. `perplexity_byte` is per byte of the
    UTF-8 text as the tokenizer normalises it, line feeds counted, which can be compared between vocabularies, unless
    symbols are unknown: these are predicted as one and the same, and the signature has their number. Where
    `data.batching` is window, rows of `row_length` tokens, by default `data.pack_length`, are scored independently,
    without earlier context. `nll_by_position` is for the first token of a row or line, for the second, and so on.

    Raises:
      UserError: there is no such text, a row is longer than the learned positions, or `row_length` is
        given for a run whose rows are lines.
    """
    cfg = model_run.config.copy_and_resolve_references()
    tokenizer = model_run.tokenizer
    if row_length is not None:
        if cfg.data.batching != "window" or row_length < 1:
            raise UserError(f"--row_length={row_length}: it must be at least 1, for a run with data.batching=window")
        cfg.data.pack_length = row_length
    spec = corpus_named(cfg, split)
    with key_named(split):
        prepared = open_text(cfg, tokenizer, spec)
        corpus = open_corpus(spec)
    text_bytes = _bytes_of(corpus, tokenizer)
    unknown = tokenizer.unknown(text for (text,) in corpus.pairs())
    note_unknown(unknown)
    started = time.perf_counter()
    nll_t, tokens_t = _predicted(model_run, cfg, prepared)
    total = float(nll_t.sum())
    tokens = int(prepared.lengths.sum(dtype="int64"))
    row: dict[str, int] = {}
    if cfg.data.batching == "window":
        row = {"row": cfg.data.pack_length}
    return {
        "nll": total / tokens,
        "perplexity": from_nll(total / tokens),
        "perplexity_byte": from_nll(total / text_bytes),
        "signatures": _signatures(corpus, tokenizer, unknown, row.get("row")),
        "nll_by_position": (nll_t[tokens_t > 0] / tokens_t[tokens_t > 0]).tolist(),
        **row,
        "tokens": tokens,
        "bytes": text_bytes,
        "seconds": time.perf_counter() - started,
        **provenance(model_run, spec, split),
    }


def _bytes_of(corpus: Corpus, tokenizer: Tokenizer) -> int:
    """Returns the bytes of UTF-8 that are predicted: not those that normalisation removes; line feeds, of lines."""
    line_feed = 0 if corpus.characters else 1
    total = 0
    for (text,) in corpus.pairs():
        total += len(tokenizer.normalise(text).encode()) + line_feed
    return total


def _signatures(corpus: Corpus, tokenizer: Tokenizer, unknown: int, row: int | None) -> dict[str, str]:
    """Returns what else than the model the perplexities depend on; `row` is the length of rows, if fixed."""
    unit = tokenizer.units.removesuffix("s")
    if not corpus.characters:
        unit += "|eos:yes"
    rest = f"vocabulary:{tokenizer.vocab_size}|smoothing:none"
    if unknown:
        rest += f"|unknown:{unknown}"
    if row is not None:
        rest += f"|row:{row}"
    return {"perplexity": f"unit:{unit}|{rest}", "perplexity_byte": f"unit:byte|{rest}"}


def _predicted(model_run: Run, cfg: ConfigDict, prepared: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """Returns, for each place of a row over all rows, minus the log-probability in nats, and how many tokens.

    Raises:
      UserError: a row is longer than the learned positions.
    """
    mesh = data_mesh()
    score = by_place(task_of(cfg.task).objective(cfg, model_run.model_config))
    params = place_params(mesh, model_run.params)
    nll_t = np.zeros(0)
    tokens_t = np.zeros(0)
    batches = text_batches(prepared, cfg.data, process_shard(mesh), model_run.model_config.limit)
    shown = Progress("predicting", "batches", total=len(batches), is_summarised=False, enabled=is_main())
    with jax.set_mesh(mesh), shown as progress:
        for batch in progress.count(batches):
            with user_error_if_too_long():
                scored = score(params, place_rows(mesh, batch))
            batch_nll_t, batch_tokens_t = jax.device_get(scored)
            nll_t = _sum(nll_t, batch_nll_t)
            tokens_t = _sum(tokens_t, batch_tokens_t)
    return nll_t, tokens_t


def _sum(a_t: np.ndarray, b_t: np.ndarray) -> np.ndarray:
    """Adds sums over rows of two lengths, in float64."""
    short_t, long_t = sorted((a_t, b_t), key=len)
    return long_t + np.pad(short_t.astype(np.float64), (0, len(long_t) - len(short_t)))

"""How well a language model predicts a text: nats and perplexity per token, and perplexity per byte."""

import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from base.errors import UserError
from base.numbers import from_nll
from data.batching import TextBatch
from data.pipeline import text_batches
from data.prepare import Prepared, prepare
from data.sources import Corpus, open_corpus
from infer.runs import Run, corpus_named, count_parameters, params_sha256
from model.language_model import LanguageModel
from model.tokens import Tokens
from run.sharding import data_mesh, own_share, place_params, place_rows


def negative_log_likelihood(
    model: LanguageModel, params: Any, batch: TextBatch
) -> tuple[Float[Array, " t"], Int[Array, " t"]]:
    """Returns for each place of a row minus the log-probability, in nats, of the tokens there, and their number."""
    tokens = Tokens(batch.in_bt, batch.segments_bt, batch.positions_bt)
    log_probs_btv = jax.nn.log_softmax(model.apply({"params": params}, tokens))
    log_probs_bt = jnp.take_along_axis(log_probs_btv, batch.out_bt[..., None], axis=-1)[..., 0]
    real_bt = batch.segments_bt != 0
    return -jnp.sum(log_probs_bt, axis=0, where=real_bt), jnp.sum(real_bt, axis=0)


def evaluate(model_run: Run, split: str, row_length: int | None = None) -> dict[str, Any]:
    """Returns the result record, of JSON values, of `split`: one of the run's config, or a corpus.

    `nll` is in nats a token, every EOS counted, and `perplexity` its exponential. `perplexity_byte` is that of a byte
    of the UTF-8 text, line feeds counted, which can be compared between vocabularies. Where `data.batching` is window,
    each row of `row_length` tokens, by default `data.pack_length`, is read without what is before it.
    `nll_by_position` is that of the first token of a row or line, of the second, and so on.

    Raises:
      UserError: there is no such text, a row is longer than the learned positions, or `row_length` is
        given for a run whose rows are lines.
    """
    cfg = model_run.config.data.copy_and_resolve_references()
    if row_length is not None:
        if cfg.batching != "window" or row_length < 1:
            raise UserError(f"--row_length={row_length}: it must be at least 1, for a run with data.batching=window")
        cfg.pack_length = row_length
    corpus, prepared = open_text(model_run, split)
    feeds = 0 if corpus.characters else 1
    text_bytes = sum(len(text.encode()) + feeds for (text,) in corpus.pairs())
    mesh, started = data_mesh(), time.perf_counter()
    score = jax.jit(partial(negative_log_likelihood, LanguageModel(model_run.model_config)))
    params = place_params(mesh, model_run.params)
    nll_t, tokens_t = np.zeros(0), np.zeros(0)
    try:
        with jax.set_mesh(mesh):
            for batch in text_batches(prepared, cfg, own_share(mesh)):
                found_nll_t, found_tokens_t = jax.device_get(score(params, place_rows(mesh, batch)))
                nll_t, tokens_t = _sum(nll_t, found_nll_t), _sum(tokens_t, found_tokens_t)
    except ValueError as error:
        raise UserError(f"a sentence is too long for this model: {error}") from error
    total, tokens = float(nll_t.sum()), int(prepared.lengths.sum(dtype="int64"))
    vocabulary = f"vocabulary:{model_run.tokenizer.vocab_size}|smoothing:none"
    unit = model_run.tokenizer.units.removesuffix("s") + ("" if corpus.characters else "|eos:yes")
    row = {"row": cfg.pack_length} if cfg.batching == "window" else {}
    vocabulary += "".join(f"|row:{length}" for length in row.values())
    return {
        "nll": total / tokens,
        "perplexity": from_nll(total / tokens),
        "perplexity_byte": from_nll(total / text_bytes),
        "signatures": {"perplexity": f"unit:{unit}|{vocabulary}", "perplexity_byte": f"unit:byte|{vocabulary}"},
        "nll_by_position": (nll_t[tokens_t > 0] / tokens_t[tokens_t > 0]).tolist(),
        **row,
        "tokens": tokens,
        "bytes": text_bytes,
        "seconds": time.perf_counter() - started,
        **provenance(model_run, split),
    }


def open_text(model_run: Run, split: str, sides: int = 1) -> tuple[Corpus, Prepared]:
    """Returns every line of a text, or with two `sides` every pair, of a split or a corpus.

    Raises:
      UserError: there is none, it has the other number of sides, or it is in characters and the run in subwords.
    """
    cfg, spec = model_run.config.data, corpus_named(model_run.config, split)
    corpus = open_corpus(spec)
    if corpus.sides != sides:
        fault = "has pairs; this run reads a text, as in lines:FILE" if sides == 1 else "has no classes"
        raise UserError(f"corpus {spec!r} {fault}")
    whole = cfg.train.startswith("chars:")
    if corpus.characters != whole:
        reads = "one text of characters, chars:FILE" if whole else "lines, as of lines:FILE"
        raise UserError(f"corpus {spec!r}: this run reads {reads}")
    limits = {"max_length": cfg.max_length, "max_ratio": cfg.max_ratio}
    return corpus, prepare(spec, model_run.tokenizer, cache=cfg.cache, clean=False, **limits)


def provenance(model_run: Run, split: str) -> dict[str, Any]:
    """Returns what every record says about the parameters, the text, machine and time."""
    return {
        "params": count_parameters(model_run.params),
        "params_sha256": params_sha256(model_run.params),
        "step": model_run.step,
        "checkpoints": list(model_run.checkpoints),
        "data": corpus_named(model_run.config, split),
        "split": split,
        "device": jax.devices()[0].device_kind,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _sum(one_t: np.ndarray, other_t: np.ndarray) -> np.ndarray:
    """Adds sums over rows of two lengths, in float64."""
    short_t, long_t = sorted((one_t, other_t), key=len)
    return long_t + np.pad(short_t.astype(np.float64), (0, len(long_t) - len(short_t)))


def table(record: dict[str, Any]) -> str:
    """Returns the record as text."""
    unit = "text" if "texts" in record else "token"
    steps = ", ".join(map(str, record["checkpoints"]))
    lines = [f"{record['data']}: {record[f'{unit}s']:,} {unit}s, step {steps}", ""]
    lines.append(f"{'nll':<16} {record['nll']:8.4f}   nats a {unit}")
    if "accuracy" in record:
        lines.append(f"{'accuracy':<16} {record['accuracy']:8.4f}   of the {unit}s")
    lines += [f"{name:<16} {record[name]:8.4f}   {signature}" for name, signature in record["signatures"].items()]
    return "\n".join(lines)

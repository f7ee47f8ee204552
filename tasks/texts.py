"""The data of tasks with texts: prepared corpora as training batches, for validation, and to evaluate a run on."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from jax.sharding import Mesh
from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.data.batching import Batch, TextBatch
from vaswani.data.cache import prepare
from vaswani.data.classes import Classified, classes_of
from vaswani.data.corrupt import Corrupted, corruption
from vaswani.data.from_config import prepare_all
from vaswani.data.pipeline import OnePass, ProcessShard, Records, TrainingBatches, evaluation_batches
from vaswani.data.prepared import Prepared
from vaswani.data.row_lengths import check_positions
from vaswani.data.sources import open_corpus
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.run.distributed import is_main, main_first
from vaswani.run.sharding import process_shard
from vaswani.tasks.config import model_config
from vaswani.tasks.task import Data

# Returns a prepared corpus as the model reads it; the seed decides what is random.
Examples = Callable[[ConfigDict, Prepared, Tokenizer, int], Records]
# Returns every record of a corpus once, given `config.data`, this process's shard, and the learned positions, if any.
ReadOnce = Callable[[Any, ConfigDict, ProcessShard, int | None], OnePass[Batch | TextBatch]]


def unchanged(cfg: ConfigDict, prepared: Prepared, tokenizer: Tokenizer, seed: int) -> Prepared:
    """Returns the corpus itself."""
    return prepared


def masked(cfg: ConfigDict, prepared: Prepared, tokenizer: Tokenizer, seed: int) -> Corrupted:
    """Returns the texts with subwords masked.

    Raises:
      UserError: there are none to mask, or texts of this config cannot be corrupted (`data.corrupt.corruption`).
    """
    return _corrupted("masked_lm", cfg, prepared, tokenizer, seed)


def without_spans(cfg: ConfigDict, prepared: Prepared, tokenizer: Tokenizer, seed: int) -> Corrupted:
    """Returns the texts with spans left out; raises as `masked`."""
    return _corrupted("denoising", cfg, prepared, tokenizer, seed)


def _corrupted(how: str, cfg: ConfigDict, prepared: Prepared, tokenizer: Tokenizer, seed: int) -> Corrupted:
    least = 2  # a subword and EOS
    too_short = "empty"
    if how == "denoising":
        least = 3  # no span can be left out of a single subword
        too_short = "empty or of one subword"
    if prepared.lengths.max() < least:
        spec = prepared.manifest["spec"]
        raise UserError(f"corpus {spec!r}, whose lines are all {too_short}: there is nothing to restore")
    return Corrupted(prepared, corruption(how, cfg.data, tokenizer), seed)


def classified(cfg: ConfigDict, prepared: Prepared, tokenizer: Tokenizer, seed: int) -> Classified:
    """Returns each text with the number of its class; `UserError` if it is not among the classes of the config."""
    return Classified(prepared, tokenizer, classes_of(cfg.data.classes))


def by_length(
    records: Records, cfg_data: ConfigDict, shard: ProcessShard, limit: int | None = None
) -> OnePass[Batch | TextBatch]:
    """Returns every record once, in rows of bucket lengths (`data.pipeline.evaluation_batches`)."""
    return evaluation_batches(records, cfg_data.tokens_per_batch, cfg_data.buckets, shard, limit)


def training_data(
    cfg: ConfigDict,
    workdir: Path,
    mesh: Mesh,
    *,
    sides: int,
    examples: Examples = unchanged,
    validation: ReadOnce = by_length,
    check: Callable[[ConfigDict, Any], None] | None = None,
) -> Data:
    """Returns the data of a config; prepares its corpora, and the run's tokenizer, where they do not exist yet.

    Args:
      cfg: a whole config.
      workdir: the run's folder.
      mesh: the devices that share the batches.
      sides: texts of a record: 2 of pairs, or 1.
      examples: what the model reads of a prepared corpus. What is random in validation is the same in every run.
      validation: how validation reads a corpus.
      check: raises a `UserError` if the examples for training are at fault.

    Raises:
      UserError: the config or the corpora are at fault.
    """
    with main_first("data", workdir):
        tokenizer, train_text, valid_text = prepare_all(cfg.data, workdir / "tokenizer.model", sides=sides)
    # Both as the model reads them: as they are, or corrupted. Validation has the same holes in every run.
    train = examples(cfg, train_text, tokenizer, cfg.seed)
    valid = examples(cfg, valid_text, tokenizer, 0)
    if check:
        check(cfg, train)
    # Rows longer than a table of learned positions are refused now, not in the middle of training.
    limit = model_config(cfg, tokenizer.vocab_size).limit
    check_positions(cfg.data, limit, train, valid)
    _note_longest(cfg.data, valid)
    shard = process_shard(mesh, cfg.optim.accumulate)
    batches = TrainingBatches(train, cfg.data, seed=cfg.seed, shard=shard)
    validation_batches = partial(validation, valid, cfg.data, process_shard(mesh), limit)
    manifests = {"train": train.manifest, "valid": valid.manifest}
    return Data(batches, validation_batches, manifests)


def all_batches(
    cfg: ConfigDict, tokenizer: Tokenizer, spec: str, mesh: Mesh, *, sides: int, examples: Examples
) -> OnePass[Batch | TextBatch]:
    """Returns the batches of a corpus, each record once, for a run of `cfg`; raises as `open_text` and `examples`."""
    prepared = open_text(cfg, tokenizer, spec, sides)
    records = examples(cfg, prepared, tokenizer, 0)
    limit = model_config(cfg, tokenizer.vocab_size).limit
    return by_length(records, cfg.data, process_shard(mesh), limit)


def open_text(cfg: ConfigDict, tokenizer: Tokenizer, spec: str, sides: int = 1) -> Prepared:
    """Returns every line of a corpus, however long, for a run of `cfg`.

    Raises:
      UserError: there is no such corpus, it has another number of sides, or it is in characters and the run in
        subwords, or the other way round.
    """
    corpus = open_corpus(spec)
    if corpus.sides != sides:
        fault = "has pairs; this run reads a text, as in lines:FILE" if sides == 1 else "has no classes"
        raise UserError(f"corpus {spec!r} {fault}")
    reads_characters = cfg.data.train.startswith("chars:")
    if corpus.characters != reads_characters:
        reads = "one text of characters, chars:FILE" if reads_characters else "lines, as in lines:FILE"
        raise UserError(f"corpus {spec!r}: this run reads {reads}")
    return prepare(
        spec,
        tokenizer,
        cache=cfg.data.cache,
        max_length=cfg.data.max_length,
        max_ratio=cfg.data.max_ratio,
        clean=False,
    )


def _note_longest(cfg_data: ConfigDict, valid: Records) -> None:
    """Says on stderr if a line of `data.valid`, of which all are kept, is longer than a whole batch."""
    longest = int(valid.lengths.max())
    if cfg_data.batching != "window" and longest > cfg_data.tokens_per_batch and is_main():
        print(
            f"note: data.valid has a line of {longest:,} tokens, more than a batch (data.tokens_per_batch is "
            f"{cfg_data.tokens_per_batch:,}): if validation runs out of memory, leave the line out",
            file=sys.stderr,
        )


def hidden_signatures(task: str, cfg: ConfigDict, tokenizer: Tokenizer, count: int) -> dict[str, str]:
    """Returns the signature of masked subwords' perplexity, with their share and mean span if these are not usual."""
    signature = f"unit:hidden subword|vocabulary:{tokenizer.vocab_size}|task:{task}"
    usual = default().data
    if cfg.data.mask_rate != usual.mask_rate:
        signature += f"|rate:{cfg.data.mask_rate:g}"
    if task == "denoising" and cfg.data.mean_span != usual.mean_span:
        signature += f"|span:{cfg.data.mean_span:g}"
    return {"perplexity": signature}

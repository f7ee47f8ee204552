"""Teacher-forced batches: sentences of similar length, padded, with the true words as the decoder's input."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from vaswani.data.length_batches import length_batches
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.infer.runs import user_error_if_too_long
from vaswani.model.config import CommonConfig
from vaswani.progress import Progress
from vaswani.run.distributed import is_main
from vaswani.run.sharding import data_mesh, fetch, place_params, row_parts, shard_rows
from vaswani.search.ensemble import model_or_ensemble

SHORTEST_ROW = 16


# Shared by all callers: the same function, model and shapes compile once.
@partial(jax.jit, static_argnames=("of_tokens", "model"))
def _values(
    of_tokens: Callable[..., jax.Array], model: Any, params: Any, source_bs: jax.Array, target_bt: jax.Array
) -> jax.Array:
    return of_tokens(model, params, source_bs, target_bt)


def forced_batches(
    apply: Callable[..., Any],
    *sides: Sequence[Sequence[int]],
    width: int,
    tokens: int,
    limit: int | None,
    doubled: bool = False,
    multiple: int = 1,
) -> Iterator[tuple[list[int], Any]]:
    """Yields the sentences of each batch, as their numbers from 0, and what `apply` returns of it; shortest first.

    Row i of the result belongs to sentence `members[i]`; rows behind those are padding.

    Args:
      apply: a function of one array [b,t] of padded ids for each side.
      sides: the ids of every sentence, with BOS or EOS as the model reads them; sentence i of each side is one pair.
      width: sequence lengths are multiples of this, so that few shapes are compiled.
      tokens: the most positions in one side of a batch.
      limit: the learned positions, if any; no row is longer.
      doubled: instead of every multiple of `width`, sequence lengths are `width` doubled as often as needed.
      multiple: the number of rows is a multiple of this.

    Raises:
      UserError: a sentence is longer than the learned positions.
    """
    lengths = [max(map(len, pair)) for pair in zip(*sides, strict=True)]
    longest = max(lengths, default=0)
    row_lengths: Sequence[int] = range(width, longest + width, width)
    if doubled:
        row_lengths = (width,)  # `length_batches` doubles the last
    for batch in length_batches(lengths, row_lengths, tokens=tokens, multiple=multiple, limit=limit):
        padded = [batch.padded(side) for side in sides]
        with user_error_if_too_long():
            output = apply(*padded)
        yield batch.members, output


def check_lengths(
    configs: Sequence[CommonConfig], tokenizer: Tokenizer, sources: Sequence[str], targets: Sequence[str]
) -> None:
    """Raises a `UserError` that names the first pair of lines for which there are too few learned positions."""
    limit = _limit(configs)
    if limit is None:
        return
    for line, (source, target) in enumerate(zip(sources, targets, strict=True), 1):
        longest = 1 + max(len(tokenizer.encode(source)), len(tokenizer.target.encode(target)))
        if longest > limit:
            raise UserError(
                f"line {line} has {longest} subwords, EOS counted, and the model {limit} learned positions, so it "
                "cannot be scored or aligned; leave the line out"
            )


def _limit(configs: Sequence[CommonConfig]) -> int | None:
    """Returns the learned positions that all of the models have; None if they have no such limit."""
    return min((config.limit for config in configs if config.limit), default=None)


def line_sums(
    of_tokens: Callable[..., jax.Array],
    config: CommonConfig | tuple[CommonConfig, ...],
    params: Any,
    tokenizer: Tokenizer,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    tokens: int = 4096,
) -> np.ndarray:
    """Returns, for each pair of lines, the sum over the target's tokens, EOS included, of what `of_tokens` says of it.

    `of_tokens` is a function of `search.scoring`. `tokens` bounds the positions per side of a batch. With several
    configs and a tuple of parameters, the sums are their ensemble's.

    Raises:
      UserError: a sentence is longer than the table of learned positions.
    """
    source_ids = [tokenizer.source_ids(text) for text in sources]
    target_ids = [[*tokenizer.target.encode(text), EOS] for text in targets]
    mesh = data_mesh()
    placed = place_params(mesh, params)
    model = model_or_ensemble(config)
    configs = config if isinstance(config, tuple) else (config,)

    def apply(source_bs: np.ndarray, target_bt: np.ndarray) -> np.ndarray:
        with jax.set_mesh(mesh):
            return fetch(_values(of_tokens, model, placed, shard_rows(mesh, source_bs), shard_rows(mesh, target_bt)))

    batches = forced_batches(
        apply,
        source_ids,
        target_ids,
        width=SHORTEST_ROW,
        doubled=True,
        tokens=tokens,
        limit=_limit(configs),
        multiple=row_parts(mesh),
    )
    sums = np.zeros(len(sources))
    done = 0
    shown = Progress("scoring", "sentences", total=len(sources), is_summarised=False, enabled=is_main())
    with shown as progress:
        for members, values_bt in batches:
            row_sums = values_bt.astype(np.float64).sum(axis=1)
            sums[members] = row_sums[: len(members)]
            done += len(members)
            progress.update(done)
    return sums

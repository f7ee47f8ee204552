"""Fills the blanks of a line with a masked language model."""

import functools
from collections.abc import Iterable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from vaswani.data.corrupt import MASK
from vaswani.data.tokenizer import STAND_IN, Tokenizer
from vaswani.errors import UserError
from vaswani.ids import EOS, PAD, UNK
from vaswani.infer.runs import Run, finite
from vaswani.infer.translate.stream import by_line
from vaswani.model.config import ModelConfig
from vaswani.model.masked_lm import MaskedLM
from vaswani.tokens import Tokens

BLANK = "___"
ROW = 16  # rows are filled up to multiples of this length, each of which is compiled


def masked(tokenizer: Tokenizer, line: str) -> list[int]:
    """Returns the ids of a line, with `MASK` for each blank and the space before it, since subwords begin with one."""
    if tokenizer.mask:
        return tokenizer.encode(line.replace(BLANK, tokenizer.mask))
    ids = tokenizer.encode(line.replace(BLANK, STAND_IN))
    stand_in = tokenizer.encode(STAND_IN)
    if tokenizer.pieces(stand_in)[0] == "▁":
        stand_in = stand_in[1:]
    space = tokenizer.encode(f"{STAND_IN} {STAND_IN}")[-len(stand_in) - 1]
    if tokenizer.pieces([space]) != ["▁"]:
        space = PAD  # which is in no line
    masked_ids: list[int] = []
    while ids:
        if ids[: len(stand_in)] != stand_in:
            masked_ids.append(ids.pop(0))
            continue
        if masked_ids[-1:] == [space]:
            masked_ids.pop()
        masked_ids.append(MASK)
        ids = ids[len(stand_in) :]
    return masked_ids


@functools.partial(jax.jit, static_argnums=0)
def likeliest(
    model: MaskedLM, params: dict, ids_bt: Int[Array, "b t"], whole_v: Bool[Array, " v"]
) -> tuple[Int[Array, " t"], Float[Array, " t"]]:
    """Returns the likeliest subword of `whole_v` at each place of one row, and the logarithm of its probability."""
    log_probs_tv = jax.nn.log_softmax(model.apply({"params": params}, Tokens.of(ids_bt)))[0]
    log_probs_tv = jnp.where(whole_v, log_probs_tv, -jnp.inf)
    return log_probs_tv.argmax(axis=-1), log_probs_tv.max(axis=-1)


@functools.lru_cache(maxsize=4)
def whole_characters(tokenizer: Tokenizer) -> Bool[np.ndarray, " v"]:
    """Tests which subwords spell whole characters: a single byte of one would be printed as U+FFFD."""
    ids = range(tokenizer.vocab_size)
    return np.array([number > UNK and "\ufffd" not in tokenizer.decode([number]) for number in ids])


def row(config: ModelConfig, ids: list[int]) -> Int[np.ndarray, " t"]:
    """Returns the ids, EOS, and padding up to a multiple of `ROW`.

    Raises:
      UserError: they are more than the learned positions.
    """
    limit = config.limit or len(ids) + ROW
    if len(ids) >= limit:
        raise UserError(f"a line of {len(ids) + 1} subwords, EOS counted; only {limit} positions are learned")
    multiple = -(-(len(ids) + 1) // ROW) * ROW
    row_t = np.full(min(limit, multiple), PAD, np.int32)
    row_t[: len(ids) + 1] = [*ids, EOS]
    return row_t


def fill(model_run: Run, params: dict, line: str) -> str:
    """Returns the line with its blanks filled; see infer/fill.py.

    Raises:
      UserError: it is longer than the learned positions.
    """
    if BLANK not in line:
        return line
    config = model_run.model_config
    model = MaskedLM(config)
    row_t = row(config, masked(model_run.tokenizer, line))
    whole_v = jnp.asarray(whole_characters(model_run.tokenizer))
    while MASK in row_t:
        subword_t, log_prob_t = likeliest(model, params, jnp.asarray(row_t[None]), whole_v)
        place = np.argmax(np.where(row_t == MASK, log_prob_t, -np.inf))
        row_t[place] = subword_t[place]
    return model_run.tokenizer.decode(row_t)


def fill_stream(model_run: Run, source: Iterable[bytes]) -> Iterator[bytes]:
    """Yields each line of `source`, filled; `UserError` if the run's parameters are not finite."""
    return by_line(source, functools.partial(fill, model_run, finite(model_run)))

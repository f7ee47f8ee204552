"""The whole model under a kernel against the einsum, on packed rows, and packed rows against one sentence a row."""

import dataclasses
from typing import Any

import jax
import numpy as np

from vaswani.data.batching import Batch
from vaswani.ids import BOS
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.tasks.translation import objective
from vaswani.tokens import Tokens

SENTENCES = 4  # of each packed row


def packed_and_alone(rows: int, length: int, vocab_size: int) -> tuple[Batch, Batch]:
    """Returns random sentences, `SENTENCES` to a row of the first batch, and one to a row of the second.

    Both batches have the same rows x length positions a side when the second, whose rows are shorter, is read in order.
    """
    rng = np.random.default_rng(0)
    short = length // SENTENCES
    source, labels = rng.integers(4, vocab_size, (2, rows * SENTENCES, short), dtype=np.int32)
    target = np.concatenate([np.full((len(labels), 1), BOS, np.int32), labels[:, :-1]], axis=1)
    positions = np.tile(np.arange(short, dtype=np.int32), (rows * SENTENCES, 1))
    ones = np.ones_like(positions)
    numbers = np.repeat(np.arange(1, SENTENCES + 1, dtype=np.int32), short)
    segments = np.tile(numbers, (rows, 1))

    def joined(ids: np.ndarray) -> np.ndarray:
        return ids.reshape(rows, length)

    def side(ids: np.ndarray) -> Tokens:
        return Tokens(joined(ids), segments, joined(positions))

    alone = Batch(Tokens(source, ones, positions), Tokens(target, ones, positions), labels)
    return Batch(side(source), side(target), joined(labels)), alone


def compare(config: ModelConfig, impl: str, rows: int, length: int) -> dict[str, float]:
    """Returns relative errors of logits and gradients against the einsum in float32 at the highest precision.

    `logits` and `gradient` are those of the kernel, `logits_einsum` and `gradient_einsum` of the einsum in the model's
    own type, which is as wrong as the type makes it. `unpacked` compares the kernel's logits of packed rows with its
    logits of one sentence a row.
    """
    config = dataclasses.replace(config, P_drop=0.0)
    params = init_params(Transformer(config), jax.random.key(0))
    packed, alone = packed_and_alone(rows, length, config.vocab_size)
    exact = dataclasses.replace(config, dtype="float32", attention_impl="einsum")
    with jax.default_matmul_precision("highest"):
        exact_logits, exact_gradient = _logits_and_gradient(exact, params, packed)
    with_kernel = dataclasses.replace(config, attention_impl=impl)
    logits, gradient = _logits_and_gradient(with_kernel, params, packed)
    one_a_row, _ = _logits_and_gradient(with_kernel, params, alone)
    with_einsum = dataclasses.replace(config, attention_impl="einsum")
    logits_einsum, gradient_einsum = _logits_and_gradient(with_einsum, params, packed)
    return {
        "logits": _error(logits, exact_logits),
        "gradient": _error(gradient, exact_gradient),
        "unpacked": _error(logits, one_a_row),
        "logits_einsum": _error(logits_einsum, exact_logits),
        "gradient_einsum": _error(gradient_einsum, exact_gradient),
    }


def _logits_and_gradient(config: ModelConfig, params: Any, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Returns the logits and the gradient of the loss, each as one long row."""
    goal = objective(config, eps_ls=0.1)

    def loss(params: Any) -> Any:
        sums = goal.loss(params, batch, None)
        return sums.loss_sum / sums.tokens

    logits = np.asarray(jax.jit(goal.logits)(params, batch), np.float32).ravel()
    gradient = [np.asarray(leaf, np.float32).ravel() for leaf in jax.tree.leaves(jax.jit(jax.grad(loss))(params))]
    return logits, np.concatenate(gradient)


def _error(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))

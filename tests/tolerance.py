"""How far two float32 computations of the same number may be apart: derived here, and the same on every processor.

A processor chooses the order of a sum, whether a product is rounded before it is added, and how exp is approximated:
other roundings, but about as many. One rounding changes a number by at most `UNIT` of it. Many, as good as independent,
do not add up to n UNIT but to sqrt(n) UNIT: LIKELY times that is exceeded with a probability of 2 exp(-LIKELY² / 2),
about 1e-5 (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019, theorem 2.4).
`python -m tests.processors` shows that the bounds hold on processors that this one can pretend to be.
"""

import math
from typing import Any

import jax
import numpy as np

from vaswani.model.config import ModelConfig

UNIT = 2.0**-24
LIKELY = 5.0
BFLOAT16 = 5 * 2.0**-8  # relative, of arrays that went through a few roundings of bfloat16, each 2^-8 at most; 0.02
LENGTH = 12  # of the longest rows in tests
LOGIT = 10.0  # the largest of a tiny trained model


def rounding(n: int) -> float:
    """Returns the bound of |x - y| / |x| for x and y that each went through n roundings."""
    return LIKELY * math.sqrt(2 * n) * UNIT


def roundings(config: ModelConfig, length: int = LENGTH) -> int:
    """Returns how many roundings lie between an embedding and a logit: the terms of all sums on the longest way."""
    encoder = of_stack(config, 1, length)
    decoder = of_stack(config, 2, length)
    return encoder + decoder + config.d_model


def of_stack(config: ModelConfig, attentions: int, length: int = LENGTH) -> int:
    """Returns how many roundings lie between the input and the output of a stack, of so many attentions a layer."""
    norm = 2 * config.d_model  # a mean and a variance
    attention = config.d_model + config.d_k + 2 * length + config.h * config.d_v + norm
    feed_forward = config.d_model + config.d_ff + norm
    return config.N * (attentions * attention + feed_forward)


def forward(config: ModelConfig) -> float:
    """Returns the bound of the relative error of logits and of what is before them; 1.3e-5 for `tiny.TINY`."""
    return rounding(roundings(config))


def backward(config: ModelConfig) -> float:
    """Returns the bound of `gradient_error`; 2.2e-5 for `tiny.TINY`.

    A gradient's way is there, back, and through a sum over positions: three times as many roundings.
    """
    return rounding(3 * roundings(config))


def log_prob(config: ModelConfig, tokens: int) -> float:
    """Returns the bound of the absolute error of the mean log-probability of so many tokens, in nats.

    Each is the difference of a logit and of a logarithm of a sum that is about as large. Where a model is nearly
    certain they cancel and leave a number near 0, but not their errors: no bound relative to what is left would hold.
    """
    return 2 * LOGIT * forward(config) / math.sqrt(tokens)


def assert_close(actual: Any, expected: Any, bound: float) -> None:
    """Asserts that no number of `actual` is further from `expected` than `bound` times the largest of `expected`.

    A sum of terms of that size has their error, however small the sum is.
    """
    np.testing.assert_allclose(actual, expected, rtol=0, atol=bound * np.abs(np.asarray(expected, np.float64)).max())


def relative_error(actual: Any, expected: Any) -> float:
    """Returns the error of an array, relative to its norm."""
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def row_error(actual: Any, expected: Any) -> float:
    """Returns the largest error of a vector of the last axis (a position's logits), each relative to its norm."""
    difference = np.asarray(actual, np.float64) - np.asarray(expected, np.float64)
    return float((np.linalg.norm(difference, axis=-1) / np.linalg.norm(expected, axis=-1)).max())


def gradient_error(actual: Any, expected: Any) -> float:
    """Returns the largest error of a gradient's arrays, each relative to its own norm or to the arrays' usual norm.

    The gradient of a softmax's logits is a difference, w (g - sum w g), which can nearly cancel: what reaches wq and wk
    is then small, but its error is that of g, which reaches the other parameters undiminished. With linear attention
    wq's gradient is a hundredth of the others', and so its own relative error a hundred times theirs.
    """
    norms = [float(np.linalg.norm(np.asarray(leaf, np.float64))) for leaf in jax.tree.leaves(expected)]
    usual = math.sqrt(sum(norm**2 for norm in norms) / len(norms))
    differences = jax.tree.leaves(jax.tree.map(_distance, actual, expected))
    return max(one / max(norm, usual) for one, norm in zip(differences, norms, strict=True))


def _distance(actual: Any, expected: Any) -> float:
    return float(np.linalg.norm(np.asarray(actual, np.float64) - np.asarray(expected, np.float64)))

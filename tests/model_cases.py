"""Tiny models, parameters that leave no tensor at a special value, and batches with padding, for the model tests."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from base.tokens import Tokens
from model.config import ModelConfig
from model.noise import Noise
from model.transformer import Transformer, init_params
from tests.hurry import AS_IN_TRAINING

TINY = ModelConfig(vocab_size=23, N=2, d_model=16, d_ff=24, h=2, d_k=6, d_v=10, max_positions=40, P_drop=0.0)


def perturbed(config, seed=0):
    """Returns parameters of about their initial size, none of them special: no bias is 0, no norm scale is 1."""
    rng = np.random.default_rng(seed)

    def draw(path, leaf):
        size = 0.1 if len(leaf.shape) == 1 else config.d_model**-0.5
        return jnp.asarray((path[-1].key == "scale") + size * rng.standard_normal(leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, _shapes(config))


@cache
def _shapes(config):
    return jax.eval_shape(lambda: init_params(config, jax.random.key(0)))


def padded_ids(rng, lengths, width, vocab_size):
    """Returns rows of random ids of the given lengths, right-padded with 0 to `width`."""
    ids = rng.integers(1, vocab_size, (len(lengths), width))
    return np.where(np.arange(width) < np.asarray(lengths)[:, None], ids, 0).astype(np.int32)


def tokens(ids, segments=None, positions=None):
    """Returns `Tokens` of arrays; segments and positions default to one sentence per row."""
    one = Tokens.of(jnp.asarray(ids))
    given = {"segments_bt": segments, "positions_bt": positions}
    return one._replace(**{name: jnp.asarray(value) for name, value in given.items() if value is not None})


def noise(seed=0, rows=8):
    """The noise of a training pass over so many rows."""
    return Noise(jax.random.key(seed), jnp.arange(rows))


def apply(config, params, *args, **kwargs):
    """Calls `Transformer.apply`, turning arrays of ids into `tokens` of one sentence per row."""
    args = [tokens(x) if getattr(x, "dtype", None) == np.int32 and x.ndim == 2 else x for x in args]
    return Transformer(config).apply({"params": params}, *args, **kwargs)


def jit_as_in_training(f):
    """`jax.jit` with the compiler's own settings, where tests/conftest.py has it hurry for all else."""
    return jax.jit(f, compiler_options=AS_IN_TRAINING)


def run(config, params, *args, method=None):
    """`apply`, compiled once for each config, method and shapes; not for use inside another compiled function."""
    return _compiled(config, method)(params, args)


@cache
def _compiled(config, method):
    return jax.jit(lambda params, args: apply(config, params, *args, method=method))


def relative_error(actual, expected):
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)

"""Tiny models, parameters that leave no tensor at a special value, and batches with padding, for the model tests."""

import jax
import jax.numpy as jnp
import numpy as np

from model.config import ModelConfig
from model.transformer import Transformer, init_params
from tests.hurry import AS_IN_TRAINING

TINY = ModelConfig(vocab_size=23, N=2, d_model=16, d_ff=24, h=2, d_k=6, d_v=10, max_positions=40, P_drop=0.0)


def perturbed(config, seed=0):
    """Parameters of about their initial size, none special: biases are not 0, norm scales are not 1."""
    rng = np.random.default_rng(seed)
    tree = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))

    def draw(path, leaf):
        size = 0.1 if len(leaf.shape) == 1 else config.d_model**-0.5
        return jnp.asarray((path[-1].key == "scale") + size * rng.standard_normal(leaf.shape), leaf.dtype)

    return jax.tree_util.tree_map_with_path(draw, tree)


def padded_ids(rng, lengths, width, vocab_size):
    """Rows of random ids of the given lengths, right-padded with 0 to `width`."""
    ids = rng.integers(1, vocab_size, (len(lengths), width))
    return np.where(np.arange(width) < np.asarray(lengths)[:, None], ids, 0).astype(np.int32)


def apply(config, params, *args, **kwargs):
    """`Transformer.apply` for NumPy arrays as well, which the annotations checked in tests do not admit."""
    args = [jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in args]
    return Transformer(config).apply({"params": params}, *args, **kwargs)


def jit_as_in_training(f):
    """`jax.jit` with the compiler's own settings, where tests/conftest.py has it hurry for all else."""
    return jax.jit(f, compiler_options=AS_IN_TRAINING)


def run(config, params, *args, rngs=None, **kwargs):
    """`apply`, compiled; not for use inside another compiled function."""
    return jax.jit(lambda params, args, rngs: apply(config, params, *args, rngs=rngs, **kwargs))(params, args, rngs)


def relative_error(actual, expected):
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    return np.linalg.norm(actual - expected) / np.linalg.norm(expected)

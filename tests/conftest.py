"""Sets up every test: CPU, no silent rank promotion, and a cache of compiled programs between test runs."""

import os
from pathlib import Path

from tests.hurry import XLA_FLAGS

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAGS}".strip()  # also for commands in tests

import jax
import pytest

ROOT = Path(__file__).parent.parent

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache" / "jax-tests"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(autouse=True)
def _flags_of_earlier_tests() -> None:
    """Marks absl flags as parsed: grain reads them, and only a program run by `absl.app` has parsed them."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()

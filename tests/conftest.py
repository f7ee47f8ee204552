"""What every test runs under: CPU, no silent rank promotion, compiled programs kept between test runs."""

import os
from pathlib import Path

from tests.hurry import XLA_FLAGS

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {XLA_FLAGS}".strip()  # also for commands in tests

import jax

ROOT = Path(__file__).parent.parent

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache" / "jax-tests"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

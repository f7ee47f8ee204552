"""PyTorch and transformers, for parity tests with the same weights.

Without them these tests are skipped, unless REQUIRE_TORCH=1 (as in CI) makes that a failure.
"""

import os

import pytest

if os.environ.get("REQUIRE_TORCH") == "1":
    import torch
    import transformers
else:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

TOLERANCE = 1e-4  # absolute, of logits of a size of about 10

__all__ = ["TOLERANCE", "torch", "transformers"]

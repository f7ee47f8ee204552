"""PyTorch and transformers, for parity tests with the same weights."""

from tests.extras import torch, transformers

TOLERANCE = 1e-4  # absolute, of logits of a size of about 10

__all__ = ["TOLERANCE", "torch", "transformers"]

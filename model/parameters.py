"""New parameters of any model."""

import jax
import numpy as np
from flax import linen as nn
from jaxtyping import PRNGKeyArray

from vaswani.tokens import Tokens

ONE_TOKEN = Tokens.of(np.ones((1, 1), np.int32))


def init_params(model: nn.Module, key: PRNGKeyArray) -> dict:
    """Returns new float32 parameters, as in tensor2tensor: Glorot-uniform matrices, embeddings N(0, 1/d_model).

    They do not depend on the number of rows or tokens: each model's `smallest_inputs` are enough to make them.
    """
    return jax.jit(model.init)(key, *model.smallest_inputs)["params"]

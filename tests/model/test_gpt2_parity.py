"""Our language model against transformers' GPT-2 with the same random weights, float32.

Skipped without PyTorch and transformers, see tests/extras.py.
"""

import jax
import jax.numpy as jnp
import numpy as np

from tests.reference import TOLERANCE, torch, transformers

# isort: split
from base.tokens import Tokens
from infer.convert.gpt2 import parameters
from infer.convert.weights import Weights
from model.config import ModelConfig
from model.language_model import LanguageModel

CONFIG = ModelConfig(
    vocab_size=50,
    N=3,
    d_model=32,
    d_ff=128,
    h=4,
    d_k=8,
    d_v=8,
    positions="learned",
    max_positions=20,
    norm="pre",
    norm_epsilon=1e-5,
    activation="gelu_tanh",
    biases=True,
    scale_embeddings=False,
)


def gpt2():
    """A GPT-2 of `CONFIG`'s sizes whose every weight is random, so that none is at a special value."""
    sizes = transformers.GPT2Config(
        vocab_size=CONFIG.vocab_size, n_positions=CONFIG.max_positions, n_embd=CONFIG.d_model, n_layer=CONFIG.N,
        n_head=CONFIG.h, n_inner=CONFIG.d_ff, attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(sizes).eval()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            scale = ".ln_" in name and name.endswith("weight")
            size = 1.0 if name.endswith("wte.weight") else 0.3
            weight.copy_(size * torch.randn(weight.shape, generator=random) + scale)
    return theirs


def ours_from(theirs):
    """GPT-2's weights under our names and in our shapes."""
    given = {name: weight.detach().numpy() for name, weight in theirs.named_parameters()}
    return jax.tree.map(jnp.asarray, parameters(Weights("", given), CONFIG.N, CONFIG.h, CONFIG.d_model))


def test_logits_are_gpt2s():
    theirs = gpt2()
    params, model = ours_from(theirs), LanguageModel(CONFIG)
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), Tokens.of(jnp.ones((1, 1), jnp.int32)))["params"])
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    ids = np.random.default_rng(0).integers(1, CONFIG.vocab_size, (3, CONFIG.max_positions)).astype(np.int32)
    with torch.no_grad():
        expected = theirs(torch.tensor(ids, dtype=torch.long)).logits.numpy()
    actual = jax.jit(lambda p: model.apply({"params": p}, Tokens.of(jnp.asarray(ids))))(params)
    assert np.abs(expected).max() > 5
    assert np.abs(np.asarray(actual) - expected).max() <= TOLERANCE

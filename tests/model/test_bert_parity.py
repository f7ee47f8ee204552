"""Our masked language model against transformers' BERT with the same random weights, float32.

BERT adds the embedding of token type 0 to every position; here it is part of the table of positions.
Skipped without PyTorch and transformers, see tests/extras.py.
"""

import jax
import jax.numpy as jnp
import numpy as np

from tests.reference import TOLERANCE, torch, transformers

# isort: split
from base.tokens import Tokens
from infer.convert.bert import parameters
from infer.convert.weights import Weights
from model.config import ModelConfig
from model.masked_lm import MaskedLM, init_params
from tests.model_cases import padded_ids

CONFIG = ModelConfig(
    vocab_size=50,
    N=2,
    d_model=32,
    d_ff=48,
    h=4,
    d_k=8,
    d_v=8,
    positions="learned",
    max_positions=20,
    norm_epsilon=1e-12,
    activation="gelu",
    biases=True,
    scale_embeddings=False,
)


def bert():
    """A BERT of `CONFIG`'s sizes whose every weight is random, so that none is at a special value."""
    sizes = transformers.BertConfig(
        vocab_size=CONFIG.vocab_size, hidden_size=CONFIG.d_model, num_hidden_layers=CONFIG.N,
        num_attention_heads=CONFIG.h, intermediate_size=CONFIG.d_ff, max_position_embeddings=CONFIG.max_positions,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.BertForMaskedLM(sizes).eval()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            scale = "LayerNorm" in name and name.endswith("weight")
            size = 1.0 if "word_embeddings" in name else 0.3
            weight.copy_(size * torch.randn(weight.shape, generator=random) + scale)
    return theirs


def ours_from(theirs):
    """BERT's weights under our names and in our shapes."""
    given = {name: weight.detach().numpy() for name, weight in theirs.named_parameters()}
    return jax.tree.map(jnp.asarray, parameters(Weights("", given), CONFIG.N, CONFIG.h, CONFIG.d_model))


def test_logits_are_berts():
    theirs = bert()
    params, model = ours_from(theirs), MaskedLM(CONFIG)
    shapes = jax.eval_shape(lambda: init_params(CONFIG, jax.random.key(0)))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    ids = padded_ids(np.random.default_rng(0), [20, 11, 1], CONFIG.max_positions, CONFIG.vocab_size)
    with torch.no_grad():
        rows = torch.tensor(ids, dtype=torch.long)
        expected = theirs(rows, attention_mask=(rows != 0).long()).logits.numpy()
    actual = jax.jit(lambda p: model.apply({"params": p}, Tokens.of(jnp.asarray(ids))))(params)
    real = ids != 0
    assert np.abs(expected).max() > 5
    assert np.abs(np.asarray(actual) - expected)[real].max() <= TOLERANCE

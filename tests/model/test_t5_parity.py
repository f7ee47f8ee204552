"""Our encoder-decoder with T5's fields against transformers' T5 v1.0 with the same random weights, float32.

Skipped without PyTorch and transformers, see tests/extras.py.
"""

import jax
import jax.numpy as jnp
import numpy as np

from tests.reference import TOLERANCE, torch, transformers

# isort: split
from base.tokens import Tokens
from infer.convert.t5 import parameters
from infer.convert.weights import Weights
from model.config import ModelConfig
from model.transformer import Transformer, init_params
from tests.model_cases import padded_ids

CONFIG = ModelConfig(
    vocab_size=50,
    N=2,
    d_model=32,
    d_ff=48,
    h=3,
    d_k=8,
    d_v=8,
    positions="t5",
    norm="pre",
    norm_kind="rms",
    feed_forward_biases=False,
    scale_attention=False,
    scale_embeddings=False,
    scale_logits=True,
)


def t5():
    """A T5 of `CONFIG`'s sizes whose every weight is random, so that none is at a special value."""
    sizes = transformers.T5Config(
        vocab_size=CONFIG.vocab_size, d_model=CONFIG.d_model, d_kv=CONFIG.d_k, d_ff=CONFIG.d_ff, num_layers=CONFIG.N,
        num_heads=CONFIG.h, feed_forward_proj="relu", attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.T5ForConditionalGeneration(sizes).eval()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            size = 6.0 if name == "shared.weight" else 1.0 if "relative" in name else 0.25
            weight.copy_(size * torch.randn(weight.shape, generator=random) + ("norm" in name))
    return theirs


def ours_from(theirs):
    """T5's weights under our names and in our shapes."""
    given = {name: weight.detach().numpy() for name, weight in theirs.named_parameters()}
    return jax.tree.map(jnp.asarray, parameters(Weights("", given), CONFIG.N, CONFIG.h, CONFIG.d_model, CONFIG.d_k))


def test_logits_are_t5s():
    theirs = t5()
    params, model = ours_from(theirs), Transformer(CONFIG)
    shapes = jax.eval_shape(lambda: init_params(CONFIG, jax.random.key(0)))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    rng = np.random.default_rng(0)
    source = padded_ids(rng, [160, 37, 1], 160, CONFIG.vocab_size)  # beyond the farthest bucket, and shorter
    target = padded_ids(rng, [140, 140, 140], 140, CONFIG.vocab_size)
    with torch.no_grad():
        ids, decoder_ids = (torch.tensor(side, dtype=torch.long) for side in (source, target))
        expected = theirs(ids, attention_mask=(ids != 0).long(), decoder_input_ids=decoder_ids).logits.numpy()
    rows = [Tokens.of(jnp.asarray(side)) for side in (source, target)]
    actual = jax.jit(lambda p: model.apply({"params": p}, *rows))(params)
    assert np.abs(expected).max() > 5
    assert np.abs(np.asarray(actual) - expected).max() <= TOLERANCE

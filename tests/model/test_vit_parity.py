"""Our classifier of images against transformers' ViT with the same random weights, float32.

Skipped without PyTorch and transformers, see tests/extras.py.
"""

import jax
import jax.numpy as jnp
import numpy as np

from tests.reference import TOLERANCE, torch, transformers

# isort: split
from infer.convert.huggingface import weights
from infer.convert.vit import parameters
from model.config import ModelConfig
from model.vision import ImageConfig, Vision, init_params

IMAGE = ImageConfig(height=12, width=8, patch_height=4, patch_width=4, classes=7)
CONFIG = ModelConfig(
    vocab_size=7,
    N=3,
    d_model=32,
    d_ff=64,
    h=4,
    d_k=8,
    d_v=8,
    positions="learned",
    max_positions=IMAGE.positions,
    norm="pre",
    norm_epsilon=1e-12,
    activation="gelu",
    biases=True,
)


def vit():
    """A ViT of our sizes whose every weight is random, so that none is at a special value."""
    sizes = transformers.ViTConfig(
        image_size=(IMAGE.height, IMAGE.width), patch_size=4, num_channels=1, hidden_size=32, num_hidden_layers=3,
        num_attention_heads=4, intermediate_size=64, num_labels=7, attn_implementation="eager",
    )  # fmt: skip
    theirs = transformers.ViTForImageClassification(sizes).eval()
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            scale = "norm" in name and name.endswith("weight")
            weight.copy_(0.3 * torch.randn(weight.shape, generator=random) + scale)
    return theirs


def ours_from(theirs, folder):
    """ViT's weights under our names and in our shapes; on disk they have other names than in the model."""
    theirs.save_pretrained(folder)
    given = weights(folder)
    return jax.tree.map(
        jnp.asarray, parameters(given, CONFIG.N, CONFIG.h, CONFIG.d_model, (4, 4), np.zeros(1), np.ones(1))
    )


def test_logits_are_vits(tmp_path):
    theirs = vit()
    params, model = ours_from(theirs, tmp_path), Vision(CONFIG, IMAGE)
    shapes = jax.eval_shape(lambda: init_params(CONFIG, IMAGE, jax.random.key(0)))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    images = np.random.default_rng(0).normal(size=(5, IMAGE.height, IMAGE.width)).astype(np.float32)
    with torch.no_grad():
        expected = theirs(torch.tensor(images)[:, None]).logits.numpy()
    actual, _ = jax.jit(lambda p, x: model.apply({"params": p}, x, jnp.ones(5, jnp.int32)))(params, jnp.asarray(images))
    assert np.abs(expected).max() > 3
    assert np.abs(np.asarray(actual) - expected).max() <= TOLERANCE

"""How far gradients reach: the norms beside central differences, and nothing beyond what a local layer sees."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lab.gradients.command import above, norms_by_distance, vectors
from vaswani.data.batching import TextBatch
from vaswani.model.config import ModelConfig
from vaswani.model.language_model import LanguageModel
from vaswani.model.parameters import init_params
from vaswani.tokens import Tokens

T = 9
STEP = 1e-2


def made(mixer: str) -> tuple[ModelConfig, dict, TextBatch]:
    """Two layers that see 3 positions, if they are local: together they reach 4 positions back."""
    config = ModelConfig(11, N=2, d_model=8, d_ff=8, h=2, d_k=4, d_v=4, mixer=mixer, kernel_width=3, neighbours=3)
    ids_bt = np.random.default_rng(0).integers(4, 11, (1, T + 1)).astype(np.int32)
    return (
        config,
        init_params(LanguageModel(config), jax.random.key(1)),
        TextBatch(Tokens.of(ids_bt[:, :-1]), ids_bt[:, 1:]),
    )


def test_norms_are_those_of_central_differences() -> None:
    config, params, batch = made("attention")
    model = LanguageModel(config)
    tokens = Tokens.of(jnp.array(batch.target.ids_bt))
    x_td = np.array(model.apply({"params": params}, tokens, method=vectors)[0])

    @jax.jit
    def log_probs(x_td: jax.Array) -> jax.Array:
        return jax.nn.log_softmax(model.apply({"params": params}, x_td[None], tokens, method=above)[0])

    def losses(x_td: np.ndarray) -> np.ndarray:
        return -np.array(log_probs(jnp.array(x_td)))[np.arange(T), batch.labels_bt[0]]

    gradients_tsd = np.zeros((T, *x_td.shape))
    for s, d in np.ndindex(x_td.shape):
        moved_td = np.zeros_like(x_td)
        moved_td[s, d] = STEP
        gradients_tsd[:, s, d] = (losses(x_td + moved_td) - losses(x_td - moved_td)) / (2 * STEP)
    norms_ts = np.linalg.norm(gradients_tsd, axis=-1)
    expected_k = [np.mean([norms_ts[t, t - k] for t in range(k, T)]) for k in range(T)]
    assert norms_by_distance(config, params, [batch]) == pytest.approx(expected_k, rel=0.01)


@pytest.mark.parametrize("mixer", ["convolution", "restricted"])
def test_nothing_reaches_further_than_the_layers_see(mixer: str) -> None:
    config, params, batch = made(mixer)
    norms_k = norms_by_distance(config, params, [batch])
    assert (norms_k[:5] > 0).all()
    assert (norms_k[5:] == 0).all()

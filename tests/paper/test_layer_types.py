"""The mixers as layers of Table 1; tests/model/test_mixers.py has each against its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vaswani.configs.rules import CHOICES
from vaswani.paper.tables.layer_costs import operations
from vaswani.paper.tables.layer_types import Sizes, layer, projections

SIZES = Sizes(n=12, d=6, k=3, r=5)


@pytest.mark.slow
@pytest.mark.parametrize("mixer", CHOICES["model.mixer"])
def test_projections_are_four_products_of_attention_only(mixer: str) -> None:
    function, params = layer(mixer, SIZES)
    x_td = jax.random.normal(jax.random.key(1), (SIZES.n, SIZES.d))
    assert function(params, x_td).shape == x_td.shape
    found = projections(mixer, SIZES)
    assert (found is None) == (mixer in ("recurrent", "convolution"))
    if found is not None:
        assert operations(found, params, x_td) == 8 * SIZES.n * SIZES.d**2


@pytest.mark.slow
@pytest.mark.parametrize(("k", "dilation"), [(3, 1), (3, 3), (4, 2), (2, 16)])
def test_a_convolution_sees_positions_a_dilation_apart(k: int, dilation: int) -> None:
    convolution, params = layer("convolution", SIZES._replace(k=k), dilation)
    x_td = jax.random.normal(jax.random.key(1), (11, SIZES.d))
    kernel_wdge = np.asarray(params["params"]["kernel"])
    gates_tge = np.zeros((11, 2, SIZES.d))
    for t in range(11):
        for back in range(k):
            if t - back * dilation >= 0:
                gates_tge[t] += np.einsum("d,dge->ge", x_td[t - back * dilation], kernel_wdge[k - 1 - back])
    expected_td = gates_tge[:, 0] / (1 + np.exp(-gates_tge[:, 1]))
    np.testing.assert_allclose(convolution(params, jnp.asarray(x_td)), expected_td, atol=1e-5)

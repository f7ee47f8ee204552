"""The model as an NNX module, as docs/linen.md shows it: the logits of the Linen module bit for bit, and its update."""

import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

PAGE = Path(__file__).parent.parent.parent / "docs" / "linen.md"


@pytest.mark.slow
def test_the_page_s_model_has_the_logits_and_the_update_of_the_linen_module() -> None:
    bridge, update = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    page: dict[str, Any] = {}
    exec(bridge, page)
    source, target, labels_bt, params = page["source"], page["target"], page["labels_bt"], page["run"].params
    linen = page["transformer"]
    tx = optax.sgd(0.1)

    @jax.jit
    def logits(params: dict) -> jax.Array:
        return linen.apply({"params": params}, source, target)

    @jax.jit
    def step(params: dict, state: optax.OptState) -> dict:
        def loss(params: dict) -> jax.Array:
            logits_btv = linen.apply({"params": params}, source, target)
            return optax.softmax_cross_entropy_with_integer_labels(logits_btv, labels_bt).mean()

        updates, _ = tx.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates)

    np.testing.assert_array_equal(page["logits_btv"], logits(params))
    np.testing.assert_array_equal(page["logits_btv"].argmax(-1), labels_bt)  # it has learned this sentence
    exec(update, page)
    expected = step(params, tx.init(params))
    largest = jax.tree.map(lambda before, after: np.abs(before - after).max(), params, expected)
    # XLA may fuse the two programs differently: float32's rounding of the largest movement, and of the parameters.
    for path, movement in jax.tree.leaves_with_path(largest):
        assert movement > 0, path
        array, other = (dict(jax.tree.leaves_with_path(tree))[path] for tree in (page["params"], expected))
        np.testing.assert_allclose(array, other, rtol=2**-22, atol=1e-4 * movement)

"""The layers of a stack as one loop, so that the compiler meets one layer where it would meet N."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int, PRNGKeyArray

from model.dropout import Dropout, dropout


def scan(
    layers: Sequence[Any],
    apply: Callable[..., Float[Array, "b t d"]],
    x_btd: Float[Array, "b t d"],
    rows_b: Int[Array, " b"] | None,
    inputs: tuple[Any, ...] = (),
) -> Float[Array, "b t d"]:
    """Returns what `for layer, input in ..: x = apply(layer, x, input)` does to x, dropout masks included.

    The parameters stay where they are in the tree (`encoder/layer_0/..`), and are stacked here.

    Args:
      layers: bound modules of one class and config; each names its `dropouts`.
      apply: one layer's pass; it gets an unbound module in the place of the layer.
      x_btd: what goes into the first layer.
      rows_b: as for dropout: None where there is to be none.
      inputs: one tree for each layer, of its own inputs; or none.
    """
    stacked_n = jax.tree.map(
        lambda *leaves: jnp.stack(leaves),
        *[(layer.variables["params"], keys(layer, rows_b), inputs[n : n + 1]) for n, layer in enumerate(layers)],
    )
    module = layers[0].clone(parent=None)

    def body(x_btd: Array, layer: tuple[dict, list[PRNGKeyArray], tuple[Any, ...]]) -> tuple[Array, None]:
        params, own_keys, own_input = layer
        with nn.intercept_methods(with_keys(own_keys)):
            return module.apply({"params": params}, x_btd, *own_input, method=apply), None

    return jax.lax.scan(body, x_btd, stacked_n)[0]


def keys(layer: Any, rows_b: Int[Array, " b"] | None) -> list[PRNGKeyArray]:
    """The keys of a layer's dropouts, in the order of their calls.

    Flax makes such a key from the module's path, `layer_3` and all, and a loop's body has no path of its own. So they
    are drawn outside, by the modules that would have used them.
    """
    return [] if rows_b is None else [module.make_rng("dropout") for module in layer.dropouts() if module.rate]


def with_keys(own_keys: list[PRNGKeyArray]) -> Callable[..., Any]:
    """An interceptor of module calls that gives each dropout the next of these keys."""
    remaining = iter(own_keys)

    def intercept(call: Callable[..., Any], args: tuple, kwargs: dict, context: Any) -> Any:
        module = context.module
        if isinstance(module, Dropout) and module.rate and own_keys:
            x, rows_b = args
            return dropout(x, module.rate, next(remaining), module.bits, rows_b)
        return call(*args, **kwargs)

    return intercept

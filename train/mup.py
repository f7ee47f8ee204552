"""muP: the rate found for a narrow model is right for a wide one (Yang et al. 2022, "Tensor Programs V", 2203.03466).

`model.parametrisation=mup` changes only initial values and rates, for Adam, as in that paper's table 3; table 8, which
has factors in the forward pass, is equivalent (its lemma J.1). So a trained model is like any other.

With r = d_model / model.mup_width, and N layers, d_k, d_v, d_ff / d_model and h / d_model the same at every width:

- Hidden matrices have rates in proportion to 1 / r. Their initial variance, Glorot's, falls with 1 / r as it is.
- The softmax's matrix has initial values and a rate in proportion to 1 / r. It must not be tied, because an embedding
  needs neither. That paper advises starting it at 0 (its appendix D.2); with post-norm this cost far more than any rate
  gained (lab/studies/mup).
- Embeddings have rates in proportion to r^-0.5, since section 3.4 multiplies them by sqrt(d_model) afterwards. So, once
  multiplied, they begin equally large at every width, as large as the sinusoids, and a step changes them equally.
- Biases and layer norms have the same rates at every width.
- Attention divides by sqrt(d_k) as always: a wider model has more heads, not a larger d_k, so dividing by d_k, as that
  paper does, would differ by a constant only. When d_k grew instead, attention weights changed less in wider models,
  even where the queries began at 0.
"""

import re
from typing import Any

import jax
import optax

# First match wins. A parameter's rate is multiplied by r to this power. Paths end as in run/sharding.py.
RULES = (
    (r"(source|target)_embed$", -0.5),
    (r"softmax$", -1.0),
    (r"attention/w[qkvo]$", -1.0),
    (r"feed_forward/(w1|w2|v)$", -1.0),
    (r"attention/b[qkvo]$", 0.0),
    (r"feed_forward/b[12]$", 0.0),
    (r"norm(_\d)?/(scale|bias)$", 0.0),
    (r"output_bias$", 0.0),
)


def scale_by_mup(r: float) -> optax.GradientTransformation:
    """Returns a transformation that multiplies Adam's updates of each parameter as `RULES` says, at r times the width.

    Its `update` raises `ValueError` if no rule names a parameter.
    """

    def scale(path: tuple[Any, ...], update: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        return update * r ** power(name)

    return optax.stateless(lambda updates, params: jax.tree_util.tree_map_with_path(scale, updates))


def power(name: str) -> float:
    """Returns the power of r that the rate of the parameter at this path is multiplied by; `ValueError` without one."""
    for pattern, exponent in RULES:
        if re.search(pattern, name):
            return exponent
    raise ValueError(f"train/mup.py: no rule names {name}; add one for this parameter")

"""Types that pages of model/ and search/ share."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jax import Array

# A model's parameters: nested dicts of arrays, by name; those of an ensemble are a tuple.
Params = Mapping[str, Any] | tuple[Mapping[str, Any], ...]

# An array in a dataclass that is a pytree: jax also builds it with shapes or shardings in the place of arrays, which
# the tests' check of types at run time would refuse.
if TYPE_CHECKING:
    Leaf = Array
else:
    Leaf = object

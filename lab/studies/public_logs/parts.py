"""What the published models have and ours have not: initial values, norms, and a limit of 50 tokens."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Int, PRNGKeyArray

from lab.studies.public_logs.design import LONGEST, Log
from vaswani.model.block import layer_norm
from vaswani.model.config import ModelConfig
from vaswani.model.embed import embeddings
from vaswani.model.stack import Stack
from vaswani.model.transformer import Transformer
from vaswani.tokens import Tokens

NORMS = ("norm_1", "norm_2", "norm_3")  # of a layer's sub-layers
ATTENTION_BIASES = ("bq", "bk", "bv", "bo")


class PublishedTransformer(Transformer):
    """Our Transformer, whose translations have at most `LONGEST` tokens, EOS among them."""

    @nn.nowrap
    def output_limits(self, source_bs: Int[Array, "b s"], extra_length: int) -> tuple[Int[Array, " b"], int]:
        """Returns the same limit for every sentence."""
        return jnp.full(source_bs.shape[0], LONGEST), LONGEST


class NormedStack(Stack):
    """A stack of post-norm layers with one more layer norm at its end, as nn.Transformer has it."""

    def setup(self) -> None:
        super().setup()
        self.final_norm = layer_norm(self.config)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        x_btd, cache, weights = super().__call__(*arguments, **options)
        return self.final_norm(x_btd), cache, weights


class NormedTransformer(PublishedTransformer):
    """A Transformer of such stacks."""

    def setup(self) -> None:
        self.source_embedding, self.target_embedding = embeddings(self, "source_", "target_")
        self.encoder = NormedStack(self.config, cross=False, causal=False, stacks=2)
        self.decoder = NormedStack(self.config, cross=True, causal=True, stacks=2)


class SharedNormTransformer(PublishedTransformer):
    """A Transformer each of whose layers has one layer norm, `norm_1`, in place of two or three of equal size.

    The parameters that it is applied to are without the others; gradients of all places add up.
    """

    @nn.nowrap
    def apply(self, variables: Any, *arguments: Any, **options: Any) -> Any:
        """Does what `apply` does of any Flax module."""
        return super().apply({"params": spread_norms(variables["params"])}, *arguments, **options)


def spread_norms(params: dict) -> dict:
    """Gives all sub-layers of a layer its one layer norm."""

    def of_layer(layer: dict) -> dict:
        names = NORMS if "cross_attention" in layer else NORMS[:2]
        return layer | dict.fromkeys(names, layer["norm_1"])

    stacks = {name: {n: of_layer(layer) for n, layer in params[name].items()} for name in ("encoder", "decoder")}
    return params | stacks


def keep_first_norm(params: dict) -> dict:
    """Leaves each layer its first layer norm alone."""

    def of_layer(layer: dict) -> dict:
        return {name: part for name, part in layer.items() if name not in NORMS[1:]}

    stacks = {name: {n: of_layer(layer) for n, layer in params[name].items()} for name in ("encoder", "decoder")}
    return params | stacks


def model_of(log: Log, config: ModelConfig) -> Transformer:
    """Returns the published model."""
    if log.norms_stacks:
        return NormedTransformer(config)
    return SharedNormTransformer(config) if log.shares_norm else PublishedTransformer(config)


def init_params(log: Log, config: ModelConfig, key: PRNGKeyArray) -> dict:
    """Returns new parameters with the published initial values; layer norms begin as the identity, as ours do."""
    token = Tokens.of(jnp.ones((1, 1), jnp.int32))
    params = model_of(log, config).init(key, token, token)["params"]
    if log.shares_norm:
        params = keep_first_norm(params)

    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    made: list[Array] = []
    for number, (path, leaf) in enumerate(leaves):
        limit = bound(path[-1].key, leaf.shape, config, log.packs_projections)
        if limit is not None:
            leaf = jax.random.uniform(jax.random.fold_in(key, number), leaf.shape, minval=-limit, maxval=limit)
        made.append(leaf)
    return jax.tree.unflatten(structure, made)


def bound(name: str, shape: tuple[int, ...], config: ModelConfig, packs_projections: bool) -> float | None:
    """Returns the b of a parameter's uniform initial values in [-b, b]; None for those of layer norms.

    Of matrices it is Xavier's, sqrt(6 / (inputs + outputs)), and of biases 1 / sqrt(inputs of their matrix).
    """
    d = config.d_model
    heads = config.h * config.d_k
    if name in ("scale", "bias"):
        return None
    if packs_projections and name in ATTENTION_BIASES:
        return 0.0
    inputs_of_biases = {"b2": config.d_ff, "bo": heads, **dict.fromkeys(("bq", "bk", "bv", "b1", "output_bias"), d)}
    if name in inputs_of_biases:
        return inputs_of_biases[name] ** -0.5
    if name in ("wq", "wk", "wv"):
        return math.sqrt(6 / (d + (3 if packs_projections else 1) * heads))
    if name == "wo":
        return math.sqrt(6 / (heads + d))
    rows, columns = shape
    return math.sqrt(6 / (rows + columns))

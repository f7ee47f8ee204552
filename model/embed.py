"""From ids to vectors and from vectors to logits (section 3.4)."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.model.config import CommonConfig
from vaswani.model.noise import Noise, dropout
from vaswani.model.positions import encoding_of
from vaswani.model.rows import by_rows


class Embedding(NamedTuple):
    """The learned embeddings of a model's source, or of its target, and the softmax: one matrix if they are tied.

    A source with a vocabulary of its own has a matrix of its own.

    No module of its own, so that its parameters have their names at the top of the tree: a model makes them, by
    `embeddings`, in its `setup`.
    """

    config: CommonConfig
    embed_vd: Float[Array, "v d"]
    positions_ld: Float[Array, "l d"] | None = None  # where positions are learned; longer rows are refused by `Stack`
    softmax_vd: Float[Array, "v d"] | None = None
    bias_v: Float[Array, " v"] | None = None  # of the softmax
    norm: Callable[[Array], Array] | None = None  # a layer norm before the dropout, as BERT and BART have

    def encode(
        self,
        ids_bt: Int[Array, "b t"],
        positions_bt: Int[Array, "b t"],
        noise: Noise | None,
    ) -> Float[Array, "b t d"]:
        """Returns embeddings times sqrt(d_model), plus positions, after dropout (sections 3.4, 3.5, 5.4).

        Without `config.scale_embeddings` they are not multiplied.
        """
        c = self.config
        # A row of the table for each token: [b,t] -> [b,t,d].
        x_btd = self.embed_vd[ids_bt]
        # "In the embedding layers, we multiply those weights by sqrt(d_model)."
        if c.scale_embeddings:
            x_btd = x_btd * jnp.sqrt(jnp.float32(c.d_model))
        # "We add positional encodings to the input embeddings at the bottoms of the encoder and decoder stacks."
        x_btd = encoding_of(c).embed(x_btd, positions_bt, self.positions_ld)
        if self.norm is not None:
            x_btd = self.norm(x_btd)
        # "We apply dropout to the sums of the embeddings and the positional encodings."
        x_btd = dropout(x_btd.astype(c.dtype), c.embedding_dropout, noise)
        return by_rows(x_btd)

    def logit_factors(self, x_btd: Float[Array, "b t d"]) -> tuple[Float[Array, "b t c"], Float[Array, "v c"]]:
        """Returns the two factors of the logits x E^T; with `config.scale_logits`, x is divided by sqrt(d_model).

        A loss multiplies them a chunk at a time. A bias is one more column of the second, times 1: c is d, or d + 1.
        """
        assert self.softmax_vd is not None
        if self.config.scale_logits:
            x_btd = x_btd * self.config.d_model**-0.5
        if self.bias_v is None:
            return x_btd, self.softmax_vd
        # [x, 1] times [E, b] is x E^T + b.
        ones_bt1 = jnp.ones((*x_btd.shape[:2], 1), x_btd.dtype)
        x_btc = jnp.concatenate([x_btd, ones_bt1], axis=-1)
        softmax_vc = jnp.concatenate([self.softmax_vd, self.bias_v[:, None]], axis=-1)
        return x_btc, softmax_vc

    def logits(self, x_btd: Float[Array, "b t d"]) -> Float[Array, "b t v"]:
        """Returns the logits, in float32: "the usual learned linear transformation"."""
        x_btc, softmax_vc = self.logit_factors(x_btd)
        return logits_of(x_btc, softmax_vc)


def logits_of(x_btc: Float[Array, "b t c"], softmax_vc: Float[Array, "v c"]) -> Float[Array, "b t v"]:
    """Returns the logits, in float32, from their factors."""
    return jnp.einsum("btc,vc->btv", x_btc, softmax_vc.astype(x_btc.dtype), preferred_element_type=jnp.float32)


def embeddings(model: nn.Module, *sides: str) -> list[Embedding]:
    """Makes a model's parameters of embedding and softmax, in its `setup`; returns the `Embedding` of each side.

    Names of parameters begin with the side's: of "source_", `source_embed`. If `config.tie_embeddings`, one matrix,
    `embed`, is shared by all sides and the softmax (section 3.4). Sides with vocabularies of their own cannot share
    one: the softmax is then tied to `target_embed`.
    """
    c = model.config
    if c.tie_embeddings and c.source_vocab_size is None:
        softmax_vd = table(model, "embed", c.vocab_size)
        # "We share the same weight matrix between the two embedding layers and the pre-softmax linear transformation."
        tables = [softmax_vd for _ in sides]
    else:
        *source_sides, target_side = sides
        tables = [table(model, f"{side}embed", c.source_vocab_size or c.vocab_size) for side in source_sides]
        tables.append(table(model, f"{target_side}embed", c.vocab_size))
        if c.tie_embeddings:
            softmax_vd = tables[-1]
        else:
            softmax_vd = table(model, "softmax", c.vocab_size, (c.base_width / c.d_model) ** 0.5)
    bias_v = None
    if c.output_bias:
        bias_v = model.param("output_bias", nn.initializers.zeros, (c.vocab_size,))
    made = []
    for side, embed_vd in zip(sides, tables, strict=True):
        made.append(Embedding(c, embed_vd, position_table(model, f"{side}positions"), softmax_vd, bias_v))
    return made


def table(model: nn.Module, name: str, rows: int, gain: float = 1.0) -> Float[Array, "v d"]:
    """Makes a table of vectors, N(0, 1/d_model) at first as in tensor2tensor; `gain` multiplies them."""
    d_model = model.config.d_model
    return model.param(name, nn.initializers.normal(d_model**-0.5 * gain), (rows, d_model))


def position_table(model: nn.Module, name: str) -> Float[Array, "l d"] | None:
    """Makes the table of learned positions; None where positions are not learned."""
    c = model.config
    return None if c.limit is None else table(model, name, c.limit)

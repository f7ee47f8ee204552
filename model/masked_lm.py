"""A masked language model: the paper's encoder alone, which sees both sides of a blank (Devlin et al. 2018, "BERT")."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from vaswani.configs.rules import WITH_WEIGHTS
from vaswani.model.block import ACTIVATIONS, layer_norm
from vaswani.model.config import ModelConfig
from vaswani.model.embed import Embedding, logits_of, position_table, table
from vaswani.model.mixers.head_variants import add_bias
from vaswani.model.noise import Noise, fold
from vaswani.model.parameters import ONE_TOKEN
from vaswani.model.stack import Stack
from vaswani.tokens import Tokens

# Where the model draws noise.
EMBED, STACK = range(2)


class MaskedLM(nn.Module):
    """Logits of the token that was at each position, given the whole corrupted text.

    Besides the encoder it has what BERT has: a layer norm of the embeddings and, before the softmax, a dense layer with
    activation and layer norm; the softmax has a bias. There are no token types: all tokens have the same one.

    With `classes`, a classification head at EOS replaces the vocabulary softmax. All else is the same, so that a
    classifier can start from the parameters of a masked language model. (BERT itself replaces the dense layer as well,
    by one with tanh.)

    `noise` turns dropout on. Raises `ValueError` for learned positions and a row longer than their table.
    """

    config: ModelConfig
    classes: int = 0
    smallest_inputs = (ONE_TOKEN,)

    def setup(self) -> None:
        c = self.config
        name = "classes" if self.classes else "softmax"
        size = self.classes or c.vocab_size
        # One matrix for embedding and softmax, unless they are not tied or classes are predicted.
        embed_vd = softmax_vd = table(self, "embed", c.vocab_size)
        if self.classes or not c.tie_embeddings:
            softmax_vd = table(self, name, size)
        positions_ld = position_table(self, "positions")
        self.embed_norm = layer_norm(c)
        self.encoder = Stack(c, cross=False, causal=False)
        self.head_w = self.param("head_w", nn.initializers.glorot_uniform(), (c.d_model, c.d_model))
        self.head_b = self.param("head_b", nn.initializers.zeros, (c.d_model,))
        self.head_norm = layer_norm(c)
        # Made last: a parameter's random numbers depend on how many were made before it.
        bias_v = self.param(f"{name}_b", nn.initializers.zeros, (size,))
        self.embedding = Embedding(c, embed_vd, positions_ld, softmax_vd, bias_v, self.embed_norm)

    def __call__(self, tokens: Tokens, noise: Noise | None = None) -> Float[Array, "b t v"]:
        """Returns the logits for whole rows."""
        x_btc, softmax_vc = self.logit_factors(tokens, noise)
        return logits_of(x_btc, softmax_vc)

    def logit_factors(
        self, tokens: Tokens, noise: Noise | None = None
    ) -> tuple[Float[Array, "b t c"], Float[Array, "v c"]]:
        """Returns the two factors of the logits, see `Embedding.logit_factors`."""
        activation = ACTIVATIONS[self.config.activation]
        x_btd = self.encode(tokens, noise)
        # BERT's head: dense layer, activation, layer norm, then the softmax.
        x_btd = jnp.einsum("btd,de->bte", x_btd, self.head_w.astype(x_btd.dtype))
        x_btd = activation(add_bias(x_btd, self.head_b))
        x_btd = self.head_norm(x_btd)
        return self.embedding.logit_factors(x_btd)

    def encode(self, tokens: Tokens, noise: Noise | None = None) -> Float[Array, "b t d"]:
        """Returns the encoder's output."""
        x_btd = self._embed(tokens, fold(noise, EMBED))
        # No causal mask: a blank is predicted from both of its sides.
        x_btd, _, _ = self.encoder(x_btd, tokens, noise=fold(noise, STACK))
        return x_btd

    def attention_maps(self, tokens: Tokens) -> dict[str, Float[Array, "n b h t t"]]:
        """Returns the weights of all layers and heads, as "encoder"; none with a mixer that has no weights."""
        if self.config.mixer not in WITH_WEIGHTS:
            return {}
        _, _, weights = self.encoder(self._embed(tokens, None), tokens, return_weights=True)
        return {"encoder": jnp.stack([block.self_bhtt for block in weights])}

    def _embed(self, tokens: Tokens, noise: Noise | None) -> Float[Array, "b t d"]:
        return self.embedding.encode(tokens.ids_bt, tokens.positions_bt, noise)

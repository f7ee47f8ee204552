"""Translation by a decoder alone: source and target in one row (Raffel et al. 2020, section 3.2.1, "prefix LM").

The source is the prefix of the target's own sentence. It is read like an encoder's, every position seeing every other,
or with `config.prefix` "causal" like a language model's text.
"""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.ids import BOS, PAD
from vaswani.model.decoding import translation_limits
from vaswani.model.embed import logits_of
from vaswani.model.language_model import EMBED, STACK, DecoderOnly, PromptCache
from vaswani.model.noise import Noise, fold
from vaswani.model.parameters import ONE_TOKEN
from vaswani.tokens import Tokens


class PrefixLM(DecoderOnly):
    """Logits of the target given the source, with the interface of `Transformer` for training and search."""

    smallest_inputs = (ONE_TOKEN, ONE_TOKEN)

    def __call__(self, source: Tokens, target: Tokens, noise: Noise | None = None) -> Float[Array, "b t v"]:
        """Returns the logits of the next token at each position of `target`, which is already shifted right."""
        x_btc, softmax_vc = self.logit_factors(source, target, noise)
        return logits_of(x_btc, softmax_vc)

    def logit_factors(
        self, source: Tokens, target: Tokens, noise: Noise | None = None
    ) -> tuple[Float[Array, "b t c"], Float[Array, "v c"]]:
        """Returns the two factors of the logits, see `Embedding.logit_factors`."""
        # One row [b,s+t] holds source and target.
        both = joined(source, target)
        s = source.ids_bt.shape[1]
        x_bnd = self.embedding.encode(both.ids_bt, both.positions_bt, fold(noise, EMBED))
        # "full" lets the source see itself whole, as an encoder does.
        x_bnd, _, _ = self.decoder(x_bnd, both, noise=fold(noise, STACK), prefix=self._prefix(s))
        # Only the target is predicted: [b,s+t,d] -> [b,t,d].
        return self.embedding.logit_factors(x_bnd[:, s:])

    def attention_maps(self, source: Tokens, target: Tokens) -> dict[str, Float[Array, "n b h t t"]]:
        """Returns the weights of all layers and heads, as "decoder"; rows and columns are those of `joined`."""
        s = source.ids_bt.shape[1]
        return self._maps(joined(source, target), self._prefix(s))

    @nn.nowrap
    def output_limits(self, source_bs: Int[Array, "b s"], extra_length: int) -> tuple[Int[Array, " b"], int]:
        """Returns `translation_limits`."""
        return translation_limits(source_bs, extra_length, self.config.limit)

    def start(self, source_bs: Int[Array, "b s"], beams: int, slots: int) -> tuple[Int[Array, " b"], PromptCache]:
        """Returns the first token of every search, BOS, and the cache of its source, filled at once."""
        s = source_bs.shape[1]
        lengths_b = jnp.sum(source_bs != PAD, axis=1)
        # The target begins right after the source's last token, which is in another column in every row.
        is_bos_bs = jnp.arange(s + 1)[None] == lengths_b[:, None]
        longer_bs = jnp.pad(source_bs, ((0, 0), (0, 1)))
        prompts_bs = jnp.where(is_bos_bs, BOS, longer_bs)
        return self.read_prompts(prompts_bs, beams, slots, self._prefix(s))

    def _prefix(self, length: int) -> int:
        return length if self.config.prefix == "full" else 0


def joined(source: Tokens, target: Tokens) -> Tokens:
    """Returns rows with the sources of all their sentences, then the targets, whose positions go on from the sources'.

    Attention tells sentences apart by their segments, so the tokens of one need not be side by side.
    """
    # A target's positions begin at the number of tokens of its own source.
    same_bts = target.segments_bt[:, :, None] == source.segments_bt[:, None, :]
    positions_bt = target.positions_bt + jnp.sum(same_bts, axis=2, dtype=jnp.int32)
    return Tokens(
        jnp.concatenate([source.ids_bt, target.ids_bt], axis=1),
        jnp.concatenate([source.segments_bt, target.segments_bt], axis=1),
        jnp.concatenate([source.positions_bt, positions_bt], axis=1),
    )

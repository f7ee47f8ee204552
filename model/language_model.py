"""A decoder-only language model: the paper's decoder without an encoder (Radford et al. 2018, "GPT")."""

import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Float, Int

from vaswani.configs.rules import WITH_WEIGHTS
from vaswani.ids import PAD
from vaswani.model.config import ModelConfig
from vaswani.model.embed import embeddings, logits_of
from vaswani.model.noise import Noise, fold
from vaswani.model.parameters import ONE_TOKEN
from vaswani.model.stack import Stack, StackCache
from vaswani.model.types import Leaf
from vaswani.tokens import Tokens

# Where the model draws noise.
# One site for the embedding and one for the stack.
EMBED, STACK = range(2)


class PromptCache(struct.PyTreeNode):
    """What the stack remembers of the prompts and of the tokens after them."""

    stack: StackCache
    last_b: Leaf  # int32 positions of the prompts' last tokens
    room: int = struct.field(pytree_node=False)  # slots for the prompts

    def select(self, parents_bm: Int[Array, "b m"]) -> "PromptCache":
        """Returns the cache in which beam i goes on from what was beam `parents_bm[:, i]`."""
        return self.replace(stack=self.stack.select(parents_bm))

    def grow(self, slots: int) -> "PromptCache":
        """Returns the cache with room for `slots` slots after the prompts."""
        return self.replace(stack=self.stack.grow(self.room + slots))


class DecoderOnly(nn.Module):
    """The paper's decoder without its encoder. `noise` turns dropout on, for training."""

    config: ModelConfig

    def setup(self) -> None:
        c = self.config
        (self.embedding,) = embeddings(self, "")
        # Without an encoder there is nothing to attend across to.
        self.decoder = Stack(c, cross=False, causal=True)

    def read_prompts(
        self, prompts_bs: Int[Array, "b s"], beams: int, slots: int, prefix: int = 0
    ) -> tuple[Int[Array, " b"], PromptCache]:
        """Returns the last token of each prompt, and the cache of what is before it, filled at once.

        Rows are ids, then padding up to the length of the longest prompt. `slots` are those of the tokens that `step`
        reads, a prompt's last among them. `prefix` as in `model.stack`.
        """
        # All tokens before a prompt's last fill the cache at once; the last is what the first step reads.
        rows, s = prompts_bs.shape
        room = s - 1
        lengths_b = jnp.sum(prompts_bs != PAD, axis=1, dtype=jnp.int32)
        last_b = jnp.maximum(lengths_b - 1, 0)  # 0 in a row of padding, which a search skips
        cache = self.decoder.init_cache(None, rows, beams, room + slots)
        # A prompt of one token leaves nothing to fill in.
        if room:
            # Prompts end at different places: the last of each, and what follows, becomes padding.
            is_before_bt = jnp.arange(room)[None] < last_b[:, None]
            before = Tokens.of(jnp.where(is_before_bt, prompts_bs[:, :-1], PAD))
            x_btd = self.embedding.encode(before.ids_bt, before.positions_bt, None)
            _, cache, _ = self.decoder(x_btd, before, cache=cache, prefix=prefix)
        token_b = jnp.take_along_axis(prompts_bs, last_b[:, None], axis=1)[:, 0]
        return token_b, PromptCache(cache, last_b, room)

    def step(
        self, token_bm: Int[Array, "b m"], step: Int[Array, ""], cache: PromptCache
    ) -> tuple[Float[Array, "b m v"], PromptCache]:
        """Returns the logits after token `step` of each of m beams, and the updated cache; token 0 ends the prompt."""
        # Positions go on from the end of each prompt, not of the longest.
        positions_bm = jnp.broadcast_to((cache.last_b + step)[:, None], token_bm.shape)
        x_bmd = self.embedding.encode(token_bm, positions_bm, None)
        # No segments: the cache knows which tokens each beam may see.
        beams = Tokens(token_bm, None, positions_bm)
        x_bmd, stack, _ = self.decoder(x_bmd, beams, cache=cache.stack)
        return self.embedding.logits(x_bmd), cache.replace(stack=stack)

    def _maps(self, tokens: Tokens, prefix: int = 0) -> dict[str, Float[Array, "n b h t t"]]:
        """Returns the attention weights of all layers and heads, as "decoder". `prefix` as in `model.stack`.

        With a mixer that has no weights there are none.
        """
        if self.config.mixer not in WITH_WEIGHTS:
            return {}
        x_btd = self.embedding.encode(tokens.ids_bt, tokens.positions_bt, None)
        _, _, weights = self.decoder(x_btd, tokens, return_weights=True, prefix=prefix)
        return {"decoder": jnp.stack([block.self_bhtt for block in weights])}


class LanguageModel(DecoderOnly):
    """Logits of the next token at each position. A model of `search`, whose inputs are prompts.

    Rows that it is trained on begin with BOS, and so should prompts; the empty prompt is BOS alone. Raises `ValueError`
    for learned positions and a row longer than their table.
    """

    smallest_inputs = (ONE_TOKEN,)

    def __call__(self, tokens: Tokens, noise: Noise | None = None) -> Float[Array, "b t v"]:
        """Returns the logits for whole rows."""
        x_btc, softmax_vc = self.logit_factors(tokens, noise)
        return logits_of(x_btc, softmax_vc)

    def logit_factors(
        self, tokens: Tokens, noise: Noise | None = None
    ) -> tuple[Float[Array, "b t c"], Float[Array, "v c"]]:
        """Returns the two factors of the logits, see `Embedding.logit_factors`."""
        x_btd = self.embedding.encode(tokens.ids_bt, tokens.positions_bt, fold(noise, EMBED))
        x_btd, _, _ = self.decoder(x_btd, tokens, noise=fold(noise, STACK))
        return self.embedding.logit_factors(x_btd)

    def attention_maps(self, tokens: Tokens) -> dict[str, Float[Array, "n b h t t"]]:
        """Returns the weights of all layers and heads, as "decoder"; none with a mixer that has no weights."""
        return self._maps(tokens)

    @nn.nowrap
    def output_limits(self, prompts_bs: Int[Array, "b s"], extra_length: int) -> tuple[Int[Array, " b"], int]:
        """Returns the most output tokens, EOS counted, of each row, and of any: `extra_length` after each prompt.

        Raises:
          ValueError: there is no room for a token, or a prompt of this width and its output have no learned positions.
        """
        width = prompts_bs.shape[1]
        positions = width + extra_length - 1  # of all tokens but the last, which the model does not read
        limit = self.config.limit
        asked = f"a prompt of {width} tokens and {extra_length} more"
        if extra_length < 1:
            raise ValueError(f"{asked}: at least 1 must be asked for")
        if limit and positions > limit:
            raise ValueError(f"{asked}: together they take {positions} positions, but only {limit} are learned")
        return jnp.full(prompts_bs.shape[0], extra_length, jnp.int32), extra_length

    def start(self, prompts_bs: Int[Array, "b s"], beams: int, slots: int) -> tuple[Int[Array, " b"], PromptCache]:
        """Returns the first token of every search, its prompt's last, and the cache of what is before it."""
        return self.read_prompts(prompts_bs, beams, slots)

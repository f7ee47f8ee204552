"""The encoder-decoder Transformer (Figure 1), from token ids to logits."""

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.configs.rules import WITH_WEIGHTS
from vaswani.ids import BOS
from vaswani.model.block import layer_norm
from vaswani.model.config import ModelConfig
from vaswani.model.decoding import translation_limits
from vaswani.model.embed import embeddings, logits_of
from vaswani.model.noise import Noise, fold
from vaswani.model.parameters import ONE_TOKEN
from vaswani.model.stack import Memory, Stack, StackCache
from vaswani.tokens import Tokens

# Where the model draws noise: at each embedding, and in each stack.
SOURCE, ENCODER, TARGET, DECODER = range(4)


class Transformer(nn.Module):
    """The paper's model: an encoder of the source, and a causal decoder that attends to the encoder's output.

    Passing `noise` turns dropout on. Raises `ValueError` for a row longer than the table of learned positions.
    """

    config: ModelConfig
    smallest_inputs = (ONE_TOKEN, ONE_TOKEN)

    def setup(self) -> None:
        c = self.config
        source, target = embeddings(self, "source_", "target_")
        if c.norm_embeddings:
            # Not the paper's: BART's layer norm of the sums of embeddings and positions.
            self.source_norm = layer_norm(c)
            self.target_norm = layer_norm(c)
            source = source._replace(norm=self.source_norm)
            target = target._replace(norm=self.target_norm)
        self.source_embedding = source
        self.target_embedding = target
        # The left and the right half of Figure 1.
        self.encoder = Stack(c, cross=False, causal=False, stacks=2)
        self.decoder = Stack(c, cross=True, causal=True, stacks=2)

    def __call__(self, source: Tokens, target: Tokens, noise: Noise | None = None) -> Float[Array, "b t v"]:
        """Returns the logits of the next token at each position of `target`, which is already shifted right."""
        x_btc, softmax_vc = self.logit_factors(source, target, noise)
        return logits_of(x_btc, softmax_vc)

    def logit_factors(
        self, source: Tokens, target: Tokens, noise: Noise | None = None
    ) -> tuple[Float[Array, "b t c"], Float[Array, "v c"]]:
        """Returns the two factors of the logits, see `Embedding.logit_factors`."""
        # "The encoder maps an input sequence of symbol representations to a sequence of continuous representations z."
        memory_bsd = self.encode(source, noise)
        return self.decode(target, memory_bsd, source, noise)

    def encode(self, source: Tokens, noise: Noise | None = None) -> Float[Array, "b s d"]:
        """Returns the encoder's output."""
        # From ids [b,s] to vectors [b,s,d].
        x_bsd = self.source_embedding.encode(source.ids_bt, source.positions_bt, fold(noise, SOURCE))
        # Through N layers, which keep that shape.
        x_bsd, _, _ = self.encoder(x_bsd, source, noise=fold(noise, ENCODER))
        return x_bsd

    def decode(
        self, target: Tokens, memory_bsd: Float[Array, "b s d"], source: Tokens, noise: Noise | None = None
    ) -> tuple[Float[Array, "b t c"], Float[Array, "v c"]]:
        """Returns what `logit_factors` does, given the encoder's output for `source`."""
        # "Given z, the decoder then generates an output sequence": each layer attends to all of z.
        memory = self.decoder.memory(memory_bsd, source)
        x_btd = self.target_embedding.encode(target.ids_bt, target.positions_bt, fold(noise, TARGET))
        x_btd, _, _ = self.decoder(x_btd, target, memory, noise=fold(noise, DECODER))
        # [b,t,d] times E^T [d,v] are the logits; a loss over few positions at a time need not store them all.
        return self.target_embedding.logit_factors(x_btd)

    @nn.nowrap
    def output_limits(self, source_bs: Int[Array, "b s"], extra_length: int) -> tuple[Int[Array, " b"], int]:
        """Returns `translation_limits`."""
        return translation_limits(source_bs, extra_length, self.config.limit)

    def start(self, source_bs: Int[Array, "b s"], beams: int, slots: int) -> tuple[Int[Array, " b"], StackCache]:
        """Returns the first token of every search, BOS, and the empty cache."""
        source = Tokens.of(source_bs)
        # The source is read once for all steps and beams of its search.
        memory: Memory = self.decoder.memory(self.encode(source), source)
        # Room for the keys and values of as many tokens as there are slots; a search lets it grow.
        cache = self.decoder.init_cache(memory, source_bs.shape[0], beams, slots)
        return jnp.full(source_bs.shape[0], BOS, jnp.int32), cache

    def step(
        self, token_bm: Int[Array, "b m"], step: Int[Array, ""], cache: StackCache
    ) -> tuple[Float[Array, "b m v"], StackCache]:
        """Returns the logits after token `step` (from 0) of each of m beams, and the updated cache."""
        positions_bm = jnp.full(token_bm.shape, step, jnp.int32)
        x_bmd = self.target_embedding.encode(token_bm, positions_bm, None)
        # "At each step the model is auto-regressive": the newest token of every beam, all at one position.
        beams = Tokens(token_bm, None, positions_bm)
        x_bmd, cache, _ = self.decoder(x_bmd, beams, cache=cache)
        return self.target_embedding.logits(x_bmd), cache

    def attention_maps(self, source: Tokens, target: Tokens) -> dict[str, Float[Array, "n b h _ _"]]:
        """Returns all layers' and heads' weights: "encoder" [n,b,h,s,s], "decoder" [n,b,h,t,t], "cross" [n,b,h,t,s].

        With a mixer that has no weights, "cross" alone.
        """
        # As in `logit_factors`, but each stack also returns the weights of its layers.
        x_bsd = self.source_embedding.encode(source.ids_bt, source.positions_bt, None)
        memory_bsd, _, encoder_weights = self.encoder(x_bsd, source, return_weights=True)
        memory = self.decoder.memory(memory_bsd, source)
        x_btd = self.target_embedding.encode(target.ids_bt, target.positions_bt, None)
        _, _, decoder_weights = self.decoder(x_btd, target, memory, return_weights=True)
        cross = [block.cross_bhts for block in decoder_weights]
        # One array per kind, with the layers along a new first axis.
        maps = {"cross": jnp.stack(cross)}
        if self.config.mixer in WITH_WEIGHTS:
            encoder = [block.self_bhtt for block in encoder_weights]
            decoder = [block.self_bhtt for block in decoder_weights]
            maps["encoder"] = jnp.stack(encoder)
            maps["decoder"] = jnp.stack(decoder)
        return maps

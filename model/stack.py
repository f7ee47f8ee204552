"""A stack of N blocks: an encoder, a decoder, or a whole single-stack model."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from base.tokens import Tokens
from model.block import Block, BlockCache, Residual, Weights, layer_norm
from model.config import ModelConfig
from model.masks import Mask
from model.mixers.kv_cache import KeysValues
from model.noise import Noise, fold

# Rematerialisation. "full" recomputes a block's whole forward pass in the backward pass; "dots" saves its products with
# parameters (projections and feed-forward network) and recomputes attention, norms and dropout.
REMAT_POLICIES: dict[str, Any] = {"full": None, "dots": jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims}


class Memory(NamedTuple):
    """What a decoder's blocks attend to: each block's keys and values of the encoder's output."""

    keys_values: tuple[KeysValues, ...]
    segments_bs: Int[Array, "b s"]


class StackCache(NamedTuple):
    """A stack's cache during a search with m beams per sentence."""

    blocks: tuple[BlockCache, ...]
    memory_segments_bs: Int[Array, "b s"] | None

    def select(self, parents_bm: Int[Array, "b m"]) -> "StackCache":
        """Returns the cache in which beam i continues what was beam `parents_bm[:, i]`."""
        blocks = [block._replace(mixer=block.mixer.select(parents_bm)) for block in self.blocks]
        return self._replace(blocks=tuple(blocks))

    def grow(self, slots: int) -> "StackCache":
        """Returns the cache padded to `slots` slots."""
        blocks = [block._replace(mixer=block.mixer.grow(slots)) for block in self.blocks]
        return self._replace(blocks=tuple(blocks))


class Stack(nn.Module):
    """N blocks (section 3.1), with cross-attention if `cross`; pre-norm adds a final layer norm.

    `stacks` is how many the model has. With `config.share_layers` all N blocks have the same parameters, those of
    `layer_0`, as in the Universal Transformer (Dehghani et al. 2018, arXiv 1807.03819) without its halting and without
    its embeddings of the layer's number.
    """

    config: ModelConfig
    cross: bool
    causal: bool
    stacks: int = 1

    def setup(self) -> None:
        c = self.config
        residual = Residual.of(c, self.stacks, self.cross)
        own_layers = 1 if c.share_layers else c.N
        block: Any = Block
        if c.remat != "none":
            block = nn.remat(block, policy=REMAT_POLICIES[c.remat])
        self.layer = [block(c, self.cross, self.causal, residual) for _ in range(own_layers)]
        if c.norm == "pre":
            self.final_norm = layer_norm(c)
        self.shared: tuple[Array, ...] = ()
        if c.encoding.biases:
            init = nn.initializers.normal(c.d_model**-0.5)
            self.shared = (self.param("relative_bias", init, (c.encoding.biases, c.h)),)

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        tokens: Tokens,
        memory: Memory | None = None,
        noise: Noise | None = None,
        return_weights: bool = False,
        prefix: int = 0,
    ) -> tuple[Float[Array, "b t d"], list[Weights]]:
        """Returns the output for whole rows and, with `return_weights`, the attention weights of each block.

        In a causal stack, the first `prefix` positions of a row are visible from anywhere in their sentences.
        At initialisation and with `return_weights`, attention is the einsum and blocks are not scanned.

        Raises:
          ValueError: the rows are longer than the table of learned positions.
        """
        c = self.config
        self._check_length(tokens)
        is_plain = return_weights or self.is_initializing()
        uses_einsum = is_plain or c.attention_impl == "einsum"
        mask, memory_mask = self._masks(tokens, memory, prefix, uses_einsum)
        shared = self.shared

        def apply(layer: Block, x_btd: Array, keys_values: KeysValues | None, noise: Noise | None) -> Any:
            return layer(x_btd, tokens.positions_bt, mask, keys_values, memory_mask, noise, shared)

        weights = []
        if c.scan_layers and not is_plain:
            x_btd = self._scan(apply, x_btd, memory, noise)
        else:
            for n, (layer, keys_values) in enumerate(self._layers_and_memory(memory)):
                x_btd, weights_n = apply(layer, x_btd, keys_values, fold(noise, n))
                if return_weights:
                    weights.append(weights_n)
        if c.norm == "pre":
            x_btd = self.final_norm(x_btd)
        return x_btd, weights

    def _masks(self, tokens: Tokens, memory: Memory | None, prefix: int, uses_einsum: bool) -> tuple[Mask, Mask | None]:
        """Returns the masks of self-attention and of attention to a memory, dense where an einsum reads them."""
        mask = Mask(tokens.segments_bt, tokens.segments_bt, self.causal, prefix)
        if uses_einsum and self.config.mixer == "attention":
            mask = mask.with_dense()
        if memory is None:
            return mask, None
        memory_mask = Mask(tokens.segments_bt, memory.segments_bs)
        if uses_einsum:
            memory_mask = memory_mask.with_dense()
        return mask, memory_mask

    def _check_length(self, tokens: Tokens) -> None:
        """Raises a `ValueError` if rows are longer than the table of learned positions."""
        length = tokens.positions_bt.shape[1]
        limit = self.config.encoding.limit
        if limit is not None and length > limit:
            raise ValueError(f"a row of {length} tokens; model.max_positions is {limit}")

    def _layers(self) -> Sequence[Block]:
        """Returns the blocks in their order, which are N times the same where they share their parameters."""
        return self.layer * self.config.N if self.config.share_layers else self.layer

    def _layers_and_memory(self, memory: Memory | None) -> list[tuple[Block, KeysValues | None]]:
        """Returns the blocks in their order, each with what it attends to in a memory, if there is one."""
        layers = self._layers()
        if memory is None:
            return [(layer, None) for layer in layers]
        return list(zip(layers, memory.keys_values, strict=True))

    def _scan(self, apply: Any, x_btd: Array, memory: Memory | None, noise: Noise | None) -> Array:
        """Applies the blocks with a scan over layers, so that XLA compiles one block instead of N.

        The parameter tree stays as it is (`encoder/layer_0/..`); the layers are stacked here.
        """
        layers = []
        for n, (layer, keys_values) in enumerate(self._layers_and_memory(memory)):
            layers.append((layer.variables["params"], keys_values, fold(noise, n)))
        stacked_n = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
        module = self.layer[0].clone(parent=None)

        def body(x_btd: Array, layer: tuple[dict, KeysValues | None, Noise | None]) -> tuple[Array, None]:
            params, keys_values, noise_n = layer
            x_btd, _ = module.apply({"params": params}, x_btd, keys_values, noise_n, method=apply)
            return x_btd, None

        x_btd, _ = jax.lax.scan(body, x_btd, stacked_n)
        return x_btd

    def memory(self, x_bsd: Float[Array, "b s d"], tokens: Tokens) -> Memory:
        """Returns the memory that this stack attends to, given an encoder's output."""
        keys_values = tuple(layer.memory(x_bsd, tokens.positions_bt) for layer in self._layers())
        return Memory(keys_values, tokens.segments_bt)

    def init_cache(self, memory: Memory | None, rows: int, beams: int, slots: int) -> StackCache:
        """Returns an empty cache of `slots` slots; each step fills `beams` of them."""
        blocks = []
        for layer, keys_values in self._layers_and_memory(memory):
            blocks.append(layer.init_cache(keys_values, rows, beams, slots))
        memory_segments_bs = None if memory is None else memory.segments_bs
        return StackCache(tuple(blocks), memory_segments_bs)

    def prefill(self, x_btd: Float[Array, "b t d"], tokens: Tokens, cache: StackCache, prefix: int = 0) -> StackCache:
        """Returns the cache with whole rows that every beam begins with; padding takes slots that no beam can see."""
        self._check_length(tokens)
        mask = Mask(tokens.segments_bt, tokens.segments_bt, self.causal, prefix)
        blocks = []
        for layer, block in zip(self._layers(), cache.blocks, strict=True):
            x_btd, block = layer.prefill(x_btd, tokens.positions_bt, mask, block, self.shared)
            blocks.append(block)
        return cache._replace(blocks=tuple(blocks))

    def step(
        self, x_bmd: Float[Array, "b m d"], positions_bm: Int[Array, "b m"], cache: StackCache
    ) -> tuple[Float[Array, "b m d"], StackCache]:
        """Returns the output for the next token of each of m beams, and the updated cache."""
        memory_mask = None
        if cache.memory_segments_bs is not None:
            real_bs = cache.memory_segments_bs != 0
            shape_bms = (*positions_bm.shape, real_bs.shape[1])
            visible_bms = jnp.broadcast_to(real_bs[:, None], shape_bms)
            memory_mask = Mask(dense_bts=visible_bms)
        blocks = []
        for layer, block in zip(self._layers(), cache.blocks, strict=True):
            x_bmd, block = layer.step(x_bmd, positions_bm, block, memory_mask, self.shared)
            blocks.append(block)
        if self.config.norm == "pre":
            x_bmd = self.final_norm(x_bmd)
        return x_bmd, cache._replace(blocks=tuple(blocks))

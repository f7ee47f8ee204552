"""A stack of N blocks: an encoder, a decoder, or a whole single-stack model."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.model.block import Block, Residual, Weights, layer_norm
from vaswani.model.config import ModelConfig
from vaswani.model.decoding import Cache
from vaswani.model.masks import Mask
from vaswani.model.mixers.kernels import chosen
from vaswani.model.mixers.kv_cache import KeysValues, StoredKeysValues
from vaswani.model.noise import Noise, fold
from vaswani.model.positions import encoding_of
from vaswani.tokens import Tokens

# Rematerialisation. "full" recomputes a block's whole forward pass in the backward pass; "dots" saves its products with
# parameters (projections and feed-forward network) and recomputes attention, norms and dropout.
REMAT_POLICIES: dict[str, Callable[..., bool] | None] = {
    "full": None,
    "dots": jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims,
}


class Memory(NamedTuple):
    """What a decoder's blocks attend to: each block's keys and values of the encoder's output."""

    keys_values: tuple[KeysValues, ...]
    segments_bs: Int[Array, "b s"]


class StackCache(NamedTuple):
    """A stack's cache during a search with m beams per sentence.

    The memory's keys and values are stored once per sentence and shared by its beams.
    """

    blocks: tuple[Cache, ...]  # of each block's mixer
    stored: tuple[StoredKeysValues, ...]  # of each block's memory
    memory_segments_bs: Int[Array, "b s"] | None

    def memory(self) -> Memory | None:
        """Returns the memory as the blocks take it."""
        if self.memory_segments_bs is None:
            return None
        return Memory(tuple(stored.keys_values() for stored in self.stored), self.memory_segments_bs)

    def select(self, parents_bm: Int[Array, "b m"]) -> "StackCache":
        """Returns the cache in which beam i continues what was beam `parents_bm[:, i]`."""
        return self._replace(blocks=tuple(block.select(parents_bm) for block in self.blocks))

    def grow(self, slots: int) -> "StackCache":
        """Returns the cache padded to `slots` slots."""
        return self._replace(blocks=tuple(block.grow(slots) for block in self.blocks))


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
        # "The encoder is composed of a stack of N = 6 identical layers"; so is the decoder.
        residual = Residual.of(c, self.stacks, self.cross)
        own_layers = 1 if c.share_layers else self.depth
        block = Block
        if c.remat != "none":
            # The backward pass then computes again what the policy does not save.
            block = nn.remat(block, policy=REMAT_POLICIES[c.remat])
        self.layer = [block(c, self.cross, self.causal, residual) for _ in range(own_layers)]
        if c.norm == "pre":
            self.final_norm = layer_norm(c)
        # What all layers read but none owns: T5's table of biases, one number per bucket and head.
        self.shared: tuple[Array, ...] = ()
        if biases := encoding_of(c).biases:
            init = nn.initializers.normal(c.d_model**-0.5)
            self.shared = (self.param("relative_bias", init, (biases, c.h)),)

    @property
    def depth(self) -> int:
        """The number of blocks: N, but for an encoder or a decoder of another depth."""
        if self.stacks == 1:
            return self.config.N
        encoder, decoder = self.config.depths
        return decoder if self.cross else encoder

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        tokens: Tokens,
        memory: Memory | None = None,
        cache: StackCache | None = None,
        noise: Noise | None = None,
        return_weights: bool = False,
        prefix: int = 0,
    ) -> tuple[Float[Array, "b t d"], Any, list[Weights]]:
        """Returns the output, the cache with x and, with `return_weights`, the attention weights of each block.

        x are whole rows or, if `tokens` have no segments, one more token of each beam, with a cache. A cache holds the
        memory. In a causal stack, the first `prefix` positions of a row are visible from anywhere in their sentences.
        At initialisation and with `return_weights`, attention is the einsum and blocks are not scanned.

        Raises:
          ValueError: the rows are longer than the table of learned positions.
        """
        c = self.config
        # Weights cannot leave a scan or a kernel, and parameters are made layer by layer.
        is_plain = return_weights or self.is_initializing()
        if cache is not None:
            # A search computes the keys and values of the source once, not in every step.
            memory = cache.memory()
        mask, memory_mask = self._masks(tokens, memory, prefix, is_plain)

        caches = []
        weights = []
        if c.scan_layers and cache is None and not is_plain:
            x_btd = self._scan(x_btd, tokens.positions_bt, mask, memory, memory_mask, noise)
        else:
            for n, (layer, keys_values) in enumerate(self._layers_and_memory(memory)):
                # The output of a layer is the input of the next: x stays [b,t,d].
                block_cache = None if cache is None else cache.blocks[n]
                x_btd, block_cache, block_weights = layer(
                    x_btd,
                    tokens.positions_bt,
                    mask,
                    block_cache,
                    keys_values,
                    memory_mask,
                    fold(noise, n),
                    self.shared,
                )
                if block_cache is not None:
                    caches.append(block_cache)
                weights.append(block_weights)

        if cache is not None:
            cache = cache._replace(blocks=tuple(caches))
        # Post-norm ends every block with a norm, pre-norm only the stack.
        if c.norm == "pre":
            x_btd = self.final_norm(x_btd)
        return x_btd, cache, weights if return_weights else []

    def _masks(
        self, tokens: Tokens, memory: Memory | None, prefix: int, is_plain: bool
    ) -> tuple[Mask | None, Mask | None]:
        """Returns the masks of self-attention and of attention to a memory, each with its kernel or dense.

        That of self-attention is None for one more token of each beam, to which the cache shows what is before it.
        """
        segments_bt = tokens.segments_bt
        mask = None
        if segments_bt is None:
            # A search has one sentence in a row, of segment 1.
            segments_bt = jnp.ones_like(tokens.positions_bt)
            is_plain = True
        else:
            self._check_length(tokens)
            # Self-attention: to one's own sentence and, in a decoder, to no later position (section 3.2.3).
            mask = Mask(segments_bt, segments_bt, self.causal, prefix)
            if self.config.mixer == "attention":
                mask = self._with_kernel(mask, is_plain)
        if memory is None:
            return mask, None
        # Encoder-decoder attention: to all of the source of one's own sentence.
        return mask, self._with_kernel(Mask(segments_bt, memory.segments_bs), is_plain)

    def _with_kernel(self, mask: Mask, is_plain: bool) -> Mask:
        """Returns the mask with the kernel that all layers use, or dense for the einsum: with `is_plain` always."""
        impl = "einsum"
        if not is_plain:
            impl = chosen(self.config, mask.queries_bt.shape[1], mask.keys_bs.shape[1])
        return mask.with_dense() if impl == "einsum" else mask.replace(kernel=impl)

    def _check_length(self, tokens: Tokens) -> None:
        """Raises a `ValueError` if rows are longer than the table of learned positions."""
        length = tokens.positions_bt.shape[1]
        limit = self.config.limit
        # An index beyond a table would be clamped by XLA, without an error.
        if limit is not None and length > limit:
            raise ValueError(f"a row of {length} tokens; model.max_positions is {limit}")

    def _layers(self) -> Sequence[Block]:
        """Returns the blocks in their order, which are N times the same where they share their parameters."""
        return self.layer * self.depth if self.config.share_layers else self.layer

    def _layers_and_memory(self, memory: Memory | None) -> list[tuple[Block, KeysValues | None]]:
        """Returns the blocks in their order, each with what it attends to in a memory, if there is one."""
        layers = self._layers()
        if memory is None:
            return [(layer, None) for layer in layers]
        return list(zip(layers, memory.keys_values, strict=True))

    def _scan(
        self,
        x_btd: Array,
        positions_bt: Array,
        mask: Mask | None,
        memory: Memory | None,
        memory_mask: Mask | None,
        noise: Noise | None,
    ) -> Array:
        """Applies the blocks with a scan over layers, so that XLA compiles one block instead of N.

        The parameter tree stays as it is (`encoder/layer_0/..`); the layers are stacked here.
        """
        # One pytree with the parameters, memory and noise of all layers, along a new first axis n.
        layers = []
        for n, (layer, keys_values) in enumerate(self._layers_and_memory(memory)):
            layers.append((layer.variables["params"], keys_values, fold(noise, n)))
        stacked_n = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
        # Unbound, so that it is applied to each layer's parameters in turn.
        module = self.layer[0].clone(parent=None)
        shared = self.shared

        def body(x_btd: Array, layer: tuple[dict, KeysValues | None, Noise | None]) -> tuple[Array, None]:
            params, keys_values, noise_n = layer
            x_btd, _, _ = module.apply(
                {"params": params}, x_btd, positions_bt, mask, None, keys_values, memory_mask, noise_n, shared
            )
            return x_btd, None

        x_btd, _ = jax.lax.scan(body, x_btd, stacked_n)
        return x_btd

    def memory(self, x_bsd: Float[Array, "b s d"], tokens: Tokens) -> Memory:
        """Returns the memory that this stack attends to, given an encoder's output."""
        # Each layer has its own W^K and W^V for the same output of the encoder.
        keys_values = tuple(layer.memory(x_bsd, tokens.positions_bt) for layer in self._layers())
        return Memory(keys_values, tokens.segments_bt)

    def init_cache(self, memory: Memory | None, rows: int, beams: int, slots: int) -> StackCache:
        """Returns an empty cache of `slots` slots; each step fills `beams` of them."""
        blocks = tuple(layer.init_cache(rows, beams, slots) for layer in self._layers())
        if memory is None:
            return StackCache(blocks, (), None)
        # Laid out once for the products of a search, see `StoredKeysValues`.
        stored = tuple(StoredKeysValues.of(keys_values) for keys_values in memory.keys_values)
        return StackCache(blocks, stored, memory.segments_bs)

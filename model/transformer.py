"""The encoder-decoder Transformer (Figure 1), from token ids to logits."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from model.attention import KeysValues
from model.cache import DecodeCache
from model.config import ModelConfig
from model.dropout import Dropout
from model.layers import DecoderLayer, EncoderLayer, layer_norm
from model.masks import Segments
from model.positions import sinusoids
from model.scan import scan

# What of a layer's forward pass is kept for its backward pass: nothing, or its products with parameters (projections
# and feed-forward network), so that attention, norms and dropout are computed again.
REMAT_POLICIES: dict[Any, Any] = {"full": None, "dots": jax.checkpoint_policies.checkpoint_dots_with_no_batch_dims}


def _layers(layer: Any, config: ModelConfig) -> list[Any]:
    """N layers of this class, which compute again in the backward pass what `config.remat` says."""
    if config.remat != "none":
        layer = nn.remat(layer, policy=REMAT_POLICIES[config.remat])
    return [layer(config) for _ in range(config.N)]


class Encoder(nn.Module):
    """N encoder layers (section 3.1)."""

    config: ModelConfig

    def setup(self) -> None:
        self.layer = _layers(EncoderLayer, self.config)
        if self.config.norm == "pre":
            self.final_norm = layer_norm(self.config)

    def __call__(
        self,
        x_bsd: Float[Array, "b s d"],
        positions_bs: Int[Array, "b s"],
        mask: Bool[Array, "b s s"] | Segments,
        rows_b: Int[Array, " b"] | None,
        plain: bool,
    ) -> tuple[Float[Array, "b s d"], list[Any]]:
        """Returns the encoder's output and, where it is `plain`, every layer's attention weights [b,h,s,s]."""
        weights = []
        if self.config.scan_layers and not plain:
            x_bsd = scan(self.layer, lambda layer, x_bsd: layer(x_bsd, positions_bs, mask, rows_b)[0], x_bsd, rows_b)
        else:
            for layer in self.layer:
                x_bsd, weights_bhss = layer(x_bsd, positions_bs, mask, rows_b)
                weights.append(weights_bhss)
        return self.final_norm(x_bsd) if self.config.norm == "pre" else x_bsd, weights


class Decoder(nn.Module):
    """N decoder layers (section 3.1), for whole targets at once or for one step of a search."""

    config: ModelConfig

    def setup(self) -> None:
        self.layer = _layers(DecoderLayer, self.config)
        if self.config.norm == "pre":
            self.final_norm = layer_norm(self.config)

    def source(self, memory_bsd: Float[Array, "b s d"], positions_bs: Int[Array, "b s"]) -> tuple[KeysValues, ...]:
        """Every layer's keys and values of the encoder's output."""
        return tuple(layer.source(memory_bsd, positions_bs) for layer in self.layer)

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        self_mask: Bool[Array, "b t c"] | Segments,
        source: tuple[KeysValues, ...],
        source_mask: Bool[Array, "b t s"] | Segments,
        rows_b: Int[Array, " b"] | None,
        plain: bool,
        past: tuple[KeysValues, ...] | None = None,
        slot: Int[Array, ""] | None = None,
    ) -> tuple[Float[Array, "b t d"], tuple[KeysValues, ...], list[Any], list[Any]]:
        """Returns the output and, where it is `plain`, of every layer what self-attention saw and both weights."""
        seen, self_weights, cross_weights = [], [], []
        if self.config.scan_layers and not plain:

            def apply(layer: DecoderLayer, x_btd: Array, source_n: KeysValues) -> Array:
                return layer(x_btd, positions_bt, self_mask, source_n, source_mask, rows_b)[0]

            x_btd = scan(self.layer, apply, x_btd, rows_b, source)
        else:
            for n, layer in enumerate(self.layer):
                x_btd, seen_n, self_bhtc, cross_bhts = layer(
                    x_btd, positions_bt, self_mask, source[n], source_mask, rows_b, past[n] if past else None, slot
                )
                seen.append(seen_n)
                self_weights.append(self_bhtc)
                cross_weights.append(cross_bhts)
        if self.config.norm == "pre":
            x_btd = self.final_norm(x_btd)
        return x_btd, tuple(seen), self_weights, cross_weights


class Transformer(nn.Module):
    """The model of the paper. Ids are subwords, 0 is padding; segments tell the sentences of a packed row apart.

    Where segments are not given, every id but 0 belongs to the row's one sentence; where positions are not given,
    tokens are numbered from 0 along the row. `train` turns dropout on; it goes by the rows' numbers in their batch,
    `rows_b`, so that a part of a batch is treated as it would be in the whole. They count from 0 where not given.

    Initialisation, attention maps and cached decoding are `plain`: attention is the einsum, and layers are not scanned.

    Raises:
      ValueError: learned positions, and a row longer than their table.
    """

    config: ModelConfig

    def setup(self) -> None:
        c = self.config
        init = nn.initializers.normal(c.d_model**-0.5)
        if c.tie_embeddings:
            embed = self.param("embed", init, (c.vocab_size, c.d_model))
            self.source_embed = self.target_embed = self.softmax = embed
        else:
            self.source_embed = self.param("source_embed", init, (c.vocab_size, c.d_model))
            self.target_embed = self.param("target_embed", init, (c.vocab_size, c.d_model))
            self.softmax = self.param("softmax", init, (c.vocab_size, c.d_model))
        if c.positions == "learned":
            self.source_positions = self.param("source_positions", init, (c.max_positions, c.d_model))
            self.target_positions = self.param("target_positions", init, (c.max_positions, c.d_model))
        self.encoder, self.decoder = Encoder(c), Decoder(c)
        self.dropout = Dropout(c.P_drop, c.dropout_bits)

    def __call__(
        self,
        source_bs: Int[Array, "b s"],
        target_bt: Int[Array, "b t"],
        source_segments_bs: Int[Array, "b s"] | None = None,
        target_segments_bt: Int[Array, "b t"] | None = None,
        source_positions_bs: Int[Array, "b s"] | None = None,
        target_positions_bt: Int[Array, "b t"] | None = None,
        train: bool = False,
        rows_b: Int[Array, " b"] | None = None,
    ) -> Float[Array, "b t v"]:
        """Logits of each target token given the source and the decoder inputs up to it (target shifted right)."""
        source_segments_bs = _segments(source_bs, source_segments_bs)
        memory_bsd = self.encode(source_bs, source_segments_bs, source_positions_bs, train, rows_b)
        return self.decode(
            target_bt,
            memory_bsd,
            source_segments_bs,
            target_segments_bt,
            source_positions_bs,
            target_positions_bt,
            train,
            rows_b,
        )

    def encode(
        self,
        source_bs: Int[Array, "b s"],
        source_segments_bs: Int[Array, "b s"] | None = None,
        source_positions_bs: Int[Array, "b s"] | None = None,
        train: bool = False,
        rows_b: Int[Array, " b"] | None = None,
    ) -> Float[Array, "b s d"]:
        """The encoder's output."""
        return self._encode(source_bs, source_segments_bs, source_positions_bs, _rows(source_bs, train, rows_b))[0]

    def decode(
        self,
        target_bt: Int[Array, "b t"],
        memory_bsd: Float[Array, "b s d"],
        source_segments_bs: Int[Array, "b s"],
        target_segments_bt: Int[Array, "b t"] | None = None,
        source_positions_bs: Int[Array, "b s"] | None = None,
        target_positions_bt: Int[Array, "b t"] | None = None,
        train: bool = False,
        rows_b: Int[Array, " b"] | None = None,
    ) -> Float[Array, "b t v"]:
        """Logits of whole targets (teacher forcing)."""
        source = self.decoder.source(memory_bsd, _positions(source_segments_bs, source_positions_bs))
        rows_b = _rows(target_bt, train, rows_b)
        return self._decode(target_bt, source, source_segments_bs, target_segments_bt, target_positions_bt, rows_b)[0]

    def start_cache(
        self, memory_bsd: Float[Array, "b s d"], source_segments_bs: Int[Array, "b s"], slots: int
    ) -> DecodeCache:
        """An empty cache with the source's keys and values, once a sentence, and room for `slots` slots."""
        c, b = self.config, memory_bsd.shape[0]
        empty = KeysValues(
            jnp.zeros((b, c.h, slots, c.d_k), memory_bsd.dtype),
            jnp.zeros((b, c.h, slots, c.d_v), memory_bsd.dtype),
            jnp.zeros((b, slots), jnp.int32),
        )
        source = self.decoder.source(memory_bsd, _positions(source_segments_bs, None))
        return DecodeCache((empty,) * c.N, source, source_segments_bs)

    def decode_step(
        self,
        token_bm: Int[Array, "b m"],
        step: Int[Array, ""],
        visible_bmc: Bool[Array, "b m c"],
        cache: DecodeCache,
    ) -> tuple[Float[Array, "b m v"], DecodeCache]:
        """Logits after one more token of each of m beams, and the cache with its keys and values.

        Beams are queries: beam i writes slot step * m + i and sees the slots `visible_bmc` says, its own new one
        among them.
        """
        m = token_bm.shape[1]
        positions_bm = jnp.full(token_bm.shape, step, jnp.int32)
        x_bmd = self._embed(token_bm, positions_bm, "target", None)
        source_mask_bms = jnp.broadcast_to(
            (cache.source_segments_bs != 0)[:, None], (*token_bm.shape, cache.source_segments_bs.shape[1])
        )
        x_bmd, past, _, _ = self.decoder(
            x_bmd, positions_bm, visible_bmc, cache.source, source_mask_bms, None, True, cache.past, step * m
        )
        return self._logits(x_bmd), cache._replace(past=past)

    def attention_maps(
        self, source_bs: Int[Array, "b s"], target_bt: Int[Array, "b t"]
    ) -> dict[str, Float[Array, "n b h _ _"]]:
        """Weights of all layers and heads: "encoder" [n,b,h,s,s], "decoder" [n,b,h,t,t], "cross" [n,b,h,t,s]."""
        segments_bs = _segments(source_bs, None)
        memory_bsd, encoder = self._encode(source_bs, segments_bs, None, None, plain=True)
        source = self.decoder.source(memory_bsd, _positions(segments_bs, None))
        _, decoder, cross = self._decode(target_bt, source, segments_bs, None, None, None, plain=True)
        return {"encoder": jnp.stack(encoder), "decoder": jnp.stack(decoder), "cross": jnp.stack(cross)}

    def _encode(
        self,
        source_bs: Array,
        segments_bs: Array | None,
        positions_bs: Array | None,
        rows_b: Array | None,
        plain: bool = False,
    ) -> tuple[Array, list[Any]]:
        segments_bs = _segments(source_bs, segments_bs)
        positions_bs = _positions(source_bs, positions_bs)
        x_bsd = self._embed(source_bs, positions_bs, "source", rows_b)
        plain = plain or self.is_initializing()
        mask = self._mask(Segments(segments_bs, segments_bs), plain)
        return self.encoder(x_bsd, positions_bs, mask, rows_b, plain)

    def _decode(
        self,
        target_bt: Array,
        source: tuple[KeysValues, ...],
        source_segments_bs: Array,
        segments_bt: Array | None,
        positions_bt: Array | None,
        rows_b: Array | None,
        plain: bool = False,
    ) -> tuple[Array, list[Any], list[Any]]:
        segments_bt = _segments(target_bt, segments_bt)
        positions_bt = _positions(target_bt, positions_bt)
        x_btd = self._embed(target_bt, positions_bt, "target", rows_b)
        plain = plain or self.is_initializing()
        source_mask = self._mask(Segments(segments_bt, source_segments_bs), plain)
        mask = self._mask(Segments(segments_bt, segments_bt, causal=True), plain)
        x_btd, _, weights, cross_weights = self.decoder(x_btd, positions_bt, mask, source, source_mask, rows_b, plain)
        return self._logits(x_btd), weights, cross_weights

    def _mask(self, segments: Segments, plain: bool) -> Segments | Array:
        """The mask as a kernel takes it where one attends, and else as the einsum does."""
        return segments.table() if plain or self.config.attention_impl == "einsum" else segments

    def _embed(self, ids_bt: Array, positions_bt: Array, side: str, rows_b: Array | None) -> Array:
        """Embeddings scaled by sqrt(d_model), plus positions, then dropout (sections 3.4, 3.5, 5.4)."""
        c = self.config
        embed_vd = self.source_embed if side == "source" else self.target_embed
        x_btd = embed_vd[ids_bt] * jnp.sqrt(jnp.float32(c.d_model))
        if c.positions == "sinusoidal":
            x_btd = x_btd + sinusoids(positions_bt, c.d_model)
        elif c.positions == "learned":
            if ids_bt.shape[1] > c.max_positions:
                raise ValueError(f"a row of {ids_bt.shape[1]} tokens; model.max_positions is {c.max_positions}")
            table_ld = self.source_positions if side == "source" else self.target_positions
            x_btd = x_btd + table_ld[positions_bt]
        return self.dropout(x_btd.astype(c.dtype), rows_b)

    def _logits(self, x_btd: Array) -> Array:
        """Logits x E^T, not scaled, without a bias (section 3.4); float32."""
        softmax_vd = self.softmax.astype(x_btd.dtype)
        return jnp.einsum("btd,vd->btv", x_btd, softmax_vd, preferred_element_type=jnp.float32)


def _segments(ids_bt: Array, segments_bt: Array | None) -> Array:
    return (ids_bt != 0).astype(jnp.int32) if segments_bt is None else segments_bt


def _positions(ids_bt: Array, positions_bt: Array | None) -> Array:
    row_t = jnp.arange(ids_bt.shape[1], dtype=jnp.int32)
    return jnp.broadcast_to(row_t[None], ids_bt.shape) if positions_bt is None else positions_bt


def _rows(ids_bt: Array, train: bool, rows_b: Array | None) -> Array | None:
    """Row numbers for dropout, or None where there is to be none."""
    if not train:
        return None
    return jnp.arange(ids_bt.shape[0], dtype=jnp.int32) if rows_b is None else rows_b


def init_params(config: ModelConfig, key: PRNGKeyArray) -> dict:
    """Fresh float32 parameters: Glorot-uniform matrices, embeddings N(0, 1/d_model), zero biases (tensor2tensor's)."""
    token_11 = jnp.ones((1, 1), jnp.int32)
    return jax.jit(Transformer(config).init)(key, token_11, token_11)["params"]

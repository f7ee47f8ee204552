"""Translation by recurrent networks: the models that the Transformer replaced.

An encoder of N recurrent layers reads the source, and a decoder of N layers writes the target, one token a step. The
decoder's layers begin with the last states of the encoder's. `config.recurrent` is what else it knows of the source:

- "fixed" (Sutskever et al. 2014, arXiv 1409.3215): nothing, so that those states have to hold the whole sentence. The
  encoder reads from right to left, which they found to help.
- "additive" (Bahdanau et al. 2015, arXiv 1409.0473): the encoder reads in both directions, and the decoder attends to
  its outputs h_j. With the state s of its first layer before the step, a_j = softmax(v tanh(W s + U h_j)); the context
  sum a_j h_j enters the cells of all layers, as in GNMT (Wu et al. 2016, section 3). Where Bahdanau et al. begin with
  tanh(W h_1) of the backward network and end in a maxout layer, this begins with the states themselves and ends in the
  same output layer as "dot".
- "dot" (Luong et al. 2015, arXiv 1508.04025, "global attention", without input feeding): the same encoder; with the
  output s of the last layer, a_j = softmax(s h_j). The context does not enter the cells.

With attention, what is multiplied by the softmax's matrix is tanh(W [s; context]). `config.cell` is an LSTM or a GRU,
Flax's, whose GRU resets after the product with its matrix, as cuDNN's and PyTorch's do.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from vaswani.configs.rules import broken
from vaswani.ids import BOS
from vaswani.model.attention import additive_scores, attention, dot_products
from vaswani.model.config import DEFAULTS, CommonConfig
from vaswani.model.decoding import take_beams, translation_limits
from vaswani.model.embed import embeddings, logits_of
from vaswani.model.masks import NO_SEGMENT, Mask
from vaswani.model.noise import Noise, dropout, fold
from vaswani.model.parameters import ONE_TOKEN
from vaswani.model.types import Leaf
from vaswani.tokens import Tokens

# Where the model draws noise.
SOURCE, ENCODER, TARGET, DECODER = range(4)
CELLS: dict[str, type[nn.Module]] = {"lstm": nn.OptimizedLSTMCell, "gru": nn.GRUCell}

State = Leaf | tuple[Leaf, Leaf]  # of a layer: the GRU's output, or the LSTM's cell and output; in float32


@dataclasses.dataclass(frozen=True)
class RecurrentConfig(CommonConfig):
    """Sizes and variants of one recurrent translator.

    Raises:
      ValueError: a field is out of its range, or two do not go together (configs/rules.py); the message names them.
    """

    recurrent: str = dataclasses.field(kw_only=True)
    cell: str = "lstm"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.recurrent == "none":
            raise ValueError("model.recurrent is 'none'; it must be one of fixed, additive, dot")

    @classmethod
    def of(cls, vocab_size: int, keys: Mapping[str, Any]) -> "RecurrentConfig":
        """Makes the config of `config.model`, whose keys are those of every model.

        Raises:
          ValueError: a key is set that this model would ignore. Sizes, like h, have no value that is off: any will do.
        """
        if fault := broken({f"model.{key}": value for key, value in keys.items()}, DEFAULTS):
            raise ValueError(fault)
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(vocab_size, **{key: value for key, value in keys.items() if key in names})

    @property
    def directions(self) -> int:
        """In how many directions the source is read: both if the decoder attends to it."""
        return 1 if self.recurrent == "fixed" else 2


class Memory(NamedTuple):
    """What the decoder attends to: the encoder's outputs, and U h_j of them."""

    outputs_bsd: Float[Array, "b s d"]
    keys_bsd: Float[Array, "b s d"] | None  # None unless "additive"


class RecurrentCache(struct.PyTreeNode):
    """What a search remembers: the state of each layer of each beam, and the source, which all beams share."""

    states: tuple[State, ...]  # of each layer, [b,m,d]
    memory: Memory
    visible_b1s: Leaf  # bool, where the source has tokens

    def select(self, parents_bm: Int[Array, "b m"]) -> "RecurrentCache":
        """Returns the cache in which beam i goes on from what was beam `parents_bm[:, i]`."""
        # A state is gathered, unlike keys and values: each beam has its own, [b,m,d].
        return self.replace(states=jax.tree.map(lambda x_bmd: take_beams(x_bmd, parents_bm), self.states))

    def grow(self, slots: int) -> "RecurrentCache":
        """Returns the cache itself, which needs no more room."""
        return self


class EncoderLayer(nn.Module):
    """One layer of the encoder: a network from right to left, and with attention one of each direction, half as wide.

    The state begins at 0 in every sentence, so that neither padding nor other sentences of the row change anything.
    """

    config: RecurrentConfig

    def setup(self) -> None:
        width = self.config.d_model // self.config.directions
        if self.config.directions == 2:
            self.forward = _cell(self.config, width)
        self.backward = _cell(self.config, width)

    def __call__(self, x_bsd: Float[Array, "b s d"], segments_bs: Int[Array, "b s"]) -> tuple[State | None, State]:
        """Returns the states [b,s,e] after each position: read from left to right (or None), and from right to left."""
        # From right to left, so that the decoder, which begins with the last state, begins near the first word.
        backward = self._read(self.backward, x_bsd, segments_bs, reverse=True)
        if self.config.directions == 1:
            return None, backward
        return self._read(self.forward, x_bsd, segments_bs, reverse=False), backward

    def _read(self, cell: nn.Module, x_bsd: Array, segments_bs: Array, *, reverse: bool) -> State:
        def step(cell: nn.Module, state: State, x_bd: Array, first_b: Array) -> tuple[State, State]:
            # Where a sentence begins, whatever was read before it is forgotten.
            state = jax.tree.map(lambda old_be: jnp.where(first_b[:, None], 0, old_be), state)
            state, _ = cell(state, x_bd)
            return state, state

        # The cell's parameters are the same at every position, which are the second axis.
        scan = nn.scan(
            step, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1, reverse=reverse
        )
        # A state of zeros; the key is not used.
        zero = cell.initialize_carry(jax.random.key(0), x_bsd[:, 0].shape)
        _, states = scan(cell, zero, x_bsd, first_of_sentence(segments_bs, reverse=reverse))
        return states


class Encoder(nn.Module):
    """The layers of the encoder, one on the other."""

    config: RecurrentConfig

    def setup(self) -> None:
        self.layer = [EncoderLayer(self.config) for _ in range(self.config.N)]

    def __call__(
        self,
        x_bsd: Float[Array, "b s d"],
        segments_bs: Int[Array, "b s"],
        segments_bt: Int[Array, "b t"],
        noise: Noise | None = None,
    ) -> tuple[Float[Array, "b s d"], tuple[State, ...]]:
        """Returns the outputs of the last layer, and of every layer its last state in each sentence `segments_bt`."""
        c = self.config
        # Where each target's own source begins and ends in its row, [b,t].
        same_bts = Mask(segments_bt, segments_bs).dense()
        first_bt = jnp.argmax(same_bts, axis=2)
        last_bt = segments_bs.shape[1] - 1 - jnp.argmax(same_bts[:, :, ::-1], axis=2)
        states = []
        # The outputs [b,s,d] of a layer are the inputs of the next.
        for number, layer in enumerate(self.layer):
            forward, backward = layer(x_bsd, segments_bs)
            x_bsd = _output(backward)
            # What a direction has read at its end is the whole sentence.
            state = at(backward, first_bt)
            if forward is not None:
                # Both directions are half as wide: together [b,s,d], and so is the state.
                x_bsd = _joined(_output(forward), x_bsd)
                state = jax.tree.map(_joined, at(forward, last_bt), state)
            x_bsd = dropout(x_bsd.astype(c.dtype), c.P_drop, fold(noise, number))
            states.append(state)
        return x_bsd, tuple(states)


class Decoder(nn.Module):
    """One step of the decoder."""

    config: RecurrentConfig

    def setup(self) -> None:
        c = self.config
        self.layer = [_cell(c, c.d_model) for _ in range(c.N)]
        if c.recurrent == "additive":
            self.key = self._linear()
            self.query = self._linear()
            self.energy = self.param("energy", nn.initializers.normal(c.d_model**-0.5), (c.d_model,))
        if c.recurrent != "fixed":
            self.output = self._linear()

    def keys(self, outputs_bsd: Float[Array, "b s d"]) -> Float[Array, "b s d"] | None:
        """Returns U h_j, which is the same in every step."""
        return self.key(outputs_bsd) if self.config.recurrent == "additive" else None

    def __call__(
        self,
        states: tuple[State, ...],
        x_bmd: Float[Array, "b m d"],
        memory: Memory,
        visible_bms: Bool[Array, "b _ s"],
        noise: Noise | None = None,
    ) -> tuple[tuple[State, ...], tuple[Float[Array, "b m d"], Float[Array, "b m s"] | None]]:
        """Returns the states after one more token of each of m beams, the output, and the attention weights, if any."""
        c = self.config
        weights_bms = None
        context_bmd = None
        if c.recurrent == "additive":
            # Bahdanau: the context is known before the step, from the state that the last step left.
            assert memory.keys_bsd is not None
            query_bmd = self.query(_output(states[0]).astype(c.dtype))
            scores = partial(additive_scores, energy_hk=self.energy[None])
            context_bmd, weights_bms = attend(query_bmd, memory.keys_bsd, memory.outputs_bsd, visible_bms, scores)
        after = []
        # The layers, one on the other, each from its own state before the step.
        for number, (cell, state) in enumerate(zip(self.layer, states, strict=True)):
            # In names, m are the beams of a search; in training there is one.
            inputs_bmd = x_bmd
            if context_bmd is not None:
                inputs_bmd = _joined(x_bmd, context_bmd)
            state, x_bmd = cell(state, inputs_bmd)
            x_bmd = dropout(x_bmd.astype(c.dtype), c.P_drop, fold(noise, number))
            after.append(state)
        if c.recurrent == "dot":
            # Luong: the context is known after the step, from its output.
            outputs_bsd = memory.outputs_bsd
            context_bmd, weights_bms = attend(x_bmd, outputs_bsd, outputs_bsd, visible_bms, dot_products)
        if context_bmd is not None:
            # [output; context] -> d_model, which the softmax's matrix takes.
            x_bmd = jnp.tanh(self.output(_joined(x_bmd, context_bmd)))
        return tuple(after), (x_bmd, weights_bms)

    def _linear(self) -> nn.Dense:
        return nn.Dense(self.config.d_model, use_bias=False, dtype=self.config.dtype)


class RecurrentTranslator(nn.Module):
    """Logits of the target given the source, with the interface of `Transformer` for training and search.

    Passing `noise` turns dropout on: of embeddings, and of every layer's output (Zaremba et al. 2014).
    """

    config: RecurrentConfig
    smallest_inputs = (ONE_TOKEN, ONE_TOKEN)

    def setup(self) -> None:
        c = self.config
        self.source_embedding, self.target_embedding = embeddings(self, "source_", "target_")
        self.encoder = Encoder(c)
        self.decoder = Decoder(c)

    def __call__(self, source: Tokens, target: Tokens, noise: Noise | None = None) -> Float[Array, "b t v"]:
        """Returns the logits of the next token at each position of `target`, which is already shifted right."""
        x_btc, softmax_vc = self.logit_factors(source, target, noise)
        return logits_of(x_btc, softmax_vc)

    def logit_factors(
        self, source: Tokens, target: Tokens, noise: Noise | None = None
    ) -> tuple[Float[Array, "b t c"], Float[Array, "v c"]]:
        """Returns the two factors of the logits, see `Embedding.logit_factors`."""
        x_btd, _ = self._decode(source, target, noise)
        return self.target_embedding.logit_factors(x_btd)

    def attention_maps(self, source: Tokens, target: Tokens) -> dict[str, Float[Array, "n b h t s"]]:
        """Returns the weights as "cross", of one layer and one head; none if `config.recurrent` is "fixed"."""
        _, weights_bts = self._decode(source, target, None)
        if weights_bts is None:
            return {}
        return {"cross": weights_bts[None, :, None]}

    @nn.nowrap
    def output_limits(self, source_bs: Int[Array, "b s"], extra_length: int) -> tuple[Int[Array, " b"], int]:
        """Returns `translation_limits`; recurrent networks have none of their own."""
        return translation_limits(source_bs, extra_length, None)

    def start(self, source_bs: Int[Array, "b s"], beams: int, slots: int) -> tuple[Int[Array, " b"], RecurrentCache]:
        """Returns the first token of every search, BOS, and the cache of its source."""
        rows = source_bs.shape[0]
        source = Tokens.of(source_bs)
        sentence_b1 = jnp.ones((rows, 1), jnp.int32)
        # One target sentence per row, so its first states are [b,1,d].
        memory, states = self._memory(source, sentence_b1, None)
        # Every beam begins with the same states: [b,1,d] -> [b,m,d].
        states = jax.tree.map(lambda x_b1d: jnp.repeat(x_b1d, beams, axis=1), states)
        visible_b1s = Mask(sentence_b1, source.segments_bt).dense()
        return jnp.full(rows, BOS, jnp.int32), RecurrentCache(states, memory, visible_b1s)

    def step(
        self, token_bm: Int[Array, "b m"], step: Int[Array, ""], cache: RecurrentCache
    ) -> tuple[Float[Array, "b m v"], RecurrentCache]:
        """Returns the logits after token `step` (from 0) of each of m beams, and the updated cache."""
        x_bmd = self.target_embedding.encode(token_bm, jnp.full(token_bm.shape, step), None)
        states, (x_bmd, _) = self.decoder(cache.states, x_bmd, cache.memory, cache.visible_b1s)
        return self.target_embedding.logits(x_bmd), cache.replace(states=states)

    def _decode(self, source: Tokens, target: Tokens, noise: Noise | None) -> tuple[Array, Array | None]:
        """Returns the outputs at each position of the target, and the attention weights [b,t,s], if any."""
        memory, first_states = self._memory(source, target.segments_bt, noise)
        # Every step adds to the memory's gradient: in bfloat16 each of these sums would be rounded.
        exact_memory = jax.tree.map(lambda x_bsd: x_bsd.astype(jnp.float32), memory)
        decoder_noise = fold(noise, DECODER)

        def step(
            decoder: Decoder,
            states: tuple[State, ...],
            x_bd: Array,
            first_b: Array,
            initial: tuple[State, ...],
            visible_bs: Array,
            place: Array,
        ) -> tuple[tuple[State, ...], tuple[Array, Array | None]]:
            def reset(old_bmd: Array, initial_bd: Array) -> Array:
                """Starts a new sentence where there is one."""
                return jnp.where(first_b[:, None, None], initial_bd[:, None], old_bmd)

            states = jax.tree.map(reset, states, initial)
            memory = jax.tree.map(lambda x_bsd: x_bsd.astype(self.config.dtype), exact_memory)
            return decoder(states, x_bd[:, None], memory, visible_bs[:, None], fold(decoder_noise, place))

        scan = nn.scan(
            step,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=(1, 1, 1, 1, 0),
            out_axes=2,  # [b,m,t,..] of one beam
        )
        # The targets are known, but each step needs the state before it: a scan over positions.
        x_btd = self.target_embedding.encode(target.ids_bt, target.positions_bt, fold(noise, TARGET))
        # Replaced at the first position of every sentence, also of the first.
        zero = jax.tree.map(lambda x_btd: jnp.zeros_like(x_btd[:, :1]), first_states)
        first_bt = first_of_sentence(target.segments_bt, reverse=False)
        places_t = jnp.arange(x_btd.shape[1])
        # Of a packed row, each target sees its own source.
        visible_bts = Mask(target.segments_bt, source.segments_bt).dense()
        _, outputs = scan(self.decoder, zero, x_btd, first_bt, first_states, visible_bts, places_t)
        # Of the single beam of training: [b,1,t,d] -> [b,t,d].
        x_bmtd, weights_bmts = outputs
        weights_bts = None if weights_bmts is None else weights_bmts[:, 0]
        return x_bmtd[:, 0], weights_bts

    def _memory(self, source: Tokens, segments_bt: Array, noise: Noise | None) -> tuple[Memory, tuple[State, ...]]:
        """Returns what the decoder attends to, and the states [b,t,d] that each sentence `segments_bt` begins with."""
        x_bsd = self.source_embedding.encode(source.ids_bt, source.positions_bt, fold(noise, SOURCE))
        outputs_bsd, states = self.encoder(x_bsd, source.segments_bt, segments_bt, fold(noise, ENCODER))
        return Memory(outputs_bsd, self.decoder.keys(outputs_bsd)), states


def attend(
    q_bmd: Float[Array, "b m d"],
    k_bsd: Float[Array, "b s d"],
    v_bsd: Float[Array, "b s d"],
    visible_bms: Bool[Array, "b _ s"],
    scores: Callable[[Array, Array], Array],
) -> tuple[Float[Array, "b m d"], Float[Array, "b m s"]]:
    """Returns what `model.attention` does, of a single head."""
    # In a search all beams see the same source: [b,1,s] -> [b,m,s].
    visible_bms = jnp.broadcast_to(visible_bms, (*q_bmd.shape[:2], k_bsd.shape[1]))
    # A head axis of size 1: [b,m,d] -> [b,1,m,d].
    context_bhmd, weights_bhms = attention(q_bmd[:, None], k_bsd[:, None], v_bsd[:, None], visible_bms, scores)
    return context_bhmd[:, 0], weights_bhms[:, 0]


def first_of_sentence(segments_bt: Int[Array, "b t"], *, reverse: bool) -> Bool[Array, "b t"]:
    """Returns where sentences begin, read from left to right or, with `reverse`, from right to left."""
    # A sentence begins where the segment differs from that of the neighbour that was read before.
    side = (0, 1) if reverse else (1, 0)
    padded_bt = jnp.pad(segments_bt, ((0, 0), side), constant_values=NO_SEGMENT)
    before_bt = padded_bt[:, 1:] if reverse else padded_bt[:, :-1]
    return segments_bt != before_bt


def at(state: State, index_bt: Int[Array, "b t"]) -> State:
    """Returns the states [b,t,e] of these positions, of states [b,s,e]."""
    return jax.tree.map(lambda x_bse: jnp.take_along_axis(x_bse, index_bt[..., None], axis=1), state)


def _cell(config: RecurrentConfig, width: int) -> nn.Module:
    return CELLS[config.cell](width, dtype=config.dtype)


def _output(state: State) -> Array:
    return jax.tree.leaves(state)[-1]


def _joined(x_btd: Array, y_bte: Array) -> Array:
    return jnp.concatenate([x_btd, y_bte], axis=-1)

"""A recurrent layer in place of self-attention: an LSTM (Hochreiter and Schmidhuber 1997) with a forget gate."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.model.config import ModelConfig
from vaswani.model.masks import NO_SEGMENT, Mask
from vaswani.model.mixers.head_variants import add_bias
from vaswani.model.mixers.state import BeamState, newest
from vaswani.model.noise import Noise

glorot = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=1, out_axis=3, batch_axis=(0, 2))


State = tuple[Array, Array]  # output and cell


class Recurrent(nn.Module):
    """An LSTM, whose state is reset at the beginning of every sentence.

    Where it is `causal`, one LSTM of width d_model reads from left to right. In an encoder there are two of half that
    width, one in each direction r, and their outputs are concatenated. Biases are 0 at first, and 1 in forget gates.
    """

    config: ModelConfig
    causal: bool

    def setup(self) -> None:
        d = self.config.d_model
        directions = 1 if self.causal else 2
        # Parameters of both directions are in one array, along its first axis r.
        e = d // directions
        self.wx = self.param("wx", glorot, (directions, d, 4, e))
        self.wh = self.param("wh", glorot, (directions, e, 4, e))

        def initial_bias(_: Array) -> Array:
            bias_rge = jnp.zeros((directions, 4, e)).at[:, 1].set(1.0)  # gate 1 is the forget gate, see `_gates`
            # A vector, as every bias is, so that weight decay and sharding treat it as one.
            return bias_rge.reshape(-1)

        self.bias = self.param("bias", initial_bias)

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        mask: Mask,
        cache: BeamState | None = None,
        noise: Noise | None = None,
    ) -> tuple[Float[Array, "b t d"], BeamState | None, None]:
        """Returns the output, and output and cell after x; there are no weights to drop or to draw."""
        h_btre, c_btre = self._states(x_btd, mask)
        if cache is not None:
            cache = cache.begin(newest(h_btre, mask, 1)[:, 0], newest(c_btre, mask, 1)[:, 0])
        forward_bte = h_btre[:, :, 0]
        if self.causal:
            return forward_bte, cache, None
        backward_bte = h_btre[:, ::-1, 1]
        return jnp.concatenate([forward_bte, backward_bte], axis=-1), cache, None

    def step(
        self, x_bmd: Float[Array, "b m d"], positions_bm: Int[Array, "b m"], cache: BeamState
    ) -> tuple[Float[Array, "b m d"], BeamState]:
        """Returns the output of one more token of each beam, from the state of the beam, and the states after it."""
        gates_bmrge = self._gates(x_bmd[:, :, None])
        h_bmre, c_bmre = self._cell(gates_bmrge, *cache.arrays)
        return h_bmre[:, :, 0], BeamState((h_bmre, c_bmre))

    def _states(self, x_btd: Array, mask: Mask) -> State:
        """Returns output and cell [b,t,r,e] at every position, in the order in which each direction reads."""

        def directed(x_bt: Array) -> Array:
            """From [b,t,..] to [b,t,r,..]: the second direction reads the row from its end."""
            directions = [x_bt] if self.causal else [x_bt, x_bt[:, ::-1]]
            return jnp.stack(directions, axis=2)

        # A position that begins a sentence has another segment than the one read before it.
        segments_btr = directed(mask.queries_bt)
        before_btr = jnp.pad(segments_btr, ((0, 0), (1, 0), (0, 0)), constant_values=NO_SEGMENT)[:, :-1]
        # The input's part of all gates is one product for the whole row; only the state's part is sequential.
        gates_btrge = self._gates(directed(x_btd))
        first_btr = segments_btr != before_btr  # of its sentence, where the state is reset

        def step(state: State, now: tuple[Array, Array]) -> tuple[State, State]:
            h_bre, c_bre = state
            gates_brge, first_br = now
            # Nothing is carried from one sentence into the next.
            h_bre = jnp.where(first_br[..., None], 0, h_bre)
            c_bre = jnp.where(first_br[..., None], 0, c_bre)
            state = self._cell(gates_brge, h_bre, c_bre)
            return state, state

        # A scan runs along the first axis: [b,t,..] -> [t,b,..].
        positions = (gates_btrge.swapaxes(0, 1), first_btr.swapaxes(0, 1))
        _, (h_tbre, c_tbre) = jax.lax.scan(step, self._zero_state(x_btd.shape[0]), positions)
        return h_tbre.swapaxes(0, 1), c_tbre.swapaxes(0, 1)

    def init_cache(self, rows: int, beams: int, slots: int) -> BeamState:
        """Returns output and cell before the first token."""
        return BeamState(self._zero_state(rows, beams))

    def _zero_state(self, *sizes: int) -> State:
        shape = (*sizes, self.wx.shape[0], self.wx.shape[3])
        return jnp.zeros(shape, self.config.dtype), jnp.zeros(shape, jnp.float32)

    def _gates(self, x_btrd: Float[Array, "b t r d"]) -> Float[Array, "b t r g e"]:
        """Returns what the input adds to the gates: input, forget, output and candidate."""
        gates_btrge = jnp.einsum("btrd,rdge->btrge", x_btrd, self.wx.astype(x_btrd.dtype))
        return add_bias(gates_btrge, self.bias.reshape(-1, 4, self.wx.shape[3]))

    def _cell(self, gates: Array, h: Array, c: Array) -> State:
        """Returns output h [..,r,e] and cell c [..,r,e], which stays in float32, one position further.

        With i, f, o, g the gates: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c').
        """
        # What the state adds to the gates, in float32.
        gates += jnp.einsum("...re,regf->...rgf", h, self.wh.astype(h.dtype), preferred_element_type=jnp.float32)
        input_gate = jax.nn.sigmoid(gates[..., 0, :])
        forget_gate = jax.nn.sigmoid(gates[..., 1, :])
        output_gate = jax.nn.sigmoid(gates[..., 2, :])
        kept = forget_gate * c
        candidate = jnp.tanh(gates[..., 3, :])
        c = kept + input_gate * candidate
        h = (output_gate * jnp.tanh(c)).astype(h.dtype)
        return h, c

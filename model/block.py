"""The block that every model here stacks (Figure 1): a mixer, cross-attention to a memory, a feed-forward network."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.model.config import ModelConfig
from vaswani.model.decoding import Cache
from vaswani.model.masks import Mask
from vaswani.model.mixers.attention import MultiHeadAttention
from vaswani.model.mixers.convolution import GatedConvolution
from vaswani.model.mixers.head_variants import add_bias, identity
from vaswani.model.mixers.kv_cache import KeysValues
from vaswani.model.mixers.linear import LinearAttention
from vaswani.model.mixers.recurrent import Recurrent
from vaswani.model.mixers.restricted import RestrictedAttention
from vaswani.model.mixers.strided import StridedAttention
from vaswani.model.noise import Noise, dropout, fold
from vaswani.model.positions import NoPositions, encoding_of
from vaswani.model.rows import by_rows

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "silu": jax.nn.silu,
    "geglu": partial(jax.nn.gelu, approximate=False),
    "geglu_tanh": partial(jax.nn.gelu, approximate=True),
    "swiglu": jax.nn.silu,
}
GATED = ("geglu", "geglu_tanh", "swiglu")  # feed-forward networks with a gate
NORMS: dict[str, type[nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}

# Where a block draws noise: each site folds its number into the key.
# Six places, so that no two draw the same mask. Their order is part of a run: another would draw other masks.
SELF_WEIGHTS, SELF_OUTPUT, CROSS_WEIGHTS, CROSS_OUTPUT, RELU, FEED_FORWARD_OUTPUT = range(6)


class Weights(NamedTuple):
    """Attention weights of one block, [b,h,t,t] and [b,h,t,s]; None where there are none."""

    self_bhtt: Any
    cross_bhts: Any


class Residual(NamedTuple):
    """How a stack's residual connections are weighted: LayerNorm(alpha x + f(x)).

    `beta` multiplies the initial values of f's matrices: W^V and W^O of attention, all of a feed-forward network's.
    Both are 1 unless `config.norm` is "deep": DeepNorm (Wang et al. 2022, arXiv 2203.00555, table 2).
    """

    alpha: float = 1.0
    beta: float = 1.0

    @classmethod
    def of(cls, config: ModelConfig, stacks: int, cross: bool) -> "Residual":
        """Returns the weights of a stack, in a model of one or two; the decoder of two has `cross`."""
        if config.norm != "deep":
            return cls()
        # The columns of its table 2: a model of one stack, a decoder, and an encoder beside a decoder.
        if stacks == 1:
            return cls((2 * config.N) ** 0.25, (8 * config.N) ** -0.25)
        N, M = config.depths
        if cross:
            return cls((3 * M) ** 0.25, (12 * M) ** -0.25)
        product = float(N**4 * M)  # of an encoder of N layers and a decoder of M
        return cls(0.81 * product ** (1 / 16), 0.87 * product ** (-1 / 16))


def layer_norm(config: ModelConfig) -> Any:
    """Returns layer normalisation with scale and bias. The paper gives no epsilon; the default is tensor2tensor's.

    Of kind "rms" it divides by the root of the mean square and has a scale alone (Zhang and Sennrich 2019, arXiv
    1910.07467). With `config.norm` "none" it is the identity.
    """
    if config.norm == "none":
        return identity
    # `use_fast_variance` would compute E(x^2) - E(x)^2, which loses most digits far from 0.
    return NORMS[config.norm_kind](epsilon=config.norm_epsilon, dtype=config.dtype, use_fast_variance=False)


def self_mixer(c: ModelConfig, causal: bool, gain: float = 1.0) -> nn.Module:
    """Returns the mixer that `config.mixer` names; that is also its name among the parameters. `gain`: see `Heads`."""
    # The source tokens of a full prefix see those after them, in rows that are causal otherwise.
    encoding = encoding_of(c, causal=causal and c.prefix != "full")
    match c.mixer:
        case "restricted":
            return RestrictedAttention(c, encoding, gain, name="restricted")
        case "strided":
            return StridedAttention(c, encoding, gain, name="strided")
        case "linear":
            return LinearAttention(c, NoPositions(), gain, name="linear")
        case "recurrent":
            return Recurrent(c, causal, name="recurrent")
        case "convolution":
            return GatedConvolution(c, name="convolution")
        case "attention":
            return MultiHeadAttention(c, encoding, gain, name="self_attention")
    raise ValueError(f"model.mixer is {c.mixer!r}, which model/block.py:self_mixer does not know")


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, at each position separately (section 3.3, equation 2).

    `config.activation` may replace max(0, x); without `config.feed_forward_biases` there are no b_1 and b_2. With a
    gate ("geglu", "geglu_tanh", "swiglu": Shazeer 2020, arXiv 2002.05202) it is (f(x W_1 + b_1) * x V) W_2 + b_2.
    `gain` multiplies the initial values.
    """

    config: ModelConfig
    gain: float = 1.0

    def setup(self) -> None:
        c = self.config
        init = nn.initializers.variance_scaling(self.gain**2, "fan_avg", "uniform")
        # W_1 [d,f] and W_2 [f,d]: "the inner-layer has dimensionality d_ff = 2048".
        self.b1 = self.b2 = None
        # A parameter's random numbers depend on how many were drawn before it, so b1 stands between w1 and w2.
        self.w1 = self.param("w1", init, (c.d_model, c.d_ff))
        if c.feed_forward_biases:
            self.b1 = self.param("b1", nn.initializers.zeros, (c.d_ff,))
        self.w2 = self.param("w2", init, (c.d_ff, c.d_model))
        if c.feed_forward_biases:
            self.b2 = self.param("b2", nn.initializers.zeros, (c.d_model,))
        if c.activation in GATED:
            self.v = self.param("v", init, (c.d_model, c.d_ff))

    def __call__(self, x_btd: Float[Array, "b t d"], noise: Noise | None) -> Float[Array, "b t d"]:
        c = self.config
        # The paper drops nothing here; `config.P_drop_relu` is 0 unless it is set.
        x_btf = dropout(self.hidden_layer(x_btd), c.P_drop_relu, noise)
        # From d_ff back to d_model: [b,t,f] -> [b,t,d].
        y_btd = jnp.einsum("btf,fd->btd", x_btf, self.w2.astype(x_btf.dtype))
        return add_bias(y_btd, self.b2)

    def hidden_layer(self, x_btd: Float[Array, "b t d"]) -> Float[Array, "b t f"]:
        """Returns max(0, x W_1 + b_1), or what replaces it."""
        c = self.config
        activation = ACTIVATIONS[c.activation]
        # The same matrix at every position, so a convolution with kernel size 1: [b,t,d] -> [b,t,f].
        x_btf = jnp.einsum("btd,df->btf", x_btd, self.w1.astype(x_btd.dtype))
        x_btf = activation(add_bias(x_btf, self.b1))
        if c.activation in GATED:
            # A gate multiplies each hidden unit by a second, linear one.
            x_btf = x_btf * jnp.einsum("btd,df->btf", x_btd, self.v.astype(x_btd.dtype))
        return x_btf


class Block(nn.Module):
    """Sub-layers, each as LayerNorm(x + Dropout(f(x))) (sections 3.1 and 5.4).

    With `config.norm` "pre", each is x + Dropout(f(LayerNorm(x))), as in Xiong et al. 2020 (arXiv 2002.04745); with
    "deep", LayerNorm(alpha x + Dropout(f(x))), see `Residual`; with "none", x + Dropout(f(x)). Without
    `config.residual` the sum is its second term alone.
    Without `cross` it is the paper's encoder layer; with it, and a causal mask, its decoder layer. `shared` are the
    parameters that the mixers of a stack share: the table of biases, where positions have one.
    """

    config: ModelConfig
    cross: bool
    causal: bool
    residual: Residual = Residual()

    def setup(self) -> None:
        c = self.config
        gain = self.residual.beta
        self.mixer = self_mixer(c, self.causal, gain)
        if self.cross:
            # Queries come from the decoder, keys and values from the encoder, which has positions of its own.
            self.cross_attention = MultiHeadAttention(c, NoPositions(), gain)
        self.feed_forward = FeedForward(c, gain)
        self.norm_1 = layer_norm(c)
        self.norm_2 = layer_norm(c)
        if self.cross:
            self.norm_3 = layer_norm(c)

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        mask: Mask | None,
        cache: Cache | None = None,
        memory: KeysValues | None = None,
        memory_mask: Mask | None = None,
        noise: Noise | None = None,
        shared: tuple[Array, ...] = (),
    ) -> tuple[Float[Array, "b t d"], Cache | None, Weights]:
        """Returns the output, the cache of the mixer with x, and the attention weights.

        x are whole rows, or without a mask one more token of each beam, with a cache.
        """
        # Sub-layer 1: self-attention, or what replaces it.
        normed_btd = self._pre_norm(x_btd, self.norm_1)
        self_bhtt = None
        if mask is None:
            y_btd, cache = self.mixer.step(normed_btd, positions_bt, cache, *shared)
        else:
            noise_of_mixer = fold(noise, SELF_WEIGHTS)
            y_btd, cache, self_bhtt = self.mixer(normed_btd, positions_bt, mask, cache, noise_of_mixer, *shared)
        x_btd = self._add_and_norm(x_btd, y_btd, self.norm_1, fold(noise, SELF_OUTPUT))

        # Sub-layer 2, of a decoder: attention over the output of the encoder stack.
        cross_bhts = None
        if self.cross:
            assert memory is not None and memory_mask is not None
            normed_btd = self._pre_norm(x_btd, self.norm_2)
            y_btd, cross_bhts = self.cross_attention.attend(
                normed_btd, positions_bt, memory, memory_mask, fold(noise, CROSS_WEIGHTS)
            )
            x_btd = self._add_and_norm(x_btd, y_btd, self.norm_2, fold(noise, CROSS_OUTPUT))

        # The last sub-layer: a position-wise feed-forward network.
        norm = self.norm_3 if self.cross else self.norm_2
        y_btd = self.feed_forward(self._pre_norm(x_btd, norm), fold(noise, RELU))
        x_btd = self._add_and_norm(x_btd, y_btd, norm, fold(noise, FEED_FORWARD_OUTPUT))
        return x_btd, cache, Weights(self_bhtt, cross_bhts)

    def memory(self, x_bsd: Float[Array, "b s d"], positions_bs: Int[Array, "b s"]) -> KeysValues:
        """Returns the keys and values of cross-attention to an encoder's output."""
        return self.cross_attention.keys_values(x_bsd, positions_bs)

    def init_cache(self, rows: int, beams: int, slots: int) -> Cache:
        """Returns an empty cache of the mixer."""
        return self.mixer.init_cache(rows, beams, slots)

    def _pre_norm(self, x_btd: Array, norm: Callable[[Array], Array]) -> Array:
        """Returns the input of a sub-layer: normalised with pre-norm, else x itself."""
        return norm(x_btd) if self.config.norm == "pre" else x_btd

    def _add_and_norm(self, x_btd: Array, y_btd: Array, norm: Callable[[Array], Array], noise: Noise | None) -> Array:
        """Returns Figure 1's "Add & Norm" of a sub-layer's input and output; with pre-norm, the sum alone."""
        # "We apply dropout to the output of each sub-layer, before it is added to the sub-layer input and normalized."
        y_btd = dropout(y_btd, self.config.P_drop, noise)
        if self.config.norm == "deep":
            x_btd = self.residual.alpha * x_btd
        # The residual connection.
        sum_btd = x_btd + y_btd if self.config.residual else y_btd
        if self.config.norm != "pre":
            sum_btd = norm(sum_btd)
        return by_rows(sum_btd)

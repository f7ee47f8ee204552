"""A gated convolution in place of self-attention (Gehring et al. 2017, arXiv 1705.03122, section 3.2)."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.model.config import ModelConfig
from vaswani.model.masks import NO_SEGMENT, Mask
from vaswani.model.mixers.head_variants import add_bias
from vaswani.model.mixers.state import BeamState, newest
from vaswani.model.noise import Noise

glorot = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", in_axis=(0, 1), out_axis=3, batch_axis=2)


class GatedConvolution(nn.Module):
    """A * sigmoid(B), A and B convolutions of w = `config.kernel_width` positions with a bias each.

    Under a causal mask they are the position itself and the w - 1 before it; otherwise it is in their middle (of an
    even number, one more is before it). Positions of other sentences count as 0, like those beyond the row.
    """

    config: ModelConfig

    def setup(self) -> None:
        c = self.config
        self.kernel = self.param("kernel", glorot, (c.kernel_width, c.d_model, 2, c.d_model))
        self.bias = self.param("bias", nn.initializers.zeros, (2 * c.d_model,))

    def __call__(
        self,
        x_btd: Float[Array, "b t d"],
        positions_bt: Int[Array, "b t"],
        mask: Mask,
        cache: BeamState | None = None,
        noise: Noise | None = None,
    ) -> tuple[Float[Array, "b t d"], BeamState | None, None]:
        """Returns the output, and the newest w - 1 inputs; there are no weights to drop or to draw."""
        if cache is not None:
            cache = cache.begin(newest(x_btd, mask, self.config.kernel_width - 1))
        return self._gated(self._windows(x_btd, mask)), cache, None

    def step(
        self, x_bmd: Float[Array, "b m d"], positions_bm: Int[Array, "b m"], cache: BeamState
    ) -> tuple[Float[Array, "b m d"], BeamState]:
        """Returns the output of one more token of each beam, after the inputs that the beam remembers, and these."""
        (inputs_bmwd,) = cache.arrays
        window_bmwd = jnp.concatenate([inputs_bmwd, x_bmd[:, :, None]], axis=2)
        return self._gated(window_bmwd), BeamState((window_bmwd[:, :, 1:],))

    def _windows(self, x_btd: Float[Array, "b t d"], mask: Mask) -> Float[Array, "b t w d"]:
        """Returns the inputs of the kernel at every position, those of other sentences as 0."""
        w = self.config.kernel_width
        t = x_btd.shape[1]
        segments_bt = mask.queries_bt
        # As many positions before and after as the kernel needs: t -> p.
        before = w - 1 if mask.causal else w // 2
        around = (before, w - 1 - before)
        padded_bpd = jnp.pad(x_btd, ((0, 0), around, (0, 0)))
        # Beyond the row is no sentence, so nothing there counts.
        segments_bp = jnp.pad(segments_bt, ((0, 0), around), constant_values=NO_SEGMENT)
        window = []
        for i in range(w):
            # Position i of the kernel, at every position of the row, [b,t,d].
            same_bt = segments_bp[:, i : i + t] == segments_bt
            window.append(padded_bpd[:, i : i + t] * same_bt[..., None])
        return jnp.stack(window, axis=2)

    def init_cache(self, rows: int, beams: int, slots: int) -> BeamState:
        """Returns the w - 1 inputs before the first, which are 0."""
        c = self.config
        inputs_bmwd = jnp.zeros((rows, beams, c.kernel_width - 1, c.d_model), c.dtype)
        return BeamState((inputs_bmwd,))

    def _gated(self, x_btwd: Float[Array, "b t w d"]) -> Float[Array, "b t e"]:
        # Both convolutions at once, g = 2: [b,t,w,d] -> [b,t,2,e].
        y_btge = jnp.einsum("btwd,wdge->btge", x_btwd, self.kernel.astype(x_btwd.dtype))
        y_btge = add_bias(y_btge, self.bias.reshape(2, -1))
        # The gated linear unit A * sigmoid(B): [b,t,2,e] -> [b,t,e].
        value_bte = y_btge[:, :, 0]
        gate_bte = y_btge[:, :, 1]
        return value_bte * jax.nn.sigmoid(gate_bte)

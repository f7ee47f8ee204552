"""An encoder of images that classifies them: patches in place of tokens (Dosovitskiy et al. 2020, "ViT")."""

import dataclasses

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vaswani.model.config import ModelConfig
from vaswani.model.embed import position_table
from vaswani.model.mixers.head_variants import add_bias
from vaswani.model.noise import Noise, dropout, fold
from vaswani.model.positions import encoding_of
from vaswani.model.stack import Stack
from vaswani.tokens import Tokens

# Where the model draws noise.
EMBED, STACK = range(2)
POOLINGS = ("token", "mean")
LARGEST = 1 << 16  # pixels of a side, and classes


@dataclasses.dataclass(frozen=True)
class ImageConfig:
    """Sizes in pixels, the number of classes, and what is classified: a class token, or the mean over the patches.

    Raises:
      ValueError: a field is out of its range; the message names it.
    """

    height: int
    width: int
    patch_height: int
    patch_width: int
    classes: int
    pooling: str = "token"

    def __post_init__(self) -> None:
        for field in ("height", "width", "patch_height", "patch_width", "classes"):
            size = getattr(self, field)
            least = 2 if field == "classes" else 1  # one class leaves nothing to classify
            if not least <= size <= LARGEST:
                raise ValueError(f"image.{field} is {size}; it must be from {least} to {LARGEST:,}")
        for side in ("height", "width"):
            size = getattr(self, side)
            patch = getattr(self, f"patch_{side}")
            if size % patch:
                raise ValueError(f"image.patch_{side} is {patch}; it must divide image.{side}, {size}")
        if self.pooling not in POOLINGS:
            raise ValueError(f"image.pooling is {self.pooling!r}; it must be one of {', '.join(POOLINGS)}")

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.height // self.patch_height, self.width // self.patch_width

    @property
    def positions(self) -> int:
        """The length of a row: the patches, and the class token, if there is one, before them."""
        rows, columns = self.grid
        class_tokens = 1 if self.pooling == "token" else 0
        return rows * columns + class_tokens


def patches(image: ImageConfig, images_byx: Float[Array, "b y x"]) -> Float[Array, "b t p"]:
    """Returns the pixels of each patch, row by row, of the patches row by row."""
    rows, columns = image.grid
    b = images_byx.shape[0]
    # [b,y,x] -> [b,rows,height,columns,width] -> [b,rows,columns,height,width].
    split = images_byx.reshape(b, rows, image.patch_height, columns, image.patch_width)
    by_patch = split.swapaxes(2, 3)
    return by_patch.reshape(b, rows * columns, image.patch_height * image.patch_width)


class Vision(nn.Module):
    """Logits of the classes of images. `noise` turns dropout on, for training.

    Raises `ValueError` for learned positions and more patches than their table has rows.
    """

    config: ModelConfig
    image: ImageConfig

    @property
    def smallest_inputs(self) -> tuple[Float[Array, "1 y x"], Int[Array, "1"]]:
        """One blank image, from which `init_params` makes parameters."""
        return jnp.zeros((1, self.image.height, self.image.width)), jnp.ones(1, jnp.int32)

    def setup(self) -> None:
        c = self.config
        pixels = self.image.patch_height * self.image.patch_width
        # A linear map from the pixels of a patch to d_model, where text has a table of embeddings.
        self.patch = self.param("patch", nn.initializers.glorot_uniform(), (pixels, c.d_model))
        self.patch_bias = self.param("patch_bias", nn.initializers.zeros, (c.d_model,))
        # The class token; without it, the mean over patches is classified.
        self.token = None
        if self.image.pooling == "token":
            self.token = self.param("token", nn.initializers.normal(c.d_model**-0.5), (c.d_model,))
        self.positions = position_table(self, "positions")
        self.encoder = Stack(c, cross=False, causal=False)
        # Zero at first, so that every class is equally likely before training.
        self.head = self.param("head", nn.initializers.zeros, (c.d_model, self.image.classes))
        self.head_bias = self.param("head_bias", nn.initializers.zeros, (self.image.classes,))

    def __call__(
        self,
        images_byx: Float[Array, "b y x"],
        real_b: Int[Array, " b"],
        noise: Noise | None = None,
        return_weights: bool = False,
    ) -> tuple[Float[Array, "b v"], list]:
        """Returns the logits and, with `return_weights`, the attention weights of each block."""
        c = self.config
        row = tokens(self.image, real_b)
        # Patches stand where a text has tokens: [b,y,x] -> [b,t,p] -> [b,t,d].
        x_btp = patches(self.image, images_byx).astype(c.dtype)
        x_btd = jnp.einsum("btp,pd->btd", x_btp, self.patch.astype(c.dtype))
        x_btd = add_bias(x_btd, self.patch_bias)
        if self.token is not None:
            # A learned vector before the patches, whose output is classified: t grows by one.
            token_b1d = jnp.broadcast_to(self.token, (x_btd.shape[0], 1, c.d_model)).astype(c.dtype)
            x_btd = jnp.concatenate([token_b1d, x_btd], axis=1)
        # Positions count patches row by row, the class token first.
        x_btd = encoding_of(c).embed(x_btd, row.positions_bt, self.positions).astype(c.dtype)
        x_btd = dropout(x_btd, c.embedding_dropout, fold(noise, EMBED))
        x_btd, _, weights = self.encoder(x_btd, row, noise=fold(noise, STACK), return_weights=return_weights)
        # From all positions to one vector per image: [b,t,d] -> [b,d].
        x_bd = x_btd.mean(axis=1) if self.token is None else x_btd[:, 0]
        # In float32, like every softmax's input here.
        logits_bv = jnp.einsum("bd,dv->bv", x_bd.astype(jnp.float32), self.head)
        return logits_bv + self.head_bias[None], weights


def tokens(image: ImageConfig, real_b: Int[Array, " b"]) -> Tokens:
    """Returns rows of patches as tokens, with segments in place of ids; a row without an image is padding."""
    shape = (len(real_b), image.positions)
    segments_bt = jnp.broadcast_to(jnp.asarray(real_b)[:, None], shape)
    positions_t = jnp.arange(image.positions, dtype=jnp.int32)
    positions_bt = jnp.broadcast_to(positions_t[None], shape)
    return Tokens(segments_bt, segments_bt, positions_bt)

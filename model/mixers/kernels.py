"""Attention that never materialises the weights [t,s]; the definition is the einsum of `model.attention`.

"chunked" is that very function for some queries at a time, on any device, with memory in proportion to s, not to t s
(Rabe and Staats 2021, arXiv 2112.05682, who cut the keys as well). The others are fused kernels.

"splash" is one of the two TPU kernels in JAX, the one that allows d_k != d_v (Table 3, rows B); the other, "flash",
adds nothing that we need. "cudnn" is NVIDIA's, called through `jax.nn.dot_product_attention`.

Kernels are used on whole rows: in training, in scoring, in the encoder and on prompts. Three things always use the
einsum: initialisation; attention maps, which need the weights; and the steps of cached decoding, whose masks segments
cannot express. A kernel works on blocks of keys, so rows much shorter than a block gain nothing.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from vaswani.configs.rules import broken
from vaswani.model.config import DEFAULTS, ModelConfig
from vaswani.model.masks import NO_SEGMENT, Mask
from vaswani.model.mixers.chunks import all_heads
from vaswani.model.rows import row_axes

X = TypeVar("X")

PLATFORMS = {"splash": "tpu", "cudnn": "gpu"}
LANES = 128  # width of a TPU register, and the smallest block of keys that splash takes
BLOCK = 512  # the largest block of queries or keys that we give to splash
CHUNK = 128  # queries whose weights "chunked" has in memory at a time: of 2,048 keys, a megabyte
SHORT = 256  # "auto" is the einsum for rows up to here, bit for bit as before; chunks are faster above on a CPU


def attend(
    impl: str,
    q_bhtk: Float[Array, "b h t k"],
    k_bhsk: Float[Array, "b h s k"],
    v_bhse: Float[Array, "b h s e"],
    mask: Mask,
) -> Float[Array, "b h t e"]:
    """Returns softmax(Q K^T / sqrt(d_k)) V over unmasked keys, computed by "chunked", "splash" or "cudnn".

    A query with no key to attend to, as padding against a source without padding, gets an arbitrary finite value.

    On several devices a kernel needs `jax.set_mesh`: batch rows, and along the axis `tensor` heads, are then sharded.

    Raises:
      ValueError: the kernel does not run on the platform compiled for.
    """
    platform = compiled_for()
    if impl in PLATFORMS and platform != PLATFORMS[impl]:
        raise ValueError(
            f"model.attention_impl is {impl!r}, a kernel for {PLATFORMS[impl]}, but this is compiled for {platform}; "
            "einsum runs everywhere"
        )
    # One device runs the kernel as it is; on several, each runs it on its own rows and heads.
    kernel = {"chunked": chunked, "splash": splash, "cudnn": cudnn}[impl]
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return kernel(q_bhtk, k_bhsk, v_bhse, mask)
    # The compiler cannot shard a Pallas kernel, and under FSDP it shards cuDNN's queries unlike their mask.
    head_axis = "tensor" if "tensor" in mesh.axis_names else None
    rows_spec = P(row_axes())
    heads_spec = P(row_axes(), head_axis)
    in_specs = (heads_spec, heads_spec, heads_spec, rows_spec)
    over_mesh = jax.shard_map(kernel, in_specs=in_specs, out_specs=heads_spec, check_vma=False)
    return over_mesh(q_bhtk, k_bhsk, v_bhse, mask)


def compiled_for() -> str:
    """Returns the platform of the ambient mesh, which may be abstract, or else of this process's devices."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    platform = jax.default_backend() if device is None else device.platform
    return "gpu" if platform in ("cuda", "rocm") else platform


def chunked(
    q_bhtk: Float[Array, "b h t k"], k_bhsk: Float[Array, "b h s k"], v_bhse: Float[Array, "b h s e"], mask: Mask
) -> Float[Array, "b h t e"]:
    """Runs `all_heads` on `CHUNK` queries at a time: on a CPU on one head after the other, elsewhere on all at once."""
    t = q_bhtk.shape[2]
    size = min(CHUNK, t)
    # Only queries are filled up: each chunk sees all keys.
    q_bhtk, _, _, mask = fill_up(q_bhtk, k_bhsk, v_bhse, mask, size, 1)
    each = _one_by_one if compiled_for() == "cpu" else jax.vmap
    return all_heads(q_bhtk, k_bhsk, v_bhse, mask, size, each)[:, :, :t]


def _one_by_one(function: Callable[[X], Array]) -> Callable[[X], Array]:
    """Returns `jax.vmap` of a function, computed for one after the other."""
    return lambda arrays: jax.lax.map(function, arrays)


def splash(
    q_bhtk: Float[Array, "b h t k"], k_bhsk: Float[Array, "b h s k"], v_bhse: Float[Array, "b h s e"], mask: Mask
) -> Float[Array, "b h t e"]:
    """Runs the splash kernel on one TPU."""
    # Imported here because it is slow and only needed on TPUs.
    from jax.experimental.pallas.ops.tpu import splash_attention as pallas

    _, h, t, d_k = q_bhtk.shape
    s = k_bhsk.shape[2]
    # Blocks are multiples of a register's width, and no longer than the row needs.
    block_t = min(BLOCK, t + -t % LANES)
    block_s = min(BLOCK, s + -s % LANES)
    q_bhtk, k_bhsk, v_bhse, mask = fill_up(q_bhtk, k_bhsk, v_bhse, mask, block_t, block_s)
    shape = (q_bhtk.shape[2], k_bhsk.shape[2])
    # Causality is known to the kernel, which skips blocks above the diagonal; segments come with the rows.
    head_mask = pallas.CausalMask(shape) if mask.causal else pallas.FullMask(shape)
    kernel = pallas.make_splash_mha_single_device(
        pallas.MultiHeadMask([head_mask] * h),
        block_sizes=pallas.BlockSizes(
            block_q=block_t,
            block_kv=block_s,
            block_q_dkv=block_t,
            block_kv_dkv=block_s,
            block_q_dq=block_t,
            block_kv_dq=block_s,
        ),
    )
    # The kernel does not divide by sqrt(d_k): the queries are divided before.
    scaled_bhtk = (q_bhtk / jnp.sqrt(jnp.float32(d_k))).astype(q_bhtk.dtype)
    segments = pallas.SegmentIds(mask.queries_bt, mask.keys_bs)
    return jax.vmap(kernel)(scaled_bhtk, k_bhsk, v_bhse, segments)[:, :, :t]


def cudnn(
    q_bhtk: Float[Array, "b h t k"], k_bhsk: Float[Array, "b h s k"], v_bhse: Float[Array, "b h s e"], mask: Mask
) -> Float[Array, "b h t e"]:
    """Runs cuDNN's attention on NVIDIA GPUs.

    cuDNN itself masks only causally and by one length per row. The segments of packed rows are passed as a dense mask,
    shared by all heads, which jax turns into a bfloat16 bias.
    """
    t = q_bhtk.shape[2]
    q_bhtk, k_bhsk, v_bhse, mask = fill_up(q_bhtk, k_bhsk, v_bhse, mask, 2, 2)  # a bias needs even lengths
    # Causality again is the kernel's own; the rest of the mask is dense, [b,1,t,s].
    same_b1ts = mask.replace(causal=False).dense()[:, None]
    heads_bthe = jax.nn.dot_product_attention(
        q_bhtk.swapaxes(1, 2),
        k_bhsk.swapaxes(1, 2),
        v_bhse.swapaxes(1, 2),
        mask=same_b1ts,
        is_causal=mask.causal,
        implementation="cudnn",
    )
    return heads_bthe.swapaxes(1, 2)[:, :, :t]


def fill_up(
    q_bhtk: Array, k_bhsk: Array, v_bhse: Array, mask: Mask, multiple_t: int, multiple_s: int
) -> tuple[Array, Array, Array, Mask]:
    """Pads queries and keys to multiples of the given numbers; the padding attends only to itself."""
    # As many as are missing to the next multiple.
    more_t = -q_bhtk.shape[2] % multiple_t
    more_s = -k_bhsk.shape[2] % multiple_s

    def pad(x_bhtk: Array, more: int) -> Array:
        return jnp.pad(x_bhtk, ((0, 0), (0, 0), (0, more), (0, 0)))

    mask = mask.replace(
        queries_bt=jnp.pad(mask.queries_bt, ((0, 0), (0, more_t)), constant_values=NO_SEGMENT),
        keys_bs=jnp.pad(mask.keys_bs, ((0, 0), (0, more_s)), constant_values=NO_SEGMENT),
    )
    return pad(q_bhtk, more_t), pad(k_bhsk, more_s), pad(v_bhse, more_s), mask


def chosen(config: ModelConfig, t: Any, s: Any, platform: str | None = None) -> str:
    """Returns what computes the attention of t queries to s keys: `config.attention_impl`, or for "auto" the fastest.

    That is the einsum where the weights of all queries are few, and wherever the config has what only the einsum
    supports; else the platform's kernel if it supports the config, or "chunked". The default platform is that compiled
    for. The choice was timed on a CPU, and not on a TPU or GPU. (In an export t and s are symbols; that names its own.)
    """
    if config.attention_impl != "auto":
        return config.attention_impl
    if t * s <= SHORT * SHORT:
        return "einsum"
    platform = platform or compiled_for()
    fused = [impl for impl, runs_on in PLATFORMS.items() if runs_on == platform]
    for impl in (*fused, "chunked"):
        if supports(config, impl):
            return impl
    return "einsum"


def supports(config: ModelConfig, impl: str) -> bool:
    """Returns whether "chunked" or a kernel can compute the attention of a config.

    The mixer does not count: encoder-decoder attention is attention whatever replaces self-attention.
    """
    given = config.keys | {"model.attention_impl": impl}
    del given["model.mixer"]
    return broken(given, DEFAULTS) is None

"""Our attention, stack and caches against PyTorch's own modules with the same weights, float32, to 1e-5.

Skipped without PyTorch, see tests/extras.py.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.extras import torch

# isort: split
from tests.tiny import TINY, apply, apply_jitted, padded_ids, perturbed
from tests.tolerance import relative_error
from vaswani.model.config import ModelConfig
from vaswani.model.masks import Mask
from vaswani.model.mixers.attention import MultiHeadAttention
from vaswani.model.positions import NoPositions, encoding_of, sinusoids
from vaswani.model.transformer import Transformer

TOLERANCE = 1e-5
CONFIG = dataclasses.replace(TINY, h=2, d_k=8, d_v=8)  # nn.MultiheadAttention knows d_k = d_v = d_model / h only


def tensor(x):
    return torch.tensor(np.array(x))


def copy_attention(theirs, ours):
    d = CONFIG.d_model
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([tensor(ours[w]).reshape(d, -1).T for w in ("wq", "wk", "wv")]))
        theirs.in_proj_bias.zero_()
        theirs.out_proj.weight.copy_(tensor(ours["wo"]).reshape(-1, d).T)
        theirs.out_proj.bias.zero_()


def copy_norm(theirs, ours):
    with torch.no_grad():
        theirs.weight.copy_(tensor(ours["scale"]))
        theirs.bias.copy_(tensor(ours["bias"]))


def copy_layer(theirs, ours):
    copy_attention(theirs.self_attn, ours["self_attention"])
    if "cross_attention" in ours:
        copy_attention(theirs.multihead_attn, ours["cross_attention"])
    with torch.no_grad():
        for linear, w, b in ((theirs.linear1, "w1", "b1"), (theirs.linear2, "w2", "b2")):
            linear.weight.copy_(tensor(ours["feed_forward"][w]).T)
            linear.bias.copy_(tensor(ours["feed_forward"][b]))
    for name in ("norm1", "norm2", "norm3"):
        if hasattr(theirs, name):
            copy_norm(getattr(theirs, name), ours[name.replace("norm", "norm_")])


def torch_transformer(config, params):
    """nn.Transformer with our weights. In the paper's post-norm form its stacks must not end in one more norm."""
    sizes = {"d_model": config.d_model, "nhead": config.h, "dim_feedforward": config.d_ff, "dropout": 0.0}
    sizes |= {"layer_norm_eps": 1e-6, "batch_first": True, "norm_first": config.norm == "pre"}
    stacks = {}
    for side, layer_of, stack_of in (
        ("encoder", torch.nn.TransformerEncoderLayer, torch.nn.TransformerEncoder),
        ("decoder", torch.nn.TransformerDecoderLayer, torch.nn.TransformerDecoder),
    ):
        norm = torch.nn.LayerNorm(config.d_model, eps=1e-6) if config.norm == "pre" else None
        kwargs = {"enable_nested_tensor": False} if side == "encoder" else {}
        stacks[side] = stack_of(layer_of(**sizes), config.N, norm, **kwargs)
    transformer = torch.nn.Transformer(custom_encoder=stacks["encoder"], custom_decoder=stacks["decoder"], **sizes)
    for side, stack in stacks.items():  # only now: nn.Transformer draws the weights of the stacks it is given again
        for n, layer in enumerate(stack.layers):
            copy_layer(layer, params[side][f"layer_{n}"])
        if stack.norm is not None:
            copy_norm(stack.norm, params[side]["final_norm"])
    return transformer


def torch_forward(config, params, source, target):
    """(memory, logits, transformer, embedding): embeddings and softmax by hand, the stack by nn.Transformer."""
    embed = tensor(params["embed"]).requires_grad_()
    transformer = torch_transformer(config, params)

    def embedded(ids):
        positions = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
        return embed[tensor(ids).long()] * config.d_model**0.5 + tensor(
            sinusoids(jnp.asarray(positions), config.d_model)
        )

    source_padding, target_padding = tensor(source == 0), tensor(target == 0)
    memory = transformer.encoder(embedded(source), src_key_padding_mask=source_padding)
    causal = torch.triu(torch.ones(target.shape[1], target.shape[1], dtype=torch.bool), 1)
    out = transformer(
        embedded(source),
        embedded(target),
        tgt_mask=causal,
        src_key_padding_mask=source_padding,
        tgt_key_padding_mask=target_padding,
        memory_key_padding_mask=source_padding,
    )
    return memory, out @ embed.T, transformer, embed


def batch(seed=0):
    rng = np.random.default_rng(seed)
    return padded_ids(rng, [7, 4, 1], 7, CONFIG.vocab_size), padded_ids(rng, [3, 6, 6], 6, CONFIG.vocab_size)


@pytest.mark.parametrize("kind", ["self", "causal", "cross"])
def test_multi_head_attention(kind):
    rng = np.random.default_rng(0)
    x, memory = (rng.standard_normal((2, length, CONFIG.d_model)).astype(np.float32) for length in (5, 7))
    memory = memory if kind == "cross" else x
    segments_bs = (np.arange(memory.shape[1]) < np.array([[memory.shape[1]], [3]])).astype(np.int32)
    mask = np.repeat(segments_bs[:, None] != 0, x.shape[1], axis=1)
    if kind == "causal":
        mask &= np.tril(np.ones((5, 5), bool))
    weights = perturbed(CONFIG)["decoder"]["layer_1"]["cross_attention"]
    module = MultiHeadAttention(CONFIG, NoPositions() if kind == "cross" else encoding_of(CONFIG))
    positions = [np.tile(np.arange(y.shape[1], dtype=np.int32), (2, 1)) for y in (x, memory)]
    variables = {"params": weights}
    keys_values = module.apply(variables, jnp.asarray(memory), jnp.asarray(positions[1]), method="keys_values")
    out, attention = module.apply(
        variables,
        jnp.asarray(x),
        jnp.asarray(positions[0]),
        keys_values,
        Mask(dense_bts=jnp.asarray(mask)),
        method="attend",
    )

    theirs = torch.nn.MultiheadAttention(CONFIG.d_model, CONFIG.h, batch_first=True)
    copy_attention(theirs, weights)
    expected, expected_attention = theirs(
        tensor(x),
        tensor(memory),
        tensor(memory),
        key_padding_mask=tensor(segments_bs == 0),
        attn_mask=torch.triu(torch.ones(5, 5, dtype=torch.bool), 1) if kind == "causal" else None,
        average_attn_weights=False,
    )
    assert relative_error(out, expected.detach()) <= TOLERANCE
    assert relative_error(attention, expected_attention.detach()) <= TOLERANCE


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_and_whole_stack(norm):
    config = dataclasses.replace(CONFIG, norm=norm)
    params, (source, target) = perturbed(config), batch()
    memory, logits, _, _ = torch_forward(config, params, source, target)
    our_memory = apply_jitted(config, params, source, method="encode")
    our_logits = apply_jitted(config, params, source, target)
    assert relative_error(our_memory[source != 0], memory.detach()[source != 0]) <= TOLERANCE
    assert relative_error(our_logits[target != 0], logits.detach()[target != 0]) <= TOLERANCE


def test_gradients():
    params, (source, target) = perturbed(CONFIG), batch()
    cotangent = np.random.default_rng(1).standard_normal((*target.shape, CONFIG.vocab_size)).astype(np.float32)
    cotangent *= (target != 0)[:, :, None]
    ours = jax.jit(jax.grad(lambda p: (apply(CONFIG, p, source, target) * cotangent).sum()))(params)
    _, logits, theirs, embed = torch_forward(CONFIG, params, source, target)
    (logits * tensor(cotangent)).sum().backward()
    assert relative_error(ours["embed"], embed.grad) <= TOLERANCE
    for side in ("encoder", "decoder"):
        for n, layer in enumerate(getattr(theirs, side).layers):
            mine = ours[side][f"layer_{n}"]
            assert relative_error(mine["feed_forward"]["w1"], layer.linear1.weight.grad.T) <= TOLERANCE
            assert relative_error(mine["norm_1"]["scale"], layer.norm1.weight.grad) <= TOLERANCE
            projections = [
                np.asarray(mine["self_attention"][w]).reshape(CONFIG.d_model, -1).T for w in ("wq", "wk", "wv")
            ]
            assert relative_error(np.concatenate(projections), layer.self_attn.in_proj_weight.grad) <= TOLERANCE


def decode_with_cache(config, params, source, tokens_bmt, parents_bmt):
    """Returns logits [b, m, t, v] of every beam at every step; parents_bmt says whose prefix a beam continues.

    Starts with room for two steps and grows twice.
    """
    _, m, t = tokens_bmt.shape
    model = Transformer(config)
    _, cache = jax.jit(lambda ids: model.apply({"params": params}, ids, m, 2 * m, method="start"))(jnp.asarray(source))

    @jax.jit
    def decode_step(token_bm, step, parents_bm, cache):
        return model.apply({"params": params}, token_bm, step, cache.select(parents_bm), method="step")

    logits = []
    for step in range(t):
        if step in (2, 4):
            cache = cache.grow({2: 4, 4: t}[step] * m)
        logits_bmv, cache = decode_step(
            jnp.asarray(tokens_bmt[:, :, step]), jnp.int32(step), jnp.asarray(parents_bmt[:, :, step]), cache
        )
        logits.append(np.asarray(logits_bmv))
    return np.stack(logits, axis=2)


def prefixes(tokens_bmt, parents_bmt, step):
    """Returns the tokens [b, m, step + 1] of each beam after `step`."""
    b, m, _ = tokens_bmt.shape
    rows = tokens_bmt[:, :, :0]
    for time in range(step + 1):
        rows = np.take_along_axis(rows, parents_bmt[:, :, time, None], axis=1)
        rows = np.concatenate([rows, tokens_bmt[:, :, time, None]], axis=2)
    return rows.reshape(b * m, step + 1)


VARIANTS = [
    {},
    {"norm": "pre", "positions": "rope", "d_k": 6, "d_v": 10, "tie_embeddings": False},
    {"positions": "alibi", "h": 3, "d_v": 5},
    {"positions": "learned"},
]


@functools.cache
def torch_logits_of(config, seed):
    params = perturbed(config, seed=seed)
    return lambda source, target: torch_forward(config, params, source, target)[1].detach().numpy()


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("changes", VARIANTS, ids=["paper", "rope-pre", "alibi", "learned"])
def test_cached_decoding_is_teacher_forcing(changes, m):
    """Also after the cache has grown, and when beams continue each other's prefixes."""
    config: ModelConfig = dataclasses.replace(CONFIG, N=2, **changes)
    params, (source, _) = perturbed(config, seed=m), batch(m)
    rng, t = np.random.default_rng(m), 6
    tokens = rng.integers(1, config.vocab_size, (len(source), m, t)).astype(np.int32)
    parents = rng.integers(0, m, tokens.shape)
    stepped = decode_with_cache(config, params, source, tokens, parents)
    repeated = np.repeat(source, m, axis=0)
    full = jax.jit(lambda source, target: apply(config, params, source, target))
    for step in (0, 1, 3, 5):
        rows = prefixes(tokens, parents, step)
        padded = np.pad(rows, ((0, 0), (0, t - rows.shape[1])))
        actual = stepped[:, :, step].reshape(len(rows), -1)
        assert relative_error(actual, full(repeated, padded)[:, step]) <= TOLERANCE
        if not changes:
            assert relative_error(actual, torch_logits_of(config, m)(repeated, padded)[:, step]) <= TOLERANCE


def test_masks_of_our_padding_agree_with_torch_on_real_positions():
    """Our padding attends to padding and theirs to sentences, so only real positions are compared."""
    source, _ = batch()
    segments = jnp.asarray(source != 0, jnp.int32)
    mask = np.asarray(Mask(segments, segments).dense())
    np.testing.assert_array_equal(mask[source != 0], np.repeat((source != 0)[:, None], 7, axis=1)[source != 0])

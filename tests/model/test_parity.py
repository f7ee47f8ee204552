"""Our models against those of transformers with the same random weights, float32: logits, gradients, cached decoding.

Weights are read as from a folder of transformers, so that this tests the importers, too. A bound is derived from the
longest way through each model, see tests/tolerance.py. Skipped without PyTorch and transformers, see tests/extras.py.
`test_torch_parity.py` compares the paper's model and its parts with PyTorch's own modules.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.reference import torch, transformers

# isort: split
from flax.traverse_util import unflatten_dict

from tests import tolerance
from tests.foreign import randomise
from tests.tiny import padded_ids
from vaswani.infer.convert import bert, gpt2, huggingface, t5, table, vit
from vaswani.infer.convert.weights import Weights
from vaswani.model.config import ModelConfig
from vaswani.model.language_model import LanguageModel
from vaswani.model.masked_lm import MaskedLM
from vaswani.model.transformer import Transformer
from vaswani.model.vision import ImageConfig, Vision
from vaswani.tokens import Tokens

SMALL = ModelConfig(vocab_size=50, N=2, d_model=32, d_ff=48, h=4, d_k=8, d_v=8)
BERT = replace(
    SMALL,
    positions="learned",
    max_positions=20,
    norm_epsilon=1e-12,
    activation="gelu",
    biases=True,
    scale_embeddings=False,
)
GPT2 = replace(BERT, N=3, d_ff=128, norm="pre", norm_epsilon=1e-5, activation="gelu_tanh")
T5 = replace(
    SMALL,
    h=3,
    positions="t5",
    norm="pre",
    norm_kind="rms",
    feed_forward_biases=False,
    scale_attention=False,
    scale_embeddings=False,
    scale_logits=True,
)
LLAMA = replace(
    SMALL,
    positions="rope",
    norm="pre",
    norm_kind="rms",
    activation="swiglu",
    feed_forward_biases=False,
    scale_embeddings=False,
    tie_embeddings=False,
)
IMAGE = ImageConfig(height=12, width=8, patch_height=4, patch_width=4, classes=7)
VIT = replace(
    SMALL,
    vocab_size=IMAGE.classes,
    N=3,
    d_ff=64,
    positions="learned",
    max_positions=IMAGE.positions,
    norm="pre",
    norm_epsilon=1e-12,
    activation="gelu",
    biases=True,
)


class Family(NamedTuple):
    """A model of transformers and ours, of the same small sizes."""

    theirs: Callable[[], Any]
    their_logits: Callable[..., Any]  # of their model and the inputs as tensors
    ours: nn.Module
    parameters: Callable[[Weights], dict]  # the importer
    inputs: tuple[np.ndarray, ...]  # rows of ids or images
    attentions: tuple[int, ...]  # in a layer of each stack
    length: int  # of the longest rows
    size: float = 0.25  # standard deviation of most weights
    prompt: int = 1  # tokens that a decoder is given at once

    def size_of(self, name: str) -> float:
        """Returns the standard deviation of a weight: embeddings are small, so that the epsilon of the norms counts."""
        if any(part in name for part in ("embeddings", "wte", "wpe", "shared")):
            return 0.06
        return 1.0 if "relative_attention_bias" in name else self.size

    def our_logits(self, params: dict) -> jax.Array:
        """Returns the logits of our model."""
        variables = {"params": params}
        if isinstance(self.ours, Vision):
            images_byx = jnp.asarray(self.inputs[0])
            return self.ours.apply(variables, images_byx, jnp.ones(len(images_byx), jnp.int32))[0]
        return self.ours.apply(variables, *_tokens(self.inputs))

    def fresh(self) -> dict:
        """Returns the parameters that our model begins with."""
        if isinstance(self.ours, Vision):
            return self.ours.init(jax.random.key(0), jnp.asarray(self.inputs[0]), jnp.ones(5, jnp.int32))["params"]
        return self.ours.init(jax.random.key(0), *_tokens(self.inputs))["params"]

    def real(self) -> np.ndarray:
        """Returns which logits are compared; what the models make of padding is their own affair."""
        rows = self.inputs[-1]
        return rows != 0 if rows.ndim == 2 else np.ones(len(rows), bool)

    def roundings(self) -> int:
        """Returns how many roundings lie between an input and a logit."""
        config = self.ours.config
        stacks = [tolerance.of_stack(config, attentions, self.length) for attentions in self.attentions]
        return sum(stacks) + config.d_model


def _tokens(inputs: tuple[np.ndarray, ...]) -> list[Tokens]:
    return [Tokens.of(jnp.asarray(ids)) for ids in inputs]


def ids(lengths: list[int], seed: int = 0) -> np.ndarray:
    return padded_ids(np.random.default_rng(seed), lengths, max(lengths), SMALL.vocab_size)


LLAMA_TABLE = """
model.embed_tokens.weight                             embed                                  v d
lm_head.weight                                        softmax                                v d
model.layers.{n}.input_layernorm.weight               decoder/layer_{n}/norm_1/scale         d
model.layers.{n}.self_attn.{q,k}_proj.weight          decoder/layer_{n}/self_attention/w{q,k}  hk d
model.layers.{n}.self_attn.v_proj.weight              decoder/layer_{n}/self_attention/wv    he d
model.layers.{n}.self_attn.o_proj.weight              decoder/layer_{n}/self_attention/wo    d he
model.layers.{n}.post_attention_layernorm.weight      decoder/layer_{n}/norm_2/scale         d
model.layers.{n}.mlp.gate_proj.weight                 decoder/layer_{n}/feed_forward/w1      f d
model.layers.{n}.mlp.up_proj.weight                   decoder/layer_{n}/feed_forward/v       f d
model.layers.{n}.mlp.down_proj.weight                 decoder/layer_{n}/feed_forward/w2      d f
model.norm.weight                                     decoder/final_norm/scale               d
"""


def llama_parameters(weights: Weights) -> dict[str, Any]:
    """Returns LLaMA's weights (Touvron et al. 2023) under our names; there is no importer of it.

    transformers rotates entry i of a query together with entry i + k/2, and ours with its neighbour.
    """
    params = table.read(weights, table.rows(LLAMA_TABLE, LLAMA.N), table.sizes_of(LLAMA))
    neighbours = np.arange(LLAMA.d_k).reshape(2, -1).T.ravel()
    for path in params:
        if path.endswith(("wq", "wk")):
            params[path] = params[path][:, :, neighbours]
    weights.check_all_read(())
    return unflatten_dict(params, sep="/")


FAMILIES = {
    # BERT adds the embedding of token type 0 to every position; here it is part of the table of positions.
    "bert": Family(
        theirs=lambda: transformers.BertForMaskedLM(
            transformers.BertConfig(
                vocab_size=BERT.vocab_size, hidden_size=BERT.d_model, num_hidden_layers=BERT.N,
                num_attention_heads=BERT.h, intermediate_size=BERT.d_ff, max_position_embeddings=BERT.max_positions,
                attn_implementation="eager",
            )
        ),
        their_logits=lambda theirs, ids: theirs(ids, attention_mask=(ids != 0).long()).logits,
        ours=MaskedLM(BERT),
        parameters=lambda weights: bert.parameters(weights, BERT),
        inputs=(ids([20, 11, 1]),),
        attentions=(1,),
        length=20,
    ),
    "gpt2": Family(
        theirs=lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=GPT2.vocab_size, n_positions=GPT2.max_positions, n_embd=GPT2.d_model, n_layer=GPT2.N,
                n_head=GPT2.h, n_inner=GPT2.d_ff, bos_token_id=1, eos_token_id=2, attn_implementation="eager",
            )
        ),
        their_logits=lambda theirs, ids: theirs(ids).logits,
        ours=LanguageModel(GPT2),
        parameters=lambda weights: gpt2.parameters(weights, GPT2),
        inputs=(ids([20, 20, 20]),),
        attentions=(1,),
        length=20,
        prompt=5,
    ),
    # T5's products of queries and keys are not divided by sqrt(d_k): its attention is as sharp with smaller weights.
    "t5": Family(
        theirs=lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(
                vocab_size=T5.vocab_size, d_model=T5.d_model, d_kv=T5.d_k, d_ff=T5.d_ff, num_layers=T5.N,
                num_heads=T5.h, feed_forward_proj="relu", attn_implementation="eager",
            )
        ),
        their_logits=lambda theirs, source, target: theirs(
            source, attention_mask=(source != 0).long(), decoder_input_ids=target
        ).logits,
        ours=Transformer(T5),
        parameters=lambda weights: t5.parameters(weights, T5),
        inputs=(ids([160, 37, 1]), ids([140, 140, 140], seed=1)),  # beyond the farthest bucket, and shorter
        attentions=(1, 2),
        length=160,
        size=0.15,
    ),
    # RMSNorm, SwiGLU and RoPE together.
    "llama": Family(
        theirs=lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=LLAMA.vocab_size, hidden_size=LLAMA.d_model, intermediate_size=LLAMA.d_ff,
                num_hidden_layers=LLAMA.N, num_attention_heads=LLAMA.h, rms_norm_eps=LLAMA.norm_epsilon,
                attn_implementation="eager",
            )
        ),
        their_logits=lambda theirs, ids: theirs(ids).logits,
        ours=LanguageModel(LLAMA),
        parameters=llama_parameters,
        inputs=(ids([20, 20, 20]),),
        attentions=(1,),
        length=20,
        prompt=5,
    ),
    "vit": Family(
        theirs=lambda: transformers.ViTForImageClassification(
            transformers.ViTConfig(
                image_size=(IMAGE.height, IMAGE.width), patch_size=4, num_channels=1, hidden_size=VIT.d_model,
                num_hidden_layers=VIT.N, num_attention_heads=VIT.h, intermediate_size=VIT.d_ff,
                num_labels=IMAGE.classes, attn_implementation="eager",
            )
        ),
        their_logits=lambda theirs, images: theirs(images[:, None]).logits,
        ours=Vision(VIT, IMAGE),
        parameters=lambda weights: vit.parameters(weights, VIT, (4, 4), mean_c=np.zeros(1), deviation_c=np.ones(1)),
        inputs=(np.random.default_rng(0).normal(size=(5, IMAGE.height, IMAGE.width)).astype(np.float32),),
        attentions=(1,),
        length=IMAGE.positions,
    ),
}  # fmt: skip


def imported(family: Family, theirs: Any, folder: Path) -> dict:
    """Returns their weights under our names and in our shapes; on disk some have other names than in the model."""
    theirs.save_pretrained(folder)
    return jax.tree.map(jnp.asarray, family.parameters(huggingface.weights(folder)))


def logits_of(family: Family, theirs: Any) -> Any:
    tensors = [torch.tensor(one) for one in family.inputs]
    return family.their_logits(theirs, *[one if one.is_floating_point() else one.long() for one in tensors])


@pytest.mark.parametrize("name", FAMILIES)
def test_logits(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    theirs = randomise(family.theirs(), family.size_of)
    params = imported(family, theirs, tmp_path)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, jax.eval_shape(family.fresh))
    with torch.no_grad():
        expected = logits_of(family, theirs).numpy()[family.real()]
    actual = np.asarray(jax.jit(family.our_logits)(params))[family.real()]
    assert tolerance.row_error(expected, expected.mean(axis=0)) > 0.3, "they depend on the input, not on biases alone"
    assert tolerance.row_error(actual, expected) <= tolerance.rounding(family.roundings())


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_gradients(name: str, tmp_path: Path) -> None:
    """As the derivative towards other weights: the importer, being linear, takes these as it takes the model's."""
    family = FAMILIES[name]
    theirs = randomise(family.theirs(), family.size_of)
    others = randomise(family.theirs(), family.size_of, seed=1)
    params = imported(family, theirs, tmp_path / "weights")
    direction = imported(family, others, tmp_path / "others")
    logits = logits_of(family, theirs)
    cotangent = np.random.default_rng(1).standard_normal(logits.shape).astype(np.float32)
    cotangent *= family.real()[..., None]
    (logits * torch.tensor(cotangent)).sum().backward()
    pairs = [
        (weight.grad.double().numpy(), other.detach().double().numpy())
        for weight, other in zip(theirs.parameters(), others.parameters(), strict=True)
    ]
    expected = sum((gradient * other).sum() for gradient, other in pairs)
    usual = np.sqrt(sum((gradient**2).sum() * (other**2).mean() for gradient, other in pairs))

    gradient = jax.jit(jax.grad(lambda p: (family.our_logits(p) * cotangent).sum()))(params)
    products = jax.tree.map(lambda g, d: np.vdot(np.float64(g), np.float64(d)), gradient, direction)
    actual = sum(jax.tree.leaves(products))
    assert abs(actual - expected) <= tolerance.rounding(3 * family.roundings()) * usual


@pytest.mark.parametrize("name", ["gpt2", "llama", pytest.param("t5", marks=pytest.mark.slow)])
def test_cached_decoding(name: str, tmp_path: Path) -> None:
    """The first tokens are given at once, and then one after the other: as their model of whole rows."""
    family = FAMILIES[name]
    theirs = randomise(family.theirs(), family.size_of)
    params = imported(family, theirs, tmp_path)
    target_bt = family.inputs[-1]
    first = family.prompt - 1
    begun = target_bt[:, : family.prompt] if isinstance(family.ours, LanguageModel) else family.inputs[0]
    steps = target_bt.shape[1] - first

    @jax.jit
    def decoded(params: dict) -> jax.Array:
        variables = {"params": params}
        _, cache = family.ours.apply(variables, jnp.asarray(begun), 1, steps, method="start")

        def step(cache: Any, token: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
            number, token_b = token
            logits_bmv, cache = family.ours.apply(variables, token_b[:, None], number, cache, method="step")
            return cache, logits_bmv[:, 0]

        _, logits_tbv = jax.lax.scan(step, cache, (jnp.arange(steps), jnp.asarray(target_bt.T[first:])))
        return logits_tbv.transpose(1, 0, 2)

    with torch.no_grad():
        expected = logits_of(family, theirs).numpy()[:, first:]
    assert tolerance.row_error(decoded(params), expected) <= tolerance.rounding(family.roundings())

"""Our float32 model against the float64 NumPy one of tests/oracle.py: logits, loss and every gradient to 1e-5."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.hurry import AS_IN_TRAINING
from tests.oracle import Oracle, flatten
from tests.tiny import TINY, apply, apply_jitted, padded_ids, perturbed
from tests.tolerance import relative_error
from vaswani.configs.rules import CHOICES
from vaswani.tasks.loss import cross_entropy

EPS_LS = 0.1
TOLERANCE = 1e-5
SHARED = {"share_layers": True, "qk_norm": True, "softmax_one": True, "activation": "geglu"}
# What GPT-2 and T5 do otherwise than the paper.
UNSCALED = {
    "scale_attention": False,
    "scale_embeddings": False,
    "scale_logits": True,
    "norm_kind": "rms",
    "activation": "gelu_tanh",
}
IN_OTHER_CASES = ("learned", "rope", "alibi", "shaw")  # kinds of positions that are tested fast there; a new one is not
CASES = [
    pytest.param({"N": 2}, id="base"),
    *(
        pytest.param({"positions": kind, "N": 1}, id=kind, marks=pytest.mark.slow if kind in IN_OTHER_CASES else ())
        for kind in CHOICES["model.positions"][1:]
    ),
    pytest.param({"norm": "pre", "N": 2, "positions": "rope"}, id="pre-norm"),
    pytest.param({"norm": "pre", "N": 1, "h": 3, "d_k": 8, "d_v": 4, "positions": "alibi"}, id="three-heads"),
    pytest.param({"N": 1, "tie_embeddings": False, "positions": "learned"}, id="untied"),
    pytest.param({"N": 1, "source_vocab_size": 31}, id="own-vocabularies"),
    pytest.param({"N": 1, "source_vocab_size": 9, "tie_embeddings": False}, id="own-vocabularies-untied"),
    pytest.param({"N_encoder": 3, "N_decoder": 1, "norm": "deep"}, id="depths"),
    pytest.param({"N": 2, "norm": "none"}, id="no-norm"),
    # Of two layers without residual connections some gradients are as small as rounding: that is why there are some.
    pytest.param({"N": 1, "residual": False}, id="no-residual"),
    pytest.param({"N": 1, "norm": "pre", "residual": False}, id="pre-norm-no-residual", marks=pytest.mark.slow),
    pytest.param({"N": 1, "norm": "none", "residual": False}, id="neither"),
    pytest.param({"N": 1, "norm_embeddings": True, "positions": "learned"}, id="normed-embeddings"),
    pytest.param({"N": 1, "positions": "shaw", "max_distance": 3, "norm": "deep", "activation": "swiglu"}, id="shaw"),
    pytest.param({"N": 1, **UNSCALED, "positions": "shaw", "max_distance": 3}, id="unscaled-shaw"),
    *(
        pytest.param({"N": 1, **changes}, id=name, marks=pytest.mark.slow)
        for name, changes in {
            "shared": {"N": 2, **SHARED, "positions": "rope"},
            "shaw-clipped": {"positions": "shaw", "max_distance": 3},
            "deep-norm": {"norm": "deep", "N": 3},
            "shared-layers": {"share_layers": True, "N": 3},
            "unscaled": UNSCALED,
            "gelu": {"activation": "gelu"},
            "silu": {"activation": "silu", "norm_kind": "rms"},
            "geglu": {"activation": "geglu"},
            "geglu-tanh": {"activation": "geglu_tanh"},
            "swiglu": {"activation": "swiglu"},
            "qk-norm": {"qk_norm": True},
            "softmax-one": {"softmax_one": True},
            "additive": {"scores": "additive", "h": 3, "d_k": 8},
            "additive-alibi": {"scores": "additive", "positions": "alibi", "qk_norm": True, "softmax_one": True},
        }.items()
    ),
    pytest.param({"N": 1, "h": 1, "d_model": 12, "d_k": 16, "d_v": 3, "d_ff": 7, "vocab_size": 5}, id="one-head"),
]


def batch(config, seed=0):
    rng = np.random.default_rng(seed)
    source = padded_ids(rng, [7, 3, 1], 7, config.source_vocab_size or config.vocab_size)
    target = padded_ids(rng, [2, 6, 5], 6, config.vocab_size)
    labels = np.where(target == 0, 0, rng.integers(1, config.vocab_size, target.shape)).astype(np.int32)
    return source, target, labels


@pytest.mark.parametrize("changes", CASES)
def test_logits_loss_and_gradients(changes):
    config = dataclasses.replace(TINY, **changes)
    params = perturbed(config)
    source, target, labels = batch(config)

    def loss_of(params):
        logits = apply(config, params, source, target)
        loss = cross_entropy(logits, jnp.asarray(labels), jnp.asarray(labels != 0, jnp.float32), EPS_LS)
        return loss.loss_sum / loss.tokens, logits

    # Once with the compiler's own settings, where tests/conftest.py has it hurry for all else.
    options = AS_IN_TRAINING if changes == {"N": 2} else None
    both = jax.jit(jax.value_and_grad(loss_of, has_aux=True), compiler_options=options)
    (loss, logits), gradients = both(params)
    oracle = Oracle(config, params)
    expected_logits, backward = oracle(source, target)
    expected_loss, d_logits = oracle.loss(expected_logits, labels, EPS_LS)
    expected_gradients = backward(d_logits)

    real = target != 0
    assert relative_error(logits[real], expected_logits[real]) <= TOLERANCE
    assert abs(loss - expected_loss) <= TOLERANCE * expected_loss
    gradients = flatten(gradients)
    assert gradients.keys() == expected_gradients.keys()
    errors = {name: relative_error(gradients[name], expected_gradients[name]) for name in gradients}
    assert max(errors.values()) <= TOLERANCE, sorted(errors.items(), key=lambda item: -item[1])[:5]


@pytest.mark.parametrize("lengths", [([1], [1]), ([9, 9], [4, 4]), ([2, 11, 5, 8], [12, 1, 7, 3])])
def test_shapes(lengths):
    params, rng = perturbed(TINY, seed=1), np.random.default_rng(1)
    source, target = (padded_ids(rng, side, max(side), TINY.vocab_size) for side in lengths)
    expected, _ = Oracle(TINY, params)(source, target)
    real = target != 0
    assert relative_error(apply_jitted(TINY, params, source, target)[real], expected[real]) <= TOLERANCE


def test_encoder_output():
    params = perturbed(TINY, seed=2)
    source, _, _ = batch(TINY)
    memory, _ = Oracle(TINY, params).encode(source)
    real = source != 0
    assert relative_error(apply_jitted(TINY, params, source, method="encode")[real], memory[real]) <= TOLERANCE


@pytest.mark.parametrize("changes", CASES)
def test_the_oracle_itself_by_finite_differences(changes):
    """Gradients along a random direction, all tensors together and in turn, against central differences in float64."""
    config = dataclasses.replace(TINY, **changes)
    params = flatten(perturbed(config, seed=3))
    source, target, labels = batch(config, seed=3)

    def loss_at(values):
        oracle = Oracle(config, values)
        logits, backward = oracle(source, target)
        loss, d_logits = oracle.loss(logits, labels, EPS_LS)
        return loss, lambda: backward(d_logits)

    gradients, rng, step = loss_at(params)[1](), np.random.default_rng(4), 1e-6
    directions = {name: rng.standard_normal(value.shape) for name, value in params.items()}
    groups = [list(params)] + [[name] for name in params if config.N == 1]
    for group in groups:
        above, below = (
            loss_at(params | {name: params[name] + sign * step * directions[name] for name in group})[0]
            for sign in (1, -1)
        )
        expected = sum((gradients[name] * directions[name]).sum() for name in group)
        assert abs((above - below) / (2 * step) - expected) <= 1e-6 * abs(expected) + 1e-8, group

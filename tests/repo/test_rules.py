"""configs/rules.py: each row can be kept and broken, and every choice has its code."""

import dataclasses
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from vaswani.configs import rules
from vaswani.configs.common import default
from vaswani.configs.rules import CHOICES, NOT_RECURRENT, RULES, Condition, Rule, broken
from vaswani.keys import flat
from vaswani.model.baselines.recurrent_translator import CELLS, RecurrentConfig
from vaswani.model.block import ACTIVATIONS, GATED, NORMS, self_mixer
from vaswani.model.config import DEFAULTS, SIZES, ModelConfig
from vaswani.model.positions import encoding_of
from vaswani.model.stack import REMAT_POLICIES
from vaswani.tasks import MODULES
from vaswani.train.optim import learning_rate, optimizer

KEYS = flat(default().to_dict())
# Other values than the default of keys that have no choices; of all others 0 and 0.5.
OTHERS: dict[str, tuple[Any, ...]] = {
    "model.d_model": (6, 7),
    "model.d_k": (6, 7, 8, 16),
    "model.d_v": (8,),
    "decode.checkpoint": ("ema",),
    "data.tokenizer": ("one.model",),
    "data.classes": ("a,b",),
    "data.joiner": ("@@",),
    "data.normalisation": ("none", "plain_nfkc"),
}


def values_of(key: str) -> list[Any]:
    if key == "task":
        return list(MODULES)
    if key in CHOICES:
        return list(CHOICES[key])
    if isinstance(KEYS[key], bool):
        return [False, True]
    return [KEYS[key], *OTHERS.get(key, (0, 0.5))]


def named(rule: Rule) -> str:
    return " ".join(f"{key.rpartition('.')[2]}" for key in (*rule.when, "needs", *rule.needs))[:60]


@pytest.mark.parametrize("rule", RULES, ids=map(named, RULES))
def test_a_row_can_be_kept_and_broken_and_names_both_keys(rule: Rule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RULES", (rule,))
    for key in rule.needs:
        keys = list(dict.fromkeys((*rule.when, key, *(["model.d_v"] if key == "model.d_k" else []))))
        said = {broken(dict(zip(keys, values, strict=True)), KEYS) for values in product(*map(values_of, keys))}
        assert None in said, f"no value of {key} keeps the rule"
        refusals = said - {None}
        assert refusals, f"no value of {key} breaks the rule"
        for refusal in refusals:
            assert refusal and all(f"{name}=" in refusal for name in rule.when) and f" {key} to be " in refusal


def test_every_value_of_a_row_is_one_of_its_key() -> None:
    wrong = []
    for rule in RULES:
        for key, allowed in (*rule.when.items(), *rule.needs.items()):
            if not isinstance(allowed, Condition):
                wrong += [f"{key}={value}" for value in allowed if value not in values_of(key)]
    assert not wrong


def test_a_new_choice_is_refused_wherever_no_row_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new kind of positions with additive scores, once the code beside the scores knew nothing of it."""
    for key in ("model.positions", "model.mixer", "model.scores", "model.attention_impl", "optim.name"):
        monkeypatch.setitem(CHOICES, key, (*CHOICES[key], "new"))
    others = {
        "model.positions": ("model.scores=additive", "model.mixer=linear", "model.attention_impl=chunked"),
        "model.mixer": ("model.scores=additive", "model.positions=rope", "model.attention_impl=chunked"),
        "model.scores": ("model.positions=rope", "model.mixer=linear", "model.attention_impl=chunked"),
        "model.attention_impl": ("model.positions=alibi", "model.softmax_one=True", "model.prefix=full"),
        "optim.name": ("optim.weight_decay=0.1", "model.parametrisation=mup"),
    }
    for key, several in others.items():
        for other in several:
            name, _, text = other.partition("=")
            value = {"True": True, "0.1": 0.1}.get(text, text)
            assert broken(KEYS | {"task": "translation", key: "new", name: value}, KEYS) is not None, (key, other)


def test_what_recurrent_networks_use_and_what_they_refuse_is_every_key() -> None:
    used = {field.name for field in dataclasses.fields(RecurrentConfig)}
    assert set(default().model) == (used | set(SIZES) | {*NOT_RECURRENT, "positions"}) - {
        "vocab_size",
        "source_vocab_size",
    }
    assert not used & set(NOT_RECURRENT)


def test_the_defaults_of_the_model_are_those_of_the_config() -> None:
    given = {key: value for key, value in DEFAULTS.items() if key in KEYS}
    assert given == {key: KEYS[key] for key in given}


def test_every_choice_has_its_code() -> None:
    assert set(CHOICES["model.activation"]) == set(ACTIVATIONS) >= set(GATED)
    assert set(CHOICES["model.norm_kind"]) == set(NORMS)
    assert set(CHOICES["model.cell"]) == set(CELLS)
    assert set(CHOICES["model.remat"]) == {"none", *REMAT_POLICIES}
    for mixer in CHOICES["model.mixer"]:
        self_mixer(ModelConfig(9, mixer=mixer), causal=True)
    for positions in CHOICES["model.positions"]:
        encoding_of(ModelConfig(9, positions=positions))
    for name in CHOICES["optim.name"]:
        cfg = default().optim
        cfg.name = name
        optimizer(cfg, 8, 10)
    for schedule in CHOICES["optim.schedule"]:
        cfg = default().optim
        cfg.schedule = schedule
        assert jax.numpy.isfinite(learning_rate(cfg, 8, 10, jnp.asarray(3)))

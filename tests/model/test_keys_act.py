"""Every key of the model's config acts wherever it is accepted; where it would do nothing, it is refused by its name.

A combination is a task with a mixer, a kernel, a kind of scores and a kind of positions. In `make test` few of them are
traced, and the keys that their models do not read must be refused. The slow test changes every key in every combination
and compares the numbers.
"""

import dataclasses
import re
from collections import Counter
from functools import cached_property, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.tpu import splash_attention as pallas
from jax.flatten_util import ravel_pytree
from ml_collections import ConfigDict

from tests import tiny
from tests.tolerance import BFLOAT16, backward, relative_error
from vaswani.configs.common import default
from vaswani.configs.rules import CHOICES, WITH_HEADS
from vaswani.data.batching import TextBatch
from vaswani.data.images import ImageBatch
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.model.baselines.recurrent_translator import RecurrentConfig
from vaswani.model.config import CommonConfig
from vaswani.model.mixers import kernels
from vaswani.model.noise import Noise
from vaswani.tasks import MODULES, task_of
from vaswani.tasks.config import model_config
from vaswani.tasks.task import Objective
from vaswani.train.check import check

VOCABULARY = 20
SIZES = {"N": 2, "d_model": 16, "d_ff": 24, "h": 2, "d_k": 8, "d_v": 8, "max_positions": 40, "max_distance": 2}
BASE = SIZES | {"neighbours": 3, "mup_width": 8, "P_drop": 0.2}

# Another value of every key, far from that of `BASE`; or two, for where a combination has the first. A new key is to
# have one, too.
OTHER: dict[str, tuple[Any, ...]] = {
    "N": (3,),
    "N_encoder": (3,),
    "N_decoder": (3,),
    "d_model": (12,),
    "d_ff": (20,),
    "h": (4,),
    "d_k": (16,),
    "d_v": (16,),
    "P_drop": (0.6,),
    "P_drop_embeddings": (0.6,),
    "P_drop_attention": (0.5,),
    "P_drop_relu": (0.5,),
    "positions": ("learned", "sinusoidal"),
    "max_positions": (50,),
    "max_distance": (3,),
    "norm": ("pre",),
    "norm_kind": ("rms",),
    "norm_epsilon": (0.5,),
    "residual": (False,),
    "norm_embeddings": (True,),
    "activation": ("gelu",),
    "biases": (True,),
    "feed_forward_biases": (False,),
    "scores": ("additive", "dot"),
    "scale_attention": (False,),
    "softmax_one": (True,),
    "qk_norm": (True,),
    "output_bias": (True,),
    "scale_embeddings": (False,),
    "scale_logits": (True,),
    "tie_embeddings": (False, True),
    "dtype": ("bfloat16", "float32"),
    "remat": ("full",),
    "dropout_bits": ("hash",),
    "attention_impl": ("chunked", "einsum"),
    "mixer": ("restricted", "attention"),
    "neighbours": (5,),
    "kernel_width": (2,),
    "prefix": ("causal",),
    "recurrent": ("dot", "fixed"),
    "cell": ("gru", "lstm"),
    "scan_layers": (True,),
    "parametrisation": ("mup", "standard"),
    "mup_width": (4,),
    "share_layers": (True,),
}
# How to compute, not what: they change the program and must not change its logits.
KNOBS = ("remat", "attention_impl", "scan_layers")

KERNELS = [{"attention_impl": impl} for impl in ("chunked", "splash")]
KERNELS.append({"attention_impl": "cudnn", "dtype": "bfloat16"})
INSIDE = [*({"mixer": mixer} for mixer in CHOICES["model.mixer"]), *KERNELS, {"scores": "additive"}]
POSITIONED = [{"positions": positions} for positions in CHOICES["model.positions"]]
# Of each task; those that are refused as they are do not count. A language model has all pairs, because nothing attends
# there beside the mixer: a mixer that ignores a key does not hide behind encoder-decoder attention.
COMBINATIONS: dict[str, list[dict[str, Any]]] = {
    "language_model": [positioned | inside for positioned in POSITIONED for inside in INSIDE],
    "translation": [*POSITIONED, *INSIDE[1:], {"parametrisation": "mup", "tie_embeddings": False}],
    "prefix_lm": [{"prefix": "full"} | changes for changes in (*POSITIONED, *INSIDE[1:])],
    "recurrent_translation": [
        {"positions": "none", "cell": cell, "recurrent": kind}
        for cell in CHOICES["model.cell"]
        for kind in CHOICES["model.recurrent"][1:]
    ],
    "masked_lm": [*POSITIONED, *INSIDE[1:]],
    "classification": [POSITIONED[0], *INSIDE[1:]],
    "vision": [*POSITIONED, *INSIDE[1:]],
}


# Tasks that differ from translation by their data alone, not by a combination of keys.
TRANSLATORS = [
    name for name in MODULES if name not in COMBINATIONS and task_of(name).objective is task_of("translation").objective
]


def without_a_use(task: str, config: CommonConfig) -> set[str]:
    """The keys that are accepted though they change nothing, because no value of theirs is off.

    They are the sizes of what a model has not; and the scale of embeddings that only a layer norm reads.
    """
    if isinstance(config, RecurrentConfig):
        return {*SIZES, "neighbours", "kernel_width", "mup_width"} - {"N", "d_model"}
    adds_positions = config.positions in ("sinusoidal", "learned")
    attends = task == "translation" or config.mixer in WITH_HEADS
    uses = {
        ("h", "d_k", "d_v"): attends,
        ("neighbours",): config.mixer in ("restricted", "strided"),
        ("kernel_width",): config.mixer == "convolution",
        ("max_positions",): config.positions == "learned",
        ("max_distance",): config.positions == "shaw",
        ("mup_width",): config.parametrisation == "mup",
        ("scale_embeddings",): adds_positions or task not in ("masked_lm", "classification"),
    }
    return {key for keys, has_a_use in uses.items() if not has_a_use for key in keys}


def config_of(task: str, changes: dict[str, Any]) -> ConfigDict:
    cfg = default()
    cfg.task = task
    cfg.data.classes = "a,b" if task == "classification" else ""
    cfg.model.update(BASE | changes)
    return cfg


def refusal(task: str, changes: dict[str, Any]) -> str | None:
    """What training says to a config that it refuses."""
    cfg = config_of(task, changes)
    try:
        check(cfg, default())
        model_config(cfg, VOCABULARY)
    except UserError as error:
        return str(error)
    return None


def with_another(task: str, changes: dict[str, Any], key: str) -> dict[str, Any]:
    """The combination with another value of the key."""
    now = config_of(task, changes).model[key]
    return changes | {key: next(value for value in OTHER[key] if value != now)}


ALL = [(task, changes) for task, several in COMBINATIONS.items() for changes in several if not refusal(task, changes)]


def is_fast(task: str, changes: dict[str, Any]) -> bool:
    """Whether it is one of a model for each task, and one of each mixer, kernel, kind of scores and of positions."""
    if task == "language_model":
        return changes["positions"] == "sinusoidal" or changes.get("mixer") == "attention"
    return changes in (POSITIONED[0], {"prefix": "full"} | POSITIONED[0]) or changes.get("cell") == "lstm"


def batch_of(task: str) -> Any:
    if task == "vision":
        images_byx = np.random.default_rng(0).normal(size=(3, 8, 8)).astype(np.float32)
        batch = ImageBatch(images_byx, np.asarray([1, 3, 0], np.int32), np.asarray([1, 1, 0], np.int32))
    else:
        batch = tiny.batch(rows=3, length=6, vocab_size=VOCABULARY)
    if task == "language_model":
        batch = TextBatch(batch.target, batch.labels_bt)
    if task == "classification":
        ends_b = (batch.source.segments_bt != 0).sum(axis=1) - 1  # a class is predicted at a text's last token
        batch.source.ids_bt[np.arange(2), ends_b[:2]] = EOS
        batch = batch._replace(labels_bt=batch.labels_bt % 2)
    return jax.tree.map(jnp.asarray, batch)


def loss_of(objective: Objective, batch: Any, params: dict) -> jax.Array:
    noise = Noise.of(objective.model.config, jax.random.key(0), jnp.arange(3, dtype=jnp.int32))  # as in train/step.py
    return objective.loss(params, batch, noise).loss_sum


def shapes_of(objective: Objective) -> dict:
    return jax.eval_shape(objective.init, jax.random.key(0))


@pytest.fixture(autouse=True)
def no_devices(monkeypatch):
    """Kernels on this CPU: a TPU's in Pallas' interpreter, and XLA's attention in place of cuDNN's."""
    interpreted = partial(pallas.make_splash_mha_single_device, interpret=True)
    attention = jax.nn.dot_product_attention

    def xla(*arrays, implementation, **options):
        return attention(*arrays, **options, implementation="xla")

    monkeypatch.setattr(kernels, "PLATFORMS", {})
    monkeypatch.setattr(pallas, "make_splash_mha_single_device", interpreted)
    monkeypatch.setattr(jax.nn, "dot_product_attention", xla)


def test_every_key_has_another_value_and_every_task_its_combinations():
    assert set(OTHER) ^ set(default().model) == set(), "in configs/common.py, or in OTHER, alone"
    assert set(COMBINATIONS) == set(MODULES) - set(TRANSLATORS)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_task_may_be_translation_to_the_model(name: str):
    for changes in COMBINATIONS["translation"]:
        for key in OTHER:
            other = with_another("translation", changes, key)
            said = refusal("translation", other)
            assert refusal(name, other) == (said and said.replace("it is 'translation'", f"it is '{name}'"))


class Noting:
    """Has a config note which of its keys are read; as a key of jax's caches it is equal to itself alone."""

    READ: ClassVar[set[str]] = set()
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __getattribute__(self, name):
        Noting.READ.add(name)
        return super().__getattribute__(name)


def test_a_key_that_a_model_does_not_read_is_refused():
    few = [combination for combination in ALL if is_fast(*combination)]
    ignored = []
    count = 0
    for task, changes in few:
        cfg = config_of(task, changes | {"N": 1})
        config = task_of(task).config(cfg, VOCABULARY)
        shapes = shapes_of(task_of(task).objective(cfg, config))
        kind = type("Noting", (Noting, type(config)), {})
        noting = task_of(task).objective(cfg, kind(**dataclasses.asdict(config)))
        Noting.READ.clear()  # of what was read at initialisation, which is the einsum's
        jax.eval_shape(partial(loss_of, noting, batch_of(task)), shapes)
        unread = set(OTHER) - Noting.READ - without_a_use(task, config)
        count += len(unread)
        for key in sorted(unread):
            said = refusal(task, with_another(task, changes, key))
            if said is None or f"model.{key}" not in said:
                ignored.append(f"{task} with {changes} ignores model.{key}, and says {said}")
    print(f"{len(few)} combinations of {len(OTHER)} keys: {count} are not read")
    assert not ignored, "\n".join(ignored)


class Seen:
    """What a key may change in a combination, each computed when it is asked for."""

    def __init__(self, task: str, changes: dict[str, Any]):
        cfg = config_of(task, changes)
        self.config = task_of(task).config(cfg, VOCABULARY)
        self.objective = task_of(task).objective(cfg, self.config)
        self.loss_of = partial(loss_of, self.objective, batch_of(task))
        self.batch = batch_of(task)
        self.shapes = shapes_of(self.objective)

    @cached_property
    def params(self) -> dict:
        rng = np.random.default_rng(0)
        return jax.tree.map(lambda leaf: jnp.asarray(0.5 * rng.standard_normal(leaf.shape), leaf.dtype), self.shapes)

    @cached_property
    def logits(self) -> np.ndarray:
        """Those that are asked for, without dropout."""
        is_target_bt = np.asarray(self.objective.make_example(self.batch).weights_bt) > 0
        return np.asarray(self.objective.logits(self.params, self.batch))[is_target_bt]

    @cached_property
    def loss(self) -> jax.Array:
        return self.loss_of(self.params)

    @cached_property
    def gradients(self) -> dict:
        return jax.grad(self.loss_of)(self.params)

    @cached_property
    def initial(self) -> dict:
        return self.objective.init(jax.random.key(0))

    @cached_property
    def program(self) -> str:
        """That of the loss, without the addresses of Python's functions."""
        return re.sub(r" at 0x\w+", "", str(jax.make_jaxpr(self.loss_of)(self.shapes)))


def differs(before: Any, after: Any) -> bool:
    before, _ = ravel_pytree(before)
    after, _ = ravel_pytree(after)
    return relative_error(after, before) > 1e-4  # more than rounding


def acts(base: Seen, other: Seen) -> bool:
    if base.shapes != other.shapes:
        return True
    numbers = ("loss", "initial", "gradients")
    return any(differs(getattr(base, number), getattr(other, number)) for number in numbers)


def outcome(task: str, changes: dict[str, Any], key: str, base: Seen) -> str:
    """What comes of another value of the key; one of `RIGHT`, or what is wrong."""
    other_changes = with_another(task, changes, key)
    said = refusal(task, other_changes)
    if said is not None:
        return "refused" if f"model.{key}" in said else f"refused, but not by name: {said}"
    other = Seen(task, other_changes)
    if key in KNOBS:
        bound = BFLOAT16 if base.config.dtype == "bfloat16" else backward(base.config)
        if relative_error(other.logits, base.logits) > bound:
            return "changes the logits"
        return "another program" if base.program != other.program else "changes nothing"
    if key in without_a_use(task, base.config):
        is_same = base.shapes == other.shapes and (base.program == other.program or not acts(base, other))
        return "without a use" if is_same else "changed in spite of `without_a_use`"
    return "changed" if acts(base, other) else "changes nothing"


RIGHT = ("changed", "refused", "another program", "without a use")
COUNT: Counter[str] = Counter()


@pytest.mark.slow
@pytest.mark.parametrize(("task", "changes"), ALL, ids=["-".join([task, *map(str, c.values())]) for task, c in ALL])
def test_every_key_acts_or_is_refused(task, changes):
    base = Seen(task, changes)
    outcomes = {key: outcome(task, changes, key, base) for key in OTHER}
    COUNT.update(outcomes.values(), combinations=1)
    print(dict(COUNT))
    assert {key: found for key, found in outcomes.items() if found not in RIGHT} == {}

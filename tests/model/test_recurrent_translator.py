"""Recurrent translators: against their equations in float64, what each position sees, packing, search, training."""

import dataclasses
import functools
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from jax.sharding import AbstractMesh

from tests.search.test_search import EXTRA, SOURCE_BS, Oracle, assert_same, plain_beam_search, searcher, unpad
from tests.slow import slow_but
from tests.tiny import noise, training_config
from tests.tolerance import relative_error
from tests.trainings import assert_resumes_to_the_same_bits, refusal_of_config
from vaswani.configs.common import default
from vaswani.configs.quickstart import get_config as quickstart
from vaswani.configs.recurrent import WIDTHS, get_config
from vaswani.configs.rules import CHOICES
from vaswani.errors import UserError
from vaswani.ids import BOS
from vaswani.infer.evaluate.sentences import open_sentences
from vaswani.infer.evaluate.translations import evaluate
from vaswani.infer.runs import open_run
from vaswani.model.baselines import recurrent_translator
from vaswani.model.baselines.recurrent_translator import CELLS, RecurrentConfig, RecurrentTranslator
from vaswani.model.parameter_count import parameter_count
from vaswani.model.parameters import init_params
from vaswani.model.translation import translation_model
from vaswani.run.sharding import AXES, placed_shapes
from vaswani.search import state
from vaswani.search.options import Decoding
from vaswani.tasks import TRANSLATION
from vaswani.tasks.config import model_config
from vaswani.tokens import Tokens
from vaswani.train import loop
from vaswani.train.check import check

RECURRENT = CHOICES["model.recurrent"][1:]
KINDS = {
    f"{kind} {cell}": RecurrentConfig(12, N=2, d_model=8, P_drop=0.0, recurrent=kind, cell=cell)
    for kind in RECURRENT
    for cell in CELLS
}
FAST = [f"{kind} {cell}" for kind, cell in zip(RECURRENT, itertools.cycle(CELLS), strict=False)]  # a new kind, too
kinds = pytest.mark.parametrize("kind", slow_but(FAST, KINDS))
SOURCE = np.array([[5, 7, 4, 2, 0, 0], [9, 8, 6, 10, 11, 2]], np.int32)
TARGET = np.array([[BOS, 4, 6, 8, 3], [BOS, 3, 11, 0, 0]], np.int32)


@functools.cache
def tiny(kind):
    """A random model without special parameters, whose next-token distributions are peaked."""
    rng = np.random.default_rng(0)

    def draw(leaf):
        return jnp.asarray(rng.standard_normal(leaf.shape) * KINDS[kind].d_model ** -0.5, jnp.float32)

    params = jax.tree.map(draw, jax.eval_shape(lambda: init_params(translation_model(KINDS[kind]), jax.random.key(0))))
    return RecurrentTranslator(KINDS[kind]), params | {"embed": params["embed"] * 2.5}


@functools.cache
def compiled(model, method=None):
    return jax.jit(lambda params, *sides: model.apply({"params": params}, *sides, method=method))


def logits(kind, source=SOURCE, target=TARGET):
    model, params = tiny(kind)
    return compiled(model)(params, Tokens.of(np.asarray(source)), Tokens.of(np.asarray(target)))


class Plain:
    """The equations, a sentence at a time, in NumPy and float64."""

    def __init__(self, config, params):
        self.config = config
        self.params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)

    def cell(self, p, state, x):
        """One step of an LSTM (Hochreiter and Schmidhuber 1997) or a GRU (Cho et al. 2014); state is (cell, output)."""
        c, h = state
        from_x = {name[1]: x @ p[name]["kernel"] + p[name].get("bias", 0) for name in p if name[0] == "i"}
        from_h = {name[1]: h @ p[name]["kernel"] + p[name].get("bias", 0) for name in p if name[0] == "h"}
        if self.config.cell == "lstm":
            i, f, o = (sigmoid(from_x[gate] + from_h[gate]) for gate in "ifo")
            c = f * c + i * np.tanh(from_x["g"] + from_h["g"])
            return c, o * np.tanh(c)
        r, z = (sigmoid(from_x[gate] + from_h[gate]) for gate in "rz")
        return c, (1 - z) * np.tanh(from_x["n"] + r * from_h["n"]) + z * h

    def read(self, p, xs):
        width = next(iter(p.values()))["kernel"].shape[1]
        state = np.zeros(width), np.zeros(width)
        states = []
        for x in xs:
            state = self.cell(p, state, x)
            states.append(state)
        return states

    def logits(self, source, target):
        table = self.params["embed"]
        embedded = table * np.sqrt(self.config.d_model)
        outputs, states = self.encode([embedded[token] for token in source])
        decoder = self.params["decoder"]
        rows = []
        for token in target:
            x = embedded[token]
            if self.config.recurrent == "additive":
                query = states[0][1] @ decoder["query"]["kernel"]
                scores = [np.tanh(query + h @ decoder["key"]["kernel"]) @ decoder["energy"] for h in outputs]
                context = softmax(scores) @ outputs
            for n in range(self.config.N):
                if self.config.recurrent == "additive":
                    x = np.concatenate([x, context])
                states[n] = self.cell(decoder[f"layer_{n}"], states[n], x)
                x = states[n][1]
            if self.config.recurrent == "dot":
                context = softmax([x @ h for h in outputs]) @ outputs
            if self.config.recurrent != "fixed":
                x = np.tanh(np.concatenate([x, context]) @ decoder["output"]["kernel"])
            rows.append(table @ x)
        return np.array(rows)

    def encode(self, xs):
        states = []
        for n in range(self.config.N):
            p = self.params["encoder"][f"layer_{n}"]
            both = [self.read(p["backward"], xs[::-1])[::-1]]
            ends = [both[0][0]]
            if self.config.recurrent != "fixed":
                both.insert(0, self.read(p["forward"], xs))
                ends.insert(0, both[0][-1])
            xs = [np.concatenate([states[place][1] for states in both]) for place in range(len(xs))]
            states.append(tuple(np.concatenate(parts) for parts in zip(*ends, strict=True)))
        return np.array(xs), states


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(scores):
    weights = np.exp(scores)
    return weights / weights.sum()


PAIRS = (([5, 7, 4, 2], [BOS, 4, 6, 8, 3]), ([9, 8, 6, 10, 11, 2], [BOS, 3, 11]))  # those of SOURCE and TARGET


@kinds
def test_the_logits_are_those_of_the_equations(kind: str) -> None:
    found = logits(kind)
    plain = Plain(KINDS[kind], tiny(kind)[1])
    for row, (source, target) in enumerate(PAIRS):
        assert relative_error(found[row, : len(target)], plain.logits(source, target)) < 1e-5


@kinds
def test_the_gradient_is_that_of_the_equations_in_every_array(kind: str) -> None:
    model, params = tiny(kind)
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((2, 5, 12))
    weights *= (TARGET != 0)[:, :, None]

    def loss(params):
        logits_btv = model.apply({"params": params}, Tokens.of(jnp.asarray(SOURCE)), Tokens.of(jnp.asarray(TARGET)))
        return jnp.sum(logits_btv * weights)

    def plain_loss(leaves):
        plain = Plain(KINDS[kind], jax.tree.unflatten(tree, leaves))
        rows = zip(PAIRS, weights, strict=True)
        return sum(np.sum(plain.logits(*pair) * row[: len(pair[1])]) for pair, row in rows)

    gradient = jax.jit(jax.grad(loss))(params)
    leaves, tree = jax.tree.flatten(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params))
    for place, found in enumerate(jax.tree.leaves(gradient)):
        # The derivative along the gradient itself is its squared norm; along any other, less.
        direction = np.asarray(found, np.float64) / np.linalg.norm(found)
        other = rng.standard_normal(found.shape)
        other /= np.linalg.norm(other)
        for along in (direction, other):
            moved = [[*leaves[:place], leaves[place] + sign * along, *leaves[place + 1 :]] for sign in (1e-5, -1e-5)]
            slope = (plain_loss(moved[0]) - plain_loss(moved[1])) / 2e-5
            assert abs(slope - np.sum(found * along)) < 1e-5 * np.linalg.norm(found)


@kinds
def test_every_matrix_is_sharded(kind: str) -> None:
    _, params = tiny(kind)
    mesh = AbstractMesh((1, 2, 1), AXES)
    for leaf in jax.tree.leaves(placed_shapes(params, mesh)):  # which refuses a matrix that no rule names
        assert len(leaf.shape) == 1 or "fsdp" in leaf.sharding.spec


@pytest.mark.parametrize("kind", WIDTHS)
def test_every_kind_is_compared_at_the_parameters_of_the_quickstart(kind: str) -> None:
    cfg = get_config(kind)
    check(cfg, default())
    count, ours = (parameter_count(model_config(one, cfg.data.vocab_size)) for one in (quickstart(), cfg))
    assert ours == pytest.approx(count, rel=1e-2)


@kinds
def test_the_target_is_causal_and_reads_the_whole_source(kind: str) -> None:
    whole = logits(kind)
    later = np.where(np.arange(5) == 3, 10, TARGET).astype(np.int32)
    assert relative_error(logits(kind, target=later)[:, :3], whole[:, :3]) < 1e-6
    assert relative_error(logits(kind, target=later)[:, 3], whole[:, 3]) > 1e-3
    for place in (0, 3):  # the first and the last token of the first source
        other = SOURCE.copy()
        other[0, place] = 10
        assert relative_error(logits(kind, source=other)[0, 0], whole[0, 0]) > 1e-4
        assert relative_error(logits(kind, source=other)[1], whole[1]) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind: str) -> None:
    alone = logits(kind, SOURCE[:1, :4], TARGET[:1])
    padded = logits(kind, np.pad(SOURCE, ((0, 0), (0, 3))), np.pad(TARGET, ((0, 0), (0, 2))))
    assert relative_error(padded[:1, :5], alone) < 1e-6


@pytest.mark.parametrize("kind", slow_but(["additive gru"], KINDS))
def test_packed_pairs_are_as_if_alone(kind: str) -> None:
    model, params = tiny(kind)
    source = ([5, 7, 2, 9, 2, 0], [1, 1, 1, 2, 2, 0]), ([5, 7, 2, 0, 0, 0], [1, 1, 1, 0, 0, 0]), ([9, 2], [1, 1])
    target = ([BOS, 4, 6, 8, BOS, 3, 0], [1, 1, 1, 1, 2, 2, 0]), ([BOS, 4, 6, 8], [1] * 4), ([BOS, 3], [1, 1])
    sides = []
    for rows, width in ((source, 6), (target, 7)):
        padded = [[part + [0] * (width - len(part)) for part in row] for row in rows]
        ids_bt, segments_bt = jnp.asarray(padded).swapaxes(0, 1)
        sides.append(Tokens.of(ids_bt)._replace(segments_bt=segments_bt))
    packed, first, second = compiled(model)(params, *sides)
    assert relative_error(packed[:4], first[:4]) < 1e-6 and relative_error(packed[4:6], second[:2]) < 1e-6


@kinds
def test_attention_is_a_distribution_over_the_tokens_of_the_source_and_fixed_has_none(kind: str) -> None:
    model, params = tiny(kind)
    maps = compiled(model, "attention_maps")(params, Tokens.of(SOURCE), Tokens.of(TARGET))
    if kind.startswith("fixed"):
        assert maps == {}
        return
    weights_nbhts = maps["cross"]
    assert [*maps] == ["cross"] and weights_nbhts.shape == (1, 2, 1, 5, 6)
    np.testing.assert_allclose(weights_nbhts[0, 0, 0].sum(-1), 1, atol=1e-6)
    assert np.all(weights_nbhts[0, 0, 0, :, 4:] == 0) and np.all(weights_nbhts[0, 0, 0, :, :4] > 0)


def test_dropout_differs_between_keys_rows_and_steps() -> None:
    model = RecurrentTranslator(dataclasses.replace(KINDS["fixed lstm"], P_drop=0.3))
    _, params = tiny("fixed lstm")
    source, target = Tokens.of(np.repeat(SOURCE[1:], 2, axis=0)), Tokens.of(np.repeat(TARGET[:1], 2, axis=0))
    hidden = compiled(model, "logit_factors")
    once, again, other = (hidden(params, source, target, noise(seed, rows=2))[0] for seed in (0, 0, 1))
    np.testing.assert_array_equal(once, again)
    masks = [tuple(row) for x_btd in (once, other) for x_td in x_btd for row in np.asarray(x_td == 0).tolist()]
    assert len(set(masks)) > 15  # of 20, of 8 elements each
    assert 0.1 < np.mean(masks) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_search_follows_its_definition(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FIRST_STEPS", 2)
    model, params = tiny(kind)
    found = searcher(model, beam=3, alpha=0.6, extra_length=EXTRA, nbest=3)(params, SOURCE_BS[:3])
    oracle = Oracle(model, params, SOURCE_BS.shape[1] + EXTRA)
    for row, source in enumerate(SOURCE_BS[:3]):
        assert_same(found, row, plain_beam_search(oracle, unpad(source), 3, 0.6, 3, early_stop=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_beam_1_is_greedy_over_the_whole_row(kind: str) -> None:
    model, params = tiny(kind)
    found = searcher(model, beam=1, alpha=0.6, extra_length=EXTRA)(params, SOURCE_BS[:3])
    oracle = Oracle(model, params, SOURCE_BS.shape[1] + EXTRA)
    for row, source in enumerate(SOURCE_BS[:3]):
        assert_same(found, row, plain_beam_search(oracle, unpad(source), 1, 0.6, 1, early_stop=True))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "batching"), [("fixed", "pack"), ("additive", "pack"), ("dot", "bucket")])
def test_it_trains_resumes_bit_for_bit_and_is_scored(
    kind: str, batching: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    cfg = training_config(tmp_path)
    cfg.task, cfg.data.batching = "recurrent_translation", batching
    cfg.model.recurrent, cfg.model.positions = kind, "none"
    cfg.steps, cfg.decode.checkpoint, cfg.diagnose_every = 6, "latest", 3
    assert loop.train(cfg, tmp_path / "run") == 0
    assert "model: recurrent_translation, N=1, d_model=16: " in capsys.readouterr().err
    assert_resumes_to_the_same_bits(cfg, tmp_path / "run", tmp_path)
    model_run = open_run(tmp_path / "run", task=TRANSLATION)
    record, lines = evaluate(model_run, open_sentences("valid", cfg.data.valid), Decoding(2, 0.6, 5))
    assert len(lines) == 8 and 0 <= record["sacrebleu"] <= 100 and 1 < record["perplexity"] < 1_000
    with pytest.raises(UserError, match="this run's task is recurrent_translation, not translation"):
        open_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "translation"}, "model.recurrent=dot needs task to be recurrent_translation; it is 'translation'"),
        (
            {"model.recurrent": "none"},
            "task=recurrent_translation needs model.recurrent to be fixed, additive or dot; it is",
        ),
        ({"model.recurrent": "maxout"}, "model.recurrent is 'maxout'; it must be one of none, fixed, additive, dot"),
        ({"model.cell": "rnn"}, "model.cell is 'rnn'; it must be one of lstm, gru"),
        ({"model.positions": "rope"}, "model.recurrent=dot needs model.positions to be none; it is 'rope'"),
        ({"model.mixer": "recurrent"}, "model.recurrent=dot needs model.mixer to be 'attention'; it is 'recurrent'"),
        ({"model.scan_layers": True}, "model.recurrent=dot needs model.scan_layers to be False; it is True: "),
        (
            {"model.norm_epsilon": 1e-3},
            "model.recurrent=dot needs model.norm_epsilon to be 1e-06; it is 0.001: recurrent networks would ignore it",
        ),
        ({"model.d_model": 33}, "model.recurrent=dot needs model.d_model to be even; it is 33"),
    ],
    ids=str,
)
def test_a_config_that_does_not_fit_is_one_line(changes: dict, message: str) -> None:
    cfg = get_config("dot")
    cfg.update_from_flattened_dict(changes)
    assert message in refusal_of_config(cfg)


@pytest.mark.parametrize("kind", ["additive gru", "dot lstm"])
def test_scores_are_not_rounded_to_bfloat16(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dtypes = set()
    attention = recurrent_translator.attention

    def spy(q_bhmd, k_bhsd, v_bhsd, visible_bms, scores):
        dtypes.add(scores(q_bhmd, k_bhsd).dtype)
        return attention(q_bhmd, k_bhsd, v_bhsd, visible_bms, scores)

    monkeypatch.setattr(recurrent_translator, "attention", spy)
    model = RecurrentTranslator(dataclasses.replace(KINDS[kind], dtype="bfloat16"))
    sides = Tokens.of(jnp.asarray(SOURCE)), Tokens.of(jnp.asarray(TARGET))
    jax.eval_shape(lambda params: model.apply({"params": params}, *sides), tiny(kind)[1])
    assert dtypes == {jnp.dtype("float32")}


@pytest.mark.parametrize("kind", ["additive lstm", "dot lstm"])
def test_what_every_step_adds_to_is_float32_in_a_bfloat16_model(kind: str) -> None:
    def carried(jaxpr):
        """Returns the types of what the loops of a program carry."""
        dtypes = set()
        for equation in jaxpr.eqns:
            if equation.primitive.name == "scan":
                # What a step carries has the same shape outside the loop; what it collects has a dimension more.
                step, whole = equation.params["jaxpr"].out_avals, [variable.aval for variable in equation.outvars]
                dtypes |= {out.dtype for out, end in zip(step, whole, strict=True) if out.shape == end.shape}
            for inner in jaxprs_in_params(equation.params):
                dtypes |= carried(inner)
        return dtypes

    model = RecurrentTranslator(dataclasses.replace(KINDS[kind], dtype="bfloat16"))
    sides = Tokens.of(jnp.asarray(SOURCE)), Tokens.of(jnp.asarray(TARGET))
    gradient = jax.grad(lambda params: model.apply({"params": params}, *sides).sum())
    dtypes = carried(jax.make_jaxpr(gradient)(tiny(kind)[1]).jaxpr)
    assert dtypes and jnp.dtype("bfloat16") not in dtypes

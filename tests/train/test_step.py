"""One update: accumulation changes nothing, padding rows change nothing, dropout follows the step."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests.tiny import batch
from vaswani.data.batching import Batch
from vaswani.model.config import ModelConfig
from vaswani.tasks.translation import objective
from vaswani.train.step import Sums, TrainState, init_state, make_eval_step, make_train_step, noise_of

EPS_LS = 0.1
TX = optax.sgd(1.0)  # new parameters = old - gradient: any error in the gradient shows
KEY = jax.random.key(1)


def model_config(P_drop: float = 0.0, bits: str = "threefry") -> ModelConfig:
    return ModelConfig(vocab_size=20, N=1, d_model=8, d_ff=8, h=2, d_k=4, d_v=4, P_drop=P_drop, dropout_bits=bits)


def fresh(config: ModelConfig) -> TrainState:
    return init_state(objective(config, EPS_LS).init, TX, jax.random.key(0))


def step_of(config: ModelConfig, accumulate: int = 1) -> Callable:
    return make_train_step(objective(config, EPS_LS), TX, accumulate)


def assert_close(one: object, other: object, atol: float = 1e-6) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=atol), one, other)


@pytest.fixture(scope="module")
def whole() -> tuple[TrainState, Sums]:
    return step_of(model_config())(fresh(model_config()), batch(), KEY)


@pytest.mark.parametrize("bits", ["hash", pytest.param("threefry", marks=pytest.mark.slow)])
@pytest.mark.parametrize("accumulate", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_accumulation_gives_the_same_update_with_dropout(accumulate: int, bits: str) -> None:
    """The last microbatch of four is one empty row: a mean of the microbatches' means would differ."""
    config = model_config(P_drop=0.5, bits=bits)
    state, sums = step_of(config)(fresh(config), batch(), KEY)
    cut_state, cut_sums = step_of(config, accumulate)(fresh(config), batch(), KEY)
    assert_close(cut_state.params, state.params)
    assert_close(cut_sums, sums, atol=1e-5)


@pytest.mark.parametrize("bits", ["hash", "threefry"])
def test_an_update_draws_the_bits_of_its_config(bits: str) -> None:
    config = model_config(P_drop=0.5, bits=bits)
    found = noise_of(objective(config, EPS_LS), fresh(config), batch(), KEY)
    assert found.bits == bits


def test_the_gradient_is_of_the_mean_over_real_tokens(whole: tuple[TrainState, Sums]) -> None:
    goal, state = objective(model_config(), EPS_LS), fresh(model_config())

    def mean(params: dict, batch: Batch) -> jax.Array:
        loss = goal.loss(params, batch, None)
        return loss.loss_sum / jnp.sum(batch.labels_bt != 0)

    gradient = jax.jit(jax.grad(mean))(state.params, batch())
    assert_close(whole[0].params, jax.tree.map(jnp.subtract, state.params, gradient))
    assert float(whole[1].gradient_norm) == pytest.approx(float(optax.tree.norm(gradient)), rel=1e-5)


def test_sums_count_tokens_and_the_step_counts_updates(whole: tuple[TrainState, Sums]) -> None:
    state, sums = whole
    assert int(state.step) == 1
    assert int(sums.loss.tokens) == np.count_nonzero(batch().labels_bt)
    read = np.count_nonzero(batch().source.ids_bt) + np.count_nonzero(batch().target.ids_bt)
    assert int(sums.input_tokens) == read


def test_a_batch_without_a_token_changes_no_parameter() -> None:
    nothing = jax.tree.map(np.zeros_like, batch())
    state, sums = step_of(model_config())(fresh(model_config()), nothing, KEY)
    assert_close(state.params, fresh(model_config()).params)
    assert float(sums.loss.tokens) == int(sums.input_tokens) == 0


def test_tokens_of_every_sentence_of_a_row_are_counted(whole: tuple[TrainState, Sums]) -> None:
    source, target, labels_bt = batch()
    third = Batch(
        source._replace(segments_bt=3 * source.segments_bt),
        target._replace(segments_bt=3 * target.segments_bt),
        labels_bt,
    )
    _, sums = step_of(model_config())(fresh(model_config()), third, KEY)
    assert int(sums.input_tokens) == int(whole[1].input_tokens)


def test_evaluation_is_the_loss_without_dropout(whole: tuple[TrainState, Sums]) -> None:
    loss = make_eval_step(objective(model_config(P_drop=0.5), EPS_LS))(fresh(model_config()).params, batch())
    assert_close(loss, whole[1].loss, atol=1e-5)


@pytest.mark.slow
def test_dropout_differs_between_updates_and_rows_and_nothing_else() -> None:
    config = model_config(P_drop=0.5)
    train_step = step_of(config)

    def loss_at(step: int) -> float:
        state = fresh(config).replace(step=jnp.asarray(step, jnp.int32))
        return float(train_step(state, batch(), KEY)[1].loss.loss_sum)

    assert loss_at(3) != loss_at(4)

    one = batch(rows=2)
    twice = jax.tree.map(lambda part: np.concatenate([part, part]), one)
    both = train_step(fresh(config), twice, KEY)[1].loss.loss_sum
    alone = train_step(fresh(config), one, KEY)[1].loss.loss_sum
    assert float(both) != pytest.approx(2 * float(alone), rel=1e-4)


def test_the_old_state_is_donated() -> None:
    state = fresh(model_config())
    step_of(model_config())(state, batch(), KEY)
    assert state.params["embed"].is_deleted()

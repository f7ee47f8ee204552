"""Counts and dependencies of programs that are small enough to count by hand."""

import itertools
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vaswani.paper.tables.layer_costs import dependencies, operations, path_length, seconds, sequential_products
from vaswani.paper.tables.layer_types import Sizes, layer

MATRIX = jnp.ones((8, 8))


def power(times: int, x: jax.Array) -> jax.Array:
    """Multiplies x by MATRIX repeatedly, in a loop."""
    return jax.lax.scan(lambda carry, _: (carry @ MATRIX, None), x, length=times)[0]


def test_a_product_is_two_operations_for_each_pair_of_numbers() -> None:
    assert operations(jnp.matmul, jnp.ones((3, 5)), jnp.ones((5, 7))) == 2 * 3 * 5 * 7


def test_a_loop_counts_as_often_as_it_runs() -> None:
    """The rest is its counter, which XLA counts too."""
    once, ten = (operations(partial(power, times), MATRIX) for times in (2, 11))
    assert ten - once == pytest.approx(9 * 2 * 8**3, abs=20)


def test_loops_in_loops_multiply() -> None:
    def outer(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, _: (power(4, carry), None), x, length=3)[0]

    assert operations(outer, MATRIX) == pytest.approx(3 * 4 * 2 * 8**3, abs=100)
    assert sequential_products(outer, MATRIX) == 3 * 4


def test_only_products_that_wait_for_one_another_are_sequential() -> None:
    def beside(x: jax.Array) -> jax.Array:
        return jax.jit(lambda y: y @ MATRIX)(x) + x @ MATRIX + x

    assert sequential_products(beside, MATRIX) == 1
    assert sequential_products(lambda x: beside(beside(x)), MATRIX) == 2


def test_what_a_loop_only_reads_or_writes_makes_no_chain() -> None:
    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, row: (carry, row @ MATRIX), x[0], x @ MATRIX)[1]

    assert sequential_products(loop, MATRIX) == 2


def test_a_loops_output_waits_for_the_longest_of_its_rounds() -> None:
    def loop(x: jax.Array) -> jax.Array:
        def body(carry: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            return jnp.ones_like(carry), carry @ MATRIX

        return jax.lax.scan(body, power(3, x), length=2)[1]

    assert sequential_products(loop, MATRIX) == 4


def test_a_loop_of_unknown_length_is_refused() -> None:
    def loop(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < 1e6, lambda x: x @ MATRIX, x)

    with pytest.raises(ValueError, match="while: the program does not say how often its parts run"):
        sequential_products(loop, MATRIX)


def test_time_is_that_of_the_shortest_run(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.accumulate([0, 100, 1, 2, 1, 9])  # runs of 100, 2 and 9 seconds, one second apart
    monkeypatch.setattr(time, "perf_counter", partial(next, clock))
    assert seconds(jnp.sin, MATRIX, runs=3) == 2


def test_dependencies_are_those_of_the_derivative() -> None:
    x_sd = jnp.ones((4, 2))
    shifted_ts = dependencies(lambda x_sd: jnp.roll(x_sd, 1, axis=0) * jnp.array([[0.0, 1.0]]), x_sd)
    np.testing.assert_array_equal(shifted_ts, np.roll(np.eye(4, dtype=bool), 1, axis=0))


@pytest.mark.slow
def test_paths_of_dependencies_are_the_dependencies_of_the_stack() -> None:
    x_td = jax.random.normal(jax.random.key(0), (8, 4))
    everything_ts, itself_ts = np.ones((8, 8), bool), np.eye(8, dtype=bool)
    restricted, params = layer("restricted", Sizes(n=8, d=4, k=3, r=5))

    def stack(layers: int, x_td: jax.Array) -> jax.Array:
        for _ in range(layers):
            x_td = restricted(params, x_td)
        return x_td

    one_ts = dependencies(partial(stack, 1), x_td)
    layers = path_length(itertools.repeat(one_ts), itself_ts, ~everything_ts, everything_ts)
    assert not dependencies(partial(stack, layers - 1), x_td).all()
    assert dependencies(partial(stack, layers), x_td).all()


def test_pairs_that_are_never_connected_are_an_error() -> None:
    itself_ts = np.eye(3, dtype=bool)
    with pytest.raises(ValueError, match="3 pairs of positions are still not connected"):
        path_length([itself_ts] * 5, itself_ts, ~np.ones((3, 3), bool), np.tri(3) > 0)

"""Measures a layer for Table 1: operations, time, chains of products, and which position depends on which."""

import time
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.extend.core import Jaxpr, JaxprEqn, Literal, jaxpr_as_fun, jaxprs_in_params
from jaxtyping import Array, Bool, Float

PRODUCTS = ("dot_general", "conv_general_dilated")


def operations(function: Callable[..., Any], *arguments: Any) -> float:
    """Returns the floating-point operations of a call, as XLA counts them in the compiled program.

    XLA counts the body of a loop once; here the body of a `scan`, compiled separately, counts as often as it runs.
    """
    total = _counted_once(function, *arguments)
    for body, length in _loops(jax.make_jaxpr(function)(*arguments).jaxpr):
        step = jaxpr_as_fun(body)
        inputs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in body.in_avals]
        total += length * operations(step, *inputs) - _counted_once(step, *inputs)
    return total


def _counted_once(function: Callable[..., Any], *arguments: Any) -> float:
    counts: Any = jax.jit(function).lower(*arguments).compile().cost_analysis()
    return counts["flops"]


def _loops(jaxpr: Jaxpr) -> list[tuple[Any, int]]:
    """Returns the outermost scans of a program: body and number of iterations."""
    loops: list[tuple[Any, int]] = []  # a body is a ClosedJaxpr, since jax 0.12 a Jaxpr
    for equation in jaxpr.eqns:
        if equation.primitive.name == "scan":
            loops.append((equation.params["jaxpr"], equation.params["length"]))
        else:
            loops += [loop for inner in jaxprs_in_params(equation.params) for loop in _loops(inner)]
    return loops


def seconds(function: Callable[..., Any], *arguments: Any, runs: int) -> float:
    """Returns the shortest duration of `runs` calls, without compilation.

    What else a machine does can only lengthen a call, so the shortest is the least disturbed.
    """
    compiled = jax.jit(function).lower(*arguments).compile()
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*arguments))
        taken.append(time.perf_counter() - start)
    return min(taken)


def sequential_products(function: Callable[..., Any], *arguments: Any) -> int:
    """Returns the length of the longest chain of dependent matrix products (or convolutions)."""
    program = jax.make_jaxpr(function)(*arguments).jaxpr
    return max(_chains(program, [0] * len(program.invars)))


def _chains(jaxpr: Jaxpr, before: list[int]) -> list[int]:
    """Returns the longest chain up to each output, given those up to the inputs, `before`; loops are unrolled."""
    longest = dict(zip(jaxpr.invars, before, strict=True))

    def up_to(variable: Any) -> int:
        return 0 if isinstance(variable, Literal) or variable in jaxpr.constvars else longest[variable]

    for equation in jaxpr.eqns:
        entering = [up_to(variable) for variable in equation.invars]
        inner = list(jaxprs_in_params(equation.params))
        if equation.primitive.name == "scan":
            leaving = _scan_chains(equation, inner[0], entering)
        elif len(inner) == 1:
            leaving = _chains(inner[0], entering)
        elif inner:
            raise ValueError(f"{equation.primitive.name}: the program does not say how often its parts run")
        else:
            longest_in = max(entering, default=0)
            longest_out = longest_in + 1 if equation.primitive.name in PRODUCTS else longest_in
            leaving = [longest_out] * len(equation.outvars)
        longest |= dict(zip(equation.outvars, leaving, strict=True))
    return [up_to(variable) for variable in jaxpr.outvars]


def _scan_chains(scan: JaxprEqn, body: Jaxpr, entering: list[int]) -> list[int]:
    """As `_chains` for a scan: what it reads row by row, or stacks, has one axis less in the body than outside."""
    read = sum(map(_is_row, scan.invars, body.invars))
    carried = len(body.outvars) - sum(map(_is_row, scan.outvars, body.outvars))
    constants = len(body.invars) - carried - read
    before = entering[:constants]
    carry = entering[constants : constants + carried]
    rows = entering[constants + carried :]
    outputs = [0] * (len(body.outvars) - carried)
    for _ in range(scan.params["length"]):
        leaving = _chains(body, before + carry + rows)
        carry = leaving[:carried]
        outputs = [max(pair) for pair in zip(outputs, leaving[carried:], strict=True)]
    return carry + outputs


def _is_row(outside: Any, inside: Any) -> bool:
    return len(outside.aval.shape) > len(inside.aval.shape)


def dependencies(
    layer: Callable[[Float[Array, "s d"]], Float[Array, "t e"]], x_sd: Float[Array, "s d"]
) -> Bool[np.ndarray, "t s"]:
    """Tests which outputs depend on which inputs: where the derivative at x, in a random direction, is not zero."""

    def derivative_te(v_sd: Float[Array, "s d"]) -> Float[Array, "t e"]:
        return jax.jvp(layer, (x_sd,), (v_sd,))[1]

    direction_1sd = jax.random.normal(jax.random.key(1), (1, *x_sd.shape))
    here_ss1 = np.eye(len(x_sd), dtype=x_sd.dtype)[:, :, None]
    derivatives_ste = jax.jit(jax.vmap(derivative_te))(here_ss1 * direction_1sd)
    return np.any(np.asarray(derivatives_ste) != 0, axis=-1).T


def path_length(
    steps: Iterable[Bool[np.ndarray, "t t"]],
    known_ts: Bool[np.ndarray, "t s"],
    entering_ts: Bool[np.ndarray, "t s"],
    wanted_ts: Bool[np.ndarray, "t s"],
) -> int:
    """Returns how many steps it takes until every wanted output depends on its input.

    Args:
      steps: which output of each step depends on which position before it.
      known_ts: which inputs each position depends on before the first step.
      entering_ts: which inputs each position reads again in every step.
      wanted_ts: the pairs to connect.

    Raises:
      ValueError: the steps end before all pairs are connected.
    """
    for count, step_tt in enumerate(steps, start=1):
        known_ts = step_tt @ known_ts | entering_ts
        if known_ts[wanted_ts].all():
            return count
    missing = int((wanted_ts & ~known_ts).sum())
    raise ValueError(f"{missing} pairs of positions are still not connected")

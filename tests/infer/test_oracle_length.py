"""Exact match with the oracle length, against greedy search that is told the length, in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vaswani.data.tokenizer import Tokenizer
from vaswani.ids import BOS, EOS, PAD
from vaswani.infer.scores.oracle_length import exact_match
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.search.options import Decoding
from vaswani.search.searches import run_search
from vaswani.tokens import Tokens

WIDTH = 8
LENGTHS = (1, 5)
SOURCES = ["5 7 4 9", "8", "4 4 10 11 6", "3 6", "11 5 9"]


class Numbers(Tokenizer):
    """A tokenizer of texts that are their ids."""

    def __init__(self) -> None:
        pass

    def encode(self, text: str) -> list[int]:
        return [int(number) for number in text.split()]

    @property
    def target(self) -> Tokenizer:
        """Itself: both sides are numbers."""
        return self


def as_text(ids: list[int]) -> str:
    return " ".join(map(str, ids))


@pytest.fixture(scope="module")
def model() -> tuple[ModelConfig, dict]:
    config = ModelConfig(12, N=1, d_model=16, d_ff=24, h=2, d_k=8, d_v=8)
    params = init_params(Transformer(config), jax.random.key(4))
    return config, params | {"embed": params["embed"] * 2.5}


def told(model: tuple[ModelConfig, dict], source: str, length: int) -> tuple[list[int], bool]:
    """Returns the output of greedy search that is told its length, and whether it would have ended before."""
    config, params = model
    apply = jax.jit(lambda *sides: Transformer(config).apply({"params": params}, *map(Tokens.of, sides)))
    source_1s, ids_1t = np.zeros((1, WIDTH), np.int32), np.zeros((1, WIDTH), np.int32)
    ids = [*Numbers().encode(source), EOS]
    source_1s[0, : len(ids)] = ids
    ids_1t[0, 0] = BOS
    output: list[int] = []
    ends_early = False
    for t in range(length):
        logits_v = np.array(apply(source_1s, ids_1t)[0, t])
        ends_early |= bool(logits_v[3:].max() < logits_v[EOS])
        logits_v[[PAD, BOS, EOS]] = -np.inf
        output.append(int(logits_v.argmax()))
        if t + 1 < WIDTH:
            ids_1t[0, t + 1] = output[-1]
    return output, ends_early


def test_what_greedy_search_outputs_when_it_is_told_the_length_is_right_and_nothing_else(model) -> None:
    sources = [source for source in SOURCES for _ in LENGTHS]
    found = [told(model, source, length) for source in SOURCES for length in LENGTHS]
    outputs = [output for output, _ in found]
    ends_early = [early for _, early in found]
    assert 0 < sum(ends_early) < len(ends_early), "of some, greedy search itself would be right; of others, not"
    assert exact_match(*model, Numbers(), sources, [*map(as_text, outputs)]).value == 100
    assert len(set(outputs[-1])) > 1
    for place in (0, 4):  # of one output a token differs
        wrong = list(outputs[-1])
        wrong[place] = 5
        references = [*outputs[:-1], wrong]
        assert exact_match(*model, Numbers(), sources, [*map(as_text, references)]).value == 90


def test_a_model_that_is_not_finite_is_right_about_nothing_but_the_empty_line(model) -> None:
    config, params = model
    broken = jax.tree.map(lambda leaf: leaf * np.nan, params)
    assert exact_match(config, broken, Numbers(), ["5 7"] * 4, ["3", "4", "11", ""]).value == 25


def test_an_output_that_ends_too_late_is_right_once_its_length_is_told(model) -> None:
    config, params = model
    source = "5 7 4 9"
    source_1s = jnp.array([[*Numbers().encode(source), EOS]], jnp.int32)
    found = run_search(Transformer(config), Decoding(1, 0.0, 4), params, source_1s)
    length = int(found.lengths_bm[0, 0])
    output = found.ids_bmt[0, 0, : length - 1].tolist()
    assert len(output) > 1
    assert exact_match(config, params, Numbers(), [source], [as_text(output[:-1])]).value == 100

"""Translation by a decoder alone: what each position sees, packing, the cache and search, training, mistakes."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.search.test_search import EXTRA, SOURCE_BS, Oracle, assert_same, plain_beam_search, searcher, unpad
from tests.slow import slow_but
from tests.tiny import TINY, training_config
from tests.tolerance import relative_error
from tests.trainings import assert_resumes_to_the_same_bits, refusal_of_config
from vaswani.configs.prefix_lm import get_config
from vaswani.errors import UserError
from vaswani.ids import BOS
from vaswani.infer.evaluate.sentences import open_sentences
from vaswani.infer.evaluate.translations import evaluate
from vaswani.infer.runs import open_run
from vaswani.model.language_model import LanguageModel
from vaswani.model.masks import Mask
from vaswani.model.mixers import kernels
from vaswani.model.parameters import init_params
from vaswani.model.prefix_lm import PrefixLM
from vaswani.model.translation import translation_model
from vaswani.search import state
from vaswani.search.options import Decoding
from vaswani.tasks import TRANSLATION
from vaswani.tokens import Tokens
from vaswani.train import loop

SIZES = dataclasses.replace(TINY, vocab_size=12, d_k=8, d_v=8)
KINDS = {
    "full": dataclasses.replace(SIZES, prefix="full"),
    "causal": dataclasses.replace(SIZES, prefix="causal", positions="t5", norm="pre"),
}
kinds = pytest.mark.parametrize("kind", slow_but(["full"], KINDS))


def tiny(kind):
    """A random model whose next-token distributions are peaked."""
    params = init_params(translation_model(KINDS[kind]), jax.random.key(0))
    return PrefixLM(KINDS[kind]), params | {"embed": params["embed"] * 2.5}


def logits(model, params, source, target):
    sides = (Tokens(*(jnp.asarray(one, jnp.int32) for one in side)) for side in (source, target))
    return jax.jit(lambda params, *sides: model.apply({"params": params}, *sides))(params, *sides)


@pytest.mark.parametrize("prefix", [4, 5])
def test_the_prefix_is_seen_from_everywhere_in_its_sentence(prefix: int) -> None:
    segments_bt = jnp.asarray([[1, 1, 2, 2, 0, 1, 1, 2]])
    found_tt = Mask(segments_bt, segments_bt, True, prefix=prefix).dense()[0]
    i, j = np.indices((8, 8))
    np.testing.assert_array_equal(found_tt, (segments_bt[0][i] == segments_bt[0][j]) & ((j < prefix) | (j <= i)))


@kinds
def test_packed_pairs_are_as_if_alone(kind: str) -> None:
    model, params = tiny(kind)
    alone = [
        logits(model, params, ([x], [[1] * len(x)], [range(len(x))]), ([y], [[1] * len(y)], [range(len(y))]))[0]
        for x, y in (([5, 7, 2], [BOS, 4, 6, 8]), ([9, 2], [BOS, 3]))
    ]
    source = ([[5, 7, 2, 9, 2, 0]], [[1, 1, 1, 2, 2, 0]], [[0, 1, 2, 0, 1, 0]])
    target = ([[BOS, 4, 6, 8, BOS, 3, 0]], [[1, 1, 1, 1, 2, 2, 0]], [[0, 1, 2, 3, 0, 1, 0]])
    packed = logits(model, params, source, target)[0]
    assert relative_error(packed[:4], alone[0]) < 1e-5 and relative_error(packed[4:6], alone[1]) < 1e-5


@kinds
def test_causal_it_is_the_language_model_of_the_joined_row_and_full_it_is_not(kind: str) -> None:
    model, params = tiny(kind)
    source, target = [5, 7, 9, 2], [BOS, 4, 6, 8]
    row_t, one_t = jnp.asarray([source + target]), range(4)
    sides = ([source], [[1] * 4], [one_t]), ([target], [[1] * 4], [one_t])
    joined = jax.jit(LanguageModel(model.config).apply)({"params": params}, Tokens.of(row_t))[:, 4:]
    assert (relative_error(logits(model, params, *sides), joined) < 1e-5) == (kind == "causal")
    changed = logits(model, params, sides[0], ([[*target[:3], 10]], *sides[1][1:]))
    assert relative_error(changed[:, :3], logits(model, params, *sides)[:, :3]) < 1e-6  # the target is causal


@pytest.mark.parametrize("prefix", ["full", "causal"])
def test_keys_after_their_query_have_buckets_of_their_own_if_the_source_is_seen_whole(prefix: str) -> None:
    config = dataclasses.replace(SIZES, prefix=prefix, positions="t5")
    params = init_params(translation_model(config), jax.random.key(0))
    sides = ([[5, 7, 9, 2]], [[1] * 4], [range(4)]), ([[BOS, 4, 6]], [[1] * 3], [range(3)])
    before = logits(PrefixLM(config), params, *sides)
    table_rh = params["decoder"]["relative_bias"]
    # The lower half is for this row's other keys: none is 16 tokens or more before its query.
    changed = params["decoder"] | {"relative_bias": table_rh.at[16:].add(1.0)}
    after = logits(PrefixLM(config), params | {"decoder": changed}, *sides)
    assert bool(jnp.any(before != after)) == (prefix == "full")


@pytest.mark.slow
def test_search_follows_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FIRST_STEPS", 2)
    model, params = tiny("full")
    found = searcher(model, beam=3, alpha=0.6, extra_length=EXTRA, nbest=3)(params, SOURCE_BS[:3])
    oracle = Oracle(model, params, SOURCE_BS.shape[1] + EXTRA)
    assert int(np.max(found.lengths_bm)) > 3
    for row, source in enumerate(SOURCE_BS[:3]):
        assert_same(found, row, plain_beam_search(oracle, unpad(source), 3, 0.6, 3, early_stop=True))


@pytest.mark.slow
def test_it_trains_resumes_bit_for_bit_and_is_scored(tmp_path: Path) -> None:
    cfg = training_config(tmp_path)
    cfg.task, cfg.model.prefix, cfg.data.batching = "prefix_lm", "full", "pack"
    cfg.steps, cfg.decode.checkpoint = 6, "latest"
    assert loop.train(cfg, tmp_path / "run") == 0
    assert_resumes_to_the_same_bits(cfg, tmp_path / "run", tmp_path)
    model_run = open_run(tmp_path / "run", task=TRANSLATION)
    record, lines = evaluate(model_run, open_sentences("valid", cfg.data.valid), Decoding(2, 0.6, 5))
    assert len(lines) == 8 and 0 <= record["sacrebleu"] <= 100 and 1 < record["perplexity"] < 1_000
    with pytest.raises(UserError, match="this run's task is prefix_lm, not translation"):
        open_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "translation"}, "model.prefix=full needs task to be prefix_lm; it is 'translation'"),
        ({"model.prefix": "none"}, "task=prefix_lm needs model.prefix to be full or causal; it is 'none'"),
        ({"model.prefix": "half"}, "model.prefix is 'half'; it must be one of none, full, causal"),
        ({"model.positions": "learned"}, "model.prefix=full needs model.positions to be sinusoidal, none, "),
        ({"model.mixer": "recurrent"}, "model.prefix=full needs model.mixer to be attention; it is 'recurrent'"),
    ],
    ids=str,
)
def test_a_config_that_does_not_fit_is_one_line(changes: dict, message: str) -> None:
    cfg = get_config()
    cfg.update_from_flattened_dict(changes)
    assert message in refusal_of_config(cfg)


@kinds
def test_in_chunks_of_queries_it_is_the_same(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(kernels, "CHUNK", 3)
    einsum = dataclasses.replace(KINDS[kind], positions="rope")
    chunked = dataclasses.replace(einsum, attention_impl="chunked")
    params = init_params(translation_model(einsum), jax.random.key(0))
    source = ([[5, 7, 2, 9, 2, 0]], [[1, 1, 1, 2, 2, 0]], [[0, 1, 2, 0, 1, 0]])
    target = ([[BOS, 4, 6, 8, BOS, 3, 0]], [[1, 1, 1, 1, 2, 2, 0]], [[0, 1, 2, 3, 0, 1, 0]])
    found, expected = (logits(PrefixLM(config), params, source, target) for config in (chunked, einsum))
    assert relative_error(found[:, :6], expected[:, :6]) < 1e-5

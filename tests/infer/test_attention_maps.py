"""Attention maps: the right weights for the right tokens, as a PNG and as a page that no sentence can break."""

import base64
import dataclasses
import hashlib
import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from tests.slow import slow_but
from vaswani.data.symbols import Symbols
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS
from vaswani.infer import attention_maps as command
from vaswani.infer.attention import files
from vaswani.infer.attention.choices import choices_of_kinds, translation_choices
from vaswani.infer.attention.drawing import draw_png, write_html
from vaswani.infer.attention.kinds import KINDS
from vaswani.infer.attention.maps import AttentionMap, attention_maps, run_maps, select, titled
from vaswani.infer.attention.page import Choice, _choice_as_json, labels, page
from vaswani.infer.runs import Run, open_run
from vaswani.infer.translate.translator import translate_one
from vaswani.model.baselines.recurrent_translator import RecurrentConfig
from vaswani.model.config import ModelConfig
from vaswani.model.language_model import LanguageModel
from vaswani.model.masked_lm import MaskedLM
from vaswani.model.parameters import init_params
from vaswani.model.prefix_lm import PrefixLM
from vaswani.model.translation import translation_model
from vaswani.tokens import Tokens

NASTY = "</script><script>alert(1)</script> & <!-- $x$ __DATA__ __TITLE__ \u2028 \\ 'q' \"z\" 🐕"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(tiny.write_run(tmp_path_factory.mktemp("maps") / "run"), "latest")


@pytest.fixture(scope="module")
def maps(run: Run) -> dict[str, AttentionMap]:
    return attention_maps(run.model_config, run.params, run.tokenizer, "The dog sleeps.", "Der Hund schläft.")


def test_every_layer_and_head_has_weights_that_sum_to_one(run: Run, maps: dict[str, AttentionMap]):
    for kind in KINDS:
        queries, keys, weights_nhts = maps[kind]
        assert weights_nhts.shape == (2, 2, len(queries), len(keys))
        np.testing.assert_allclose(weights_nhts.sum(-1), 1, atol=1e-5)


def test_a_mixer_without_weights_is_named(run: Run):
    config = ModelConfig(12, N=1, d_model=8, d_ff=8, h=1, d_k=4, d_v=4, mixer="recurrent")
    with pytest.raises(
        UserError, match=r"^model\.mixer of this run is 'recurrent', which has no attention weights; att"
    ):
        attention_maps(config, {}, run.tokenizer, "The dog sleeps.", "Der Hund schläft.")


def test_decoder_rows_are_the_tokens_written_and_columns_those_read(maps: dict[str, AttentionMap]):
    queries, keys, weights_nhts = maps["decoder"]
    assert (keys[0], queries[-1], keys[1:]) == ("<s>", "</s>", queries[:-1])
    assert "".join(queries[:-1]).replace("▁", " ").strip() == "Der Hund schläft."
    assert np.all(np.triu(weights_nhts, 1) == 0) and np.all(weights_nhts[:, :, 0, 0] == 1)
    assert maps["cross"].queries == queries and maps["cross"].keys == maps["encoder"].keys


def of_task(run: Run, task: str, prefix: str = "none") -> Run:
    """The run as it would be of another task, with new parameters."""
    config = dataclasses.replace(run.model_config, prefix=prefix)
    models = {"language_model": LanguageModel, "prefix_lm": PrefixLM}
    models |= {"masked_lm": MaskedLM, "classification": partial(MaskedLM, classes=3)}
    cfg = run.config.copy_and_resolve_references()
    cfg.task, cfg.data.classes = task, "past,present,modal"
    return run._replace(config=cfg, model_config=config, params=init_params(models[task](config), jax.random.key(1)))


def test_a_language_model_sees_what_is_before_a_token(run: Run):
    title, maps = run_maps(of_task(run, "language_model"), "The dog sleeps.", None)
    queries, keys, weights_nhtt = maps["decoder"]
    assert title == "The dog sleeps." and [*maps] == ["decoder"]
    assert keys == ["<s>", *queries[:-1]] and "".join(queries).replace("▁", " ").strip() == title
    np.testing.assert_allclose(weights_nhtt.sum(-1), 1, atol=1e-5)
    assert np.all(np.triu(weights_nhtt, 1) == 0) and np.all(np.tril(weights_nhtt).sum(-1) > 0.99)


def test_an_unknown_character_is_no_blank(run: Run):
    characters = Symbols.of([("abc",)], 0, "characters")
    _, maps = run_maps(of_task(run, "language_model")._replace(text=characters), "ab?", None)
    assert (maps["decoder"].queries, maps["decoder"].keys) == (["a", "b", "<unk>"], ["<s>", "a", "b"])


@pytest.mark.parametrize("task", ["masked_lm", "classification"])
def test_an_encoder_sees_the_whole_text_and_a_blank_where_it_fills_one(run: Run, task: str):
    _, maps = run_maps(of_task(run, task), "The ___ sleeps.", None)
    queries, keys, weights_nhtt = maps["encoder"]
    assert [*maps] == ["encoder"] and queries == keys and queries[-1] == "</s>"
    if task == "masked_lm":
        assert queries.count("___") == 1
    else:
        assert queries[:-1] == run.tokenizer.pieces(run.tokenizer.encode("The ___ sleeps."))
    np.testing.assert_allclose(weights_nhtt.sum(-1), 1, atol=1e-5)
    assert np.all(weights_nhtt > 0)


def recurrent(run: Run, kind: str) -> Run:
    """The run as it would be of recurrent networks, with new parameters."""
    config = RecurrentConfig(run.model_config.vocab_size, N=1, d_model=16, recurrent=kind)
    cfg = run.config.copy_and_resolve_references()
    cfg.task = "recurrent_translation"
    params = init_params(translation_model(config), jax.random.key(1))
    return run._replace(config=cfg, model_config=config, params=params)


@pytest.mark.parametrize("kind", slow_but(["additive"], ["additive", "dot"]))
def test_recurrent_networks_with_attention_have_one_map_over_the_source(run: Run, kind: str):
    title, maps = run_maps(recurrent(run, kind), "The dog sleeps.", "Der Hund schläft.")
    queries, keys, weights_nhts = maps["cross"]
    assert title == "The dog sleeps. → Der Hund schläft." and [*maps] == ["cross"]
    assert (queries[-1], keys[-1], weights_nhts.shape) == ("</s>", "</s>", (1, 1, len(queries), len(keys)))
    np.testing.assert_allclose(weights_nhts.sum(-1), 1, atol=1e-5)


def test_recurrent_networks_with_a_fixed_vector_have_no_map(run: Run):
    with pytest.raises(
        UserError,
        match=r"^model\.recurrent of this run is 'fixed', which has no attention weights; additive and dot have them$",
    ):
        run_maps(recurrent(run, "fixed"), "The dog sleeps.", "Der Hund schläft.")


@pytest.mark.parametrize("prefix", ["full", "causal"])
def test_a_decoder_alone_has_the_source_before_the_target(run: Run, prefix: str):
    title, maps = run_maps(of_task(run, "prefix_lm", prefix), "The dog sleeps.", "Der Hund schläft.")
    queries, keys, weights_nhtt = maps["decoder"]
    s = keys.index("<s>")
    assert title == "The dog sleeps. → Der Hund schläft." and [*maps] == ["decoder"]
    assert queries[:s] == keys[:s] and keys[s - 1] == queries[-1] == "</s>" and keys[s + 1 :] == queries[s:-1]
    np.testing.assert_allclose(weights_nhtt.sum(-1), 1, atol=1e-5)
    future = np.triu(weights_nhtt, 1)
    assert np.all((future[:, :, :s, :s] > 0) == (np.triu(np.ones((s, s)), 1) > 0) * (prefix == "full"))
    assert np.all(future[:, :, :, s:] == 0) and np.all(np.tril(weights_nhtt)[:, :, s:, :s] > 0)


def test_span_denoising_is_drawn_as_a_translator(run: Run, maps: dict[str, AttentionMap]):
    cfg = run.config.copy_and_resolve_references()
    cfg.task = "denoising"
    _, found = run_maps(run._replace(config=cfg), "The dog sleeps.", "Der Hund schläft.")
    assert [*found] == [*KINDS]
    np.testing.assert_array_equal(found["cross"].weights_nhts, maps["cross"].weights_nhts)


def test_what_a_task_does_not_have_is_refused(run: Run):
    with pytest.raises(UserError, match=r"^--target=Hund: a model of task masked_lm reads one text, the source$"):
        run_maps(of_task(run, "masked_lm"), "dog", "Hund")
    with pytest.raises(UserError, match=r"^--source: there is no token in it to predict$"):
        run_maps(of_task(run, "language_model"), "", None)
    broken = run._replace(params=jax.tree.map(lambda leaf: leaf * np.nan, run.params))
    with pytest.raises(UserError, match="the parameters of this run are not finite"):
        run_maps(broken, "The dog sleeps.", "Der Hund schläft.")


def test_a_sentence_in_another_encoding_is_one_line(tmp_path: Path):
    given = SimpleNamespace(source="caf\udce9", target=None, output=str(tmp_path / "map.html"))
    with pytest.raises(UserError, match=r"^--source, --target: not UTF-8$"):
        command.check(given)


def test_select_takes_all_or_one_and_refuses_others(maps: dict[str, AttentionMap]):
    assert sorted(select(maps["cross"], None, None)) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    ((place, weights_ts),) = select(maps["cross"], 2, 1).items()
    assert place == (2, 1)
    np.testing.assert_array_equal(weights_ts, maps["cross"].weights_nhts[1, 0])
    with pytest.raises(UserError, match="--layer=3: the model's layers are 1 to 2"):
        select(maps["cross"], 3, None)
    with pytest.raises(UserError, match="--head=0: the model's heads are 1 to 2"):
        select(maps["cross"], None, 0)


@pytest.mark.parametrize(("layer", "head"), [(None, None), (2, None), (1, 2)])
def test_png_is_drawn_for_any_text(layer: int | None, head: int | None, tmp_path: Path):
    tokens = ["▁$a", "$\\broken$", "🐕", "</s>"]
    attention = AttentionMap(tokens, tokens, np.full((2, 2, 4, 4), 0.25, np.float32))
    draw_png(attention, f"{NASTY} $\\broken$", layer, head, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def embedded(text: str) -> dict:
    found = text.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    assert "<" not in found
    return json.loads(found)


def test_page_holds_the_weights_and_survives_any_sentence():
    weights_nhts = np.random.default_rng(0).dirichlet(np.ones(2), size=(1, 1, 2)).astype(np.float32)
    text = page(NASTY, {"cross": ("title", [NASTY, "b"], ["x", NASTY], weights_nhts)})
    cross = embedded(text)["cross"]
    assert (cross["queries"], cross["keys"]) == ([NASTY, "b"], ["x", NASTY])
    np.testing.assert_allclose(np.array(cross["weights"]) / 1000, weights_nhts, atol=5.1e-4)
    assert text.count("</script>") == 2 and "<script>alert" not in text
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in text


def test_page_asks_the_network_for_nothing(maps: dict[str, AttentionMap], tmp_path: Path):
    write_html(maps, "a → b", tmp_path / "map.html")
    text = (tmp_path / "map.html").read_text(encoding="utf-8")
    assert not re.search(r"https?:|//[a-z]|url\(|@import|src=|href=|fetch\(|import\(", text)
    assert "default-src 'none'" in text
    assert set(embedded(text)) == set(KINDS)


def test_a_place_that_cannot_be_written_is_named(maps: dict[str, AttentionMap], tmp_path: Path):
    with pytest.raises(UserError, match=r"--output=.*cannot be written"):
        write_html(maps, "t", tmp_path)
    with pytest.raises(UserError, match=r"--output=.*cannot be written"):
        draw_png(maps["cross"], "t", 1, 1, tmp_path / "none" / "map.png")


def test_the_models_own_translation_is_the_default(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    source = "The dog sleeps."
    translation = translate_one(run, source)
    assert translation and "\n" not in translation
    output = tmp_path / "maps.npz"
    given = {"workdir": str(run.workdir), "checkpoint": "latest", "source": source, "target": None, "kind": None}
    command.main(SimpleNamespace(output=str(output), **given))
    assert capsys.readouterr().out == f"{source} → {translation}\n{output}\n"
    expected = attention_maps(run.model_config, run.params, run.tokenizer, source, translation)
    with np.load(output) as own:
        assert own["cross_queries"].tolist() == expected["cross"].queries
        np.testing.assert_array_equal(own["cross"], expected["cross"].weights_nhts)


def test_labels_show_words_and_bytes_as_text():
    pieces = ["▁The", "▁", "do", "<0xF0>", "<0x9F>", "<0x90>", "<0x95>", "<0x71>", "<0x0A>", "<0xFF>", "</s>"]
    shown = ["\u2009The", "\u2423", "do", "🐕", "″", "″", "″", "q", "U+000A", "byte 255", "</s>"]
    assert labels(pieces) == shown
    assert labels([]) == []


def test_only_the_pages_own_script_may_run():
    weights_nhts = np.ones((1, 1, 1, 1), np.float32)
    text = page(NASTY, {"cross": ("title", [NASTY], ["x"], weights_nhts)})
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text and "script-src 'unsafe-inline'" not in text


def test_layers_and_heads_count_from_1_on_the_page():
    text = page("t", {"cross": ("title", ["a"], ["x"], np.ones((1, 1, 1, 1), np.float32))})
    assert '"layer " + (n + 1) + ", head " + (h + 1)' in text and '"p.legend"' in text


def test_bertviz_is_given_a_list_of_layers_of_one_sentence_each(maps: dict[str, AttentionMap], tmp_path: Path):
    files.write(maps, tmp_path / "maps.json")
    found = json.loads((tmp_path / "maps.json").read_text(encoding="utf-8"))
    tokens = {"encoder": found.pop("encoder_tokens"), "decoder": found.pop("decoder_tokens")}
    assert set(found) == {f"{kind}_attention" for kind in KINDS}
    sides = {"encoder": ("encoder", "encoder"), "decoder": ("decoder", "decoder"), "cross": ("decoder", "encoder")}
    for kind, (queries, keys) in sides.items():
        layers = found[f"{kind}_attention"]
        assert len(layers) == 2
        for n, layer in enumerate(layers):
            assert np.shape(layer) == (1, 2, len(tokens[queries]), len(tokens[keys]))
            np.testing.assert_allclose(layer[0], maps[kind].weights_nhts[n], atol=1e-7)
    assert tokens["decoder"] == maps["decoder"].keys and tokens["encoder"] == maps["encoder"].keys


def test_bertviz_is_given_attention_and_tokens_where_there_is_one_kind(run: Run):
    _, maps = run_maps(of_task(run, "language_model"), "The dog sleeps.", None)
    found = files.bertviz(maps)
    assert set(found) == {"attention", "tokens"} and found["tokens"][0] == "<s>"
    assert np.shape(found["attention"]) == (2, 1, 2, len(found["tokens"]), len(found["tokens"]))


def test_arrays_have_names_of_axes_and_tokens_and_need_no_pickle(maps: dict[str, AttentionMap], tmp_path: Path):
    files.write(maps, tmp_path / "maps.npz")
    with np.load(tmp_path / "maps.npz", allow_pickle=False) as found:
        assert found["axes"].tolist() == ["layer", "head", "query", "key"]
        for kind in KINDS:
            np.testing.assert_array_equal(found[kind], maps[kind].weights_nhts)
            assert found[f"{kind}_queries"].tolist() == maps[kind].queries
            assert found[f"{kind}_keys"].tolist() == maps[kind].keys
    with pytest.raises(UserError, match=r"--output=.*cannot be written"):
        files.write(maps, tmp_path / "none" / "maps.npz")


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["none", "full"])
def test_the_probabilities_of_an_output_are_the_model_s(run: Run, prefix: str):
    if prefix != "none":
        run = of_task(run, "prefix_lm", prefix)
    source, target = "The dog sleeps.", "Der Hund schläft."
    choices, log_prob = translation_choices(run.model_config, run.params, run.tokenizer, source, target)
    source_ids = [*run.tokenizer.encode(source), EOS]
    target_ids = [*run.tokenizer.encode(target), EOS]
    sides = [Tokens.of(jnp.array([ids], jnp.int32)) for ids in (source_ids, [BOS, *target_ids[:-1]])]
    params = jax.tree.map(jnp.asarray, run.params)
    logits_btv = translation_model(run.model_config).apply({"params": params}, *sides)
    log_probs_tv = jax.nn.log_softmax(logits_btv[0])
    expected = [float(log_probs_v[token]) for log_probs_v, token in zip(log_probs_tv, target_ids, strict=True)]
    assert log_prob == pytest.approx(sum(expected), rel=1e-5)
    np.testing.assert_allclose([choice.probability for choice in choices], np.exp(expected), rtol=1e-4)
    for choice in choices:
        likely = [probability for _, probability in choice.best]
        assert len(likely) == 5 and likely == sorted(likely, reverse=True) and 0 < sum(likely) <= 1 + 1e-6
        assert choice.rank > 5 or choice.best[choice.rank - 1][1] == choice.probability
    for choice, log_probs_v, own in zip(choices, np.asarray(log_probs_tv), expected, strict=True):
        rounding = 1e-4  # which may exchange subwords that are as probable
        assert 1 + np.sum(log_probs_v > own + rounding) <= choice.rank <= np.sum(log_probs_v > own - rounding)
    maps = attention_maps(run.model_config, run.params, run.tokenizer, source, target)
    kinds = choices_of_kinds(maps, choices)
    assert "encoder" not in kinds
    for kind, shown in kinds.items():
        given = len(maps[kind].queries) - len(choices)
        assert shown == [None] * given + choices and (given > 0) == (prefix != "none")
    text = page("t", titled(maps), kinds)
    assert len(embedded(text)["decoder"]["choices"][-1]["best"]) == 5


def test_an_archive_holds_the_arrays_alone_whatever_numpy(
    maps: dict[str, AttentionMap], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    given: dict[str, object] = {}
    monkeypatch.setattr(np, "savez_compressed", lambda file, **kwds: given.update(kwds))  # as in NumPy 2.1
    files.write(maps, tmp_path / "maps.npz")
    assert set(given) == set(files.arrays(maps))


def test_bertviz_is_given_both_sides_where_there_is_cross_attention_alone(run: Run):
    _, maps = run_maps(recurrent(run, "dot"), "The dog sleeps.", "Der Hund schläft.")
    found = files.bertviz(maps)
    assert set(found) == {"cross_attention", "encoder_tokens", "decoder_tokens"}
    sizes = len(found["decoder_tokens"]), len(found["encoder_tokens"])
    assert np.shape(found["cross_attention"]) == (1, 1, 1, *sizes) and sizes[0] != sizes[1]


@pytest.mark.parametrize(("name", "value"), [("kind", "cross"), ("layer", 2), ("head", 1)])
def test_what_chooses_for_a_png_is_refused_for_other_files(tmp_path: Path, name: str, value: object):
    given = SimpleNamespace(source="The dog.", target=None, kind=None, layer=None, head=None)
    vars(given)[name] = value
    given.output = str(tmp_path / "map.png")
    command.check(given)
    given.output = str(tmp_path / "map.html")
    with pytest.raises(UserError, match=rf"^--{name} chooses what a PNG shows; the other files hold everything"):
        command.check(given)


def test_alternatives_that_are_bytes_are_not_read_as_one_character() -> None:
    choice = Choice(0.4, 1, [("<0xC3>", 0.4), ("<0xA4>", 0.3)])
    shown = _choice_as_json(choice)
    assert shown is not None
    (first, _), (second, _) = shown["best"]
    assert first != "ä" and second != "″" and first != second


def test_spaces_and_line_feeds_of_a_vocabulary_of_characters_can_be_seen():
    characters = Symbols.of([("a b\nc",)], 0, "characters")
    assert labels(characters.pieces(characters.encode("a b\nc"))) == ["a", "\u2423", "b", "U+000A", "c"]

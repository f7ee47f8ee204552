"""The explorer computes what Python computes: subwords, every activation, translations, and the model changed.

python -m pytest tests/infer/test_explorer.py -m "slow or long or not long" -rP     # also prints how close it comes
"""

import dataclasses
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from tests.infer.explorer import in_node, needs_node
from vaswani.configs.common import default
from vaswani.data.grammar.sentences import pair
from vaswani.data.pair import Pair
from vaswani.data.symbols import SPECIALS, Symbols
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, UNK
from vaswani.infer.explorer import __main__ as command
from vaswani.infer.explorer import export
from vaswani.infer.inside.lens import logit_lens
from vaswani.infer.inside.trace import record, trace
from vaswani.infer.runs import Run, open_run
from vaswani.infer.translate.options import make_decoding
from vaswani.infer.translate.translator import Translator
from vaswani.model import transformer
from vaswani.model.baselines.recurrent_translator import RecurrentConfig
from vaswani.model.stack import Stack
from vaswani.tokens import Tokens

ROOT = Path(__file__).parents[2]
SOURCE = "The tired doctor puts the old letters onto the table."
TARGET = "Der müde Arzt legt die alten Briefe auf den Tisch."
HOSTILE = [
    "", " ", "▁", " ▁ ▁a", "<s>", "</s> <pad>", "<0x41>", "<script>alert(1)</script>", "a\u200cb\ufeffc", "\t\n\r\x00",
    "ﬁ ﬂ ½ ㍿ ℡ Ⅷ", "e\u0301 é A\u030a Å", "한국어 ᄒ\u1161\u11ab", "日本語、ｶﾞｷﾞ", "\U0001f9d1\u200d\U0001f680",
    "\ud800", "a\udc00b\ud83d", "\ufffd\ufffe\uffff", "\u2028\u2029\u00a0\u3000", "～~〜", "العربية", "İıſß", "a  b ",
    "x" * 300, "a\x07b\nc",
]  # fmt: skip
VARIANTS = {
    "post": {},
    "pre": {"norm": "pre"},
    "untied": {"tie_embeddings": False, "output_bias": True, "scale_logits": True},
    "biases": {"biases": True, "feed_forward_biases": False},
    "unscaled": {"scale_attention": False, "scale_embeddings": False},
    "learned": {"positions": "learned", "max_positions": 64},
}


@pytest.fixture(scope="module")
def run() -> Run:
    """The model that comes with the code, with the parameters that the page has."""
    opened = open_run("builtin:quickstart")
    return opened._replace(params=export.rounded(opened.params))


@pytest.fixture(scope="module")
def page() -> str:
    return export.page(export.as_json(open_run("builtin:quickstart")))


def small(**changes: Any) -> Run:
    """Returns a run of a small model of random parameters, whose biases and norms are random, too."""
    tokenizer = tiny.tokenizer()
    config = dataclasses.replace(tiny.TINY, **({"vocab_size": tokenizer.vocab_size} | changes))
    numbers = jax.tree.map(np.asarray, tiny.perturbed(config))
    cfg = default()
    cfg.data.train = "tsv:a"
    cfg.decode.extra_length = 5
    return Run(Path("runs/small"), cfg, config, tokenizer, numbers, 1, (1,))


def hostile_lines(count: int) -> list[str]:
    """Returns sentences of the grammar, and of them many with random characters put in, and random texts."""
    random_ = random.Random(5)
    lines = list(HOSTILE)
    sentences = [text for i in range(50) for text in pair("test", i)[:2]]
    while len(lines) < count:
        sentence = list(random_.choice(sentences))
        for _ in range(random_.choice([0, 1, 5])):
            top = random_.choice([0x7F, 0x2FF, 0x33FF, 0xFFFF, 0x10FFFF])
            sentence.insert(random_.randrange(len(sentence) + 1), chr(random_.randint(0, top)))
        lines.append("".join(sentence))
    return lines


def check_tokenizer(page: str, tokenizer: Tokenizer, lines: Sequence[str]) -> None:
    found = in_node(page, "return input.map(text => model.target.encode(text))", lines)
    for line, ids in zip(lines, found, strict=True):
        assert ids == tokenizer.encode(line), line
    random_ = random.Random(6)
    rows = [[random_.randrange(260, tokenizer.vocab_size) for _ in range(12)] for _ in lines]
    rows += [tokenizer.encode(line) for line in lines]  # characters in bytes among them
    texts = in_node(page, "return input.map(model.target.decode)", rows)
    assert texts == [tokenizer.decode(row) for row in rows]
    print(f"{len(lines):,} lines have the same subwords, {len(rows):,} rows of subwords the same text")


@needs_node
def test_subwords_are_sentencepieces(page: str, run: Run) -> None:
    check_tokenizer(page, run.tokenizer, hostile_lines(400))


@needs_node
@pytest.mark.slow
def test_subwords_of_10_000_lines_are_sentencepieces(page: str, run: Run) -> None:
    check_tokenizer(page, run.tokenizer, hostile_lines(10_000))


@needs_node
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("normalisation", ["nfkc", "plain_nfkc", "none"])
def test_other_normalisations_are_sentencepieces(tmp_path: Path, normalisation: str, lowercase: bool) -> None:
    if normalisation == "none" and lowercase:
        return
    model = small()
    tokenizer = Tokenizer.train(tiny.LINES, 320, tmp_path / "t.model", normalisation=normalisation, lowercase=lowercase)
    check_tokenizer(export.page(export.as_json(model._replace(text=tokenizer))), tokenizer, hostile_lines(200))


def activations(page: str, ids: Sequence[int], inputs: Sequence[int], options: dict[str, Any]) -> dict[str, np.ndarray]:
    """Returns the engine's trace as arrays by name."""
    script = "return engine.forward(model, input.ids, input.inputs, input.options)"
    found = in_node(page, script, {"ids": list(ids), "inputs": list(inputs), "options": options})
    return {name: np.array(rows, np.float32) for name, rows in found.items()}


def check_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert expected.keys() <= found.keys()
    found = {name: found[name].reshape(array.shape) for name, array in expected.items()}
    differences = {name: float(np.abs(found[name] - array).max()) for name, array in expected.items()}
    furthest = max(differences, key=differences.__getitem__)
    print(f"{len(expected)} activations; furthest apart: {differences[furthest]:.1e} in {furthest}")
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-4, err_msg=name)


def ids_of(run: Run, source: str, target: str) -> tuple[list[int], list[int]]:
    """Returns what encoder and decoder read."""
    return [*run.tokenizer.encode(source), EOS], [BOS, *run.tokenizer.encode(target)]


def of_ids(run: Run, ids: Sequence[int], inputs: Sequence[int]) -> dict[str, np.ndarray]:
    """Returns Python's activations, given ids."""
    source, target = (Tokens.of(jnp.array([row], jnp.int32)) for row in (ids, inputs))
    return record(run.model_config, jax.device_put(run.params), source, target, {})


@needs_node
def test_every_activation_is_pythons(page: str, run: Run) -> None:
    expected = trace(run, SOURCE, TARGET).activations
    found = activations(page, *ids_of(run, SOURCE, TARGET), {})
    assert "decoder/layer_1/cross_attention/weights" in expected and "logits" in expected
    check_equal(found, expected)


@needs_node
@pytest.mark.parametrize("name", VARIANTS)
def test_every_activation_of_a_variant_is_pythons(name: str) -> None:
    model = small(**VARIANTS[name])
    rounded = model._replace(params=export.rounded(model.params))
    text = export.page(export.as_json(model))
    ids, inputs = ids_of(model, *tiny.PAIRS[0])
    check_equal(activations(text, ids, inputs, {}), of_ids(rounded, ids, inputs))


def of_two_vocabularies() -> Run:
    """Returns a run of words with a vocabulary for each language, whose sources end without EOS."""
    source = Symbols.of_pieces([*SPECIALS, "der", "the", "cat", "dog", "sleeps"], source_eos=False)
    target = Symbols.of_pieces([*SPECIALS, "der", "Hund", "Katze", "schläft"])
    sizes = {"vocab_size": target.vocab_size, "source_vocab_size": source.vocab_size}
    run = small(**sizes, positions="learned")
    return run._replace(text=Pair(source, target), params=export.rounded(run.params))


@needs_node
def test_a_run_of_words_with_two_vocabularies_is_pythons() -> None:
    run = of_two_vocabularies()
    page = export.page(export.as_json(run))
    script = "const ids = engine.sourceIds(model, input); "
    script += "return [ids, model.source.decode(ids), model.target.decode([4, 7, 2])]"
    ids, text, written = in_node(page, script, "the  cat <s> sleeps")
    assert ids == run.tokenizer.source_ids("the cat <s> sleeps") == [5, 6, UNK, 8]
    assert text == "the cat sleeps" and written == "der schläft"
    found = activations(page, ids, [BOS, 5, 7], {})
    check_equal(found, of_ids(run, ids, [BOS, 5, 7]))
    assert found["logits"].shape == (3, run.tokenizer.vocab_size)
    best = in_node(page, "return engine.translate(model, input, {nbest: 4})", ids)
    translator = Translator(run.model_config, run.tokenizer, make_decoding(run.config.decode, nbest=4))
    (ours,) = translator.translate(run.params, ["the cat <s> sleeps"])
    assert [one["text"] for one in best] == [one.text for one in ours.hypotheses]
    np.testing.assert_allclose([one["score"] for one in best], [one.score for one in ours.hypotheses], atol=1e-4)


def check_searches(page: str, run: Run, lines: Sequence[str], share: float) -> None:
    script = """return input.map(text => engine.translate(model, engine.sourceIds(model, text), {nbest: 4})
        .map(hypothesis => [hypothesis.text, hypothesis.score]))"""
    found = in_node(page, script, lines)
    decoding = make_decoding(run.config.decode, nbest=4)
    expected = Translator(run.model_config, run.tokenizer, decoding).translate(run.params, lines)
    equal = 0
    for ours, theirs in zip(found, expected, strict=True):
        texts = [hypothesis.text for hypothesis in theirs.hypotheses]
        if [text for text, _ in ours] == texts:
            equal += 1
            np.testing.assert_allclose([s for _, s in ours], [h.score for h in theirs.hypotheses], atol=1e-4)
    print(f"{equal:,} of {len(lines):,} sentences have the same list of four translations")
    assert equal >= share * len(lines), f"{equal} of {len(lines)}"


@needs_node
def test_the_search_finds_what_ours_finds(page: str, run: Run) -> None:
    check_searches(page, run, [pair("test", i).english for i in range(50)], 0.98)


@needs_node
@pytest.mark.long
def test_the_search_finds_what_ours_finds_in_1_000_sentences(page: str, run: Run) -> None:
    check_searches(page, run, [pair("test", i).english for i in range(1000)], 0.995)


@needs_node
@pytest.mark.parametrize(
    "options",
    [
        {"beam": 1},
        {"alpha": 0.0},
        {"stopping": "full"},
        {"extra_length": 0},
        {"beam": 2, "alpha": 8.0, "extra_length": 8},  # a longer hypothesis wins, which the bound must not exclude
    ],
)
def test_the_search_has_our_options(page: str, run: Run, options: dict[str, Any]) -> None:
    lines = [pair("test", i).english for i in range(8)]
    script = """return input.lines.map(text =>
        engine.translate(model, engine.sourceIds(model, text), input.options)[0].text)"""
    found = in_node(page, script, {"lines": lines, "options": options})
    translator = Translator(run.model_config, run.tokenizer, make_decoding(run.config.decode, **options))
    assert found == [translation.text for translation in translator.translate(run.params, lines)]


# The switches: each equals the same model changed in Python.


@needs_node
@pytest.mark.parametrize("switch", ["scale", "positions"])
def test_without_scale_or_positions_it_is_that_model(page: str, run: Run, switch: str) -> None:
    fields: dict[str, Any] = {"scale": {"scale_attention": False}, "positions": {"positions": "none"}}[switch]
    changed = run._replace(model_config=dataclasses.replace(run.model_config, **fields))
    ids, inputs = ids_of(run, SOURCE, TARGET)
    check_equal(activations(page, ids, inputs, {switch: False}), of_ids(changed, ids, inputs))


@needs_node
def test_without_the_mask_the_decoder_sees_what_comes_after(
    page: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unmasked(config: Any, cross: bool, causal: bool, stacks: int) -> Stack:
        return Stack(config, cross=cross, causal=False, stacks=stacks)

    monkeypatch.setattr(transformer, "Stack", unmasked)
    ids, inputs = ids_of(run, SOURCE, TARGET)
    check_equal(activations(page, ids, inputs, {"mask": False}), of_ids(run, ids, inputs))
    script = """const source = engine.encode(model, input.ids);
        const { cache } = engine.decode(model, source, input.inputs.slice(0, 4), { mask: false });
        return engine.decode(model, source, input.inputs, { mask: false }, cache).logits.at(-1)"""
    last_v = in_node(page, script, {"ids": ids, "inputs": inputs})
    np.testing.assert_allclose(last_v, of_ids(run, ids, inputs)["logits"][-1], atol=1e-4)


@needs_node
@pytest.mark.parametrize("kept", [[1, 0, 1, 1], [0, 0, 1, 0]], ids=["one out", "one only"])
@pytest.mark.parametrize("path", ["encoder/layer_1/self_attention", "decoder/layer_0/cross_attention"])
def test_a_head_that_is_out_adds_nothing(page: str, run: Run, path: str, kept: list[int]) -> None:
    params = jax.tree.map(np.array, run.params)
    stack, layer, name = path.split("/")
    wo_hed = params[stack][layer][name]["wo"]
    wo_hed *= np.array(kept, np.float32)[:, None, None]
    ids, inputs = ids_of(run, SOURCE, TARGET)
    found = activations(page, ids, inputs, {"out": {path: [n for n, factor in enumerate(kept) if not factor]}})
    expected = of_ids(run._replace(params=params), ids, inputs)["logits"]
    np.testing.assert_allclose(found["logits"], expected, atol=1e-4)
    assert np.abs(expected - of_ids(run, ids, inputs)["logits"]).max() > 0.01, "it does something"


@needs_node
@pytest.mark.parametrize("name", ["pre", "untied"])
def test_the_logit_lens_is_pythons(name: str) -> None:
    model = small(**VARIANTS[name])
    rounded = model._replace(params=export.rounded(model.params))
    expected = logit_lens(rounded, trace(rounded, *tiny.PAIRS[0]), "decoder")
    script = """const trace = engine.forward(model, input.ids, input.inputs);
        return ["embedding", "layer_0", "layer_1"].map(name => engine.logitLens(model, trace[`decoder/${name}`]))"""
    ids, inputs = ids_of(model, *tiny.PAIRS[0])
    found = in_node(export.page(export.as_json(model)), script, {"ids": ids, "inputs": inputs})
    np.testing.assert_allclose(np.array(found), expected.logits_ntv, atol=1e-4)


@needs_node
def test_the_cache_changes_nothing(page: str, run: Run) -> None:
    ids, inputs = ids_of(run, SOURCE, TARGET)
    script = """const source = engine.encode(model, input.ids);
        let cache;
        return input.inputs.map((_, t) => {
            const done = engine.decode(model, source, input.inputs.slice(0, t + 1), {}, cache);
            cache = done.cache;
            return done.logits.at(-1);
        })"""
    found = in_node(page, script, {"ids": ids, "inputs": inputs})
    np.testing.assert_allclose(found, of_ids(run, ids, inputs)["logits"], atol=1e-4)


# The page, and what is refused.


def test_the_grammars_words_are_known_and_of_other_corpora_none() -> None:
    words = export.corpus_words("grammar:train:400")
    assert {"the", "dog", "sleeps", "anna"} <= set(words) and "The" not in words and len(set(words)) == len(words)
    assert "hund" in export.corpus_words("grammar:train:400:{de,en}")
    assert export.corpus_words("grammar:train:400,tsv:a.tsv") == export.corpus_words("tsv:a.tsv") == []


def test_rounded_parameters_are_close() -> None:
    exact = small().params
    for leaf, rounded in zip(jax.tree.leaves(exact), jax.tree.leaves(export.rounded(exact)), strict=True):
        assert np.abs(leaf - rounded).max() <= np.abs(leaf).max() / 2000


def test_the_difference_that_rounding_makes_is_measured() -> None:
    model = small()
    sources = [source for source, _ in tiny.PAIRS[:2]]
    rounded = export.rounded(model.params)
    found = export.largest_difference(model, rounded, sources)
    greedy = Translator(model.model_config, model.tokenizer, make_decoding(model.config.decode, beam=1))
    expected = 0.0
    for source, translation in zip(sources, greedy.translate(model.params, sources), strict=True):
        ids = [*translation.hypotheses[0].tokens, EOS]
        given = [*model.tokenizer.encode(source), EOS], [BOS, *ids[:-1]]
        log_probs = [
            jax.nn.log_softmax(of_ids(one, *given)["logits"])[np.arange(len(ids)), np.array(ids)]
            for one in (model, model._replace(params=rounded))
        ]
        expected = max(expected, float(np.abs(log_probs[0] - log_probs[1]).max()))
    assert found > 0
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert export.largest_difference(model, model.params, sources) == 0


def test_the_pages_own_code_has_at_most_60_kilobytes() -> None:
    folder = ROOT / "infer" / "explorer"
    files = [path for kind in ("*.js", "*.css", "*.html") for path in folder.rglob(kind)]
    size = sum(path.stat().st_size for path in [*files, ROOT / "infer" / "attention" / "heatmap.js"])
    print(f"{size:,} bytes of the page's own code")
    assert size <= 60 * 1024


def test_the_page_is_small_and_loads_nothing(page: str) -> None:
    assert len(page.encode()) < 4_000_000
    assert "default-src 'none'" in page and "connect-src" not in page
    for word in ("fetch(", "XMLHttpRequest", "import(", "http://", "https://", "innerHTML"):
        assert word not in page, word


def test_a_hostile_sentence_does_not_end_the_data(run: Run) -> None:
    text = export.page(export.as_json(run, source="</script><script>alert(1)</script>"))
    assert "alert(1)" in text and "<script>alert" not in text


def test_roles_are_of_the_parameters_that_they_were_measured_with(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = open_run("builtin:quickstart")
    roles = export.measured_roles(shipped)["roles"]
    assert {(role["kind"], role["relation"]) for role in roles} >= {("cross", "same token, translated")}
    shutil.copy(shipped.workdir / export.ROLES, tmp_path)
    assert export.measured_roles(shipped._replace(workdir=tmp_path))["roles"] == roles
    capsys.readouterr()
    other = run._replace(workdir=tmp_path, params=jax.tree.map(np.zeros_like, run.params))
    assert export.measured_roles(other) is None, "its parameters are others"
    assert capsys.readouterr().err == (
        f"note: {tmp_path}/roles.json is about other parameters, so the page has no roles of heads\n"
    )
    assert export.measured_roles(small()) is None
    (tmp_path / export.ROLES).write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match=r"roles\.json: damaged"):
        export.measured_roles(shipped._replace(workdir=tmp_path))


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"N_encoder": 1}, "the explorer is for stacks of one depth; python -m infer.demo"),
        ({"share_layers": True}, "model.share_layers is True, which the explorer cannot hold; python -m infer.demo"),
        ({"positions": "rope"}, "model.positions is 'rope'"),
        ({"norm": "deep"}, "model.norm is 'deep'"),
        ({"norm": "none"}, "model.norm is 'none'"),
        ({"residual": False}, "model.residual is False"),
        ({"norm_embeddings": True}, "model.norm_embeddings is True"),
        ({"mixer": "linear"}, "model.mixer is 'linear'"),
    ],
)
def test_another_model_is_one_line(changes: dict[str, Any], wrong: str) -> None:
    with pytest.raises(UserError, match=wrong):
        export.as_json(small(**changes))


def test_a_recurrent_network_is_one_line() -> None:
    model_run = small()._replace(model_config=RecurrentConfig(320, N=2, d_model=16, P_drop=0.0, recurrent="dot"))
    with pytest.raises(
        UserError, match="the explorer is for Transformers, not for recurrent networks; python -m infer"
    ):
        export.check(model_run)


def test_too_large_a_model_and_other_subwords_are_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = small()
    with pytest.raises(UserError, match="subwords that training here has learned"):
        export.vocabulary_data(tiny.given_tokenizer(add_dummy_prefix=False))
    monkeypatch.setattr(export, "LARGEST", 100)
    with pytest.raises(UserError, match="parameters; the explorer is for up to 100;"):
        export.as_json(model)


def other_task(workdir: Path) -> None:
    config = json.loads((workdir / "config.json").read_text(encoding="utf-8"))
    (workdir / "config.json").write_text(json.dumps(config | {"task": "masked_lm"}), encoding="utf-8")


def without_tokenizer(workdir: Path) -> None:
    (workdir / "tokenizer.model").unlink()


def cut_short(workdir: Path) -> None:
    for file in (workdir / "checkpoints" / "4" / "state").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("harm", "wrong"),
    [
        (other_task, "this run's task is masked_lm, not translation"),
        (without_tokenizer, r"tokenizer\.model: cannot be read \(No such file"),
        (cut_short, "checkpoints/4: this checkpoint is damaged"),
    ],
)
def test_a_run_that_has_no_page_is_one_line(harm: Callable[[Path], None], wrong: str, tmp_path: Path) -> None:
    workdir = tiny.write_run(tmp_path / "run")
    harm(workdir)
    given = {"workdir": str(workdir), "checkpoint": "4", "output": str(tmp_path / "a.html")}
    given |= {"examples": None}
    with pytest.raises(UserError, match=wrong) as raised:
        command.main(SimpleNamespace(**given, source=""))
    assert "\n" not in str(raised.value) and not (tmp_path / "a.html").exists()


def test_the_command_writes_one_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "infer.explorer", "--workdir=builtin:quickstart", f"--output={tmp_path}/a.html"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{tmp_path}/a.html" and [path.name for path in tmp_path.iterdir()] == ["a.html"]

"""Models in CTranslate2's format become runs: a stranger's with its authors' log-probabilities, and our own again.

What needs CTranslate2 to write a model, or to compute with it, is skipped without it, see tests/extras.py.
"""

import json
import struct
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.extras import needed
from tests.slow import slow_but
from tests.tiny import LINES, random_run, tokenizer
from vaswani.data.cache import prepare
from vaswani.data.imported import Marian, open_tokenizer
from vaswani.data.pair import Pair
from vaswani.data.symbols import SPECIALS, Symbols
from vaswani.errors import UserError
from vaswani.ids import EOS, PAD
from vaswani.infer.convert import __main__ as command
from vaswani.infer.convert import table
from vaswani.infer.convert.ctranslate2_file import read_file
from vaswani.infer.convert.ctranslate2_import import read
from vaswani.infer.convert.ctranslate2_names import TABLE, our_sinusoids
from vaswani.infer.convert.folders import Imported, make_run
from vaswani.infer.runs import Run, open_run
from vaswani.infer.translate.required import Required
from vaswani.infer.translate.translator import Translator
from vaswani.model.transformer import Transformer
from vaswani.run.parameters import flatten_params
from vaswani.search.options import Decoding
from vaswani.search.scoring import forced_log_probs
from vaswani.tasks import task_of

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT.parent / "shared/fixtures/ct2_transliteration"
here = pytest.mark.skipif(not SAMPLE.exists(), reason="CTranslate2's transliteration model is not on this machine")
FILES = (
    "v1/aren-transliteration",
    "v2/aren-transliteration",
    "v2/aren-transliteration-i16",
    "v2/aren-transliteration-i8",
)
# OpenNMT/CTranslate2 (MIT), tests/translator_test.cc: log-probabilities of the tokens and of the end, within 1e-5.
PUBLISHED = {
    ("آ ت ز م و ن", "a t z m o n"): (-0.106023, -0.065410, -0.056002, -0.447953, -0.230714, -0.092184, -0.063463),
    ("آ ت ش ي س و ن", "a c h i s o n"): (
        *(-0.072660, -0.300309, -0.181187, -0.395671, -0.025631, -0.123466, -0.002034, -0.012639),
    ),
    ("آ ر ب ا ك ه", "a r b a k e"): (-0.103136, -0.089504, -0.063889, -0.007327, -0.452072, -0.060154, -0.016636),
    ("آ ر ث ر", "a r t h e r"): (-0.076704, -0.036037, -0.029253, -0.030273, -0.149276, -0.002440, -0.003742),
}
CLOSE = 1e-5  # their bound


# A run of what was read, and its log-probabilities


def run_of(imported: Imported) -> Run:
    config = imported.config
    text = imported.tokenizer
    assert text is not None
    model = task_of("translation").config(config, text.vocab_size, text.source_vocab_size)
    return Run(Path("nowhere"), config, model, text, imported.params, 1, (1,))


def log_probs(run: Run, pairs: Sequence[tuple[str, str]]) -> list[np.ndarray]:
    """Returns the log-probability of each token and of the end of each target."""
    sources = [run.tokenizer.source_ids(source) for source, _ in pairs]
    targets = [[*run.tokenizer.target.encode(target), EOS] for _, target in pairs]
    width = max(map(len, sources + targets))
    source_bs, target_bt = (
        np.array([ids + [PAD] * (width - len(ids)) for ids in side], np.int32) for side in (sources, targets)
    )
    found_bt = jax.jit(partial(forced_log_probs, Transformer(run.model_config)))(run.params, source_bs, target_bt)
    return [np.asarray(found_t)[: len(ids)] for found_t, ids in zip(found_bt, targets, strict=True)]


def difference(found: Sequence[Any], expected: Sequence[Any]) -> float:
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in zip(found, expected, strict=True))


def theirs(folder: Path, pairs: Sequence[tuple[str, str]]) -> list[list[float]]:
    """Returns the log-probabilities that CTranslate2 computes in float32."""
    translator = needed("ctranslate2").Translator(str(folder), device="cpu", compute_type="float32", intra_threads=1)
    sources, targets = ([text.split() for text in side] for side in zip(*pairs, strict=True))
    return [one.log_probs for one in translator.score_batch(sources, targets)]


def translated(run: Run, lines: Sequence[str], beam: int, alpha: float, **required: Sequence[Required]) -> list[Any]:
    decode = run.config.decode
    assert (decode.stopping, decode.length_penalty) == ("full", "power"), "as CTranslate2 searches"
    decoding = Decoding(beam, alpha, 50, nbest=beam, length_penalty=decode.length_penalty, stopping=decode.stopping)
    found = Translator(run.model_config, run.tokenizer, decoding).translate(run.params, lines, **required)
    return [line.hypotheses for line in found]


# A stranger's model


@here
@pytest.mark.parametrize("name", FILES[:2])
def test_a_trained_model_has_its_authors_log_probabilities(name: str) -> None:
    found = log_probs(run_of(read(SAMPLE / name)), list(PUBLISHED))
    assert difference(found, list(PUBLISHED.values())) < CLOSE


@here
@pytest.mark.parametrize("name", FILES[2:])
def test_its_rounded_files_are_what_ctranslate2_makes_of_them(name: str) -> None:
    run = run_of(read(SAMPLE / name))
    found = log_probs(run, list(PUBLISHED))
    assert difference(found, theirs(SAMPLE / name, list(PUBLISHED))) < CLOSE
    assert CLOSE < difference(found, list(PUBLISHED.values())) < 0.05, "rounded, and near"


@here
@pytest.mark.parametrize(
    ("beam", "alpha", "words"),
    slow_but([(2, 1.0, 16)], [(2, 1.0, 16), (1, 0.0, 129), (2, 1.0, 129), (4, 1.0, 129), (5, 0.6, 129)]),
)
def test_its_n_best_lists_are_those_of_ctranslate2(beam: int, alpha: float, words: int) -> None:
    expected = json.loads((SAMPLE / "expected.json").read_text())[-words:]
    run = run_of(read(SAMPLE / FILES[1]))
    found = translated(run, [" ".join(word["source"]) for word in expected], beam, alpha)
    for word, hypotheses in zip(expected, found, strict=True):
        best = word[f"beam{beam}"]
        assert [one.text.split() for one in hypotheses] == best["hypotheses"]
        assert [one.score for one in hypotheses] == pytest.approx(best["scores"], abs=1e-4)


@here
def test_it_translates_as_its_authors_assert() -> None:
    run = run_of(read(SAMPLE / FILES[1]))
    name = "آ ت ز م و ن"
    lines = ["آ ز ا", name, name, name, "أ و ل ي س س", ""]
    beginnings = [Required(text) for text in ("", "", "a t s", "a t z o", "u l i s e", "")]
    found = [best[0].text for best in translated(run, lines, 2, 1.0, required=beginnings)]
    assert found == ["a z z a", "a t z m o n", "a t s u m o n", "a t z o m o n", "u l i s e s", ""]


# The form of the file


def packed(
    run: Run, version: int, *, revision: int = 7, name: str = "TransformerSpec", extra: dict[str, Any] | None = None
) -> bytes:
    """Returns the file of a run in a version of the format; `extra` are more variables, or others of the same name."""
    config = run.model_config
    params = {path: np.asarray(array) for path, array in flatten_params(run.params).items()}
    tables = zip(("source_embed", "target_embed", "softmax"), config.tables, strict=True)
    params |= {ours: params[path] for ours, path in tables}
    positions = our_sinusoids(64, config.d_model)
    params |= {"source_positions": positions, "target_positions": positions}
    rows = [row for row in table.rows(TABLE, config.N) if row.paths[0] in params]
    variables: dict[str, Any] = dict(table.write(params, rows, table.sizes_of(config)))
    for side in ("encoder", "decoder"):
        variables[f"{side}/num_heads"] = np.int16(config.h)
        variables[f"{side}/pre_norm"] = np.int8(config.norm == "pre")
    variables |= {"with_source_eos": np.int8(1)} | (extra or {})

    def text(string: str) -> bytes:
        return struct.pack("<H", len(string.encode()) + 1) + string.encode() + b"\0"

    types = {"float32": 0, "int8": 1, "int16": 2, "int32": 3}
    content = struct.pack("<I", version)
    if version >= 2:
        content += text(name) + struct.pack("<I", revision)
    aliases = {}
    if version >= 3:
        aliases = {key: "decoder/embeddings/weight" for key in ("decoder/projection/weight",) if key in variables}
    stored = {key: np.asarray(array) for key, array in variables.items() if key not in aliases}
    content += struct.pack("<I", len(stored))
    for key, array in stored.items():
        content += text(key) + struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)
        kind = (types[array.dtype.name], array.nbytes) if version >= 4 else (array.itemsize, array.size)
        content += struct.pack("<BI", *kind) + array.tobytes()
    if version >= 3:
        content += struct.pack("<I", len(aliases)) + b"".join(text(key) + text(other) for key, other in aliases.items())
    return content


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Returns a function that writes a tiny model of our own into a folder, given as `packed` takes it."""
    run = random_run(N=1, d_k=4, d_v=4, h=2)

    def made(version: int = 4, **options: Any) -> Path:
        (tmp_path / "model.bin").write_bytes(packed(run, version, **options))
        pieces = [*SPECIALS, *run.tokenizer.pieces(range(4, run.tokenizer.vocab_size))]
        (tmp_path / "shared_vocabulary.txt").write_text("".join(f"{piece}\n" for piece in pieces))
        run.tokenizer.save(tmp_path / "tokenizer.model")
        return tmp_path

    return made


@pytest.mark.parametrize("version", [2, 3, 4, 5, 6])
def test_every_version_of_the_file_is_read(version: int, write: Callable[..., Path]) -> None:
    folder = write(version)
    if version == 6:
        (folder / "config.json").write_text(json.dumps({"add_source_eos": True, "layer_norm_epsilon": 1e-6}))
    imported = read(folder)
    expected = flatten_params(random_run(N=1, d_k=4, d_v=4, h=2).params)
    found = flatten_params(imported.params)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[path], expected[path]) for path in expected)
    assert type(imported.tokenizer) is type(tokenizer()) and imported.tokenizer.sha256 == tokenizer().sha256
    assert imported.config.model.positions == "sinusoidal"
    assert imported.config.model.norm_epsilon == (1e-6 if version == 6 else 1e-5)


def wrong(folder: Path, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        read(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("length", [0, 3, 8, 30, 31, 60, 5_000, -1])
def test_a_file_that_is_cut_off_is_one_line(length: int, write: Callable[..., Path]) -> None:
    path = write() / "model.bin"
    path.write_bytes(path.read_bytes()[:length])
    wrong(path.parent, rf"^{path}: cut off: [\d,]+ bytes are expected at [\d,]+, but it has [\d,]+$")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02}q\x00" * 9, r"not a model of CTranslate2, or too new: its version is \d+, not 1 to 6$"),
        (struct.pack("<IH3s", 4, 3, b"abc"), r"damaged: b'abc', before 9, is not a name$"),
        (struct.pack("<IH3sIIH2sBB", 4, 2, b"\0\0\7", 0, 1, 2, b"w\0", 0, 9), r"cut off|damaged"),
    ],
)
def test_another_file_is_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(content)
    wrong(tmp_path, rf"^{tmp_path}/model.bin: .*{message}")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "TransformerDecoderSpec"}, "its kind is 'TransformerDecoderSpec'; only encoder-decoders of text"),
        ({"name": "WhisperSpec"}, "its kind is 'WhisperSpec'; only encoder-decoders of text"),
        (
            {"extra": {"decoder/layer_0/ssru/linear_0/weight": np.ones((2, 2), np.float32)}},
            "'decoder/layer_0/ssru/linear_0/weight': a model of these settings has no such weight",
        ),
        (
            {"extra": {"encoder/embeddings_1/weight": np.ones((2, 2), np.float32)}},
            r"features besides its words \(encoder/embeddings_1\)",
        ),
        (
            {"extra": {"encoder/layer_0/self_attention/linear_0/weight": np.ones((24, 7), np.float32)}},
            r"'encoder/layer_0/self_attention/linear_0/weight' is of shape \(24, 7\); it must be",
        ),
        (
            {"extra": {"encoder/layer_0/ffn/linear_1/weight": np.ones((8, 16), np.int8)}},
            "'encoder/layer_0/ffn/linear_1/weight' is of int8, and has no scale that fits",
        ),
        ({"extra": {"decoder/alibi": np.int8(1)}}, "only its decoder has ALiBi"),
        ({"extra": {"encoder/sliding_window": np.int32(8)}}, "encoder/sliding_window is 8, which our model cannot do"),
        ({"extra": {"decoder/num_heads": np.int16(1)}}, "num_heads is 1 and 2; it must be one value"),
        ({"extra": {"decoder/activation": np.int8(5)}}, "activation number 5, with or without a gate, is none of ours"),
        ({"extra": {"with_source_bos": np.int8(1)}}, "add_source_bos is true"),
        ({"extra": {"encoder/scale_embeddings": np.float32(3)}}, "scale_embeddings is 3; it must be 1 or"),
        ({"extra": {"encoder/layer_0/self_attention/num_heads_kv": np.int32(1)}}, "its heads share keys"),
    ],
)
def test_what_our_model_lacks_is_one_line_that_names_it(
    options: dict[str, Any], message: str, write: Callable[..., Path]
) -> None:
    wrong(write(**options), message)


def test_a_vocabulary_that_does_not_fit_is_one_line(write: Callable[..., Path]) -> None:
    folder = write()
    path = folder / "shared_vocabulary.txt"
    lines = path.read_text()
    path.write_text(lines + "more\n")
    wrong(folder, rf"^{path}: 321 subwords, and model.bin has 320 embeddings of the target$")
    path.write_text(lines.replace("</s>", "<end>"))
    wrong(folder, rf"^{path}: eos_token is '</s>', which it lacks$")
    path.unlink()
    wrong(folder, rf"^{folder}: has neither shared_vocabulary.json nor target_vocabulary.json, nor one in .txt$")
    path.write_text(lines)
    (folder / "config.json").write_text('{"decoder_start_token": null}')
    wrong(folder, "decoder_start_token is null; models whose users give it with each text are not read$")
    (folder / "model.bin").unlink()
    wrong(folder, r"^--from=ctranslate2:.*: there is no model.bin; give a folder that a converter wrote$")


# Words and subwords


def test_without_an_eos_a_source_is_only_its_words(write: Callable[..., Path], tmp_path: Path) -> None:
    folder = write(extra={"with_source_eos": np.int8(0)})
    (folder / "tokenizer.model").unlink()
    make_run(tmp_path / "run", read(folder))
    run = open_run(str(tmp_path / "run"), None, "translation")
    text = run.tokenizer
    assert isinstance(text, Symbols)
    assert run.config.data.units == text.units == "words"
    pieces = text.pieces(range(300, 303))
    assert text.source_ids(" ".join(pieces)) == [300, 301, 302]
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text(f"{pieces[0]} {pieces[1]}\t{pieces[2]}\n")
    prepared = prepare(f"tsv:{corpus}", text, cache=tmp_path, max_length=9, max_ratio=9.0, clean=True, progress=False)
    assert [ids.tolist() for ids in prepared[0]] == [[300, 301], [302, EOS]]
    assert open_tokenizer(tmp_path / "run/tokenizer.model").target.decode([300, EOS]) == pieces[0]


def test_a_word_may_be_an_invisible_character() -> None:
    text = Symbols.of_pieces([*SPECIALS, "\u200e"])
    assert not Pair(text, text).is_blank("\u200e"), "a word of the vocabulary"
    assert text.is_blank(" \u200d"), "nothing of it is"


@pytest.mark.parametrize("names", [("source.spm", "target.spm"), ("sentencepiece.model",), ("given",)])
def test_its_subwords_are_those_of_a_sentencepiece_model(
    names: tuple[str, ...], write: Callable[..., Path], tmp_path: Path
) -> None:
    folder = write(extra={"with_source_eos": np.int8(0)})
    content = (folder / "tokenizer.model").read_bytes()
    (folder / "tokenizer.model").unlink()
    for name in names:
        (folder / name).write_bytes(content)
    subwords = f"sentencepiece:{folder / 'given'}" if names == ("given",) else ""
    text = read(folder, subwords).tokenizer
    assert isinstance(text, Marian)
    assert text.source_ids(LINES[0]) == tokenizer().encode(LINES[0]), "and no EOS"
    for given in ("words", "sentencepiece:", "sentencepiece:a,b,c"):
        with pytest.raises(
            UserError, match=rf"^--tokenizer={given}: write sentencepiece:FILE, or sentencepiece:SOURCE"
        ):
            read(folder, given)


def test_the_command_needs_no_ctranslate2_and_says_what_it_ignores(
    write: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    folder = write()
    (folder / "vmap.txt").write_text("")
    command.read(f"ctranslate2:{folder}", str(tmp_path / "run"))
    assert "vmap.txt is ignored: any subword of the target may be written\n" in capsys.readouterr().err
    run = open_run(str(tmp_path / "run"), None, "translation")
    assert run.config.decode.stopping == "full"
    assert run.config.decode.length_penalty == "power"


# Exported, and read again


def exported(run: Run, folder: Path, quantization: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes a run as CTranslate2's, which tests of the export compare with it."""
    needed("ctranslate2")
    from vaswani.infer.convert import ctranslate2

    for name in ("scored_pairs", "log_probs", "compare"):
        monkeypatch.setattr(ctranslate2, name, lambda *arguments: 0.0)
    ctranslate2.write(run, folder, quantization)
    return folder


@pytest.mark.parametrize(
    "fields",
    [
        {"N": 2, "N_encoder": 3},
        {"norm": "pre", "d_k": 6, "d_v": 3, "biases": True, "norm_epsilon": 1e-3},
        {"positions": "learned", "max_positions": 60, "tie_embeddings": False, "activation": "gelu"},
        {"positions": "learned", "max_positions": 60, "scale_embeddings": False},
        {"positions": "rope", "d_k": 4, "d_v": 6, "activation": "silu", "output_bias": True},
        {"positions": "alibi", "h": 3},
        {"positions": "none", "activation": "gelu_tanh"},
    ],
)
def test_a_run_that_is_exported_and_read_again_is_the_same(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = random_run(**{"N": 1} | fields)
    again = run_of(read(exported(run, tmp_path, "float32", monkeypatch)))
    expected = flatten_params(run.params)
    found = flatten_params(again.params)
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[path], expected[path]) for path in expected)
    assert again.tokenizer.sha256 == run.tokenizer.sha256
    ignored = {"N", "N_encoder", "N_decoder", "max_positions"}
    settings = {name: value for name, value in vars(run.model_config).items() if name not in ignored}
    assert {name: getattr(again.model_config, name) for name in settings} == settings
    assert again.model_config.depths == run.model_config.depths


@pytest.mark.parametrize(
    ("quantization", "bound"), [("float16", 2**-10), ("bfloat16", 2**-7), ("int16", 2**-10), ("int8", 2**-7)]
)
def test_rounded_weights_are_near(
    quantization: str, bound: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if quantization == "bfloat16":
        needed("torch")
    run = random_run(N=1, d_k=8, d_v=8, tie_embeddings=False)
    imported = read(exported(run, tmp_path, quantization, monkeypatch))
    assert imported.config.model.positions == "sinusoidal", "rounded, too"
    found = flatten_params(imported.params)
    for path, array in flatten_params(run.params).items():
        largest = np.abs(array).max()
        assert np.abs(found[path] - array).max() <= bound * largest
        if array.ndim > 1:
            assert not np.array_equal(found[path], array)


def test_a_run_of_words_without_an_eos_is_exported_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = random_run(N=1, d_k=4, d_v=4, h=2)
    run = run._replace(text=Symbols.of_pieces([*SPECIALS, *map(str, range(316))], source_eos=False))
    folder = exported(run, tmp_path, "float32", monkeypatch)
    again = run_of(read(folder))
    assert again.tokenizer.sha256 == run.tokenizer.sha256
    assert "sentencepiece" not in (folder / "README.md").read_text()
    pairs = [("7 8 9 7", "11 12"), ("300", "3")]
    assert difference(log_probs(again, pairs), theirs(folder, pairs)) < CLOSE


def test_subwords_of_another_make_are_exported_with_their_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = random_run(N=1, d_k=4, d_v=4, h=2)
    content = run.tokenizer.content
    pieces = [*SPECIALS, *run.tokenizer.pieces(range(4, run.tokenizer.vocab_size))]
    run = run._replace(text=Marian.of(pieces, content, content, source_eos=False))
    again = run_of(read(exported(run, tmp_path, "float32", monkeypatch)))
    assert again.tokenizer.sha256 == run.tokenizer.sha256
    assert (tmp_path / "tokenizer.model").read_bytes() == content


# Models of other makes


def foreign(
    folder: Path, *, zero_start: bool = False, own_sinusoids: bool = True, scale: float = 0.0, **shape: Any
) -> Path:
    """Writes a random model of CTranslate2's own specification."""
    needed("ctranslate2")
    from ctranslate2.specs import transformer_spec

    d, f, v = 16, 24, 12
    rng = np.random.default_rng(7)
    stacks = (
        transformer_spec.TransformerEncoderSpec(2, 2, **shape),
        transformer_spec.TransformerDecoderSpec(2, 2, **shape),
    )
    spec = transformer_spec.TransformerSpec(*stacks)
    sizes = {"gamma": (d,), "beta": (d,), "ffn/linear_0/weight": (f, d), "ffn/linear_0_noact/weight": (f, d)}
    sizes |= {"ffn/linear_1/weight": (d, f), "self_attention/linear_0/weight": (3 * d, d)}
    sizes |= {"attention/linear_1/weight": (2 * d, d), "self_attention/linear_1/weight": (d, d)}
    sizes |= {"embeddings_0/weight": (v, d), "embeddings/weight": (v, d), "projection/weight": (v, d), "weight": (d, d)}

    def fill(part: Any, name: str, value: Any) -> None:
        if value is None:
            size = next(
                size for ending, size in sorted(sizes.items(), key=lambda item: -len(item[0])) if name.endswith(ending)
            )
            noise = 0.4 * rng.standard_normal(size)
            setattr(part, name.rpartition("/")[2], np.float32(noise + name.endswith("gamma")))

    spec._visit(fill)
    spec.decoder.start_from_zero_embedding = zero_start
    spec.decoder.projection.bias = np.float32(rng.standard_normal(v))
    for layer in (*spec.encoder.layer, *spec.decoder.layer):
        layer.self_attention.linear[0].bias = np.float32(rng.standard_normal(3 * d))  # and none of the output
        if scale:
            layer.self_attention.queries_scale = scale
    for layer in spec.decoder.layer:
        if scale:
            layer.attention.queries_scale = scale
    spec.register_source_vocabulary(["</s>", "<unk>", "<s>", *"abcdefghi"])
    spec.register_target_vocabulary(["</s>", "<unk>", "<s>", *"ihgfedcba"])
    spec.config.add_source_eos = zero_start
    spec.config.decoder_start_token = "</s>" if zero_start else "<s>"
    spec.validate()
    spec.optimize("float32")
    spec.save(str(folder))
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {"pre_norm": False, "zero_start": True},  # as of Marian
        {"rms_norm": True, "ffn_glu": True, "activation": 3, "rotary_dim": 8, "rotary_interleave": False},
        {"scale": 1.0, "layernorm_embedding": True},
        {"scale": 0.5},
    ],
)
def test_models_of_other_makes_have_the_same_log_probabilities(options: dict[str, Any], tmp_path: Path) -> None:
    folder = foreign(tmp_path, **options)
    pairs = [("a b c d", "e f g"), ("i z a", "h"), ("c", "a a a a a a")]  # z is unknown
    assert difference(log_probs(run_of(read(folder)), pairs), theirs(folder, pairs)) < CLOSE


def test_the_file_is_read_as_it_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = read_file(exported(random_run(N=1), tmp_path, "int8", monkeypatch) / "model.bin")
    assert (file.version, file.specification) == (6, "TransformerSpec")
    assert file.variables["decoder/projection/weight"].dtype == np.int8
    assert file.variables["decoder/projection/weight_scale"].shape == (320,)

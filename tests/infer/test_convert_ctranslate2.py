"""CTranslate2 computes what our model does: position kinds, norms, widths of heads, biases, untied embeddings.

Skipped without CTranslate2, see tests/extras.py.
"""

import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.extras import ctranslate2 as package  # without it this file is skipped

# isort: split
from tests import tiny
from tests.tiny import LINES, ending_run, random_run
from vaswani.data.pair import Pair
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, PAD
from vaswani.infer.convert import __main__ as command
from vaswani.infer.convert import ctranslate2
from vaswani.infer.translate.translator import Translator
from vaswani.search.options import Decoding

TOLERANCE = 1e-5
LONGEST = 60  # subwords of an output
# Each position kind with each norm; d_k below and above d_v; biases, untied and unscaled embeddings; other activations.
CASES = {
    "sinusoidal-post": {"N": 2, "N_encoder": 3},
    "sinusoidal-pre": {"norm": "pre", "d_k": 6, "d_v": 3, "biases": True},
    "learned-post": {"positions": "learned", "max_positions": 60, "tie_embeddings": False, "activation": "gelu"},
    "learned-pre": {"positions": "learned", "max_positions": 60, "norm": "pre", "scale_embeddings": False},
    "rope-post": {"positions": "rope", "d_k": 4, "d_v": 6, "activation": "silu", "output_bias": True},
    "rope-pre": {"positions": "rope", "norm": "pre", "d_k": 6, "d_v": 4, "biases": True},
    "alibi-post": {"positions": "alibi", "h": 3},
    "alibi-pre": {"positions": "alibi", "norm": "pre", "d_v": 7, "norm_epsilon": 1e-3},
    "none-post": {"positions": "none", "activation": "gelu_tanh"},
    "none-pre": {"positions": "none", "norm": "pre"},
}


@pytest.mark.parametrize("case", CASES)
def test_log_probabilities_are_ours(case: str, tmp_path: Path) -> None:
    assert ctranslate2.write(random_run(**{"N": 1} | CASES[case]), tmp_path) <= TOLERANCE


@pytest.mark.parametrize("tied", [True, False])
def test_each_side_may_have_a_vocabulary_of_its_own(
    tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = random_run(N=1, tie_embeddings=tied)
    german = Tokenizer.train([target for _, target in tiny.PAIRS], 300, tmp_path / "learned.model")
    config = replace(run.model_config, vocab_size=300, source_vocab_size=320)
    run = run._replace(text=Pair(run.tokenizer, german), model_config=config, params=tiny.perturbed(config))
    assert ctranslate2.write(run, tmp_path) <= TOLERANCE
    for name in ("source_vocabulary.json", "target_vocabulary.json", "source.model", "target.model"):
        assert (tmp_path / name).is_file()
    readme = (tmp_path / "README.md").read_text()
    code = textwrap.dedent("".join(line for line in readme.splitlines(keepends=True) if line.startswith("    ")))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    written = names["found"][0].hypotheses[0]
    assert names["pieces"].decode(written) == german.decode([names["pieces"].piece_to_id(one) for one in written])


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.6), (4, 0.6), (5, 1.0)])
def test_with_full_stopping_it_finds_the_same_translations(beam: int, alpha: float, tmp_path: Path) -> None:
    model_run = ending_run()
    ctranslate2.write(model_run, tmp_path)
    pieces = model_run.tokenizer.pieces
    sources = [pieces(model_run.tokenizer.encode(line)) for line in LINES]
    decoding = Decoding(beam, alpha, LONGEST, nbest=beam, length_penalty="power", stopping="full")
    ours = Translator(model_run.model_config, model_run.tokenizer, decoding).translate(model_run.params, LINES)
    search = {"beam_size": beam, "length_penalty": alpha, "num_hypotheses": beam, "max_decoding_length": LONGEST}
    theirs = package.Translator(str(tmp_path)).translate_batch(sources, return_scores=True, **search)
    lengths = set()
    for one, other in zip(ours, theirs, strict=True):
        if max(len(hypothesis.tokens) for hypothesis in one.hypotheses) >= LONGEST:
            continue  # theirs need not end with the end of a sentence
        assert [pieces(hypothesis.tokens) for hypothesis in one.hypotheses] == other.hypotheses
        # Theirs shares what PAD and BOS have of the softmax among the others.
        assert [hypothesis.score for hypothesis in one.hypotheses] == pytest.approx(other.scores, rel=0.01)
        lengths |= {len(hypothesis.tokens) for hypothesis in one.hypotheses}
    assert len(lengths) > 2


def test_int8_is_near_and_small_and_the_folder_holds_all(tmp_path: Path) -> None:
    model_run = random_run(N=1, d_model=64, d_ff=256)
    differences = {}
    for quantization in ("float32", "int8"):
        (tmp_path / quantization).mkdir()
        differences[quantization] = ctranslate2.write(model_run, tmp_path / quantization, quantization)
    assert 10 * differences["float32"] < differences["int8"] < 0.1, "rounded, and near"
    names = {"model.bin", "config.json", "shared_vocabulary.json", "tokenizer.model", "README.md"}
    assert {path.name for path in (tmp_path / "int8").iterdir()} == names
    assert 'compute_type="int8"' in (tmp_path / "int8" / "README.md").read_text()
    large, small = ((tmp_path / name / "model.bin").stat().st_size for name in ("float32", "int8"))
    assert small < 0.8 * large  # of which most is the table of positions, which stays as it is


def test_int8_that_is_too_far_away_says_what_may_help(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ctranslate2.TOLERANCES, "int8", 0.0)
    with pytest.raises(UserError, match=r"nothing is written; if this CPU is not Intel's, .* CT2_USE_MKL=1, "):
        ctranslate2.write(random_run(N=1), tmp_path, "int8")


@pytest.mark.parametrize(("given", "written"), [(None, "float32"), ("int8", "int8")])
def test_the_flag_says_how_it_is_quantised(tmp_path: Path, given: str | None, written: str) -> None:
    workdir = tiny.write_run(tmp_path / "run")
    options = {"workdir": str(workdir), "checkpoint": "latest", "to": "ctranslate2", "quantization": given}
    command.export(SimpleNamespace(**options, output=str(tmp_path / "out")))
    assert (tmp_path / "out" / "README.md").read_text().startswith(f"A CTranslate2 model ({written}) ")


def test_numbers_that_this_cpu_cannot_compute_with_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctranslate2.get_supported_compute_types", lambda device: {"float32", "int8"})
    with pytest.raises(
        UserError, match=r"^--quantization=int16: CTranslate2 cannot compute with int16 on this CPU, so"
    ):
        ctranslate2.write(random_run(N=1), tmp_path, "int16")
    assert list(tmp_path.iterdir()) == []


def test_what_it_cannot_hold_is_one_line_and_a_wrong_model_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"^model.mixer is 'convolution', which CTranslate2 cannot hold; take another"):
        ctranslate2.write(random_run(mixer="convolution"), tmp_path)
    with pytest.raises(UserError, match=r"^model.positions is 't5', which CTranslate2 cannot hold; take another"):
        ctranslate2.write(random_run(N=1, positions="t5"), tmp_path)
    monkeypatch.setattr(ctranslate2, "our_sinusoids", lambda *arguments: np.zeros((1024, 8), np.float32))
    with pytest.raises(UserError, match=r"^CTranslate2 float32: log-probabilities of \d+ subwords differ by at most"):
        ctranslate2.write(random_run(N=1), tmp_path)


def test_a_sentence_that_is_too_long_is_an_error_as_the_page_says(tmp_path: Path) -> None:
    model_run = random_run(N=1, positions="learned", max_positions=1024)
    ctranslate2.write(model_run, tmp_path)
    readme = (tmp_path / "README.md").read_text()
    assert "max_input_length=0" in readme, "by default it drops the rest"
    assert "A sentence of more than 1024 subwords, the end counted, is an error;" in readme
    translator = package.Translator(str(tmp_path), intra_threads=1)
    pieces = model_run.tokenizer.pieces([5])
    options = {"beam_size": 1, "max_decoding_length": 2, "max_input_length": 0}
    assert translator.translate_batch([1023 * pieces], **options)
    with pytest.raises((RuntimeError, ValueError), match="position encodings"):
        translator.translate_batch([1024 * pieces], **options)


@pytest.mark.parametrize("likely", [PAD, BOS, EOS])
def test_called_as_the_readme_says_it_writes_no_special_symbol_and_may_end_at_once(
    likely: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_run = ending_run()
    bias = model_run.params["output_bias"] + 20.0 * (np.arange(model_run.model_config.vocab_size) == likely)
    model_run = model_run._replace(params=model_run.params | {"output_bias": bias})
    ctranslate2.write(model_run, tmp_path)
    readme = (tmp_path / "README.md").read_text()
    code = textwrap.dedent("".join(line for line in readme.splitlines(keepends=True) if line.startswith("    ")))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    found = [one.hypotheses[0] for one in names["found"]]
    assert len(found) == 2
    assert not any({"<pad>", "<s>"} & {*hypothesis} for hypothesis in found)
    if likely == EOS:
        assert found == [[]] * 2


def test_special_symbols_may_have_other_names(tmp_path: Path) -> None:
    names = {"pad_piece": "[PAD]", "bos_piece": "[BOS]", "eos_piece": "[EOS]", "unk_piece": "[UNK]"}
    model_run = random_run(N=1)._replace(text=tiny.given_tokenizer(**names))
    assert ctranslate2.write(model_run, tmp_path) <= TOLERANCE


def test_bfloat16_needs_pytorch_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    workdir = tiny.write_run(tmp_path / "run")
    options = {"workdir": str(workdir), "checkpoint": "latest", "to": "ctranslate2", "quantization": "bfloat16"}
    with pytest.raises(UserError, match=r"^--to=ctranslate2 needs the package torch: pip install -e '\.\[convert\]'$"):
        command.export(SimpleNamespace(**options, output=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()

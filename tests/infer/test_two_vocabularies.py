"""A run whose source and target have vocabularies of their own: each command reads a text by its side's tokenizer.

Its encoder has another depth than its decoder, too, and each command finds the layers of both.
"""

from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests import tiny
from tests.trainings import assert_resumes_to_the_same_bits
from vaswani.errors import UserError
from vaswani.infer.attention.alignment import align
from vaswani.infer.attention.choices import translation_choices
from vaswani.infer.attention.maps import run_maps
from vaswani.infer.convert import __main__ as convert
from vaswani.infer.convert.check import check_tokenizer
from vaswani.infer.evaluate.sentences import Sentences
from vaswani.infer.evaluate.translations import evaluate
from vaswani.infer.inside.lens import logit_lens
from vaswani.infer.inside.trace import trace
from vaswani.infer.runs import Run, open_run
from vaswani.infer.scores.perplexity import line_log_probs
from vaswani.infer.translate.explain import beam_tree
from vaswani.infer.translate.required import Required
from vaswani.infer.translate.translator import Translator
from vaswani.run.checkpoint import load_params
from vaswani.search.options import Decoding
from vaswani.train import loop

SOURCE = "the old dog runs"
TARGET = "snur god dlo eht"
UNITS = {"words": {"units": "words", "vocab_size": 0, "min_frequency": 2}, "subwords": {"vocab_size": 290}}


@pytest.fixture(scope="module", params=["words", pytest.param("subwords", marks=pytest.mark.slow)])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ConfigDict, Run]:
    folder = tmp_path_factory.mktemp("two")
    cfg = tiny.training_config(folder)
    extra = "" if request.param == "subwords" else "zwei zwei\n"  # so that the target's vocabulary is the larger one
    for language, line in (("en", "old\n" * bool(extra)), ("de", extra)):
        path = folder / f"train.{language}"
        path.write_text(path.read_text() + line)
    cfg.data.share_vocabulary = False
    cfg.data.update(UNITS[request.param])
    cfg.model.N_encoder = 3
    cfg.steps, cfg.eval.every, cfg.eval.bleu_sentences = 8, 4, 2
    assert loop.train(cfg, folder / "run") == 0
    return cfg, open_run(folder / "run", "latest")


def test_the_parameters_are_two_tables_and_training_resumes_to_the_same_bits(
    trained: tuple[ConfigDict, Run], tmp_path: Path
) -> None:
    cfg, run = trained
    sizes = (run.tokenizer.source_vocab_size, run.tokenizer.vocab_size)
    assert (run.params["source_embed"].shape[0], run.params["target_embed"].shape[0]) == sizes
    assert not {"embed", "softmax"} & run.params.keys()
    assert_resumes_to_the_same_bits(cfg, run.workdir, tmp_path)


def test_it_is_translated_scored_and_evaluated(trained: tuple[ConfigDict, Run]) -> None:
    _, run = trained
    decoding = Decoding(beam=2, alpha=0.0, extra_length=30)
    translator = Translator(run.model_config, run.tokenizer, decoding)
    first = TARGET.split()[0]
    forced = translator.translate(run.params, [SOURCE], required=[Required(prefix=first)])[0].hypotheses[0]
    assert forced.text.startswith(first)
    texts = [SOURCE], [TARGET]
    (log_prob,) = line_log_probs(run.model_config, run.params, run.tokenizer, *texts)
    choices, total = translation_choices(run.model_config, run.params, run.tokenizer, SOURCE, TARGET)
    np.testing.assert_allclose(log_prob, total, rtol=1e-5)
    assert len(choices) == len(run.tokenizer.target.encode(TARGET)) + 1
    record, _ = evaluate(run, Sentences("x", "en", "de", *texts), decoding)
    assert f"|vocabulary:{run.tokenizer.vocab_size}|" in record["signatures"]["perplexity"]
    tree = beam_tree(run.model_config, run.params, run.tokenizer, decoding, SOURCE)
    for number, label in tree.pieces.items():
        (piece,) = run.tokenizer.target.pieces([number])
        assert not piece.isalpha() or label.strip("\u2009") == piece


def test_labels_of_each_side_are_pieces_of_its_own_vocabulary(trained: tuple[ConfigDict, Run]) -> None:
    _, run = trained
    source = [*run.tokenizer.pieces(run.tokenizer.encode(SOURCE)), "</s>"]
    target = [*run.tokenizer.target.pieces(run.tokenizer.target.encode(TARGET)), "</s>"]
    assert source != target
    _, maps = run_maps(run, SOURCE, TARGET)
    assert maps["cross"].keys == source and maps["cross"].queries == target
    inputs = ["<s>", *target[:-1]]
    assert maps["decoder"].keys == inputs
    assert [len(maps[kind].weights_nhts) for kind in ("encoder", "decoder", "cross")] == [3, 1, 1]
    traced = trace(run, SOURCE, TARGET)
    assert (traced.source, traced.inputs, traced.predicted) == (source, inputs, target)
    assert set(logit_lens(run, traced, "encoder").best[0]) <= set(run.tokenizer.pieces(range(source_size(run))))
    assert len(logit_lens(run, traced, "encoder").best) == 4 and len(logit_lens(run, traced, "decoder").best) == 2
    known = set(run.tokenizer.target.pieces(range(run.tokenizer.vocab_size)))
    assert set(logit_lens(run, traced, "decoder").best[-1]) <= known
    (pairs,) = align(run, [(SOURCE, TARGET)], 0)
    assert {word for _, word in pairs} <= set(range(4))


def source_size(run: Run) -> int:
    assert run.tokenizer.source_vocab_size is not None
    return run.tokenizer.source_vocab_size


def test_safetensors_give_the_run_back_and_formats_of_one_vocabulary_are_refused(
    trained: tuple[ConfigDict, Run], tmp_path: Path
) -> None:
    _, run = trained
    options = {"checkpoint": "latest", "quantization": None}
    convert.export(SimpleNamespace(workdir=str(run.workdir), to="safetensors", output=str(tmp_path / "out"), **options))
    convert.read(f"safetensors:{tmp_path}/out", str(tmp_path / "again"))
    again = open_run(tmp_path / "again", "latest")
    jax.tree.map(np.testing.assert_array_equal, again.params, load_params(run.workdir, 8))
    assert again.tokenizer.sha256 == run.tokenizer.sha256 and again.model_config == run.model_config
    for engine in ("ONNX", "StableHLO", "MarianMTModel"):
        with pytest.raises(UserError, match=rf"data.share_vocabulary is False, and {engine} exports hold one vocab"):
            check_tokenizer(engine, run)

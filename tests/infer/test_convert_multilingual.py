"""Models of transformers whose texts begin with a language: logits, translations and their scores, tokenizers.

Skipped without PyTorch and transformers, see tests/extras.py.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.extras import torch, transformers

# isort: split
from tests import foreign
from tests.tiny import LINES
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.infer.convert import huggingface
from vaswani.infer.convert.__main__ import read
from vaswani.infer.convert.folders import make_run
from vaswani.infer.runs import open_run
from vaswani.infer.translate.explain import beam_tree
from vaswani.infer.translate.options import make_decoding
from vaswani.infer.translate.required import Required
from vaswani.infer.translate.translator import Translator
from vaswani.model.transformer import Transformer
from vaswani.search.options import Sampling
from vaswani.search.scoring import forced_log_probs

TOLERANCE = 1e-5
SOURCE, TARGET = "The old cat reads a quiz.", "Die alte Katze schläft."
# Of each family its tokenizer's class, and another pair of languages as transformers and as its vocabulary call them.
FAMILIES = {
    "bart": ("BartTokenizer", None, None),
    "mbart": ("MBart50Tokenizer", ("fr_XX", "en_XX"), ("fr_XX", "en_XX")),
    "m2m_100": ("M2M100Tokenizer", ("fr", "en"), ("__fr__", "__en__")),
    "nllb": ("NllbTokenizer", ("fra_Latn", "eng_Latn"), ("fra_Latn", "eng_Latn")),
}


@pytest.fixture(scope="module", params=FAMILIES)
def imported(request, tmp_path_factory) -> tuple[Any, Any, Any, Any]:
    """A family, its folder and model there, and the run that it becomes."""
    folder = tmp_path_factory.mktemp("multilingual")
    model = foreign.make(request.param, folder / "theirs")
    with torch.no_grad():  # so that outputs end before their limit
        if request.param in ("bart", "mbart"):
            model.final_logits_bias[0, 2] = 4.0
        else:
            model.model.shared.weight[2] = 1.6 * model.model.decoder.layer_norm.bias
    model.save_pretrained(folder / "theirs")
    make_run(folder / "run", huggingface.read(folder / "theirs"))
    return request.param, folder / "theirs", model, open_run(folder / "run")


def tokenizer_of(family: str, folder: Any, **languages: str) -> Any:
    return getattr(transformers, FAMILIES[family][0]).from_pretrained(folder, **languages)


def test_log_probabilities_are_those_of_transformers(imported) -> None:
    family, folder, model, run = imported
    theirs = tokenizer_of(family, folder)
    batch = theirs([SOURCE], text_target=[TARGET], return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).logits[0]
    expected = torch.log_softmax(logits, -1)[range(batch.labels.shape[1]), batch.labels[0]].numpy()
    rows = [[*run.tokenizer.encode(SOURCE), EOS]], [[*run.tokenizer.target.encode(TARGET), EOS]]
    for row, ids in zip(rows, (batch.input_ids, batch.labels), strict=True):
        assert run.tokenizer.pieces(row[0]) == theirs.convert_ids_to_tokens(ids[0])
    arrays = [jnp.asarray(row, jnp.int32) for row in rows]
    actual = jax.jit(partial(forced_log_probs, Transformer(run.model_config)))(run.params, *arrays)
    assert np.abs(np.asarray(actual)[0] - expected).max() <= TOLERANCE
    assert run.tokenizer.target.decode(rows[1][0]) == TARGET, "without its language"
    assert run.model_config.N_decoder == run.model_config.N + 1


def test_beam_search_finds_the_same_with_the_same_scores(imported) -> None:
    """A forced language is no choice: its log p is 0; it counts as a subword."""
    family, folder, model, run = imported
    theirs = tokenizer_of(family, folder)
    forced = theirs(text_target=[TARGET])["input_ids"][0][0]
    decoding = make_decoding(run.config.decode, nbest=4, stopping="full", extra_length=6)
    translator = Translator(run.model_config, run.tokenizer, decoding)
    ended = 0
    for line, translation in zip(LINES[:3], translator.translate(run.params, LINES[:3]), strict=True):
        batch = theirs([line], return_tensors="pt")
        limit = batch.input_ids.shape[1] + 6
        options = {"num_beams": 4, "num_return_sequences": 4, "length_penalty": 1.0, "early_stopping": True}
        options |= {"max_length": 1 + limit, "forced_bos_token_id": forced}
        found = model.generate(**batch, **options, return_dict_in_generate=True, output_scores=True)
        if not all(2 in row[1:limit] for row in found.sequences.tolist()):
            continue  # at the limit an output need not end there
        scores = [hypothesis.score for hypothesis in translation.hypotheses]
        assert np.abs(np.array(scores) - found.sequences_scores.numpy()).max() <= TOLERANCE
        for hypothesis, row in zip(translation.hypotheses, found.sequences.tolist(), strict=True):
            assert run.tokenizer.pieces(hypothesis.tokens) == theirs.convert_ids_to_tokens(row[1 : row.index(2, 1)])
            assert hypothesis.tokens[0] == run.tokenizer.target.begin[0]
        ended += 1
    assert ended > 1


@pytest.mark.slow
def test_a_drawn_search_begins_with_the_language(imported) -> None:
    *_, run = imported
    decoding = make_decoding(run.config.decode, extra_length=2)
    (translation,) = Translator(run.model_config, run.tokenizer, decoding).translate(run.params, LINES[:1])
    drawn = beam_tree(run.model_config, run.params, run.tokenizer, decoding, LINES[0])
    assert drawn.leaves()[0][0] == list(translation.hypotheses[0].tokens)


def test_other_languages_are_named_by_a_line_or_at_import(imported, tmp_path) -> None:
    family, folder, _, run = imported
    _, names, pieces = FAMILIES[family]
    if names is None:
        pytest.skip("it has one language")
    theirs = tokenizer_of(family, folder, src_lang=names[0], tgt_lang=names[1])
    batch = theirs([SOURCE], text_target=[TARGET])
    ids = run.tokenizer.encode(f"{pieces[0]} {SOURCE}")
    assert run.tokenizer.pieces([*ids, EOS]) == theirs.convert_ids_to_tokens(batch["input_ids"][0])
    assert run.tokenizer.leading(f"{pieces[0]} {SOURCE}") == f"{pieces[0]} "
    assert run.tokenizer.encode("") == [] and run.tokenizer.pieces(run.tokenizer.encode(pieces[0])) == [pieces[0]]
    translator = Translator(run.model_config, run.tokenizer, make_decoding(run.config.decode, extra_length=4))
    (translation,) = translator.translate(run.params, [SOURCE], required=[Required(prefix=f"{pieces[1]} Die")])
    begun = run.tokenizer.pieces(translation.hypotheses[0].tokens)
    assert begun[0] == pieces[1] and translation.text.startswith("Die")

    read(f"huggingface:{folder}", str(tmp_path / "run"), names)
    other = open_run(tmp_path / "run").tokenizer
    assert [*other.encode(SOURCE), EOS] == [*ids, EOS]
    assert other.target.pieces(other.target.begin) == [pieces[1]]
    with pytest.raises(UserError, match=r"source and target languages are \['xx', 'en'\]; give --languages=SOURCE,TAR"):
        huggingface.read(folder, ["xx", "en"])


def test_samples_and_groups_are_refused(imported) -> None:
    *_, run = imported
    for options in ({"sampling": Sampling()}, {"groups": 2}):
        decoding = make_decoding(run.config.decode, **options)
        with pytest.raises(UserError, match=r"begin with a language, which only plain search can require$"):
            Translator(run.model_config, run.tokenizer, decoding)


def test_what_is_not_read_is_named(tmp_path) -> None:
    folder = tmp_path / "nllb"
    foreign.make("nllb", folder)
    foreign.change_json(folder / "tokenizer_config.json", legacy_behaviour=True)
    with pytest.raises(UserError, match=r"legacy_behaviour=True is not supported; it must be False$"):
        huggingface.read(folder)
    foreign.change_json(folder / "tokenizer_config.json", legacy_behaviour=False, tgt_lang=None)
    with pytest.raises(UserError, match=r"languages are \['eng_Latn', None\]; give --languages=SOURCE,TARGET, two of"):
        huggingface.read(folder)
    foreign.change_json(folder / "tokenizer_config.json", tokenizer_class="SomeTokenizer")
    with pytest.raises(UserError, match=r"tokenizer_class is 'SomeTokenizer'; BartTokenizer, M2M100Tokenizer, MB"):
        huggingface.read(folder)
    foreign.make("t5", tmp_path / "t5")
    with pytest.raises(UserError, match=r"^--languages is for mbart, m2m_100; this model is of type t5$"):
        huggingface.read(tmp_path / "t5", ["en", "de"])

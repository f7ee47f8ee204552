"""Marian, Pegasus and GPT-2 of transformers with random weights, both ways: logits, translations, bits, tokenizers.

Skipped without PyTorch and transformers, see tests/extras.py.
"""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.extras import torch, transformers

# isort: split
from tests import foreign
from tests.infer.test_convert_families import score
from tests.tiny import LINES, ending_run, random_run, tokenizer
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, PAD
from vaswani.infer.convert import huggingface
from vaswani.infer.convert.folders import make_run
from vaswani.infer.runs import open_run
from vaswani.infer.translate.options import make_decoding
from vaswani.infer.translate.required import Required
from vaswani.infer.translate.translator import Translator
from vaswani.model.language_model import LanguageModel
from vaswani.model.transformer import Transformer
from vaswani.run.parameters import flatten_params
from vaswani.search.scoring import forced_log_probs
from vaswani.tokens import Tokens

TOLERANCE = 1e-4


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_a_run_translates_the_same_there_and_returns_bitwise_the_same(norm, tmp_path):
    width = {"d_model": 16, "h": 2, "d_k": 8, "d_v": 8, "norm": norm, "norm_epsilon": 1e-5}
    depths = {"N": 2, "N_decoder": 1} if norm == "post" else {"N": 1}
    model_run = random_run(**depths, **width, biases=norm == "pre", output_bias=norm == "pre")
    huggingface.write(model_run, tmp_path)
    assert "more than 1024 subwords" in (tmp_path / "README.md").read_text()

    model_class = transformers.MarianMTModel if norm == "post" else transformers.PegasusForConditionalGeneration
    model, theirs = model_class.from_pretrained(tmp_path), transformers.MarianTokenizer.from_pretrained(tmp_path)
    batch = theirs(LINES, return_tensors="pt", padding=True)
    rows = [[*tokenizer().encode(line), EOS] for line in LINES]
    for ids, real, expected in zip(batch.input_ids, batch.attention_mask.bool(), rows, strict=True):
        assert ids[real].tolist() == expected
    found = model.generate(**batch, num_beams=1, do_sample=False, max_length=8)
    decoding = make_decoding(model_run.config.decode, beam=1, extra_length=2)
    ours = Translator(model_run.model_config, tokenizer(), decoding).translate(model_run.params, LINES)
    for row, one in zip(found.tolist(), ours, strict=True):
        written = [*one.hypotheses[0].tokens, EOS][
            :6
        ]  # of the 8 there, the first is a start and the last may be forced
        assert row[1 : 1 + len(written)] == written
    assert theirs.decode(rows[1], skip_special_tokens=True) == LINES[1]

    back = huggingface.read(tmp_path)
    assert (back.config.model.N, back.config.model.N_decoder) == (depths["N"], depths.get("N_decoder", 0))
    before, after = flatten_params(model_run.params), flatten_params(back.params)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert back.tokenizer.sha256 == tokenizer().sha256


@pytest.mark.parametrize("stopping", ["exact", "full"])
def test_beam_search_there_stops_as_the_run_does(stopping, tmp_path):
    model_run = ending_run()
    model_run.config.decode.update({"beam": 4, "alpha": 1.0, "length_penalty": "power", "stopping": stopping})
    huggingface.write(model_run, tmp_path)
    model = transformers.MarianMTModel.from_pretrained(tmp_path)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    translator = Translator(model_run.model_config, tokenizer(), make_decoding(model_run.config.decode, nbest=4))
    extra_length = model_run.config.decode.extra_length
    lengths = []
    for line, translation in zip(LINES, translator.translate(model_run.params, LINES), strict=True):
        batch = theirs([line], return_tensors="pt")
        limit = batch.input_ids.shape[1] + extra_length
        found = model.generate(**batch, max_length=1 + limit, num_return_sequences=4).tolist()
        if not all(EOS in row[:limit] for row in found):
            continue  # at the limit an output need not end there
        expected = [list(hypothesis.tokens) for hypothesis in translation.hypotheses]
        assert [[token for token in row if token not in (PAD, BOS, EOS)] for row in found] == expected
        lengths.append(len(expected[0]))
    assert len(set(lengths)) > 2


def test_opus_mt_is_read_with_its_tokenizers_and_its_log_probabilities(tmp_path):
    folder = tmp_path / "opus"
    model = foreign.make("marian", folder, activation_function="swish", decoder_layers=3)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    with torch.no_grad():
        model.model.shared.weight[model.config.pad_token_id] = 0.0  # as published: it starts every target
    model.save_pretrained(folder)
    make_run(tmp_path / "run", huggingface.read(folder))
    run = open_run(tmp_path / "run")
    assert run.config.decode.length_penalty == "power"
    theirs = transformers.MarianTokenizer.from_pretrained(folder)

    source, target = ">>deu<< The old</s> cat <pad>reads a quiz.", "Die alte Katze schläft."
    batch = theirs([source], text_target=[target], return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).logits[0]
    expected = torch.log_softmax(logits, -1)[range(batch.labels.shape[1]), batch.labels[0]].numpy()
    rows = [[*run.tokenizer.encode(source), EOS]], [[*run.tokenizer.target.encode(target), EOS]]
    pieces = [piece.replace("<s>", "<pad>") for piece in run.tokenizer.pieces(rows[0][0])]
    assert pieces == theirs.convert_ids_to_tokens(batch.input_ids[0])
    arrays = [jnp.asarray(row, jnp.int32) for row in rows]
    actual = jax.jit(partial(forced_log_probs, Transformer(run.model_config)))(run.params, *arrays)
    assert np.abs(np.asarray(actual)[0] - expected).max() <= TOLERANCE
    assert run.tokenizer.decode(rows[1][0]) == target
    assert run.tokenizer.word_starts(rows[0][0])[:2] == [True, True], "the language, then the first word"
    translator = Translator(run.model_config, run.tokenizer, make_decoding(run.config.decode), max_input=16)
    with pytest.raises(UserError, match=r"has a symbol that is not in the vocabulary, or is special$"):
        translator.translate(run.params, [">>deu<< a"], required=[Required(prefix="Die</s>")])
    cut = translator._cut(">>deu<< " + "The old cat reads a quiz. " * 4)
    assert len(cut) > 1 and {run.tokenizer.pieces(ids)[0] for ids in cut} == {">>deu<<"}
    with pytest.raises(
        UserError, match=r"its tokenizer is not a sentencepiece model, which MarianMTModel exports need$"
    ):
        huggingface.write(run, tmp_path)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_marian_with_two_vocabularies_is_read(tied, tmp_path):
    folder = tmp_path / "opus"
    settings = {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": tied}
    settings["decoder_start_token_id"] = 2 if tied else 0  # <pad>, as usual, or </s>
    model = foreign.make("marian", folder, **settings)
    separate = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(separate))
    theirs = transformers.MarianTokenizer.from_pretrained(folder)
    make_run(tmp_path / "run", huggingface.read(folder))
    run = open_run(tmp_path / "run")
    sizes = (run.model_config.source_vocab_size, run.model_config.vocab_size)
    assert sizes == (len(theirs.encoder) + 1, len(theirs.target_encoder) + 1), "what starts a target is two of ours"
    assert len(set(sizes)) == 2 and not run.config.data.share_vocabulary

    source, target = "The old cat reads a quiz.", "Die alte Katze schläft."
    batch = theirs([source], text_target=[target], return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).logits[0]
    expected = torch.log_softmax(logits, -1)[range(batch.labels.shape[1]), batch.labels[0]].numpy()
    sides = (run.tokenizer.source, run.tokenizer.target)
    rows = [[*side.encode(text), EOS] for side, text in zip(sides, (source, target), strict=True)]
    for side, row, ids, encoder in zip(
        sides, rows, (batch.input_ids, batch.labels), (theirs.encoder, theirs.target_encoder), strict=True
    ):
        assert [encoder[piece] for piece in side.pieces(row)] == ids[0].tolist()
    arrays = [jnp.asarray([row], jnp.int32) for row in rows]
    actual = jax.jit(partial(forced_log_probs, Transformer(run.model_config)))(run.params, *arrays)
    assert np.abs(np.asarray(actual)[0] - expected).max() <= 1e-5
    assert run.tokenizer.decode(rows[1]) == target
    (folder / "target_vocab.json").unlink()
    with pytest.raises(UserError, match=r"target_vocab\.json: no such file; the tokenizer must be Marian's"):
        huggingface.read(folder)


def test_gpt2_is_read_with_its_tokenizer_and_its_log_probabilities(tmp_path, capsys):
    from tokenizers import Tokenizer

    folder = tmp_path / "gpt2"
    model = foreign.make("gpt2", folder)
    inner = Tokenizer.from_file(str(folder / "tokenizer.json"))
    inner.model.save(str(folder))  # as published: vocab.json and merges.txt
    (folder / "tokenizer.json").unlink()
    make_run(tmp_path / "run", huggingface.read(folder))
    run = open_run(tmp_path / "run", task="language_model")
    ids = run.tokenizer.encode("Der Hund\nliest; naïve.")
    assert run.tokenizer.decode(ids) == "Der Hund\nliest; naïve."
    joined = run.tokenizer.encode("Der<|endoftext|>Hund") + run.tokenizer.encode(" liest") + [EOS, PAD]
    assert run.tokenizer.decode(joined) == "Der<|endoftext|>Hund liest", "a prompt, and what continues it"
    theirs = [0, *inner.encode("Der Hund\nliest; naïve.").ids]
    with torch.no_grad():
        expected = torch.log_softmax(model(torch.tensor([theirs])).logits[0], -1).numpy()
    tokens = Tokens.of(jnp.asarray([[BOS, *ids]], jnp.int32))
    logits = LanguageModel(run.model_config).apply({"params": jax.tree.map(jnp.asarray, run.params)}, tokens)
    actual = np.asarray(jax.nn.log_softmax(logits[0]))
    assert (
        np.abs(actual[:, 4:] - expected[:, 1:]).max() <= TOLERANCE
        and np.abs(actual[:, EOS] - expected[:, 0]).max() <= TOLERANCE
    )
    lines = ["Der Hund<|endoftext|>Eine Katze", "liest; naïve."]
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in lines))
    record = score(capsys, tmp_path / "run", f"lines:{tmp_path / 'lines'}")
    rows = [[0, *inner.encode(line).ids, 0] for line in lines]
    with torch.no_grad():
        nll = [float(model(torch.tensor([row]), labels=torch.tensor([row])).loss) * (len(row) - 1) for row in rows]
    assert record["tokens"] == sum(map(len, rows)) - 2 and "unknown" not in record["signatures"]["perplexity"]
    assert record["nll"] == pytest.approx(sum(nll) / record["tokens"], abs=TOLERANCE)
    (tmp_path / "pairs").write_text("one\ttwo\n")
    with pytest.raises(UserError, match=r"^corpus 'tsv:.*' has pairs; this run reads a text, as in lines:FILE$"):
        score(capsys, tmp_path / "run", f"tsv:{tmp_path / 'pairs'}")


def test_what_it_cannot_hold_or_read_is_one_line(tmp_path):
    with pytest.raises(
        UserError, match=r"^model.norm is 'deep', which MarianMTModel cannot hold; take another format$"
    ):
        huggingface.write(random_run(norm="deep"), tmp_path)
    with pytest.raises(UserError, match=r"^model.d_k is 6, which MarianMTModel cannot hold; take another format$"):
        huggingface.write(random_run(d_k=6, d_v=6), tmp_path)
    with pytest.raises(UserError, match=r"^model.positions is 'rope', which Pegasus\w+ cannot hold"):
        huggingface.write(random_run(positions="rope", norm="pre"), tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bloom"}')
    with pytest.raises(
        UserError,
        match=r"model_type is 'bloom'; marian, pegasus, bart, mbart, m2m_100, gpt2, bert, t5, vit can be read$",
    ):
        huggingface.read(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(UserError, match=r"neither model\.safetensors, nor"):
        huggingface.read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"cannot be read as safetensors"):
        huggingface.read(tmp_path)


def test_every_rate_of_dropout_is_written(tmp_path):
    from vaswani.infer.convert import marian

    rates = {"P_drop": 0.3, "P_drop_attention": 0.2, "P_drop_relu": 0.1}
    marian._write_settings(random_run(N=1, **rates), tmp_path, "marian", "MarianMTModel")
    settings = json.loads((tmp_path / "config.json").read_text())
    assert [settings[f"{name}dropout"] for name in ("", "attention_", "activation_")] == [0.3, 0.2, 0.1]


def test_the_page_counts_the_end_among_the_subwords_that_can_be_read():
    from vaswani.infer.convert import marian

    assert "more than {positions} subwords, the end counted, is an error" in marian.README

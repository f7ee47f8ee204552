"""Synthetic checkpoints of fairseq, in the layouts of its first and its last versions, against its forward pass.

Skipped without PyTorch and transformers, see tests/extras.py.
"""

import argparse
import math
import os
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.extras import torch

# isort: split
from tests import foreign
from tests.foreign import FAIRSEQ
from vaswani.data.imported import MosesBpe
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, PAD, UNK
from vaswani.infer.convert import fairseq
from vaswani.infer.convert.bart_names import without_zero_biases
from vaswani.infer.convert.folders import make_run
from vaswani.infer.runs import open_run
from vaswani.model.transformer import Transformer
from vaswani.tokens import Tokens

TOLERANCE = 1e-4
D, H, N = 16, 2, 2
WORDS = ["the", "d@@", "og", "o@@", "g", ".", "h@@", "und", "der", "a@@", "b", "madeupword0000"]
CODES = ["#version: 0.2", "o g</w>", "t h", "th e</w>", "u n", "un d</w>", "d e", "de r</w>", ""]
NORMS = {
    "encoder": ["self_attn_layer_norm", "final_layer_norm"],
    "decoder": ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"],
}


def weights(pre, tied):
    """Random parameters under today's names."""
    return foreign.fairseq_weights(4 + len(WORDS), pre=pre, tied=tied)


def old_layout(given):
    """The same with q, k and v in one matrix, numbered layer norms, and no copy of the one table for the softmax."""
    found = {}
    for name, array in given.items():
        for side, norms in NORMS.items():
            for number, norm in enumerate(norms):
                if name.startswith(f"{side}.layers.") and f".{norm}." in name:
                    name = name.replace(f".{norm}.", f".layer_norms.{number}.")
        if ".q_proj." in name:
            parts = [given[name.replace(".q_proj.", f".{letter}_proj.")] for letter in "qkv"]
            found[name.replace(".q_proj.", ".in_proj_")] = torch.cat(parts)
        elif not any(part in name for part in (".k_proj.", ".v_proj.", "output_projection")):
            found[name] = array
    return found


def depth(given, side):
    return len({name.split(".")[2] for name in given if name.startswith(f"{side}.layers.")})


def logits(given, source, target, pre):
    """fairseq's forward pass: logits by its own ids, for a source with EOS and a target after EOS."""

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, (D,), given[f"{name}.weight"], given[f"{name}.bias"], 1e-5)

    def linear(x, name):
        return x @ given[f"{name}.weight"].T + given[f"{name}.bias"]

    def attention(x, memory, name, causal):
        inputs = {"q": x, "k": memory, "v": memory}
        q, k, v = (linear(y, f"{name}.{letter}_proj").unflatten(-1, (H, -1)) for letter, y in inputs.items())
        scores = torch.einsum("thk,shk->hts", q, k) / math.sqrt(D // H)
        if causal:
            scores += torch.full(scores.shape[1:], -math.inf).triu(1)
        heads = torch.einsum("hts,she->the", scores.softmax(-1), v)
        return linear(heads.flatten(1), f"{name}.out_proj")

    def residual(x, name, function):
        return x + function(norm(x, name)) if pre else norm(x + function(x), name)

    def stack(side, ids, memory):
        half = D // 2
        position = torch.arange(2, 2 + len(ids), dtype=torch.float)[:, None]  # after the id of padding, 1
        angle = position * torch.exp(torch.arange(half) * -math.log(10_000) / (half - 1))
        x = given[f"{side}.embed_tokens.weight"][ids] * math.sqrt(D) + torch.cat([angle.sin(), angle.cos()], 1)
        for n in range(depth(given, side)):
            at = f"{side}.layers.{n}."
            causal, own, other = memory is not None, f"{at}self_attn", f"{at}encoder_attn"
            x = residual(x, f"{own}_layer_norm", lambda y: attention(y, y, own, causal))  # noqa: B023
            if memory is not None:
                x = residual(x, f"{other}_layer_norm", lambda y: attention(y, memory, other, False))  # noqa: B023
            inner = lambda y: linear(linear(y, f"{at}fc1").relu(), f"{at}fc2")  # noqa: B023, E731
            x = residual(x, f"{at}final_layer_norm", inner)
        return norm(x, f"{side}.layer_norm") if pre else x

    x = stack("decoder", target, stack("encoder", source, None))
    return x @ given.get("decoder.output_projection.weight", given["decoder.embed_tokens.weight"]).T


def write(folder, state):
    return foreign.make_fairseq(folder, state, WORDS, "\n".join(CODES))


@pytest.mark.parametrize("layout", ["old", "new"])
def test_logits_are_fairseqs(layout, tmp_path):
    pre = layout == "new"
    given = weights(pre, tied=not pre)
    languages = {"source_lang": "en", "target_lang": "de"}
    if layout == "old":
        settings = argparse.Namespace(**FAIRSEQ, **languages, share_all_embeddings=True, dropout=0.1)
        state = {"args": settings, "model": old_layout(given)}
    else:
        normalise = {"encoder_normalize_before": True, "decoder_normalize_before": True}
        # Deeper than its encoder, by a layer that is another one.
        last = {name: array for name, array in given.items() if name.startswith(f"decoder.layers.{N - 1}.")}
        given |= {name.replace(f"layers.{N - 1}.", f"layers.{N}."): 1.5 * array for name, array in last.items()}
        model = argparse.Namespace(
            **(FAIRSEQ | {"decoder_layers": N + 1}), **normalise, share_decoder_input_output_embed=False
        )
        state = {"args": None, "cfg": {"model": model, "task": languages}, "model": given}
    make_run(tmp_path / "run", fairseq.read(write(tmp_path / "given", state)))
    run = open_run(tmp_path / "run")
    assert (run.config.decode.length_penalty, run.config.model.tie_embeddings) == ("power", not pre)

    source, target = [4, 7, 9, 2], [2, 11, 12, 5]  # ids there: EOS is 2, and the start of a target
    expected = logits(given, source, target, pre).numpy()
    here = {1: PAD, 2: EOS, 3: UNK, **{number: number + (1 if number > 3 else 4) for number in (0, *range(4, 16))}}
    ours = [[here[number] for number in source], [BOS, *(here[number] for number in target[1:])]]
    rows = [Tokens.of(jnp.asarray([row], jnp.int32)) for row in ours]
    apply = jax.jit(Transformer(run.model_config).apply)
    actual = np.asarray(apply({"params": run.params}, *rows))[0]
    assert np.abs(actual[:, [here[number] for number in range(16)]] - expected).max() <= TOLERANCE
    assert np.all(actual[:, EOS] - actual[:, BOS] > 29)


@pytest.mark.parametrize("shared_softmax", [True, False])
def test_dictionaries_of_their_own_are_read(shared_softmax, tmp_path):
    """The source has three subwords more, and its words are in another order."""
    source_words = ["x", "y", "z", *reversed(WORDS)]
    given = weights(pre=False, tied=False)
    random = torch.Generator().manual_seed(1)
    given["encoder.embed_tokens.weight"] = 0.3 * torch.randn(4 + len(source_words), D, generator=random)
    if shared_softmax:
        del given["decoder.output_projection.weight"]
    settings = FAIRSEQ | {"source_lang": "en", "target_lang": "de", "share_decoder_input_output_embed": shared_softmax}
    state = {"args": argparse.Namespace(**settings), "model": given}
    path = foreign.make_fairseq(tmp_path / "given", state, WORDS, "\n".join(CODES), source_words)
    make_run(tmp_path / "run", fairseq.read(path))
    run = open_run(tmp_path / "run")
    assert (run.config.data.share_vocabulary, run.config.model.tie_embeddings) == (False, shared_softmax)
    assert ("softmax" in run.params) == (not shared_softmax)

    tokenizer = run.tokenizer
    source, target = tokenizer.encode("the dog."), tokenizer.target.encode("der hund.")
    assert tokenizer.pieces(source) == ["the", "d@@", "og", "."]
    assert tokenizer.decode([*target, EOS]) == "der hund."
    their_source = [4 + source_words.index(piece) for piece in tokenizer.pieces(source)]
    their_target = [4 + WORDS.index(piece) for piece in tokenizer.target.pieces(target)]
    expected = logits(given, [*their_source, 2], [2, *their_target], pre=False).numpy()
    rows = [Tokens.of(jnp.asarray([row], jnp.int32)) for row in ([*source, EOS], [BOS, *target])]
    actual = np.asarray(jax.jit(Transformer(run.model_config).apply)({"params": run.params}, *rows))[0]
    theirs_by_ours = {EOS: 2, UNK: 3, **{5 + number: 4 + number for number in range(len(WORDS))}}
    assert np.abs(actual[:, list(theirs_by_ours)] - expected[:, list(theirs_by_ours.values())]).max() <= 1e-5

    state["args"].share_all_embeddings = True
    path = foreign.make_fairseq(tmp_path / "other", state, WORDS, "\n".join(CODES), source_words)
    with pytest.raises(UserError, match=r"the dictionaries differ, but the model has one of both"):
        fairseq.read(path)


@pytest.mark.parametrize("limits", [(30, 20), (20, 30)])
def test_a_side_with_fewer_positions_limits_the_model(limits, tmp_path):
    given = dict(zip(("max_source_positions", "max_target_positions"), limits, strict=True))
    settings = argparse.Namespace(**FAIRSEQ, **given, source_lang="en", target_lang="de", share_all_embeddings=True)
    found = fairseq.read(write(tmp_path / "given", {"args": settings, "model": weights(pre=False, tied=True)}))
    assert found.config.model.max_positions == len(found.params["source_positions"]) == 20


def test_biases_are_left_out_only_where_none_of_attention_has_a_value():
    """A model has those of all its attentions or none."""
    zero, one = np.zeros(3), np.array([0.0, 1.0, 0.0])
    attention = {"layer_0/bq": zero, "layer_0/bo": zero, "layer_1/bk": zero, "layer_1/bv": zero}
    others = {"layer_0/wq": zero, "layer_0/b1": zero, "norm/bias": zero}
    assert without_zero_biases(attention | others | {"output_bias": zero}) == others
    for name in attention:
        some = attention | others | {name: one}
        assert without_zero_biases(some | {"output_bias": zero}) == some
    assert without_zero_biases(attention | others | {"output_bias": one}) == others | {"output_bias": one}


def test_its_subwords_are_split_and_joined():
    tokenizer = MosesBpe.of(["<pad>", "<s>", "</s>", "<unk>", *WORDS], CODES, ["en", "de"])
    ids = tokenizer.encode("the dog.")
    assert tokenizer.pieces(ids) == ["the", "d@@", "og", "."]
    assert tokenizer.word_starts(ids) == [True, True, False, True]
    assert tokenizer.decode([*ids, EOS, 5]) == "the dog."
    assert tokenizer.pieces(tokenizer.target.encode("der hund xy")) == ["der", "h@@", "und", "<unk>", "<unk>"]
    assert tokenizer.target.unknown(["der hund xy", "hund"]) == 2
    assert EOS not in tokenizer.encode("the </s> dog"), "as Moses writes it, &lt; / s &gt;"
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""
    for ending in ("\r", " ", " \r"):
        codes = [line + ending for line in CODES]
        other = MosesBpe.of(["<pad>", "<s>", "</s>", "<unk>", *WORDS], codes, ["en", "de"])
        assert other.encode("the dog.") == ids


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_a_hostile_file_is_refused_and_not_executed(tmp_path):
    path = write(tmp_path / "given", {"args": Hostile(tmp_path / "executed"), "model": {}})
    with pytest.raises(UserError, match=r"^\S+model\.pt: refused: reading it would call \w+\.mkdir; only arrays"):
        fairseq.read(path)
    assert not (tmp_path / "executed").exists()
    torch.load(path, weights_only=False)  # what it asks for would have been done
    assert (tmp_path / "executed").exists()


def test_what_is_missing_or_unknown_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"absent\.pt: no such file$"):
        fairseq.read(tmp_path / "absent.pt")
    settings = argparse.Namespace(**FAIRSEQ, source_lang="en", target_lang="de", encoder_learned_pos=True)
    path = write(tmp_path / "given", {"args": settings, "model": {}})
    with pytest.raises(UserError, match=r"encoder_learned_pos=True is not supported; it must be False$"):
        fairseq.read(path)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(UserError, match=r"^\S+model\.pt: (cannot be read as PyTorch's|refused)[^\n]+$"):
        fairseq.read(path)


@pytest.mark.parametrize("kind", ["AverageMeter", "StopwatchMeter", "TimeMeter"])
def test_what_it_recorded_of_its_training_is_passed_over(kind, tmp_path, monkeypatch):
    meters = types.ModuleType("fairseq.meters")
    meter = type(kind, (), {"__module__": "fairseq.meters"})
    setattr(meters, kind, meter)
    monkeypatch.setitem(sys.modules, "fairseq", types.ModuleType("fairseq"))
    monkeypatch.setitem(sys.modules, "fairseq.meters", meters)
    recorded = meter()
    recorded.sum = np.arange(3.0)
    records = {"train_meters": {"wps": recorded}, "best": np.float64(2.5)}
    settings = argparse.Namespace(**FAIRSEQ, source_lang="en", target_lang="de", share_all_embeddings=True)
    state = {"args": settings, "model": weights(pre=False, tied=True), "extra_state": records}
    path = write(tmp_path / "given", state)
    monkeypatch.delitem(sys.modules, "fairseq.meters")  # as here, where fairseq is not installed
    assert fairseq.read(path).source == path


def test_languages_that_it_did_not_save_are_those_of_its_files(tmp_path):
    none = {"source_lang": None, "target_lang": None}
    settings = argparse.Namespace(**FAIRSEQ, **none, share_all_embeddings=True)
    state = {"args": None, "cfg": {"model": settings, "task": none}, "model": weights(pre=False, tied=True)}
    path = write(tmp_path / "given", state)
    with pytest.raises(UserError, match=r"source_lang is None; it must be the name of a language, or be told by"):
        fairseq.read(path)
    (path.parent / "train.de-en.en.bin").touch()
    assert fairseq.read(path).tokenizer._languages == ["de", "en"]
    state["cfg"]["task"] = {"source_lang": "en", "target_lang": "de"}
    assert fairseq.read(write(tmp_path / "told", state)).tokenizer._languages == ["en", "de"]


def test_a_dictionary_is_read_as_fairseq_does(tmp_path):
    settings = argparse.Namespace(**FAIRSEQ, source_lang="en", target_lang="de", share_all_embeddings=True)
    path = write(tmp_path / "given", {"args": settings, "model": weights(pre=False, tied=True)})
    words = WORDS[:-1]
    lines = [*(f"{word} 7" for word in words), f"{words[0]} 3 #fairseq:overwrite "]
    for language in ("en", "de"):
        (path.parent / f"dict.{language}.txt").write_text("\r\n".join([*lines, ""]))
    tokenizer = fairseq.read(path).tokenizer
    pieces = tokenizer.pieces(range(5, tokenizer.vocab_size))  # 4 is their <s>
    assert pieces == [*words, words[0]]
    assert tokenizer.encode(words[0]) == [4 + len(WORDS)], "the last of the two"
    (path.parent / "dict.en.txt").write_text("the 1\nof #fairseq:overwrite\n")
    with pytest.raises(UserError, match=r"dict\.en\.txt, line 2: not a subword and its count, with a space between "):
        fairseq.read(path)


def test_sinusoids_that_the_oldest_files_save_are_no_weights(tmp_path):
    settings = argparse.Namespace(**FAIRSEQ, source_lang="en", target_lang="de", share_all_embeddings=True)
    given = weights(pre=False, tied=True)
    tables = {f"{side}.embed_positions.weights": torch.zeros(32, D) for side in NORMS}
    path = write(tmp_path / "given", {"args": settings, "model": given | tables})
    assert fairseq.read(path).source == path

"""BERT, T5 v1.0 and ViT of transformers with random weights: made runs of, with their tokenizers; what is not read.

Without PyTorch and transformers these tests are skipped, see tests/extras.py.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.reference import TOLERANCE, torch, transformers

# isort: split
from tests import foreign, tiny
from tests.infer.test_evaluate_cli import run_here
from vaswani.data.corrupt import Masking, corruption
from vaswani.data.images import Images
from vaswani.errors import UserError
from vaswani.ids import BOS, EOS, PAD, UNK
from vaswani.infer.attention.patches import patch_weights
from vaswani.infer.convert import huggingface, safetensors
from vaswani.infer.convert.folders import make_run
from vaswani.infer.runs import open_run
from vaswani.infer.texts.blanks import fill, masked
from vaswani.model.masked_lm import MaskedLM
from vaswani.model.transformer import Transformer
from vaswani.model.vision import Vision
from vaswani.run.parameters import flatten_params
from vaswani.tasks.vision import image_config
from vaswani.tokens import Tokens


def through_safetensors(run, folder):
    """Checks that the run's export makes the same run."""
    folder.mkdir()
    safetensors.write(run, folder)
    back, before = safetensors.read(folder), flatten_params(run.params)
    after = flatten_params(back.params)
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)
    make_run(folder / "again", back)


def score(capsys, workdir, corpus):
    """The record of `python -m infer --workdir=WORKDIR --corpus=CORPUS`."""
    data = json.loads((workdir / "config.json").read_text())["data"]
    foreign.change_json(workdir / "config.json", data=data | {"cache": str(workdir / "cache")})
    run_here(workdir=str(workdir), corpus=corpus, json=True)
    return json.loads(capsys.readouterr().out)


def test_bert_is_read_with_its_vocabulary(tmp_path, capsys):
    folder = tmp_path / "bert"
    model = foreign.make("bert", folder)
    make_run(tmp_path / "run", huggingface.read(folder))
    run = open_run(tmp_path / "run", task="masked_lm")
    theirs = transformers.BertTokenizer.from_pretrained(folder)

    text = "The dogs[SEP] read [MASK] quiz."
    batch = theirs([text], return_tensors="pt")
    ids = [*run.tokenizer.encode(text), EOS]
    assert run.tokenizer.pieces(ids) == ["<s>", "the", "dog", "##s", "</s>", "[UNK]", "<unk>", "quiz", ".", "</s>"]
    assert run.tokenizer.decode(ids) == "the dogs [SEP] [UNK] quiz." and run.tokenizer.encode(" ") == []
    with torch.no_grad():
        expected = model(**batch).prediction_logits[0].numpy()
    apply = jax.jit(lambda params, ids_bt: MaskedLM(run.model_config).apply({"params": params}, Tokens.of(ids_bt)))
    actual = np.asarray(apply(run.params, jnp.asarray([ids], jnp.int32)))[0]
    names = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", *run.tokenizer.pieces(range(4, len(foreign.WORDS)))]
    assert np.abs(actual[:, : len(foreign.WORDS)] - expected[:, theirs.convert_tokens_to_ids(names)]).max() <= TOLERANCE

    place = ids.index(UNK)
    assert masked(run.tokenizer, text.replace("[MASK]", "___")) == ids[:-1]
    filled = [*ids[:place], 4 + int(actual[place, 4:].argmax()), *ids[place + 1 :]]
    assert fill(run, run.params, text.replace("[MASK]", "___")) == run.tokenizer.decode(filled)
    (tmp_path / "lines").write_text("The dogs read.\nA cat.\n")
    record = score(capsys, tmp_path / "run", f"lines:{tmp_path / 'lines'}")
    assert record["signatures"]["perplexity"].endswith("task:masked_lm") and record["tokens"] >= 2
    assert record["nll"] == pytest.approx(np.log(record["perplexity"])) and 0 <= record["accuracy"] <= 1
    _, hidden = Masking(1.0, 16).corrupt(np.array(ids), np.random.default_rng(0))
    assert hidden[[0, place, -1]].tolist() == [0, 0, 0]
    with pytest.raises(UserError, match=r"task is denoising, and the vocabulary of '' lacks sentinels$"):
        corruption("denoising", run.config.data, run.tokenizer)
    through_safetensors(run, tmp_path / "exported")


@pytest.mark.parametrize(
    ("family", "kind", "specials"),
    [
        ("gpt2", "GPT2Tokenizer", ["<|endoftext|>"]),
        ("bert", "BertTokenizer", ["[CLS]", "[SEP]", "[MASK]", "[UNK]"]),
        ("t5", "T5Tokenizer", ["</s>", "<pad>", "<unk>", "<extra_id_0>"]),
        ("marian", "MarianTokenizer", ["</s>", "<pad>", "<unk>", ">>deu<<"]),
    ],
)
def test_special_tokens_in_a_text_are_read_as_by_transformers(family, kind, specials, tmp_path):
    foreign.make(family, tmp_path / family)
    theirs = getattr(transformers, kind).from_pretrained(tmp_path / family)
    imported = huggingface.read(tmp_path / family)
    for special in specials:
        for form in ("{0}", "{0}a dog", "a dog{0}", "a{0}dog", "{0} a  {0} dog {0}", "a.{0}{0}.dog", "{0}>>deu<<a"):
            text = form.format(special)
            their_tokens = theirs.convert_ids_to_tokens(theirs(text, add_special_tokens=False)["input_ids"])
            ids = imported.tokenizer.encode(text)[1 if family == "bert" else 0 :]
            names = {BOS: "[CLS]", EOS: "[SEP]", UNK: "[MASK]"} if family == "bert" else {BOS: "<pad>"}
            names |= {EOS: "<|endoftext|>"} if family == "gpt2" else {}
            pieces = imported.tokenizer.pieces(ids)
            assert [names.get(number, piece) for number, piece in zip(ids, pieces, strict=True)] == their_tokens, text
            assert PAD not in ids, text


@pytest.mark.parametrize("saved", ["spiece.model", "tokenizer.json"])
def test_t5_is_read_with_its_tokenizer(saved, tmp_path, capsys):
    folder = tmp_path / "t5"
    model = foreign.make("t5", folder)
    theirs = transformers.T5Tokenizer.from_pretrained(folder)
    if saved == "spiece.model":
        for file in folder.glob("*token*"):
            file.unlink()
        foreign.learn_spiece(folder)
    make_run(tmp_path / "run", huggingface.read(folder))
    run = open_run(tmp_path / "run")

    source, target = "Translate: The</s> old<pad> <extra_id_0> a quiz.", "Die alte Katze\u2028schläft."
    batch = theirs([source], text_target=[target], return_tensors="pt")
    rows = [[*run.tokenizer.encode(source), EOS], [BOS, *run.tokenizer.encode(target)]]
    assert run.tokenizer.sentinels[0] in rows[0] and len(run.tokenizer.sentinels) == 100
    assert run.tokenizer.decode(rows[1][1:]) == run.tokenizer.normalise(target) == theirs.decode(batch.labels[0, :-1])
    with torch.no_grad():
        logits = model(**batch).logits[0]
    expected = torch.log_softmax(logits, -1).numpy()
    tokens = [Tokens.of(jnp.asarray([row], jnp.int32)) for row in rows]
    actual = np.asarray(
        jax.nn.log_softmax(jax.jit(Transformer(run.model_config).apply)({"params": run.params}, *tokens))
    )[0]
    assert np.abs(actual[:, [0, 2, 3]] - expected[:, :3]).max() <= TOLERANCE
    assert np.abs(actual[:, 4:] - expected[:, 3:]).max() <= TOLERANCE and actual[:, BOS].max() < -25
    if saved == "tokenizer.json":
        lines = tmp_path / "lines.txt"
        lines.write_text("\n".join(tiny.LINES))
        record = score(capsys, tmp_path / "run", f"lines:{lines}")
        assert record["signatures"]["perplexity"].endswith("task:denoising") and record["tokens"] > len(tiny.LINES)
        through_safetensors(run, tmp_path / "exported")


@pytest.mark.parametrize(("gate", "layers"), [("gated-gelu", 3), ("gated-silu", 2)])
def test_t5_v1_1_is_read_with_its_gates_its_own_softmax_and_another_depth_of_the_decoder(gate, layers, tmp_path):
    settings = {"feed_forward_proj": gate, "tie_word_embeddings": False, "d_model": 18, "num_heads": 3, "d_ff": 22}
    model = foreign.make("t5", tmp_path / "t5", **settings, num_decoder_layers=layers)
    assert not torch.equal(model.lm_head.weight, model.shared.weight)
    imported = huggingface.read(tmp_path / "t5")
    make_run(tmp_path / "run", imported)
    run = open_run(tmp_path / "run")
    rows = [[5, 7, 4, 9, 2], [1, 8, 6, 6, 5]]  # ours: theirs are one less, but for those of </s> and <pad>
    with torch.no_grad():
        expected = model(torch.tensor([[4, 6, 3, 8, 1]]), decoder_input_ids=torch.tensor([[0, 7, 5, 5, 4]])).logits[0]
    tokens = [Tokens.of(jnp.asarray([row], jnp.int32)) for row in rows]
    actual = np.asarray(jax.jit(Transformer(run.model_config).apply)({"params": run.params}, *tokens))[0]
    assert np.abs(actual[:, 4:] - expected[:, 3:].numpy()).max() <= 1e-5
    foreign.change_json(tmp_path / "t5" / "config.json", scale_decoder_outputs=True)
    with pytest.raises(UserError, match=r"differ; its settings tie them$"):
        huggingface.read(tmp_path / "t5")


def test_vit_is_read_for_grey_images(tmp_path, capsys):
    folder = tmp_path / "vit"
    model = foreign.make("vit", folder)
    settings = (folder / "preprocessor_config.json").rename(tmp_path / "settings.json")
    images_nyx = np.random.default_rng(0).random((3, 6, 8), np.float32)
    mean, deviation = (torch.tensor(foreign.PIXELS[key])[:, None, None] for key in ("image_mean", "image_std"))
    for normalised in (False, True):
        pixels = torch.tensor(images_nyx)[:, None].repeat(1, 3, 1, 1)
        if normalised:
            settings.rename(folder / "preprocessor_config.json")
            pixels = (pixels - mean) / deviation
        with torch.no_grad():
            expected = model(pixels).logits.numpy()
        make_run(tmp_path / f"run{normalised}", huggingface.read(folder))
        run = open_run(tmp_path / f"run{normalised}", task="vision")
        actual, _ = Vision(run.model_config, image_config(run.config)).apply(
            {"params": jax.tree.map(jnp.asarray, run.params)}, jnp.asarray(images_nyx), jnp.ones(3, jnp.int32)
        )
        assert np.abs(np.asarray(actual) - expected).max() <= TOLERANCE
    images = Images("", images_nyx, expected.argmax(axis=1).astype(np.int32))
    bytes_nyx, labels_n = (images_nyx * 255).astype(np.uint8), images.labels_n.astype(np.uint8)
    for name, array in (("images", bytes_nyx), ("labels", labels_n)):
        head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
        (tmp_path / name).write_bytes(head + array.tobytes())
    record = score(capsys, run.workdir, f"idx:{tmp_path / 'images'},{tmp_path / 'labels'}")
    assert record["accuracy"] == 1 and record["split"] == record["data"]
    assert patch_weights(run, images_nyx[0])[1].shape == (2, 2, 3, 4)
    through_safetensors(run, tmp_path / "exported")
    foreign.change_json(folder / "preprocessor_config.json", image_mean=[0.5])
    with pytest.raises(UserError, match=r"image_mean and image_std must be of 3 channels, the latter above 0$"):
        huggingface.read(folder)


def test_a_tokenizer_that_was_saved_while_it_cut_and_padded_does_neither(tmp_path):
    from tokenizers import Tokenizer

    folder = tmp_path / "gpt2"
    foreign.make("gpt2", folder)
    plain = huggingface.read(folder).tokenizer
    saved = Tokenizer.from_file(str(folder / "tokenizer.json"))
    saved.enable_truncation(max_length=3)
    saved.enable_padding(length=40)
    saved.save(str(folder / "tokenizer.json"))
    tokenizer = huggingface.read(folder).tokenizer
    for text in ("Der Hund liest ein Buch.", "x"):
        assert tokenizer.encode(text) == plain.encode(text)


def test_what_our_models_have_not_is_one_line(tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece

    folder = tmp_path / "bert"
    foreign.make("bert", folder)
    (folder / "vocab.txt").rename(folder / "vocab")
    with pytest.raises(
        UserError, match=r"has neither tokenizer.json nor vocab.txt; also save the model's tokenizer there"
    ):
        huggingface.read(folder)
    Tokenizer(WordPiece({"[PAD]": 0, "the": 1}, unk_token="the")).save(str(folder / "tokenizer.json"))
    with pytest.raises(UserError, match=r"its vocabulary lacks one of \[PAD\], \[CLS\], \[SEP\], \[MASK\], \[UNK\]$"):
        huggingface.read(folder)
    vocabulary = {word: number for number, word in enumerate(foreign.WORDS)}
    vocabulary["[OTHER]"] = vocabulary.pop("[UNK]")
    Tokenizer(WordPiece(vocabulary, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    with pytest.raises(UserError, match=r"its vocabulary lacks one of .*, \[UNK\]$"):
        huggingface.read(folder)
    foreign.change_json(folder / "config.json", is_decoder=True)
    with pytest.raises(UserError, match=r"is_decoder=True is not supported; it must be False$"):
        huggingface.read(folder)
    foreign.change_json(folder / "config.json", model_type="t5", feed_forward_proj="gated-relu")
    with pytest.raises(UserError, match=r"feed_forward_proj is 'gated-relu'; it must be one of relu, gated-gelu"):
        huggingface.read(folder)
    foreign.change_json(folder / "config.json", model_type="vit", num_channels=3, image_size=[8, 8, 8])
    with pytest.raises(UserError, match=r"image_size is \[8, 8, 8\]; it must be one number, or height and width$"):
        huggingface.read(folder)


def test_a_vit_without_its_preprocessor_is_noted(tmp_path, capsys):
    folder = tmp_path / "vit"
    foreign.make("vit", folder)
    capsys.readouterr()
    huggingface.read(folder)
    assert "note:" not in capsys.readouterr().err
    (folder / "preprocessor_config.json").unlink()
    huggingface.read(folder)
    assert capsys.readouterr().err.endswith("has no preprocessor_config.json, so pixels are not normalised\n")

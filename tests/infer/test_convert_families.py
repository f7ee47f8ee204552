"""BERT, T5 v1.0 and ViT of transformers with random weights: made runs of, with their tokenizers; what is not read.

Without PyTorch and transformers these tests are skipped, see tests/extras.py.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sentencepiece

from tests.reference import TOLERANCE, torch, transformers

# isort: split
from base.errors import UserError
from base.ids import BOS, EOS, UNK
from base.tokens import Tokens
from data.corrupt import Masking, corruption
from data.images import Images
from infer.attention.patches import patch_weights
from infer.convert import huggingface, safetensors
from infer.convert.folders import make_run, named
from infer.runs import open_run
from infer.texts.blanks import fill, masked
from model.masked_lm import MaskedLM
from model.transformer import Transformer
from model.vision import Vision
from tasks.vision import image_config
from tests import tiny
from tests.infer.test_evaluate_cli import run_here

SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
WORDS = ["[PAD]", "un", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "reads", "a", "##s", "quiz", ".", "cat"]


def randomise(model):
    """Draws every parameter, so that none is at a special value."""
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            scale = "norm" in name.lower() and name.endswith("weight")
            weight.copy_(0.3 * torch.randn(weight.shape, generator=random) + scale)
    return model.eval()


def through_safetensors(run, folder):
    """Checks that the run's export makes the same run."""
    folder.mkdir()
    safetensors.write(run, folder)
    back, before = safetensors.read(folder), named(run.params)
    after = named(back.params)
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)
    make_run(folder / "again", back)


def score(capsys, workdir, corpus):
    """The record of `python -m infer --workdir=WORKDIR --corpus=CORPUS`."""
    data = json.loads((workdir / "config.json").read_text())["data"]
    changed(workdir, "config.json", data=data | {"cache": str(workdir / "cache")})
    run_here(workdir=str(workdir), corpus=corpus, json=True)
    return json.loads(capsys.readouterr().out)


def changed(folder: Path, file: str, **settings: object) -> None:
    """Changes settings in a JSON file of a folder."""
    (folder / file).write_text(json.dumps(json.loads((folder / file).read_text()) | settings))


def bert(folder):
    """A folder of BERT as published: the tokenizer is vocab.txt."""
    config = transformers.BertConfig(vocab_size=len(WORDS) + 2, max_position_embeddings=20, **SIZES)
    model = randomise(transformers.BertForMaskedLM(config))
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    return model


def test_bert_is_read_with_its_vocabulary(tmp_path, capsys):
    model = bert(folder := tmp_path / "bert")
    make_run(tmp_path / "run", huggingface.read(folder))
    run = open_run(tmp_path / "run", task="masked_lm")
    theirs = transformers.BertTokenizer.from_pretrained(folder)

    text = "The dogs read [MASK] quiz."
    batch = theirs([text], return_tensors="pt")
    ids = [*run.tokenizer.encode(text), EOS]
    assert run.tokenizer.pieces(ids) == ["<s>", "the", "dog", "##s", "[UNK]", "<unk>", "quiz", ".", "</s>"]
    assert run.tokenizer.decode(ids) == "the dogs [UNK] quiz." and run.tokenizer.encode(" ") == []
    with torch.no_grad():
        expected = model(**batch).logits[0].numpy()
    apply = jax.jit(lambda params, ids_bt: MaskedLM(run.model_config).apply({"params": params}, Tokens.of(ids_bt)))
    actual = np.asarray(apply(run.params, jnp.asarray([ids], jnp.int32)))[0]
    names = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", *run.tokenizer.pieces(range(4, len(WORDS)))]
    assert np.abs(actual[:, : len(WORDS)] - expected[:, theirs.convert_tokens_to_ids(names)]).max() <= TOLERANCE

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
    with pytest.raises(UserError, match=r"task is denoising, and the vocabulary of '' has no sentinels$"):
        corruption("denoising", run.config.data, run.tokenizer)
    through_safetensors(run, tmp_path / "exported")


@pytest.mark.parametrize("saved", ["spiece.model", "tokenizer.json"])
def test_t5_is_read_with_its_tokenizer(saved, tmp_path, capsys):
    (folder := tmp_path / "t5").mkdir()
    (folder / "lines.txt").write_text("\n".join(tiny.LINES))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "lines.txt"), model_prefix=str(folder / "spiece"), vocab_size=60, model_type="unigram",
        pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    theirs = transformers.T5Tokenizer.from_pretrained(folder)
    if saved == "tokenizer.json":
        theirs.save_pretrained(folder)
        (folder / "spiece.model").unlink()
    config = transformers.T5Config(
        vocab_size=len(theirs) + 3, d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    model = randomise(transformers.T5ForConditionalGeneration(config))
    model.save_pretrained(folder)
    make_run(tmp_path / "run", huggingface.read(folder))
    run = open_run(tmp_path / "run")

    source, target = "Translate: The old <extra_id_0> a quiz.", "Die alte Katze\u2028schläft."
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
        record = score(capsys, tmp_path / "run", f"lines:{folder / 'lines.txt'}")
        assert record["signatures"]["perplexity"].endswith("task:denoising") and record["tokens"] > len(tiny.LINES)
        through_safetensors(run, tmp_path / "exported")


def test_vit_is_read_for_grey_images(tmp_path, capsys):
    folder, sizes = tmp_path / "vit", {**SIZES, "image_size": (6, 8), "patch_size": 2, "num_labels": 5}
    model = randomise(transformers.ViTForImageClassification(transformers.ViTConfig(**sizes)))
    model.save_pretrained(folder)
    images_nyx = np.random.default_rng(0).random((3, 6, 8), np.float32)
    mean, deviation = (0.5, 0.4, 0.3), (0.5, 0.6, 0.7)
    for normalised in (False, True):
        pixels = torch.tensor(images_nyx)[:, None].repeat(1, 3, 1, 1)
        if normalised:
            settings = {"image_mean": mean, "image_std": deviation, "rescale_factor": 1 / 255}
            (folder / "preprocessor_config.json").write_text(json.dumps(settings))
            pixels = (pixels - torch.tensor(mean)[:, None, None]) / torch.tensor(deviation)[:, None, None]
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
    changed(folder, "preprocessor_config.json", image_mean=[0.5])
    with pytest.raises(UserError, match=r"image_mean and image_std must be of 3 channels, the latter above 0$"):
        huggingface.read(folder)


def test_what_our_models_have_not_is_one_line(tmp_path):
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece

    bert(tmp_path)
    (tmp_path / "vocab.txt").rename(tmp_path / "vocab")
    with pytest.raises(UserError, match=r"neither tokenizer.json nor vocab.txt is there; save the model's tokenizer"):
        huggingface.read(tmp_path)
    Tokenizer(WordPiece({"[PAD]": 0, "the": 1}, unk_token="the")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match=r"its vocabulary lacks one of \[PAD\], \[CLS\], \[SEP\], \[MASK\]$"):
        huggingface.read(tmp_path)
    changed(tmp_path, "config.json", is_decoder=True)
    with pytest.raises(UserError, match=r"is_decoder=True is not supported; it must be False$"):
        huggingface.read(tmp_path)
    changed(tmp_path, "config.json", model_type="t5", feed_forward_proj="gated-gelu")
    with pytest.raises(UserError, match=r"feed_forward_proj='gated-gelu' is not supported \(a gated layer"):
        huggingface.read(tmp_path)
    changed(tmp_path, "config.json", model_type="vit", num_channels=3, image_size=[8, 8, 8])
    with pytest.raises(UserError, match=r"image_size is \[8, 8, 8\]; it must be one number, or height and width$"):
        huggingface.read(tmp_path)

"""Tiny checkpoints of transformers and fairseq with random weights, for the tests of what reads them.

Without PyTorch and transformers whoever imports this is skipped, see tests/reference.py.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

from tests.reference import torch, transformers

# isort: split
from safetensors.numpy import load_file, save_file

from tests import tiny

WORDS = ["[PAD]", "un", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "reads", "a", "##s", "quiz", ".", "cat"]
ENCODER = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
FAIRSEQ = {
    f"{side}_{key}": value
    for side in ("encoder", "decoder")
    for key, value in {"layers": 2, "embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 2}.items()
}
PIXELS = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.6, 0.7], "rescale_factor": 1 / 255}  # ViT's
CODES = "#version: 0.2\no g</w>\nt h\nth e</w>\n"


def randomise(model: Any, size_of: Callable[[str], float] = lambda name: 0.3, seed: int = 0) -> Any:
    """Draws every parameter, so that none is at a special value; those of a name have this standard deviation."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                norm = ("norm" in name.lower() or ".ln_" in name) and name.endswith("weight")
                weight.copy_(size_of(name) * torch.randn(weight.shape, generator=random) + norm)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape, generator=random))
    return model.eval()


def _learn(folder: Path, name: str, lines: list[str], **options: Any) -> None:
    (folder / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "lines.txt"), model_prefix=str(folder / name), model_type="unigram", minloglevel=2,
        hard_vocab_limit=False, **options,
    )  # fmt: skip
    for left in ("lines.txt", f"{name}.vocab"):
        (folder / left).unlink()


def learn_spiece(folder: Path) -> None:
    """Writes the file of T5's tokenizer as published, spiece.model."""
    _learn(folder, "spiece", tiny.LINES, vocab_size=60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def _sides(folder: Path, kind: str, settings: dict[str, Any]) -> Any:
    """Marian or Pegasus, with the files of Marian's tokenizer; Marian perhaps with a vocabulary for each side."""
    sides = []
    for side, language in (("source", 0), ("target", 1)):
        _learn(folder, side, [pair[language] for pair in tiny.PAIRS], vocab_size=34, character_coverage=1.0)
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        sides.append({model.id_to_piece(number) for number in range(3, model.get_piece_size())})
    vocabulary = ["</s>", "<unk>", ">>deu<<", *sorted(sides[0] | sides[1]), "<pad>"]
    pad = len(vocabulary) - 1
    if not settings.get("share_encoder_decoder_embeddings", True):
        vocabulary, targets = (["</s>", "<unk>", "<pad>", *sorted(pieces)] for pieces in sides)
        pad = 2
        settings = {"decoder_vocab_size": len(targets)} | settings
        (folder / "target_vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(targets)}))
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(vocabulary)}))
    config, model_class = {
        "marian": (transformers.MarianConfig, transformers.MarianMTModel),
        "pegasus": (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration),
    }[kind]
    sizes = {
        "vocab_size": len(vocabulary), "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
        "activation_function": "gelu", "scale_embedding": True, "max_position_embeddings": 64, "pad_token_id": pad,
        "eos_token_id": 0, "bos_token_id": 0, "decoder_start_token_id": pad,
    }  # fmt: skip
    return model_class(config(**sizes | settings))


# Odd sizes of a model of BART's kind, whose decoder is the deeper one.
BART = {
    "d_model": 18, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 3, "decoder_attention_heads": 3,
    "encoder_ffn_dim": 22, "decoder_ffn_dim": 22, "max_position_embeddings": 41,
}  # fmt: skip
FAIRSEQ_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]


def _m2m100(folder: Path, settings: dict[str, Any]) -> Any:
    _learn(folder, "sentencepiece.bpe", tiny.LINES, vocab_size=60)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    pieces = [*FAIRSEQ_SPECIALS, *(model.id_to_piece(number) for number in range(3, model.get_piece_size()))]
    (folder / "vocab.json").write_text(json.dumps({piece: number for number, piece in enumerate(pieces)}))
    tokenizer = transformers.M2M100Tokenizer.from_pretrained(folder, src_lang="en", tgt_lang="de")
    tokenizer.save_pretrained(folder)
    return _of_m2m100(len(pieces) + 100 + 3, settings)


def _nllb(folder: Path, settings: dict[str, Any]) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=FAIRSEQ_SPECIALS, show_progress=False)
    inner.train_from_iterator(tiny.LINES, trainer)
    learned = json.loads(inner.to_str())["model"]
    merges = [tuple(merge) for merge in learned["merges"]]
    languages = {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}
    tokenizer = transformers.NllbTokenizer(learned["vocab"], merges, **languages)
    tokenizer.save_pretrained(folder)
    return _of_m2m100(len(tokenizer) + 3, settings)


def _mbart(folder: Path, settings: dict[str, Any]) -> Any:
    _learn(folder, "sentencepiece.bpe", tiny.LINES, vocab_size=60)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    pieces = [(model.id_to_piece(number), model.get_score(number)) for number in range(model.get_piece_size())]
    tokenizer = transformers.MBart50Tokenizer(pieces, src_lang="en_XX", tgt_lang="de_DE")
    tokenizer.save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    sizes = {"vocab_size": len(tokenizer) + 3, "scale_embedding": True, "decoder_start_token_id": 2}
    return transformers.MBartForConditionalGeneration(transformers.MBartConfig(**BART | sizes | settings))


def _bart(folder: Path, settings: dict[str, Any]) -> Any:
    from tokenizers import ByteLevelBPETokenizer

    inner = ByteLevelBPETokenizer()
    inner.train_from_iterator(tiny.LINES, vocab_size=290, special_tokens=FAIRSEQ_SPECIALS, show_progress=False)
    learned = json.loads(inner.to_str())["model"]
    merges = [tuple(merge) for merge in learned["merges"]]
    tokenizer = transformers.BartTokenizer(vocab=learned["vocab"], merges=merges)
    tokenizer.save_pretrained(folder)
    sizes = {"vocab_size": len(tokenizer) + 3, "activation_function": "gelu"}
    return transformers.BartForConditionalGeneration(transformers.BartConfig(**BART | sizes | settings))


def _of_m2m100(size: int, settings: dict[str, Any]) -> Any:
    config = transformers.M2M100Config(vocab_size=size, **BART | settings)
    return transformers.M2M100ForConditionalGeneration(config)


def _gpt2(folder: Path, settings: dict[str, Any]) -> Any:
    from tokenizers import ByteLevelBPETokenizer

    inner = ByteLevelBPETokenizer()
    inner.train_from_iterator(tiny.LINES, vocab_size=280, special_tokens=["<|endoftext|>"], show_progress=False)
    inner.save(str(folder / "tokenizer.json"))
    sizes = {"vocab_size": inner.get_vocab_size(), "n_positions": 40, "n_embd": 16, "n_layer": 2, "n_head": 2}
    ids = {"eos_token_id": 0, "bos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes | ids | settings))


def _bert(folder: Path, settings: dict[str, Any]) -> Any:
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    sizes = {"vocab_size": len(WORDS) + 2, "max_position_embeddings": 20}
    return transformers.BertForPreTraining(transformers.BertConfig(**ENCODER | sizes | settings))


def _t5(folder: Path, settings: dict[str, Any]) -> Any:
    learn_spiece(folder)
    tokenizer = transformers.T5Tokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "spiece.model").unlink()
    sizes = {"vocab_size": len(tokenizer) + 3, "d_model": 16, "d_kv": 6, "d_ff": 24, "num_layers": 2, "num_heads": 2}
    model = transformers.T5ForConditionalGeneration(
        transformers.T5Config(**sizes | {"decoder_start_token_id": 0} | settings)
    )
    if not model.config.scale_decoder_outputs:  # as published, v1.1 has a softmax of its own, which is tied by default
        model.lm_head.weight = torch.nn.Parameter(model.shared.weight.detach().clone())
    return model


def _vit(folder: Path, settings: dict[str, Any]) -> Any:
    (folder / "preprocessor_config.json").write_text(json.dumps(PIXELS))
    sizes = {"image_size": (6, 8), "patch_size": 2, "num_labels": 5}
    return transformers.ViTForImageClassification(transformers.ViTConfig(**ENCODER | sizes | settings))


TRANSFORMERS: dict[str, Callable[[Path, dict[str, Any]], Any]] = {
    "marian": lambda folder, settings: _sides(folder, "marian", settings),
    "pegasus": lambda folder, settings: _sides(folder, "pegasus", settings),
    "bart": _bart,
    "mbart": _mbart,
    "m2m_100": _m2m100,
    "nllb": _nllb,
    "gpt2": _gpt2,
    "bert": _bert,
    "t5": _t5,
    "vit": _vit,
}


def make(family: str, folder: Path, **settings: Any) -> Any:
    """Writes a folder of transformers and returns the model of torch; `settings` change its config."""
    folder.mkdir(parents=True)
    model = randomise(TRANSFORMERS[family](folder, settings))
    model.save_pretrained(folder)
    return model


def change_weights(folder: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Changes the arrays of model.safetensors in place."""
    arrays = load_file(folder / "model.safetensors")
    change(arrays)
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    save_file(contiguous, folder / "model.safetensors")


def change_json(file: Path, **settings: Any) -> None:
    """Changes settings of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


def fairseq_weights(words: int, *, pre: bool = False, tied: bool = True) -> dict[str, Any]:
    """Returns random parameters of fairseq's Transformer of the sizes `FAIRSEQ` under today's names."""
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int, mean: float = 0.0) -> Any:
        return mean + 0.3 * torch.randn(shape, generator=random)

    found = {"encoder.version": torch.tensor([3.0]), "encoder.embed_positions._float_tensor": torch.zeros(1)}
    for side, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
        found[f"{side}.embed_tokens.weight"] = draw(words, 16)
        norms = [f"{side}.layer_norm"] if pre else []
        for layer in (f"{side}.layers.{n}" for n in range(2)):
            norms += [f"{layer}.{part}_layer_norm" for part in (*attentions, "final")]
            for attention in attentions:
                for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    found[f"{layer}.{attention}.{projection}.weight"] = draw(16, 16)
                    found[f"{layer}.{attention}.{projection}.bias"] = draw(16)
            found |= {f"{layer}.fc1.weight": draw(24, 16), f"{layer}.fc1.bias": draw(24)}
            found |= {f"{layer}.fc2.weight": draw(16, 24), f"{layer}.fc2.bias": draw(16)}
        for norm in norms:
            found |= {f"{norm}.weight": draw(16, mean=1.0), f"{norm}.bias": draw(16)}
    if tied:
        found["encoder.embed_tokens.weight"] = found["decoder.embed_tokens.weight"]
    found["decoder.output_projection.weight"] = found["decoder.embed_tokens.weight"] if tied else draw(words, 16)
    return found


def fairseq_state(**settings: Any) -> dict[str, Any]:
    """Returns what a checkpoint of fairseq holds: a post-norm model of one shared table."""
    sizes = {"source_lang": "en", "target_lang": "de", "share_all_embeddings": True, "max_source_positions": 30}
    return {"args": argparse.Namespace(**FAIRSEQ | sizes | settings), "model": fairseq_weights(4 + len(WORDS))}


def make_fairseq(
    folder: Path,
    state: Any,
    words: Sequence[str] = WORDS,
    codes: str = CODES,
    source_words: Sequence[str] | None = None,
) -> Path:
    """Writes a checkpoint of fairseq with its files, and returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for language, own in (("en", source_words or words), ("de", words)):
        (folder / f"dict.{language}.txt").write_text("".join(f"{word} 1\n" for word in own))
    (folder / "bpecodes").write_text(codes)
    torch.save(state, folder / "model.pt")
    return folder / "model.pt"

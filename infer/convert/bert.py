"""BERT of transformers as our masked language model (Devlin et al. 2018)."""

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from base.errors import UserError
from configs.common import default
from data.imported import WordPiece
from infer.convert.folders import Imported
from infer.convert.settings import ACTIVATION, EPSILON, OUR_ACTIVATIONS, SIZE, head_width, obey, require
from infer.convert.vocabulary import check_rows, our_rows, read_tokenizer
from infer.convert.weights import Weights

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings")
_FIXED: dict[str, Any] = {
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
}
_RULES = {**dict.fromkeys((*_SIZES, "vocab_size"), SIZE), "layer_norm_eps": EPSILON, "hidden_act": ACTIVATION}
_IGNORED = (
    r"embeddings\.position_ids",  # 0, 1, 2, ..., saved by older versions
    # What predicts the next sentence, which a masked language model is trained with, and has no use for.
    r"pooler\.dense\.(weight|bias)",
    r"cls\.seq_relationship\.(weight|bias)",
)
_SPECIALS = {"pad": "[PAD]", "start": "[CLS]", "eos": "[SEP]", "unk": "[MASK]"}


def read(folder: Path, sizes: dict[str, Any], weights: Weights) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    Every token is of type 0, whose embedding is part of our table of positions; the next sentence is not predicted.

    Raises:
      UserError: a weight or a file is missing or wrong, or the model has an unsupported setting.
    """
    path = folder / "config.json"
    obey(path, sizes, _RULES)
    require(path, sizes, _FIXED)
    d = sizes["hidden_size"]
    h = sizes["num_attention_heads"]
    cfg = default()
    cfg.task = "masked_lm"
    set_encoder(cfg, sizes, head_width(path, d, h))
    cfg.model.scale_embeddings = False
    cfg.model.max_positions = sizes["max_position_embeddings"]
    inner = read_tokenizer(folder, "BertTokenizer", "vocab.txt")
    special = {name: inner.token_to_id(token) for name, token in _SPECIALS.items()}
    # [UNK] is an ordinary token here, but without it the tokenizer cannot read a word that it has no pieces for.
    if None in (*special.values(), inner.token_to_id("[UNK]")):
        raise UserError(f"{folder}: its vocabulary lacks one of {', '.join(_SPECIALS.values())}, [UNK]")
    params = parameters(weights, cfg.model.N, h, d)
    rows = our_rows(path, sizes["vocab_size"], **special)
    check_rows(folder, params["embed"], rows)
    params |= {name: params[name][rows] for name in ("embed", "softmax_b")}
    return Imported(folder, cfg, WordPiece.of(inner, rows, str(folder)), params)


def set_encoder(cfg: ConfigDict, sizes: dict[str, Any], width: int) -> None:
    """Sets in `cfg.model` what the encoders of BERT and ViT have in common; a head is of this width."""
    cfg.model.N = sizes["num_hidden_layers"]
    cfg.model.d_model = sizes["hidden_size"]
    cfg.model.d_ff = sizes["intermediate_size"]
    cfg.model.h = sizes["num_attention_heads"]
    cfg.model.d_k = width
    cfg.model.d_v = width
    cfg.model.activation = OUR_ACTIVATIONS[sizes["hidden_act"]]
    cfg.model.norm_epsilon = sizes["layer_norm_eps"]
    cfg.model.biases = True
    cfg.model.positions = "learned"


def parameters(weights: Weights, N: int, h: int, d: int) -> dict[str, Any]:
    """Returns BERT's weights under our names and in our shapes; ids are still its own.

    Raises:
      UserError: a weight is missing, of another shape or not finite, or there is one more.
    """
    weights = weights.renamed(_modern)
    weights.check_layers(N)
    head = "cls.predictions.transform"
    copies = ["embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"]
    embed = weights.take_tied(copies, -1, d)
    types = weights.take("embeddings.token_type_embeddings.weight", -1, d)
    norms = ("attention.output.LayerNorm", "output.LayerNorm")
    params = {
        "embed": embed,
        "positions": weights.take("embeddings.position_embeddings.weight", -1, d) + types[:1],
        "embed_norm": weights.take_norm("embeddings.LayerNorm", d),
        "encoder": layers(weights, N, h, d, "attention.self", norms),
        "head_w": weights.take(f"{head}.dense.weight", d, d).T,
        "head_b": weights.take(f"{head}.dense.bias", d),
        "head_norm": weights.take_norm(f"{head}.LayerNorm", d),
        "softmax_b": weights.take_tied(["cls.predictions.bias", "cls.predictions.decoder.bias"], len(embed)),
    }
    weights.check_all_read(_IGNORED)
    return params


def _modern(name: str) -> str:
    """Returns today's name of a weight; the oldest checkpoints have the names of TensorFlow's layer norm."""
    for old, new in {".gamma": ".weight", ".beta": ".bias"}.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name.removeprefix("bert.")


def layers(weights: Weights, N: int, h: int, d: int, inner: str, norms: tuple[str, str]) -> dict[str, Any]:
    """Returns the layers of an encoder of width d with the names of BERT's or ViT's.

    `inner` is where a layer's queries, keys and values are, `norms` the norms of its two sub-layers.
    """
    params = {}
    for n in range(N):
        layer = f"encoder.layer.{n}"
        params[f"layer_{n}"] = {
            "self_attention": _attention(weights, layer, h, d, inner),
            "feed_forward": _feed_forward(weights, layer, d),
        }
        for number, name in enumerate(norms, 1):
            params[f"layer_{n}"][f"norm_{number}"] = weights.take_norm(f"{layer}.{name}", d)
    return params


def _attention(weights: Weights, layer: str, h: int, d: int, inner: str) -> dict[str, Any]:
    """Returns the parameters of a layer's attention."""
    output = f"{layer}.attention.output.dense"
    params = {
        "wo": weights.take(f"{output}.weight", d, d).T.reshape(h, -1, d),
        "bo": weights.take(f"{output}.bias", d),
    }
    for name in ("query", "key", "value"):
        projection = f"{layer}.{inner}.{name}"
        params[f"w{name[0]}"] = weights.take(f"{projection}.weight", d, d).T.reshape(d, h, -1)
        params[f"b{name[0]}"] = weights.take(f"{projection}.bias", d).reshape(h, -1)
    return params


def _feed_forward(weights: Weights, layer: str, d: int) -> dict[str, Any]:
    """Returns the parameters of a layer's feed-forward part."""
    first = f"{layer}.intermediate.dense"
    second = f"{layer}.output.dense"
    w1_fd = weights.take(f"{first}.weight", -1, d)
    f = len(w1_fd)
    return {
        "w1": w1_fd.T,
        "b1": weights.take(f"{first}.bias", f),
        "w2": weights.take(f"{second}.weight", d, f).T,
        "b2": weights.take(f"{second}.bias", d),
    }

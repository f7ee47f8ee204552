"""BERT of transformers as our masked language model (Devlin et al. 2018)."""

from pathlib import Path
from typing import Any

import numpy as np

from base.errors import UserError
from base.files import check
from configs.common import default
from data.imported import WordPiece
from infer.convert.folders import Imported
from infer.convert.settings import activation, head_width, require, wrong_weights
from infer.convert.vocabulary import our_rows, read_tokenizer

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings")
_FIXED: dict[str, Any] = {"is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True}
_FIXED |= {"position_embedding_type": "absolute"}
_SPECIALS = {"pad": "[PAD]", "start": "[CLS]", "eos": "[SEP]", "unk": "[MASK]"}


def read(folder: Path, sizes: dict[str, Any], weights: dict[str, np.ndarray]) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    Every token is of type 0, whose embedding is part of our table of positions; the next sentence is not predicted.

    Raises:
      UserError: a weight or a file is missing, or the model has a setting that ours has not.
    """
    path = folder / "config.json"
    schema = {**dict.fromkeys((*_SIZES, "vocab_size"), int), "layer_norm_eps": float, "hidden_act": str}
    check(path, "", sizes, schema)
    require(path, sizes, _FIXED)
    cfg, d, h = default(), sizes["hidden_size"], sizes["num_attention_heads"]
    cfg.task, width = "masked_lm", head_width(path, d, h)
    cfg.model.update({"N": sizes["num_hidden_layers"], "d_model": d, "h": h, "d_k": width, "d_v": width})
    cfg.model.update({"d_ff": sizes["intermediate_size"], "activation": activation(path, sizes, "hidden_act")})
    cfg.model.update({"norm_epsilon": sizes["layer_norm_eps"], "biases": True, "scale_embeddings": False})
    cfg.model.update({"positions": "learned", "max_positions": sizes["max_position_embeddings"]})
    inner = read_tokenizer(folder, "BertTokenizer", "vocab.txt")
    special = {ours: inner.token_to_id(theirs) for ours, theirs in _SPECIALS.items()}
    if None in special.values():
        raise UserError(f"{folder}: its vocabulary lacks one of {', '.join(_SPECIALS.values())}")
    rows = our_rows(sizes["vocab_size"], **special)
    try:
        params = parameters(weights, cfg.model.N, h)
        params |= {name: params[name][rows] for name in ("embed", "softmax_b")}
    except (KeyError, ValueError, IndexError) as error:
        raise wrong_weights(folder, error) from error
    return Imported(folder, cfg, WordPiece.of(inner, rows, str(folder)), params)


def parameters(weights: dict[str, np.ndarray], N: int, h: int) -> dict[str, Any]:
    """Returns BERT's weights under our names and in our shapes; ids are still its own.

    Raises:
      KeyError: a weight is missing.
      ValueError: one has another shape.
    """
    # The oldest checkpoints have the names of TensorFlow's layer norm.
    modern = {".gamma": ".weight", ".beta": ".bias"}
    given = {name.removeprefix("bert."): weight for name, weight in weights.items()}
    for old, new in modern.items():
        given = {name.removesuffix(old) + new if name.endswith(old) else name: at for name, at in given.items()}
    embeddings, head = "embeddings", "cls.predictions.transform"
    types = given[f"{embeddings}.token_type_embeddings.weight"]
    return {
        "embed": given[f"{embeddings}.word_embeddings.weight"],
        "positions": given[f"{embeddings}.position_embeddings.weight"] + types[:1],
        "embed_norm": norm(given, f"{embeddings}.LayerNorm"),
        "encoder": layers(given, N, h, "attention.self", ("attention.output.LayerNorm", "output.LayerNorm")),
        "head_w": given[f"{head}.dense.weight"].T,
        "head_b": given[f"{head}.dense.bias"],
        "head_norm": norm(given, f"{head}.LayerNorm"),
        "softmax_b": given["cls.predictions.bias"],
    }


def norm(given: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """Returns the parameters of a layer norm."""
    return {"scale": given[f"{name}.weight"], "bias": given[f"{name}.bias"]}


def layers(given: dict[str, np.ndarray], N: int, h: int, inner: str, norms: tuple[str, str]) -> dict[str, Any]:
    """Returns the layers of an encoder with the names of BERT's or ViT's.

    `inner` is where a layer's queries, keys and values are, `norms` the norms of its two sub-layers.
    """

    def matrix(name: str) -> np.ndarray:
        return given[f"{name}.weight"].T

    found = {}
    for n in range(N):
        layer = f"encoder.layer.{n}"
        out, d = f"{layer}.attention.output.dense", len(given[f"{layer}.output.dense.bias"])
        attention = {"wo": matrix(out).reshape(h, -1, d), "bo": given[f"{out}.bias"]}
        for name in ("query", "key", "value"):
            attention[f"w{name[0]}"] = matrix(f"{layer}.{inner}.{name}").reshape(d, h, -1)
            attention[f"b{name[0]}"] = given[f"{layer}.{inner}.{name}.bias"].reshape(h, -1)
        first, second = f"{layer}.intermediate.dense", f"{layer}.output.dense"
        feed_forward = {"w1": matrix(first), "b1": given[f"{first}.bias"]}
        feed_forward |= {"w2": matrix(second), "b2": given[f"{second}.bias"]}
        both = {f"norm_{place}": norm(given, f"{layer}.{name}") for place, name in enumerate(norms, 1)}
        found[f"layer_{n}"] = {"self_attention": attention, "feed_forward": feed_forward, **both}
    return found

"""BERT of transformers as our masked language model (Devlin et al. 2018)."""

from pathlib import Path
from typing import Any

from base.errors import UserError
from configs.common import default
from data.imported import WordPiece
from infer.convert.folders import Imported
from infer.convert.settings import ACTIVATION, EPSILON, OUR_ACTIVATIONS, SIZE, head_width, obey, require
from infer.convert.vocabulary import check_rows, our_rows, read_tokenizer
from infer.convert.weights import Weights

_SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "max_position_embeddings")
_FIXED: dict[str, Any] = {"is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True}
_FIXED |= {"position_embedding_type": "absolute"}
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
      UserError: a weight or a file is missing or wrong, or the model has a setting that ours has not.
    """
    path = folder / "config.json"
    obey(path, sizes, _RULES)
    require(path, sizes, _FIXED)
    cfg, d, h = default(), sizes["hidden_size"], sizes["num_attention_heads"]
    cfg.task, width = "masked_lm", head_width(path, d, h)
    cfg.model.update({"N": sizes["num_hidden_layers"], "d_model": d, "h": h, "d_k": width, "d_v": width})
    cfg.model.update({"d_ff": sizes["intermediate_size"], "activation": OUR_ACTIVATIONS[sizes["hidden_act"]]})
    cfg.model.update({"norm_epsilon": sizes["layer_norm_eps"], "biases": True, "scale_embeddings": False})
    cfg.model.update({"positions": "learned", "max_positions": sizes["max_position_embeddings"]})
    inner = read_tokenizer(folder, "BertTokenizer", "vocab.txt")
    special = {ours: inner.token_to_id(theirs) for ours, theirs in _SPECIALS.items()}
    if None in special.values():
        raise UserError(f"{folder}: its vocabulary lacks one of {', '.join(_SPECIALS.values())}")
    params = parameters(weights, cfg.model.N, h, d)
    rows = our_rows(path, sizes["vocab_size"], **special)
    check_rows(folder, params["embed"], rows)
    params |= {name: params[name][rows] for name in ("embed", "softmax_b")}
    return Imported(folder, cfg, WordPiece.of(inner, rows, str(folder)), params)


def parameters(weights: Weights, N: int, h: int, d: int) -> dict[str, Any]:
    """Returns BERT's weights under our names and in our shapes; ids are still its own.

    Raises:
      UserError: a weight is missing, of another shape or not finite, or there is one more.
    """
    given = weights.renamed(_modern)
    given.check_layers(N)
    embeddings, head = "embeddings", "cls.predictions.transform"
    copies = [f"{embeddings}.word_embeddings.weight", "cls.predictions.decoder.weight"]
    embed = given.take_tied(copies, -1, d)
    types = given.take(f"{embeddings}.token_type_embeddings.weight", -1, d)
    params = {
        "embed": embed,
        "positions": given.take(f"{embeddings}.position_embeddings.weight", -1, d) + types[:1],
        "embed_norm": norm(given, f"{embeddings}.LayerNorm", d),
        "encoder": layers(given, N, h, d, "attention.self", ("attention.output.LayerNorm", "output.LayerNorm")),
        "head_w": given.take(f"{head}.dense.weight", d, d).T,
        "head_b": given.take(f"{head}.dense.bias", d),
        "head_norm": norm(given, f"{head}.LayerNorm", d),
        "softmax_b": given.take_tied(["cls.predictions.bias", "cls.predictions.decoder.bias"], len(embed)),
    }
    given.check_all_read(_IGNORED)
    return params


def _modern(name: str) -> str:
    """Returns today's name of a weight; the oldest checkpoints have the names of TensorFlow's layer norm."""
    for old, new in {".gamma": ".weight", ".beta": ".bias"}.items():
        name = name.removesuffix(old) + new if name.endswith(old) else name
    return name.removeprefix("bert.")


def norm(given: Weights, name: str, d: int) -> dict[str, Any]:
    """Returns the parameters of a layer norm of width d."""
    return {"scale": given.take(f"{name}.weight", d), "bias": given.take(f"{name}.bias", d)}


def layers(given: Weights, N: int, h: int, d: int, inner: str, norms: tuple[str, str]) -> dict[str, Any]:
    """Returns the layers of an encoder of width d with the names of BERT's or ViT's.

    `inner` is where a layer's queries, keys and values are, `norms` the norms of its two sub-layers.
    """
    found = {}
    for n in range(N):
        layer = f"encoder.layer.{n}"
        out = f"{layer}.attention.output.dense"
        attention = {
            "wo": given.take(f"{out}.weight", d, d).T.reshape(h, -1, d),
            "bo": given.take(f"{out}.bias", d),
        }
        for name in ("query", "key", "value"):
            place = f"{layer}.{inner}.{name}"
            attention[f"w{name[0]}"] = given.take(f"{place}.weight", d, d).T.reshape(d, h, -1)
            attention[f"b{name[0]}"] = given.take(f"{place}.bias", d).reshape(h, -1)
        first, second = f"{layer}.intermediate.dense", f"{layer}.output.dense"
        inward = given.take(f"{first}.weight", -1, d)
        f = len(inward)
        feed_forward = {
            "w1": inward.T,
            "b1": given.take(f"{first}.bias", f),
            "w2": given.take(f"{second}.weight", d, f).T,
            "b2": given.take(f"{second}.bias", d),
        }
        both = {f"norm_{place}": norm(given, f"{layer}.{name}", d) for place, name in enumerate(norms, 1)}
        found[f"layer_{n}"] = {"self_attention": attention, "feed_forward": feed_forward, **both}
    return found

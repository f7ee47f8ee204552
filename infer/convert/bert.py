"""BERT of transformers as our masked language model (Devlin et al. 2018)."""

from pathlib import Path
from typing import Any

from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from vaswani.data.imported import WordPiece
from vaswani.errors import UserError
from vaswani.infer.convert import table
from vaswani.infer.convert.folders import Imported
from vaswani.infer.convert.settings import SIZE, configure, obey, require
from vaswani.infer.convert.vocabulary import our_rows, read_tokenizer, with_our_rows
from vaswani.infer.convert.weights import Weights
from vaswani.model.config import ModelConfig

# What BERT and ViT have in common.
KEYS = {
    "N": "num_hidden_layers",
    "d_model": "hidden_size",
    "d_ff": "intermediate_size",
    "h": "num_attention_heads",
    "activation": "hidden_act",
    "norm_epsilon": "layer_norm_eps",
}
DEPARTURES = {"biases": True, "positions": "learned"}
_FIXED: dict[str, Any] = {
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "position_embedding_type": "absolute",
}
_TABLE = """
embeddings.word_embeddings.weight=cls.predictions.decoder.weight       embed                  v d
embeddings.position_embeddings.weight                                  positions              l d
embeddings.LayerNorm.{weight,bias}                                     embed_norm/{scale,bias}  d
encoder.layer.{n}.attention.self.{query,key}.weight          encoder/layer_{n}/self_attention/w{q,k}  hk d
encoder.layer.{n}.attention.self.{query,key}.bias            encoder/layer_{n}/self_attention/b{q,k}  hk
encoder.layer.{n}.attention.self.value.weight                encoder/layer_{n}/self_attention/wv      he d
encoder.layer.{n}.attention.self.value.bias                  encoder/layer_{n}/self_attention/bv      he
encoder.layer.{n}.attention.output.dense.weight              encoder/layer_{n}/self_attention/wo      d he
encoder.layer.{n}.attention.output.dense.bias                encoder/layer_{n}/self_attention/bo      d
encoder.layer.{n}.attention.output.LayerNorm.{weight,bias}   encoder/layer_{n}/norm_1/{scale,bias}    d
encoder.layer.{n}.intermediate.dense.weight                  encoder/layer_{n}/feed_forward/w1        f d
encoder.layer.{n}.intermediate.dense.bias                    encoder/layer_{n}/feed_forward/b1        f
encoder.layer.{n}.output.dense.weight                        encoder/layer_{n}/feed_forward/w2        d f
encoder.layer.{n}.output.dense.bias                          encoder/layer_{n}/feed_forward/b2        d
encoder.layer.{n}.output.LayerNorm.{weight,bias}             encoder/layer_{n}/norm_2/{scale,bias}    d
cls.predictions.transform.dense.weight                       head_w                                   D d
cls.predictions.transform.dense.bias                         head_b                                   d
cls.predictions.transform.LayerNorm.{weight,bias}            head_norm/{scale,bias}                   d
cls.predictions.bias=cls.predictions.decoder.bias            softmax_b                                v
"""
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
    keys = KEYS | {"max_positions": "max_position_embeddings"}
    cfg = configure(path, sizes, keys, DEPARTURES | {"scale_embeddings": False})
    cfg.task = "masked_lm"
    obey(path, sizes, {"vocab_size": SIZE})
    require(path, sizes, _FIXED)
    inner = read_tokenizer(folder, "BertTokenizer", "vocab.txt")
    special = {name: inner.token_to_id(token) for name, token in _SPECIALS.items()}
    # [UNK] is an ordinary token here, but without it the tokenizer cannot read a word that it has no pieces for.
    if None in (*special.values(), inner.token_to_id("[UNK]")):
        raise UserError(f"{folder}: its vocabulary lacks one of {', '.join(_SPECIALS.values())}, [UNK]")
    params = parameters(weights, cfg.model)
    rows = our_rows(path, sizes["vocab_size"], **special)
    params = with_our_rows(folder, params, rows)
    return Imported(folder, cfg, WordPiece.of(inner, rows, str(folder)), params)


def parameters(weights: Weights, config: ModelConfig | ConfigDict) -> dict[str, Any]:
    """Returns BERT's weights under our names and in our shapes; ids are still its own.

    Raises:
      UserError: a weight is missing, of another shape or not finite, or there is one more.
    """
    weights = weights.renamed(_modern)
    params = table.read(weights, table.rows(_TABLE, config.N), table.sizes_of(config))
    types = weights.take("embeddings.token_type_embeddings.weight", -1, config.d_model)
    params["positions"] = params["positions"] + types[0]
    weights.check_all_read(_IGNORED)
    return unflatten_dict(params, sep="/")


def _modern(name: str) -> str:
    """Returns today's name of a weight; the oldest checkpoints have the names of TensorFlow's layer norm."""
    for old, new in {".gamma": ".weight", ".beta": ".bias"}.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    return name.removeprefix("bert.")

"""GPT-2 of transformers as our language model (Radford et al. 2019)."""

from pathlib import Path
from typing import Any

from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from vaswani.data.imported import ByteLevel
from vaswani.ids import BOS
from vaswani.infer.convert import table
from vaswani.infer.convert.folders import Imported
from vaswani.infer.convert.settings import ID, SIZE, configure, obey, require
from vaswani.infer.convert.vocabulary import bias_of_copies, our_rows, read_tokenizer, with_our_rows
from vaswani.infer.convert.weights import Weights
from vaswani.model.config import ModelConfig

_KEYS = {
    "N": "n_layer",
    "d_model": "n_embd",
    "d_ff": "n_inner",
    "h": "n_head",
    "max_positions": "n_positions",
    "activation": "activation_function",
    "norm_epsilon": "layer_norm_epsilon",
    "tie_embeddings": "tie_word_embeddings",
}
_DEPARTURES = {
    "norm": "pre",
    "biases": True,
    "output_bias": True,
    "positions": "learned",
    "scale_embeddings": False,
}
_FIXED = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
_TIED = "wte.weight=lm_head.weight  embed  v d"
_UNTIED = """
wte.weight      embed    v d
lm_head.weight  softmax  v d
"""
_TABLE = """
wpe.weight                   positions                                        l d
h.{n}.ln_1.{weight,bias}     decoder/layer_{n}/norm_1/{scale,bias}            d
h.{n}.attn.c_attn.weight     decoder/layer_{n}/self_attention/wq+wk+wv        d 3hk
h.{n}.attn.c_attn.bias       decoder/layer_{n}/self_attention/bq+bk+bv        3hk
h.{n}.attn.c_proj.weight     decoder/layer_{n}/self_attention/wo              he d
h.{n}.attn.c_proj.bias       decoder/layer_{n}/self_attention/bo              d
h.{n}.ln_2.{weight,bias}     decoder/layer_{n}/norm_2/{scale,bias}            d
h.{n}.mlp.c_fc.weight        decoder/layer_{n}/feed_forward/w1                d f
h.{n}.mlp.c_fc.bias          decoder/layer_{n}/feed_forward/b1                f
h.{n}.mlp.c_proj.weight      decoder/layer_{n}/feed_forward/w2                f d
h.{n}.mlp.c_proj.bias        decoder/layer_{n}/feed_forward/b2                d
ln_f.{weight,bias}           decoder/final_norm/{scale,bias}                  d
"""
# The causal mask, and what it subtracts: older versions saved them with the weights.
_IGNORED = (r"h\.\d+\.attn\.(bias|masked_bias)",)


def read(folder: Path, sizes: dict[str, Any], weights: Weights) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    Its one special token ends a text and begins one: it is our EOS, and our PAD, BOS and UNK also have its vector, and
    next to none of its probability. If another token begins a text, BOS has the vector of that one.

    Raises:
      UserError: a weight or a file is missing or wrong, or the model has an unsupported setting.
    """
    path = folder / "config.json"
    sizes.setdefault("tie_word_embeddings", True)
    width = sizes.get("n_embd")
    if sizes.get("n_inner") is None and isinstance(width, int):  # any other width is rejected before n_inner is read
        sizes["n_inner"] = 4 * width
    cfg = configure(path, sizes, _KEYS, _DEPARTURES)
    cfg.task = "language_model"
    obey(path, sizes, {"vocab_size": SIZE, "eos_token_id": ID})
    require(path, sizes, _FIXED)
    params = parameters(weights, cfg.model)
    end = sizes["eos_token_id"]
    rows = our_rows(path, sizes["vocab_size"], pad=end, start=end, eos=end, unk=end)
    their_embed = params["embed"]
    params = with_our_rows(folder, params, rows) | {"output_bias": bias_of_copies(rows)}
    start = sizes.get("bos_token_id")
    if ID.fits(start) and start < sizes["vocab_size"]:
        params["embed"][BOS] = their_embed[start]
    inner = read_tokenizer(folder, "GPT2Tokenizer", "vocab.json", "merges.txt")
    return Imported(folder, cfg, ByteLevel.of(inner, rows, str(folder)), params)


def parameters(weights: Weights, config: ModelConfig | ConfigDict) -> dict[str, Any]:
    """Returns GPT-2's weights under our names and in our shapes; ids are still its own.

    Raises:
      UserError: a weight is missing, of another shape or not finite, or there is one more.
    """
    weights = weights.renamed(lambda name: name.removeprefix("transformer."))
    embeddings = _TIED if config.tie_embeddings else _UNTIED
    params = table.read(weights, table.rows(embeddings + _TABLE, config.N), table.sizes_of(config))
    weights.check_all_read(_IGNORED)
    return unflatten_dict(params, sep="/")

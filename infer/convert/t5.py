"""T5, v1.0 and v1.1, of transformers as our encoder-decoder (Raffel et al. 2020)."""

from pathlib import Path
from typing import Any

from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from vaswani.data.imported import Unigram
from vaswani.errors import UserError
from vaswani.infer.convert import table
from vaswani.infer.convert.folders import Imported
from vaswani.infer.convert.settings import BOOL, ID, LAYERS, SIZE, activation_of, configure, obey, require
from vaswani.infer.convert.vocabulary import bias_of_copies, our_rows, read_tokenizer, with_our_rows
from vaswani.infer.convert.weights import Weights
from vaswani.model.config import ModelConfig

_FIXED: dict[str, Any] = {
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
}
_KEYS = {
    "N": "num_layers",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "h": "num_heads",
    "d_k": "d_kv",
    "norm_epsilon": "layer_norm_epsilon",
}
_DEPARTURES = {
    "positions": "t5",
    "norm": "pre",
    "norm_kind": "rms",
    "feed_forward_biases": False,
    "scale_attention": False,
    "scale_embeddings": False,
    "output_bias": True,  # for rows that are copies of another
}
_ACTIVATIONS = {"relu": "relu", "gated-gelu": "geglu_tanh", "gated-silu": "swiglu"}
_RULES = {
    "feed_forward_proj": activation_of(_ACTIVATIONS),
    "vocab_size": SIZE,
    "scale_decoder_outputs": BOOL,
    **dict.fromkeys(("pad_token_id", "eos_token_id", "decoder_start_token_id"), ID),
}
_TIED = """
shared.weight=encoder.embed_tokens.weight=decoder.embed_tokens.weight=lm_head.weight     embed    v d
"""
_UNTIED = """
shared.weight=encoder.embed_tokens.weight=decoder.embed_tokens.weight  source_embed  u d
lm_head.weight                                                         softmax       v d
"""
_RELU = """
encoder.block.{n}.layer.1.DenseReluDense.wi.weight      encoder/layer_{n}/feed_forward/w1         f d
decoder.block.{n}.layer.2.DenseReluDense.wi.weight      decoder/layer_{n}/feed_forward/w1         f d
"""
_GATED = """
encoder.block.{n}.layer.1.DenseReluDense.wi_{0,1}.weight  encoder/layer_{n}/feed_forward/{w1,v}   f d
decoder.block.{n}.layer.2.DenseReluDense.wi_{0,1}.weight  decoder/layer_{n}/feed_forward/{w1,v}   f d
"""
_TABLE = """
{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight   {side}/relative_bias        r h
{side}.block.{n}.layer.0.layer_norm.weight              {side}/layer_{n}/norm_1/scale             d
{side}.block.{n}.layer.0.SelfAttention.{q,k}.weight     {side}/layer_{n}/self_attention/w{q,k}    hk d
{side}.block.{n}.layer.0.SelfAttention.v.weight         {side}/layer_{n}/self_attention/wv        he d
{side}.block.{n}.layer.0.SelfAttention.o.weight         {side}/layer_{n}/self_attention/wo        d he
decoder.block.{n}.layer.1.layer_norm.weight             decoder/layer_{n}/norm_2/scale            d
decoder.block.{n}.layer.1.EncDecAttention.{q,k}.weight  decoder/layer_{n}/cross_attention/w{q,k}  hk d
decoder.block.{n}.layer.1.EncDecAttention.v.weight      decoder/layer_{n}/cross_attention/wv      he d
decoder.block.{n}.layer.1.EncDecAttention.o.weight      decoder/layer_{n}/cross_attention/wo      d he
encoder.block.{n}.layer.1.layer_norm.weight             encoder/layer_{n}/norm_2/scale            d
decoder.block.{n}.layer.2.layer_norm.weight             decoder/layer_{n}/norm_3/scale            d
encoder.block.{n}.layer.1.DenseReluDense.wo.weight      encoder/layer_{n}/feed_forward/w2         d f
decoder.block.{n}.layer.2.DenseReluDense.wo.weight      decoder/layer_{n}/feed_forward/w2         d f
{side}.final_layer_norm.weight                          {side}/final_norm/scale                   d
"""
# The first published files have biases of relative positions for attention between the stacks, which has none.
_IGNORED = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)


def read(folder: Path, sizes: dict[str, Any], weights: Weights) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    T5 starts a target with padding; our BOS has its vector.

    Raises:
      UserError: a weight or a file is missing or wrong, or the model has an unsupported setting.
    """
    path = folder / "config.json"
    sizes.setdefault("pad_token_id", 0)
    sizes.setdefault("eos_token_id", 1)
    sizes.setdefault("decoder_start_token_id", sizes["pad_token_id"])
    sizes.setdefault("feed_forward_proj", "relu")
    # In v1.0 tied embeddings imply the scale; today's transformers have a separate key for it.
    sizes.setdefault("tie_word_embeddings", True)
    sizes.setdefault("scale_decoder_outputs", sizes["tie_word_embeddings"])
    obey(path, sizes, _RULES)
    cfg = configure(path, sizes, _KEYS, _DEPARTURES)
    require(path, sizes, _FIXED)
    sizes.setdefault("num_decoder_layers", cfg.model.N)
    obey(path, sizes, {"num_decoder_layers": LAYERS})
    if sizes["num_decoder_layers"] != cfg.model.N:
        cfg.model.N_decoder = sizes["num_decoder_layers"]
    cfg.decode.length_penalty = "power"
    cfg.decode.alpha = 1.0
    cfg.model.activation = _ACTIVATIONS[sizes["feed_forward_proj"]]
    cfg.model.scale_logits = sizes["scale_decoder_outputs"]
    cfg.model.tie_embeddings = cfg.model.scale_logits or "lm_head.weight" not in weights
    inner = read_tokenizer(folder, "T5Tokenizer", "spiece.model")
    unknown = inner.token_to_id("<unk>")
    if unknown is None:
        raise UserError(f"{folder}: its vocabulary has no <unk>")
    params = parameters(weights, cfg.model)
    rows = our_rows(
        path,
        sizes["vocab_size"],
        pad=sizes["pad_token_id"],
        start=sizes["decoder_start_token_id"],
        eos=sizes["eos_token_id"],
        unk=unknown,
    )
    params = with_our_rows(folder, params, rows) | {"output_bias": bias_of_copies(rows)}
    return Imported(folder, cfg, Unigram.of(inner, rows, str(folder)), params)


def parameters(weights: Weights, config: ModelConfig | ConfigDict) -> dict[str, Any]:
    """Returns T5's weights under our names and in our shapes; ids are still its own.

    Raises:
      UserError: a weight is missing, of another shape or not finite, or there is one more.
    """
    depths = {"encoder": config.N, "decoder": config.N_decoder or config.N}
    entries = table.rows(_TIED if config.tie_embeddings else _UNTIED, 1)
    stacks = _TABLE + (_RELU if config.activation == "relu" else _GATED)
    for side, depth in depths.items():
        of_side = [line.replace("{side}", side) for line in stacks.splitlines() if line.startswith((side, "{side}"))]
        entries += table.rows("\n".join(of_side), depth)
    params = table.read(weights, entries, table.sizes_of(config))
    weights.check_all_read(_IGNORED)
    if not config.tie_embeddings:
        params["target_embed"] = params["source_embed"]
    return unflatten_dict(params, sep="/")

"""The parameters of fairseq's Transformer and of its descendants in transformers: Marian, Pegasus, BART and M2M100.

They have biases everywhere. Where their sinusoids are sines and then cosines, and ours interleaved (section 3.5), the
axis of d_model is permuted.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.infer.convert.settings import ID, LAYERS, SIZE, configure, obey
from vaswani.infer.convert.table import Row, rows
from vaswani.infer.convert.vocabulary import bias_of_copies, with_our_rows

SIDES = ("encoder", "decoder")
EPSILON = 1e-5  # of their layer norm, fixed in transformers
DEPARTURES: dict[str, Any] = {"norm_epsilon": EPSILON, "biases": True, "output_bias": True}
BIAS = "final_logits_bias  output_bias  1 v"
# Keys of transformers' config.json, by our fields of `model`.
_KEYS = {
    "N": "encoder_layers",
    "d_model": "d_model",
    "d_ff": "encoder_ffn_dim",
    "h": "encoder_attention_heads",
    "activation": "activation_function",
    "scale_embeddings": "scale_embedding",
    "tie_embeddings": "tie_word_embeddings",
}
_ALIKE = ("ffn_dim", "attention_heads")
_RULES = {
    "decoder_layers": LAYERS,
    **{f"decoder_{key}": SIZE for key in _ALIKE},
    **dict.fromkeys(("vocab_size", "max_position_embeddings"), SIZE),
    **dict.fromkeys(("pad_token_id", "eos_token_id", "decoder_start_token_id"), ID),
}
_LAYERS = """
{side}.layers.{n}.self_attn.{q,k}_proj.weight     {side}/layer_{n}/self_attention/w{q,k}    hk d
{side}.layers.{n}.self_attn.{q,k}_proj.bias       {side}/layer_{n}/self_attention/b{q,k}    hk
{side}.layers.{n}.self_attn.v_proj.weight         {side}/layer_{n}/self_attention/wv        he d
{side}.layers.{n}.self_attn.v_proj.bias           {side}/layer_{n}/self_attention/bv        he
{side}.layers.{n}.self_attn.out_proj.weight       {side}/layer_{n}/self_attention/wo        d he
{side}.layers.{n}.self_attn.out_proj.bias         {side}/layer_{n}/self_attention/bo        d
decoder.layers.{n}.encoder_attn.{q,k}_proj.weight decoder/layer_{n}/cross_attention/w{q,k}  hk d
decoder.layers.{n}.encoder_attn.{q,k}_proj.bias   decoder/layer_{n}/cross_attention/b{q,k}  hk
decoder.layers.{n}.encoder_attn.v_proj.weight     decoder/layer_{n}/cross_attention/wv      he d
decoder.layers.{n}.encoder_attn.v_proj.bias       decoder/layer_{n}/cross_attention/bv      he
decoder.layers.{n}.encoder_attn.out_proj.weight   decoder/layer_{n}/cross_attention/wo      d he
decoder.layers.{n}.encoder_attn.out_proj.bias     decoder/layer_{n}/cross_attention/bo      d
{side}.layers.{n}.fc1.weight                      {side}/layer_{n}/feed_forward/w1          f d
{side}.layers.{n}.fc1.bias                        {side}/layer_{n}/feed_forward/b1          f
{side}.layers.{n}.fc2.weight                      {side}/layer_{n}/feed_forward/w2          d f
{side}.layers.{n}.fc2.bias                        {side}/layer_{n}/feed_forward/b2          d
{side}.layers.{n}.self_attn_layer_norm.{weight,bias}      {side}/layer_{n}/norm_1/{scale,bias}   d
encoder.layers.{n}.final_layer_norm.{weight,bias}         encoder/layer_{n}/norm_2/{scale,bias}  d
decoder.layers.{n}.encoder_attn_layer_norm.{weight,bias}  decoder/layer_{n}/norm_2/{scale,bias}  d
decoder.layers.{n}.final_layer_norm.{weight,bias}         decoder/layer_{n}/norm_3/{scale,bias}  d
"""
_FINAL_NORMS = "{side}.layer_norm.{weight,bias}  {side}/final_norm/{scale,bias}  d"


def config_of(path: Path, sizes: dict[str, Any], departures: Mapping[str, Any]) -> ConfigDict:
    """Returns our config of a model of transformers, with all the biases that it may have, given its config.json.

    Raises:
      UserError: a setting is missing or unsupported.
    """
    sizes.setdefault("tie_word_embeddings", True)
    sizes.setdefault("max_position_embeddings", 1024)
    cfg = configure(path, sizes, _KEYS, DEPARTURES | dict(departures))
    cfg.decode.length_penalty = "power"
    cfg.decode.alpha = 1.0
    obey(path, sizes, _RULES)
    if sizes["decoder_layers"] != cfg.model.N:
        cfg.model.N_decoder = sizes["decoder_layers"]
    for key in _ALIKE:
        if sizes[f"encoder_{key}"] != sizes[f"decoder_{key}"]:
            raise UserError(f"{path}: encoder_{key} and decoder_{key} differ; here both sides are alike")
    return cfg


def stacks(depths: tuple[int, int], norm: str) -> list[Row]:
    """Returns the parameters of both stacks, of these depths; embeddings and positions are not among them."""
    result = []
    for side, layers in zip(SIDES, depths, strict=True):
        of_both = rows(_LAYERS + _FINAL_NORMS if norm == "pre" else _LAYERS, layers)
        result += [row for row in of_both if row.paths[0].startswith(side)]
    return result


def sines_first(d_model: int) -> np.ndarray:
    """Returns `order`: the index in our d_model axis of each entry of theirs."""
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def without_zero_biases(params: dict[str, Any]) -> dict[str, Any]:
    """Returns named parameters without the biases of attention if all are zero, nor an output bias of zeros."""
    attention = {name for name in params if name.rpartition("/")[2] in ("bq", "bk", "bv", "bo")}
    left_out: set[str] = set()
    if not any(params[name].any() for name in attention):
        left_out |= attention
    if "output_bias" in params and not params["output_bias"].any():
        left_out.add("output_bias")
    return {name: array for name, array in params.items() if name not in left_out}


def finished(
    folder: Path,
    config: ConfigDict,
    params: dict[str, Any],
    rows: Sequence[int],
    source_rows: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Returns our parameters of named ones with their ids; turns off in `config` the biases that are all zero."""
    params = with_our_rows(folder, params, rows, source_rows)
    params["output_bias"] = params.get("output_bias", 0) + bias_of_copies(rows)
    params = without_zero_biases(params)
    config.biases = any(name.endswith("/bq") for name in params)
    config.output_bias = "output_bias" in params
    return unflatten_dict(params, sep="/")

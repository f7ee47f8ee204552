"""The parameters of fairseq's Transformer and of its descendants in transformers: Marian, Pegasus and BART.

They have biases everywhere. Where their sinusoids are sines and then cosines, and ours interleaved (section 3.5), the
axis of d_model is permuted.
"""

from typing import Any

import numpy as np

from vaswani.infer.convert.table import Row, rows

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


def stacks(depths: tuple[int, int], norm: str) -> list[Row]:
    """Returns the parameters of both stacks, of these depths; embeddings and positions are not among them."""
    result = []
    for side, layers in zip(("encoder", "decoder"), depths, strict=True):
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

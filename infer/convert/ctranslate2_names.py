"""The names of CTranslate2's Transformer, which an export writes and an import reads, and its tables of positions."""

import jax.numpy as jnp
import numpy as np

from vaswani.infer.translate.translator import MAX_INPUT
from vaswani.model.positions import alibi_slopes, sinusoids

POSITION_ROWS = 2 * MAX_INPUT  # of the tables of sinusoids and of ALiBi's biases
# The activations by their numbers in a file, None for those that we lack.
ACTIVATIONS = ("relu", "gelu_tanh", "silu", "gelu", None, None, None)
TABLE = """
encoder/embeddings_0/weight                               source_embed                              u d
decoder/embeddings/weight                                 target_embed                              v d
decoder/projection/weight                                 softmax                                   v d
decoder/projection/bias                                   output_bias                               v
{encoder,decoder}/position_encodings/encodings            {source,target}_positions                 l d
{encoder,decoder}/layernorm_embedding/{gamma,beta}        {source,target}_norm/{scale,bias}         d
{side}/layer_{n}/self_attention/linear_0/weight           {side}/layer_{n}/self_attention/wq+wk+wv  3hk d
{side}/layer_{n}/self_attention/linear_0/bias             {side}/layer_{n}/self_attention/bq+bk+bv  3hk
{side}/layer_{n}/self_attention/linear_1/weight           {side}/layer_{n}/self_attention/wo        d he
{side}/layer_{n}/self_attention/linear_1/bias             {side}/layer_{n}/self_attention/bo        d
decoder/layer_{n}/attention/linear_0/weight               decoder/layer_{n}/cross_attention/wq      hk d
decoder/layer_{n}/attention/linear_0/bias                 decoder/layer_{n}/cross_attention/bq      hk
decoder/layer_{n}/attention/linear_1/weight               decoder/layer_{n}/cross_attention/wk+wv   2hk d
decoder/layer_{n}/attention/linear_1/bias                 decoder/layer_{n}/cross_attention/bk+bv   2hk
decoder/layer_{n}/attention/linear_2/weight               decoder/layer_{n}/cross_attention/wo      d he
decoder/layer_{n}/attention/linear_2/bias                 decoder/layer_{n}/cross_attention/bo      d
{side}/layer_{n}/ffn/linear_0/weight                      {side}/layer_{n}/feed_forward/w1          f d
{side}/layer_{n}/ffn/linear_0/bias                        {side}/layer_{n}/feed_forward/b1          f
{side}/layer_{n}/ffn/linear_0_noact/weight                {side}/layer_{n}/feed_forward/v           f d
{side}/layer_{n}/ffn/linear_1/weight                      {side}/layer_{n}/feed_forward/w2          d f
{side}/layer_{n}/ffn/linear_1/bias                        {side}/layer_{n}/feed_forward/b2          d
{side}/layer_{n}/self_attention/layer_norm/{gamma,beta}   {side}/layer_{n}/norm_1/{scale,bias}      d
encoder/layer_{n}/ffn/layer_norm/{gamma,beta}             encoder/layer_{n}/norm_2/{scale,bias}     d
decoder/layer_{n}/attention/layer_norm/{gamma,beta}       decoder/layer_{n}/norm_2/{scale,bias}     d
decoder/layer_{n}/ffn/layer_norm/{gamma,beta}             decoder/layer_{n}/norm_3/{scale,bias}     d
{side}/layer_norm/{gamma,beta}                            {side}/final_norm/{scale,bias}            d
"""


def our_sinusoids(rows: int, d_model: int) -> np.ndarray:
    """Returns the paper's sinusoids as a table, which CTranslate2 takes instead of its own."""
    return np.array(sinusoids(jnp.arange(rows)[None], d_model)[0])


def alibi_table(h: int, rows: int, *, causal: bool) -> np.ndarray:
    """Returns ALiBi as T5's biases, whose first buckets are single distances.

    There are 2 `rows` buckets for keys before the query, of which the upper half, never reached, are wider ones, and in
    the encoder as many for keys after it.
    """
    near = -np.arange(rows)[:, None] * alibi_slopes(h)[None]
    one_way = np.concatenate([near, np.repeat(near[-1:], rows, 0)]).astype(np.float32)
    return one_way if causal else np.concatenate([one_way, one_way])

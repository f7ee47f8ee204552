"""The encoder and the decoder as ONNX graphs, written node by node as the model computes them."""

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from vaswani.ids import PAD
from vaswani.model.config import ModelConfig
from vaswani.model.masks import MASKED
from vaswani.model.positions import alibi_slopes, encoding_of, frequencies, t5_buckets

OPSET = 20  # the first with Gelu
IR_VERSION = 9  # the format's version of that time
FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64


def encoder(config: ModelConfig, params: dict[str, Any]) -> onnx.ModelProto:
    """Returns the graph from source ids to the encoder's output."""
    graph = Graph(config)
    source = graph.rows("source")
    table_vd = graph.store(params["embed" if config.tie_embeddings else "source_embed"])
    x_bsd = graph.embed(table_vd, params.get("source_positions"), source)
    memory_bsd = graph.stack(params["encoder"], x_bsd, source, None)
    return graph.model({"source": ("b", "s")}, memory_bsd, {"memory": ("b", "s", config.d_model)})


def decoder(config: ModelConfig, params: dict[str, Any]) -> onnx.ModelProto:
    """Returns the graph from the encoder's output, the ids of its source (for padding) and target ids to logits."""
    graph = Graph(config)
    tied = config.tie_embeddings
    target = graph.rows("target")
    table_vd = graph.store(params["embed" if tied else "target_embed"])
    x_btd = graph.embed(table_vd, params.get("target_positions"), target)
    x_btd = graph.stack(params["decoder"], x_btd, target, graph.rows("source"))
    if config.scale_logits:
        x_btd = graph.add("Mul", x_btd, np.float32(config.d_model**-0.5))
    softmax_dv = graph.add("Transpose", table_vd if tied else params["softmax"], perm=[1, 0])
    logits_btv = graph.linear(x_btd, softmax_dv, params.get("output_bias"))
    inputs = {"memory": ("b", "s", config.d_model), "source": ("b", "s"), "target": ("b", "t")}
    return graph.model(inputs, logits_btv, {"logits": ("b", "t", config.vocab_size)})


class Rows(NamedTuple):
    """Names of a graph's values: ids, whether each is no padding, and positions along a row."""

    ids_bt: str
    real_bt: str
    position_t: str


class Graph:
    """An ONNX graph that grows node by node.

    Its methods take and return names of values, or arrays, which become part of the graph.
    """

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: Any, **attributes: Any) -> str:
        """Adds a node and returns the name of its output."""
        names = [value if isinstance(value, str) else self.store(value) for value in inputs]
        output = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [output], **attributes))
        return output

    def store(self, array: Any) -> str:
        """Adds an array, of integers as int64, and returns its name."""
        name = f"array_{len(self.arrays)}"
        self.arrays.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def model(self, inputs: dict[str, tuple], value: str, output: dict[str, tuple]) -> onnx.ModelProto:
        """Returns the model whose output is `value`, under another name; ids have two axes, other values three."""
        self.nodes.append(helper.make_node("Identity", [value], list(output)))
        graph = helper.make_graph(self.nodes, "transformer", _infos(inputs), _infos(output), self.arrays)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)

    def rows(self, ids_bt: str) -> Rows:
        t = self.add("Squeeze", self.add("Shape", ids_bt, start=1, end=2))
        is_padding_bt = self.add("Equal", ids_bt, PAD)
        real_bt = self.add("Not", is_padding_bt)
        position_t = self.add("Range", 0, t, 1)
        return Rows(ids_bt, real_bt, position_t)

    def embed(self, table_vd: str, positions_ld: Any, rows: Rows) -> str:
        c = self.config
        x_btd = self.add("Gather", table_vd, rows.ids_bt)
        if c.scale_embeddings:
            x_btd = self.add("Mul", x_btd, np.float32(math.sqrt(c.d_model)))
        if c.positions == "learned":
            return self.add("Add", x_btd, self.add("Gather", positions_ld, rows.position_t))
        if c.positions == "sinusoidal":
            sin_td, cos_td = self.sin_cos(rows, c.d_model, [1])
            is_even_d = np.arange(c.d_model) % 2 == 0
            positions_td = self.add("Where", is_even_d, sin_td, cos_td)
            return self.add("Add", x_btd, positions_td)
        return x_btd

    def sin_cos(self, rows: Rows, width: int, axes: list[int]) -> tuple[str, str]:
        """Returns sines and cosines of each position's angles, each angle twice in a row."""
        position_t = self.add("Cast", rows.position_t, to=FLOAT)
        column = self.add("Unsqueeze", position_t, axes)
        angles = self.add("Mul", column, np.repeat(frequencies(width), 2))
        return self.add("Sin", angles), self.add("Cos", angles)

    def stack(self, params: dict[str, Any], x_btd: str, rows: Rows, source: Rows | None) -> str:
        """Returns the output of an encoder or, with the memory's `source`, of a decoder."""
        c = self.config
        causal = source is not None
        sin_cos_t1k = self.sin_cos(rows, c.d_k, [1, 2]) if c.positions == "rope" else None
        mask_b1tt = self.mask(rows, rows, causal=causal)
        bias_htt = self.bias(params, rows, causal=causal)
        attend = partial(self.attention, mask_b1ts=mask_b1tt, bias_hts=bias_htt, sin_cos_t1k=sin_cos_t1k)
        cross = None
        if source is not None:
            memory_mask_b1ts = self.mask(rows, source, causal=False)
            cross = partial(self.attention, mask_b1ts=memory_mask_b1ts)
        for n in range(c.depths[causal]):
            layer = params[f"layer_{n}"]
            normed_btd = self.pre_norm(layer["norm_1"], x_btd)
            y_btd = attend(layer["self_attention"], normed_btd, normed_btd)
            x_btd = self.add_and_norm(layer["norm_1"], x_btd, y_btd)
            if cross:
                normed_btd = self.pre_norm(layer["norm_2"], x_btd)
                y_btd = cross(layer["cross_attention"], normed_btd, "memory")
                x_btd = self.add_and_norm(layer["norm_2"], x_btd, y_btd)
            norm = layer["norm_3"] if cross else layer["norm_2"]
            normed_btd = self.pre_norm(norm, x_btd)
            y_btd = self.feed_forward(layer["feed_forward"], normed_btd)
            x_btd = self.add_and_norm(norm, x_btd, y_btd)
        return self.norm(params["final_norm"], x_btd) if c.norm == "pre" else x_btd

    def mask(self, queries: Rows, keys: Rows, *, causal: bool) -> str:
        """Returns the mask [b,1,t,s], True where a query attends to a key: real to real, padding to padding."""
        real_bt1 = self.add("Unsqueeze", queries.real_bt, [2])
        real_b1s = self.add("Unsqueeze", keys.real_bt, [1])
        mask_bts = self.add("Equal", real_bt1, real_b1s)
        if causal:
            position_t1 = self.add("Unsqueeze", queries.position_t, [1])
            order_ts = self.add("GreaterOrEqual", position_t1, keys.position_t)
            mask_bts = self.add("And", mask_bts, order_ts)
        return self.add("Unsqueeze", mask_bts, [1])

    def bias(self, params: dict[str, Any], rows: Rows, *, causal: bool) -> str | None:
        """Returns the bias that ALiBi or T5's positions add to the logits of self-attention."""
        c = self.config
        if c.positions not in ("alibi", "t5"):
            return None
        after_tt = self.add("Sub", rows.position_t, self.add("Unsqueeze", rows.position_t, [1]))
        if c.positions == "alibi":
            distance_tt = self.add("Cast", self.add("Abs", after_tt), to=FLOAT)
            return self.add("Mul", distance_tt, -alibi_slopes(c.h).astype(np.float32)[:, None, None])
        buckets = t5_buckets(encoding_of(c).biases, causal)
        reach = len(buckets) // 2
        bucket_tt = self.add("Gather", buckets, self.add("Add", self.add("Clip", after_tt, -reach, reach), reach))
        return self.add("Gather", params["relative_bias"].T, bucket_tt, axis=1)

    def pre_norm(self, norm: dict[str, Any], x_btd: str) -> str:
        return self.norm(norm, x_btd) if self.config.norm == "pre" else x_btd

    def add_and_norm(self, norm: dict[str, Any], x_btd: str, y_btd: str) -> str:
        x_btd = self.add("Add", x_btd, y_btd)
        return self.norm(norm, x_btd) if self.config.norm == "post" else x_btd

    def attention(
        self,
        params: dict[str, Any],
        x_btd: str,
        x_bsd: str,
        mask_b1ts: str,
        bias_hts: str | None = None,
        sin_cos_t1k: tuple[str, str] | None = None,
    ) -> str:
        """Returns multi-head attention from queries of one input to keys and values of another (section 3.2.2)."""
        c = self.config

        def heads(x: str, letter: str, width: int) -> str:
            bias = params[f"b{letter}"].reshape(-1) if c.biases else None
            y = self.linear(x, params[f"w{letter}"].reshape(c.d_model, -1), bias)
            return self.add("Reshape", y, [0, 0, c.h, width])

        q_bthk = heads(x_btd, "q", c.d_k)
        k_bshk = heads(x_bsd, "k", c.d_k)
        if sin_cos_t1k:
            q_bthk = self.rotate(q_bthk, *sin_cos_t1k)
            k_bshk = self.rotate(k_bshk, *sin_cos_t1k)
        v_bhse = self.add("Transpose", heads(x_bsd, "v", c.d_v), perm=[0, 2, 1, 3])
        q_bhtk = self.add("Transpose", q_bthk, perm=[0, 2, 1, 3])
        k_bhks = self.add("Transpose", k_bshk, perm=[0, 2, 3, 1])
        logits_bhts = self.add("MatMul", q_bhtk, k_bhks)
        if c.scale_attention:
            logits_bhts = self.add("Div", logits_bhts, np.float32(math.sqrt(c.d_k)))
        if bias_hts:
            logits_bhts = self.add("Add", logits_bhts, bias_hts)
        weights_bhts = self.add("Softmax", self.add("Where", mask_b1ts, logits_bhts, np.float32(MASKED)), axis=-1)
        heads_bthe = self.add("Transpose", self.add("MatMul", weights_bhts, v_bhse), perm=[0, 2, 1, 3])
        joined_bte = self.add("Reshape", heads_bthe, [0, 0, c.h * c.d_v])
        return self.linear(joined_bte, params["wo"].reshape(-1, c.d_model), params.get("bo"))

    def rotate(self, x_bthk: str, sin_t1k: str, cos_t1k: str) -> str:
        """Returns each pair (x_2i, x_2i+1) rotated by its angle."""
        pairs = np.arange(self.config.d_k)
        swapped_bthk = self.add("Gather", x_bthk, pairs ^ 1, axis=3)
        swapped_bthk = self.add("Mul", swapped_bthk, np.where(pairs % 2, 1, -1).astype(np.float32))
        return self.add("Add", self.add("Mul", x_bthk, cos_t1k), self.add("Mul", swapped_bthk, sin_t1k))

    def feed_forward(self, params: dict[str, Any], x_btd: str) -> str:
        x_btf = self.linear(x_btd, params["w1"], params.get("b1"))
        match self.config.activation:
            case "relu":
                x_btf = self.add("Relu", x_btf)
            case "silu":
                x_btf = self.add("Mul", x_btf, self.add("Sigmoid", x_btf))
            case "gelu":
                x_btf = self.add("Gelu", x_btf)
            case "gelu_tanh":
                x_btf = self.add("Gelu", x_btf, approximate="tanh")
            case other:
                raise ValueError(f"model.activation is {other!r}, which has no node here")
        return self.linear(x_btf, params["w2"], params.get("b2"))

    def norm(self, params: dict[str, Any], x_btd: str) -> str:
        if self.config.norm_kind == "layer":
            return self.add(
                "LayerNormalization", x_btd, params["scale"], params["bias"], epsilon=self.config.norm_epsilon
            )
        if self.config.norm_kind != "rms":
            raise ValueError(f"model.norm_kind is {self.config.norm_kind!r}, which has no nodes here")
        mean_bt1 = self.add("ReduceMean", self.add("Mul", x_btd, x_btd), [-1])
        root_bt1 = self.add("Sqrt", self.add("Add", mean_bt1, np.float32(self.config.norm_epsilon)))
        return self.add("Mul", self.add("Div", x_btd, root_bt1), params["scale"])

    def linear(self, x_btd: str, weight_df: Any, bias_f: Any) -> str:
        y_btf = self.add("MatMul", x_btd, weight_df)
        return y_btf if bias_f is None else self.add("Add", y_btf, bias_f)


def _infos(values: dict[str, tuple]) -> list[onnx.ValueInfoProto]:
    """Returns types and axes of values by name: those with two axes are ids."""
    infos = []
    for name, axes in values.items():
        kind = INT64 if len(axes) == 2 else FLOAT
        infos.append(helper.make_tensor_value_info(name, kind, axes))
    return infos

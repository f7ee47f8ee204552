"""Makes our parameters and the sizes of our model of the variables of CTranslate2's encoder-decoder."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.infer.convert import table
from vaswani.infer.convert.ctranslate2_file import SCALE, weights_of
from vaswani.infer.convert.ctranslate2_names import ACTIVATIONS, TABLE, alibi_table, our_sinusoids
from vaswani.infer.convert.fairseq import sinusoids
from vaswani.infer.convert.settings import head_width
from vaswani.infer.convert.weights import Weights

_SIDES = ("encoder", "decoder")
_GATED = {"gelu": "geglu", "gelu_tanh": "geglu_tanh", "silu": "swiglu"}
# Weights that only some models have; all others must be there.
_OPTIONAL = re.compile(
    ".*(bias|beta)|.*/linear_0_noact/weight|.*/encodings|(encoder|decoder)/(layer_norm|layernorm_embedding)/gamma"
)
_ALIBI = r"(encoder|decoder)/layer_\d+/self_attention/relative_attention_bias"
# Settings of the attention that CTranslate2 returns, of several embeddings of a token, and of a decoder's ALiBi.
_IGNORED = ("alignment_layer", "alignment_heads", "embeddings_merge", "alibi_use_positive_positions", "scale_alibi")
_FIRST_POSITION = 1  # of its sinusoids
_EXACT = 1e-5  # by which a table of positions in float32 may differ from the one that our model computes
_ROUNDED = 1e-2  # and one of 16 bits


class Settings:
    """The scalars of a file by name. One that nobody asks for, and that is not zero, is an error, as a weight is."""

    def __init__(self, path: Path, variables: Mapping[str, np.ndarray]) -> None:
        self._path = path
        self._values: dict[str, Any] = {}
        for name, array in variables.items():
            is_of_weight = name.endswith(SCALE) and name.removesuffix(SCALE) in variables
            if array.ndim == 0 and not is_of_weight:
                self._values[name] = array.item()
        self._asked = set(_IGNORED)

    def alike(self, name: str, absent: Any) -> Any:
        """Returns the setting of this name, which all stacks or layers that have it share.

        Raises:
          UserError: they do not.
        """
        self._asked.add(name)
        values = {value for full_name, value in self._values.items() if _last(full_name) == name}
        if len(values) > 1:
            raise UserError(f"{self._path}: {name} is {' and '.join(map(str, sorted(values)))}; it must be one value")
        return values.pop() if values else absent

    def check_all_read(self) -> None:
        """Raises a `UserError` unless all settings but those that are off have been asked for."""
        for name, value in self._values.items():
            if value and _last(name) not in self._asked:
                raise UserError(f"{self._path}: {name} is {value:g}, which our model cannot do")


class Opened(NamedTuple):
    """A model's file: all its variables by name, as they are stored, of which scalars are settings, others weights."""

    path: Path
    variables: Mapping[str, np.ndarray]
    settings: Settings
    weights: Weights

    @classmethod
    def of(cls, path: Path, variables: Mapping[str, np.ndarray]) -> "Opened":
        """Returns the contents of the file at `path`; raises `UserError` if rounded weights have no scales."""
        return cls(path, variables, Settings(path, variables), Weights(path, weights_of(path, variables)))


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def read_params(opened: Opened, model: ConfigDict, heads: int, epsilon: float | None) -> dict[str, np.ndarray]:
    """Returns our parameters by path, with their ids, and sets the sizes and switches of `model`.

    There are three embeddings, `source_embed`, `target_embed` and `softmax`, whether or not they are the same.

    Args:
      opened: the file.
      model: the group `model` of a config that has its defaults.
      heads: how many there are, if the settings do not say so.
      epsilon: layer norm's; None for the default, which depends on its kind.

    Raises:
      UserError: a weight or a setting is missing or wrong, or is of a kind that our model lacks.
    """
    weights = opened.weights
    if "encoder/embeddings_1/weight" in weights:
        raise UserError(f"{opened.path}: a source has features besides its words (encoder/embeddings_1); not supported")
    depths = [_depth(opened, side) for side in _SIDES]
    model.N, model.N_decoder = depths
    if model.N_decoder == model.N:
        model.N_decoder = 0
    _set_sizes(opened, model, heads)
    _set_scales(opened, model)
    _set_norms(opened, model, epsilon)
    model.activation = _activation(opened)
    params = table.read(weights, _rows(weights, depths), table.sizes_of(model))
    weights.check_all_read((_ALIBI, "(unk|bos|eos)_token"))

    model.biases = any(_last(name) in ("bq", "bo") for name in params)
    model.feed_forward_biases = any(_last(name) in ("b1", "b2") for name in params)
    _fill_biases(params, model)
    _narrow_heads(params, opened.settings, model)
    _set_positions(opened, params, model)
    return params


def _depth(opened: Opened, side: str) -> int:
    """Returns how many layers a stack has."""
    layers = {name.split("/")[1] for name in opened.variables if name.startswith(f"{side}/layer_")}
    layers.discard("layer_norm")
    if not layers:
        raise UserError(f"{opened.path}: it has no weights of the {side}'s layers")
    return len(layers)


def _rows(weights: Weights, depths: list[int]) -> list[table.Row]:
    """Returns the rows of the table that stacks of these depths have."""
    result = []
    for side, depth in zip(_SIDES, depths, strict=True):
        for row in table.rows(TABLE, depth):
            name = row.names[0]
            if name.startswith(side) and (name in weights or not _OPTIONAL.fullmatch(name)):
                result.append(row)
    return result


def _set_sizes(opened: Opened, model: ConfigDict, heads: int) -> None:
    path, _, settings, weights = opened
    model.d_model = weights.take("encoder/embeddings_0/weight", -1, -1).shape[1]
    model.d_ff = weights.take("encoder/layer_0/ffn/linear_0/weight", -1, model.d_model).shape[0]
    model.h = int(settings.alike("num_heads", heads))
    model.d_k = int(settings.alike("head_dim", 0)) or head_width(path, model.d_model, model.h)
    model.d_v = model.d_k
    shared = settings.alike("multi_query", 0) or settings.alike("multi_query_attention", 0)
    if shared or settings.alike("num_heads_kv", model.h) != model.h:
        raise UserError(f"{path}: its heads share keys (multi_query, num_heads_kv); in our models each has its own")


def _set_scales(opened: Opened, model: ConfigDict) -> None:
    path, _, settings, _ = opened
    root = model.d_model**0.5
    scale = settings.alike("scale_embeddings", settings.alike("multiply_by_sqrt_depth", 1))
    if isinstance(scale, int):  # a flag
        scale = root if scale else 1.0
    output_scale = settings.alike("scale_outputs", 1.0)
    for name, value, allowed in (
        ("scale_embeddings", scale, (1.0, root)),
        ("scale_outputs", output_scale, (1.0, 1 / root)),
    ):
        if not np.isclose(value, allowed).any():
            raise UserError(f"{path}: {name} is {value:g}; it must be 1 or, for this width, {allowed[1]:g}")
    model.scale_embeddings = not np.isclose(scale, 1.0)
    model.scale_logits = not np.isclose(output_scale, 1.0)


def _set_norms(opened: Opened, model: ConfigDict, epsilon: float | None) -> None:
    has_biases = "encoder/layer_0/ffn/layer_norm/beta" in opened.weights
    model.norm = "pre" if opened.settings.alike("pre_norm", 1) else "post"
    model.norm_kind = "layer" if has_biases else "rms"
    model.norm_epsilon = epsilon or (1e-5 if has_biases else 1e-6)
    model.norm_embeddings = "encoder/layernorm_embedding/gamma" in opened.weights


def _activation(opened: Opened) -> str:
    number = int(opened.settings.alike("activation", 0))
    name = ACTIVATIONS[number] if 0 <= number < len(ACTIVATIONS) else None
    if name and "encoder/layer_0/ffn/linear_0_noact/weight" in opened.weights:
        name = _GATED.get(name)
    if name is None:
        raise UserError(f"{opened.path}: activation number {number}, with or without a gate, is none of ours")
    return name


def _fill_biases(params: dict[str, np.ndarray], model: ConfigDict) -> None:
    """Adds biases of zeros, where only some of the projections have one."""
    for path, array in list(params.items()):
        folder, _, last = path.rpartition("/")
        if (last in ("wq", "wk", "wv", "wo") and model.biases) or (last in ("w1", "w2") and model.feed_forward_biases):
            shape = array.shape[1:] if last in ("wq", "wk", "wv") else array.shape[-1:]
            params.setdefault(f"{folder}/b{last[1]}", np.zeros(shape, np.float32))


def _narrow_heads(params: dict[str, np.ndarray], settings: Settings, model: ConfigDict) -> None:
    """Cuts off the zeros that fill up the narrower of d_k and d_v, and makes the factor of the products ours."""
    factor = settings.alike("queries_scale", model.d_k**-0.5)
    d_k = round(factor**-2) if factor > 0 else model.d_k
    of_keys = [path for path in params if _last(path) in ("wq", "wk", "bq", "bk")]
    if d_k < model.d_k and not any(params[path][..., d_k:].any() for path in of_keys):
        model.d_k = d_k
        params |= {path: params[path][..., :d_k] for path in of_keys}
    if np.isclose(factor, 1.0):
        model.scale_attention = False
    elif not np.isclose(factor, model.d_k**-0.5):
        relative = np.float32(factor * model.d_k**0.5)
        params |= {path: relative * params[path] for path in of_keys if _last(path) in ("wq", "bq")}

    # Values' weights are [d,h,e] and [h,e], outputs' [h,e,d].
    of_values = [path for path in params if _last(path) in ("wv", "bv")]
    outputs = [path for path in params if _last(path) == "wo"]
    is_used_e = np.zeros(model.d_v, bool)
    for path in of_values:
        is_used_e |= params[path].reshape(-1, model.d_v).any(axis=0)
    for path in outputs:
        is_used_e |= params[path].any(axis=(0, 2))
    model.d_v = max(is_used_e.nonzero()[0].tolist(), default=0) + 1
    params |= {path: params[path][..., : model.d_v] for path in of_values}
    params |= {path: params[path][:, : model.d_v] for path in outputs}


def _set_positions(opened: Opened, params: dict[str, np.ndarray], model: ConfigDict) -> None:
    """Sets the kind of positions, and leaves tables of them in `params` if they are learned."""
    path, variables, settings, _ = opened
    if settings.alike("alibi", 0):
        raise UserError(f"{path}: only its decoder has ALiBi; here both sides have the same positions")
    rotary_dim = settings.alike("rotary_dim", None)
    base = settings.alike("rotary_base", 1e4)
    are_neighbours = settings.alike("rotary_interleave", 1)
    settings.alike("relative_attention_max_distance", 0)
    if rotary_dim is not None:
        model.positions = "rope"
        if (rotary_dim or model.d_k) != model.d_k or base != 1e4:
            raise UserError(f"{path}: rotary_dim is {rotary_dim} and rotary_base {base:g}, not {model.d_k} and 10000")
        if not are_neighbours:
            _interleave(params)
    elif any(re.fullmatch(_ALIBI, name) for name in variables):
        model.positions = "alibi"
        _check_alibi(opened, model.h)
    else:
        _set_tables(opened, params, model)


def _interleave(params: dict[str, np.ndarray]) -> None:
    """Puts the entries of queries and keys that rotate together side by side; there they are half a head apart."""
    for path, array in params.items():
        if "self_attention" in path and _last(path) in ("wq", "wk", "bq", "bk"):
            halves = np.split(array, 2, axis=-1)
            params[path] = np.stack(halves, axis=-1).reshape(array.shape)


def _check_alibi(opened: Opened, h: int) -> None:
    """Raises a `UserError` unless all biases of attention are ALiBi's, as we export it."""
    for name, table_rh in opened.variables.items():
        if not re.fullmatch(_ALIBI, name):
            continue
        causal = name.startswith("decoder")
        expected_rh = alibi_table(h, len(table_rh) // (2 if causal else 4), causal=causal)
        is_alike = table_rh.shape == expected_rh.shape and _are_close(table_rh, expected_rh, relative=True)
        if not is_alike:
            raise UserError(f"{opened.path}: {name} is not ALiBi's; no other biases of attention are read")


def _are_close(stored: np.ndarray, expected: np.ndarray, *, relative: bool = False) -> bool:
    """Returns whether a table is the expected one, up to the rounding of its type."""
    tolerance = _EXACT if stored.dtype == np.float32 else _ROUNDED
    error = np.abs(stored.astype(np.float32) - expected)
    return bool((error <= tolerance * (np.abs(expected) if relative else 1.0)).all())


def _set_tables(opened: Opened, params: dict[str, np.ndarray], model: ConfigDict) -> None:
    """Sets the kind of positions that are added to embeddings; without tables they are CTranslate2's sinusoids."""
    stored = [opened.variables.get(f"{side}/position_encodings/encodings") for side in _SIDES]
    if all(table_ld is not None and not table_ld.any() for table_ld in stored):
        model.positions = "none"
    elif all(table_ld is not None and _are_ours(table_ld) for table_ld in stored):
        model.positions = "sinusoidal"
    else:
        model.positions = "learned"
        if model.d_model < 4:
            raise UserError(f"{opened.path}: {model.d_model} wide; CTranslate2's sinusoids need a model of at least 4")
        theirs_ld = sinusoids(model.max_positions, model.d_model, _FIRST_POSITION)
        for name in ("source_positions", "target_positions"):
            params.setdefault(name, theirs_ld)
        model.max_positions = min(len(params["source_positions"]), len(params["target_positions"]))
    for name in ("source_positions", "target_positions"):
        if model.positions == "learned":
            params[name] = params[name][: model.max_positions]
        else:
            params.pop(name, None)


def _are_ours(table_ld: np.ndarray) -> bool:
    """Returns whether a table of positions has the paper's sinusoids, which are of an even width."""
    rows, width = table_ld.shape
    return width % 2 == 0 and _are_close(table_ld, our_sinusoids(rows, width))

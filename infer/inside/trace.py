"""Every named activation of an encoder-decoder for one pair of sentences; and what it computes with some replaced.

Names follow the parameters: `decoder/layer_0/cross_attention/q`. docs/inside.md lists them.

The model runs operation by operation, uncompiled, and each method whose result has a name is intercepted: in a compiled
program, another set of outputs could change the rounding. So a trace has the bits of `Transformer.apply` outside of
`jax.jit`, whether or not anything is recorded.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from numbers import Integral
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float

from vaswani.errors import UserError, format_value
from vaswani.ids import BOS, EOS, PAD
from vaswani.infer.attention.maps import padded_row
from vaswani.infer.runs import Run, finite, user_error_if_too_long
from vaswani.model.block import FeedForward
from vaswani.model.config import ModelConfig
from vaswani.model.mixers.attention import Heads
from vaswani.model.stack import Stack
from vaswani.model.transformer import Transformer
from vaswani.tokens import Tokens

# Activations of a decoder that belong to the source.
_OF_SOURCE = ("cross_attention/k", "cross_attention/v", "cross_attention/k_norm")
# The new values of activations: by name, then by position.
Patch = Mapping[str, Mapping[int, Any]]


@dataclasses.dataclass(frozen=True)
class Trace:
    """The activations of one pair of sentences, and its tokens, which are pieces of the vocabulary (`▁dog`).

    `source` are the encoder's tokens, `inputs` the decoder's, and `predicted` those that it predicts from them. An
    activation's first axis is the position: in `source` for the encoder, and in `inputs` for the decoder, but for the
    keys and values of its cross-attention, which belong to `source`.
    """

    source: list[str]
    inputs: list[str]
    predicted: list[str]
    activations: dict[str, Float[np.ndarray, "..."]]


def trace(run: Run, source: str, target: str, patch: Patch | None = None) -> Trace:
    """Returns the activations of a translator that reads `source` and predicts `target` (teacher forcing).

    Raises:
      UserError: the parameters are not finite, a sentence is longer than the model's learned positions, or `patch` has
        an unknown name, a position that is not in the sentence, or a value of another shape.
    """
    _check_form(patch)
    tokenizer = run.tokenizer
    source_ids = tokenizer.source_ids(source)
    predicted_ids = [*tokenizer.target.encode(target), EOS]
    input_ids = [BOS, *predicted_ids[:-1]]
    source_tokens = Tokens.of(jnp.asarray(padded_row(run.model_config, source_ids)))
    input_tokens = Tokens.of(jnp.asarray(padded_row(run.model_config, input_ids)))
    with user_error_if_too_long():
        activations = record(run.model_config, finite(run), source_tokens, input_tokens, patch or {})
    pieces = tokenizer.target.pieces
    return Trace(tokenizer.pieces(source_ids), pieces(input_ids), pieces(predicted_ids), activations)


def _check_form(patch: Any) -> None:
    """Raises a `UserError` unless this is a `Patch`, or None."""
    values = patch.values() if isinstance(patch, Mapping) else [patch]
    has_form = all(isinstance(new, Mapping) and all(isinstance(key, Integral) for key in new) for new in values)
    if patch is not None and not has_form:
        raise UserError(f"patch is {format_value(patch)}; it must be {{name: {{position: value}}}}")


def record(
    config: ModelConfig, params: Any, source: Tokens, target: Tokens, patch: Patch
) -> dict[str, Float[np.ndarray, "..."]]:
    """Returns the activations of one row, by name, in float32 and without padding.

    Raises:
      UserError: `patch` does not fit them.
    """
    # These only make training faster, and hide activations inside a scan, a rematerialised layer or a kernel.
    config = dataclasses.replace(config, scan_layers=False, remat="none", attention_impl="einsum")
    source_length = int(jnp.sum(source.ids_bt != PAD))
    target_length = int(jnp.sum(target.ids_bt != PAD))
    recorder = _Recorder(config.share_layers, source_length, target_length, patch)
    with nn.intercept_methods(recorder.intercept):
        Transformer(config).apply({"params": params}, source, target)
    for name in patch:
        if name not in recorder.found:
            near = difflib.get_close_matches(name, recorder.found, n=3)
            names = ", ".join(near) or ", ".join(recorder.found)
            raise UserError(f"patch: this model has no activation {name!r}; perhaps one of {names}")
    return recorder.found


class _Recorder:
    """Records activations by name, from results of methods and inputs of two of them; replaces those to be patched."""

    def __init__(self, share_layers: bool, source_length: int, target_length: int, patch: Patch) -> None:
        self.found: dict[str, np.ndarray] = {}
        self._source_length = source_length
        self._target_length = target_length
        self._patch = patch
        self._share_layers = share_layers
        self._calls: dict[tuple[str, str], int] = {}

    def intercept(
        self, method: Callable[..., Any], args: tuple, kwargs: dict[str, Any], context: nn.module.InterceptorContext
    ) -> Any:
        """Calls a method of a module, as `flax.linen.intercept_methods` has it."""
        module = context.module
        name = context.method_name
        path = self._path(module, name)
        if isinstance(module, Stack) and name == "__call__":
            args = (self._recorded(f"{path}/embedding", args[0]), *args[1:])
        if isinstance(module, Heads) and name == "output":
            args = (self._recorded(f"{path}/heads", args[0]), *args[1:])
        result = method(*args, **kwargs)
        if isinstance(module, Heads):
            return self._of_heads(path, name, result)
        if isinstance(module, FeedForward) and name == "hidden_layer":
            return self._recorded(f"{path}/hidden", result)
        if name != "__call__":
            return result
        path = path or "logits"
        if isinstance(result, tuple):
            return (self._recorded(path, result[0]), *result[1:])
        return self._recorded(path, result)

    def _of_heads(self, path: str, method: str, result: Any) -> Any:
        match method:
            case "queries":
                return self._recorded(f"{path}/q", result)
            case "keys_values":
                k_bhsk = self._recorded(f"{path}/k", result.k_bhsk)
                v_bhse = self._recorded(f"{path}/v", result.v_bhse)
                return result._replace(k_bhsk=k_bhsk, v_bhse=v_bhse)
            case "weights":
                return self._recorded(f"{path}/weights", result)
            case "output":
                return self._recorded(path, result)
            case _:
                return result

    def _path(self, module: nn.Module, method: str) -> str:
        """Returns the module's path; where all layers are one module, its calls are numbered as layers."""
        path = "/".join(module.path)
        if self._share_layers and "layer_0" in path:
            n = self._calls.get((path, method), 0)
            self._calls[path, method] = n + 1
            return path.replace("layer_0", f"layer_{n}")
        return path

    def _recorded(self, name: str, x_btd: Float[Array, "1 *h t d"]) -> Float[Array, "1 *h t d"]:
        """Records an activation, whose positions are its last axis but one; returns it, patched where `patch` says."""
        of_source = name.startswith("encoder") or name.endswith(_OF_SOURCE)
        length = self._source_length if of_source else self._target_length
        keys = self._keys(name)
        for position, value in self._patch.get(name, {}).items():
            if not 0 <= position < length:
                raise UserError(f"patch: {name} has positions 0 to {length - 1}, no {position}")
            old = x_btd[0, ..., position, :keys]
            if np.shape(value) != old.shape:
                raise UserError(f"patch: {name} has the shape {old.shape} at a position; the value, {np.shape(value)}")
            x_btd = x_btd.at[0, ..., position, :keys].set(jnp.asarray(value, x_btd.dtype))
        first_td = np.moveaxis(np.asarray(x_btd[0], np.float32), -2, 0)[:length]
        self.found[name] = first_td[..., :keys]
        return x_btd

    def _keys(self, name: str) -> int | None:
        """Returns the entries of the last axis to keep: for weights, as many as tokens; for others all."""
        if not name.endswith("/weights"):
            return None
        return self._target_length if name.startswith("decoder") and "cross" not in name else self._source_length

"""T5 v1.0 of transformers as our encoder-decoder (Raffel et al. 2020)."""

from pathlib import Path
from typing import Any

import numpy as np

from base.errors import UserError
from base.files import check
from configs.common import default
from data.imported import Unigram
from infer.convert.folders import Imported
from infer.convert.settings import require, wrong_weights
from infer.convert.vocabulary import our_rows, read_tokenizer, with_our_rows

_FIXED: dict[str, Any] = {"tie_word_embeddings": True, "scale_decoder_outputs": True}
_FIXED |= {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}


def read(folder: Path, sizes: dict[str, Any], weights: dict[str, np.ndarray]) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    The token that starts a target is that of padding there; here BOS has its vector.

    Raises:
      UserError: a weight or a file is missing, or the model has a setting that ours has not.
    """
    path = folder / "config.json"
    if sizes.setdefault("feed_forward_proj", "relu") != "relu":
        raise UserError(
            f"{path}: feed_forward_proj is {sizes['feed_forward_proj']!r}, a gated layer as in T5 v1.1, which our "
            "model has not; T5 v1.0 has 'relu'"
        )
    numbers = ("d_model", "d_kv", "d_ff", "num_layers", "num_heads", "vocab_size")
    check(path, "", sizes, {**dict.fromkeys(numbers, int), "layer_norm_epsilon": float})
    require(path, sizes, _FIXED | {"num_decoder_layers": sizes["num_layers"]})
    ids = [sizes.setdefault(f"{name}_token_id", usual) for name, usual in (("pad", 0), ("eos", 1))]
    start = sizes.setdefault("decoder_start_token_id", ids[0])
    check(path, "", {"token ids": [*ids, start]}, {"token ids": [int]})
    cfg, h = default(), sizes["num_heads"]
    cfg.model.update({"N": sizes["num_layers"], "d_model": sizes["d_model"], "d_ff": sizes["d_ff"], "h": h})
    cfg.model.update({"d_k": sizes["d_kv"], "d_v": sizes["d_kv"], "positions": "t5", "norm": "pre"})
    cfg.model.update({"norm_kind": "rms", "norm_epsilon": sizes["layer_norm_epsilon"], "output_bias": True})
    cfg.model.update({"feed_forward_biases": False, "scale_attention": False, "scale_embeddings": False})
    cfg.model.scale_logits = True
    cfg.decode.update({"length_penalty": "power", "alpha": 1.0})
    inner = read_tokenizer(folder, "T5Tokenizer", "spiece.model")
    unknown = inner.token_to_id("<unk>")
    if unknown is None:
        raise UserError(f"{folder}: its vocabulary has no <unk>")
    rows = our_rows(sizes["vocab_size"], pad=ids[0], start=start, eos=ids[1], unk=unknown)
    try:
        params = with_our_rows(parameters(weights, cfg.model.N, h), rows)
    except (KeyError, ValueError, IndexError) as error:
        raise wrong_weights(folder, error) from error
    return Imported(folder, cfg, Unigram.of(inner, rows, str(folder)), params)


def parameters(given: dict[str, np.ndarray], N: int, h: int) -> dict[str, Any]:
    """Returns T5's weights under our names and in our shapes; ids are still its own.

    Raises:
      KeyError: a weight is missing.
      ValueError: one has another shape.
    """
    d = given["shared.weight"].shape[1]

    def matrix(name: str) -> np.ndarray:
        return given[f"{name}.weight"].T

    def attention(name: str) -> dict[str, np.ndarray]:
        inward = {f"w{letter}": matrix(f"{name}.{letter}").reshape(d, h, -1) for letter in "qkv"}
        return inward | {"wo": matrix(f"{name}.o").reshape(h, -1, d)}

    def stack(side: str, parts: int) -> dict[str, Any]:
        found: dict[str, Any] = {"final_norm": {"scale": given[f"{side}.final_layer_norm.weight"]}}
        found["relative_bias"] = given[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        for n in range(N):
            block = f"{side}.block.{n}.layer"
            layer: dict[str, Any] = {
                f"norm_{part + 1}": {"scale": given[f"{block}.{part}.layer_norm.weight"]} for part in range(parts)
            }
            dense = f"{block}.{parts - 1}.DenseReluDense"
            layer["feed_forward"] = {"w1": matrix(f"{dense}.wi"), "w2": matrix(f"{dense}.wo")}
            layer["self_attention"] = attention(f"{block}.0.SelfAttention")
            if parts == 3:
                layer["cross_attention"] = attention(f"{block}.1.EncDecAttention")
            found[f"layer_{n}"] = layer
        return found

    return {"embed": given["shared.weight"], "encoder": stack("encoder", 2), "decoder": stack("decoder", 3)}

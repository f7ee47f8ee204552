"""GPT-2 of transformers as our language model (Radford et al. 2019)."""

from pathlib import Path
from typing import Any

import numpy as np

from base.files import check
from configs.common import default
from data.imported import ByteLevel
from infer.convert.folders import Imported
from infer.convert.settings import activation, head_width, require, wrong_weights
from infer.convert.vocabulary import our_rows, read_tokenizer, with_our_rows

_FIXED = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}


def read(folder: Path, sizes: dict[str, Any], weights: dict[str, np.ndarray]) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    Its one special token ends a text and begins one: it is our EOS, and our PAD, BOS and UNK have its vector, too, and
    next to none of its probability.

    Raises:
      UserError: a weight or a file is missing, or the model has a setting that ours has not.
    """
    path = folder / "config.json"
    numbers = dict.fromkeys(("n_embd", "n_layer", "n_head", "n_positions", "vocab_size", "eos_token_id"), int)
    check(path, "", sizes, {**numbers, "layer_norm_epsilon": float, "activation_function": str})
    require(path, sizes, _FIXED)
    cfg, d, h, end = default(), sizes["n_embd"], sizes["n_head"], sizes["eos_token_id"]
    cfg.task, width = "language_model", head_width(path, d, h)
    cfg.model.update({"N": sizes["n_layer"], "d_model": d, "h": h, "d_k": width, "d_v": width})
    cfg.model.activation = activation(path, sizes, "activation_function")
    cfg.model.d_ff = sizes.setdefault("n_inner", None) or 4 * d
    cfg.model.update({"norm": "pre", "norm_epsilon": sizes["layer_norm_epsilon"], "biases": True, "output_bias": True})
    cfg.model.update({"positions": "learned", "max_positions": sizes["n_positions"], "scale_embeddings": False})
    rows = our_rows(sizes["vocab_size"], pad=end, start=end, eos=end, unk=end)
    try:
        params = with_our_rows(parameters(weights, cfg.model.N, h), rows)
    except (KeyError, ValueError, IndexError) as error:
        raise wrong_weights(folder, error) from error
    inner = read_tokenizer(folder, "GPT2Tokenizer", "vocab.json")
    return Imported(folder, cfg, ByteLevel.of(inner, rows, str(folder)), params)


def parameters(weights: dict[str, np.ndarray], N: int, h: int) -> dict[str, Any]:
    """Returns GPT-2's weights under our names and in our shapes; ids are still its own.

    Raises:
      KeyError: a weight is missing.
      ValueError: one has another shape.
    """
    given = {name.removeprefix("transformer."): weight for name, weight in weights.items()}
    d = given["wte.weight"].shape[1]

    def norm(name: str) -> dict[str, np.ndarray]:
        return {"scale": given[f"{name}.weight"], "bias": given[f"{name}.bias"]}

    decoder: dict[str, Any] = {"final_norm": norm("ln_f")}
    for n in range(N):
        weight, bias = given[f"h.{n}.attn.c_attn.weight"], given[f"h.{n}.attn.c_attn.bias"]
        attention = {"wo": given[f"h.{n}.attn.c_proj.weight"].reshape(h, -1, d), "bo": given[f"h.{n}.attn.c_proj.bias"]}
        for place, letter in enumerate("qkv"):
            attention[f"w{letter}"] = weight[:, place * d : (place + 1) * d].reshape(d, h, -1)
            attention[f"b{letter}"] = bias[place * d : (place + 1) * d].reshape(h, -1)
        feed_forward = {"w1": given[f"h.{n}.mlp.c_fc.weight"], "b1": given[f"h.{n}.mlp.c_fc.bias"]}
        feed_forward |= {"w2": given[f"h.{n}.mlp.c_proj.weight"], "b2": given[f"h.{n}.mlp.c_proj.bias"]}
        decoder[f"layer_{n}"] = {
            "self_attention": attention,
            "feed_forward": feed_forward,
            "norm_1": norm(f"h.{n}.ln_1"),
            "norm_2": norm(f"h.{n}.ln_2"),
        }
    return {"embed": given["wte.weight"], "positions": given["wpe.weight"], "decoder": decoder}

"""GPT-2 of transformers as our language model (Radford et al. 2019)."""

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from base.ids import BOS
from configs.common import default
from data.imported import ByteLevel
from infer.convert.folders import Imported
from infer.convert.settings import ACTIVATION, BOOL, EPSILON, ID, OUR_ACTIVATIONS, SIZE, head_width, obey, require
from infer.convert.vocabulary import our_rows, read_tokenizer, with_our_rows
from infer.convert.weights import Weights

_SIZES = ("n_embd", "n_layer", "n_head", "n_positions", "n_inner", "vocab_size")
_RULES = {
    **dict.fromkeys(_SIZES, SIZE),
    "eos_token_id": ID,
    "layer_norm_epsilon": EPSILON,
    "activation_function": ACTIVATION,
    "tie_word_embeddings": BOOL,
}
_FIXED = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
# The causal mask, and what it subtracts: older versions saved them with the weights.
_IGNORED = (r"h\.\d+\.attn\.(bias|masked_bias)",)


def read(folder: Path, sizes: dict[str, Any], weights: Weights) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    Its one special token ends a text and begins one: it is our EOS, and our PAD, BOS and UNK have its vector, too, and
    next to none of its probability. If another token begins a text, BOS has the vector of that one.

    Raises:
      UserError: a weight or a file is missing or wrong, or the model has an unsupported setting.
    """
    path = folder / "config.json"
    sizes.setdefault("tie_word_embeddings", True)
    width = sizes.get("n_embd")
    if sizes.get("n_inner") is None and isinstance(width, int):  # `obey` rejects any other width before n_inner is read
        sizes["n_inner"] = 4 * width
    obey(path, sizes, _RULES)
    require(path, sizes, _FIXED)
    cfg = _config(path, sizes)
    params = parameters(weights, cfg.model.N, cfg.model.h, cfg.model.d_model, cfg.model.tie_embeddings)
    end = sizes["eos_token_id"]
    rows = our_rows(path, sizes["vocab_size"], pad=end, start=end, eos=end, unk=end)
    their_embed = params["embed"]
    params = with_our_rows(folder, params, rows)
    start = sizes.get("bos_token_id")
    if ID.fits(start) and start < sizes["vocab_size"]:
        params["embed"][BOS] = their_embed[start]
    inner = read_tokenizer(folder, "GPT2Tokenizer", "vocab.json", "merges.txt")
    return Imported(folder, cfg, ByteLevel.of(inner, rows, str(folder)), params)


def _config(path: Path, sizes: dict[str, Any]) -> ConfigDict:
    """Returns our config of a model with these sizes and GPT-2's departures from the paper."""
    width = head_width(path, sizes["n_embd"], sizes["n_head"])
    cfg = default()
    cfg.task = "language_model"
    cfg.model.N = sizes["n_layer"]
    cfg.model.d_model = sizes["n_embd"]
    cfg.model.d_ff = sizes["n_inner"]
    cfg.model.h = sizes["n_head"]
    cfg.model.d_k = width
    cfg.model.d_v = width
    cfg.model.activation = OUR_ACTIVATIONS[sizes["activation_function"]]
    cfg.model.tie_embeddings = sizes["tie_word_embeddings"]
    cfg.model.norm = "pre"
    cfg.model.norm_epsilon = sizes["layer_norm_epsilon"]
    cfg.model.biases = True
    cfg.model.output_bias = True
    cfg.model.positions = "learned"
    cfg.model.max_positions = sizes["n_positions"]
    cfg.model.scale_embeddings = False
    return cfg


def parameters(weights: Weights, N: int, h: int, d: int, tied: bool = True) -> dict[str, Any]:
    """Returns GPT-2's weights under our names and in our shapes; ids are still its own.

    Its softmax is the embedding if `tied`, and else a matrix of its own.

    Raises:
      UserError: a weight is missing, of another shape or not finite, or there is one more.
    """
    weights = weights.renamed(lambda name: name.removeprefix("transformer."))
    weights.check_layers(N)
    copies = ["wte.weight", "lm_head.weight"] if tied else ["wte.weight"]
    tables = {"embed": weights.take_tied(copies, -1, d)}
    if not tied:
        tables["softmax"] = weights.take("lm_head.weight", len(tables["embed"]), d)

    decoder: dict[str, Any] = {"final_norm": weights.take_norm("ln_f", d)}
    for n in range(N):
        decoder[f"layer_{n}"] = {
            "self_attention": _attention(weights, f"h.{n}.attn", h, d),
            "feed_forward": _feed_forward(weights, f"h.{n}.mlp", d),
            "norm_1": weights.take_norm(f"h.{n}.ln_1", d),
            "norm_2": weights.take_norm(f"h.{n}.ln_2", d),
        }
    params = {**tables, "positions": weights.take("wpe.weight", -1, d), "decoder": decoder}
    weights.check_all_read(_IGNORED)
    return params


def _attention(weights: Weights, name: str, h: int, d: int) -> dict[str, Any]:
    """Returns the parameters of one attention; q, k and v are one matrix there."""
    qkv_weight = weights.take(f"{name}.c_attn.weight", d, 3 * d)
    qkv_bias = weights.take(f"{name}.c_attn.bias", 3 * d)
    params = {
        "wo": weights.take(f"{name}.c_proj.weight", d, d).reshape(h, -1, d),
        "bo": weights.take(f"{name}.c_proj.bias", d),
    }
    for place, letter in enumerate("qkv"):
        columns = slice(place * d, (place + 1) * d)
        params[f"w{letter}"] = qkv_weight[:, columns].reshape(d, h, -1)
        params[f"b{letter}"] = qkv_bias[columns].reshape(h, -1)
    return params


def _feed_forward(weights: Weights, name: str, d: int) -> dict[str, Any]:
    w1_df = weights.take(f"{name}.c_fc.weight", d, -1)
    f = w1_df.shape[1]
    return {
        "w1": w1_df,
        "b1": weights.take(f"{name}.c_fc.bias", f),
        "w2": weights.take(f"{name}.c_proj.weight", f, d),
        "b2": weights.take(f"{name}.c_proj.bias", d),
    }

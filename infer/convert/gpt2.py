"""GPT-2 of transformers as our language model (Radford et al. 2019)."""

from pathlib import Path
from typing import Any

from configs.common import default
from data.imported import ByteLevel
from infer.convert.folders import Imported
from infer.convert.settings import ACTIVATION, BOOL, EPSILON, ID, OUR_ACTIVATIONS, SIZE, head_width, obey, require
from infer.convert.vocabulary import our_rows, read_tokenizer, with_our_rows
from infer.convert.weights import Weights

_SIZES = ("n_embd", "n_layer", "n_head", "n_positions", "n_inner", "vocab_size")
_RULES = {**dict.fromkeys(_SIZES, SIZE), "eos_token_id": ID, "layer_norm_epsilon": EPSILON}
_RULES |= {"activation_function": ACTIVATION, "tie_word_embeddings": BOOL}
_FIXED = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}
# The causal mask, and what it subtracts: older versions saved them with the weights.
_IGNORED = (r"h\.\d+\.attn\.(bias|masked_bias)",)


def read(folder: Path, sizes: dict[str, Any], weights: Weights) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    Its one special token ends a text and begins one: it is our EOS, and our PAD, BOS and UNK have its vector, too, and
    next to none of its probability.

    Raises:
      UserError: a weight or a file is missing or wrong, or the model has a setting that ours has not.
    """
    path = folder / "config.json"
    sizes.setdefault("tie_word_embeddings", True)
    if sizes.get("n_inner") is None:
        sizes["n_inner"] = 4 * sizes["n_embd"] if isinstance(sizes.get("n_embd"), int) else None
    obey(path, sizes, _RULES)
    require(path, sizes, _FIXED)
    cfg, d, h, end = default(), sizes["n_embd"], sizes["n_head"], sizes["eos_token_id"]
    cfg.task, width = "language_model", head_width(path, d, h)
    cfg.model.update({"N": sizes["n_layer"], "d_model": d, "h": h, "d_k": width, "d_v": width})
    cfg.model.activation = OUR_ACTIVATIONS[sizes["activation_function"]]
    cfg.model.update({"d_ff": sizes["n_inner"], "tie_embeddings": sizes["tie_word_embeddings"]})
    cfg.model.update({"norm": "pre", "norm_epsilon": sizes["layer_norm_epsilon"], "biases": True, "output_bias": True})
    cfg.model.update({"positions": "learned", "max_positions": sizes["n_positions"], "scale_embeddings": False})
    params = parameters(weights, cfg.model.N, h, d, cfg.model.tie_embeddings)
    rows = our_rows(path, sizes["vocab_size"], pad=end, start=end, eos=end, unk=end)
    params = with_our_rows(folder, params, rows)
    inner = read_tokenizer(folder, "GPT2Tokenizer", "vocab.json", "merges.txt")
    return Imported(folder, cfg, ByteLevel.of(inner, rows, str(folder)), params)


def parameters(weights: Weights, N: int, h: int, d: int, tied: bool = True) -> dict[str, Any]:
    """Returns GPT-2's weights under our names and in our shapes; ids are still its own.

    Its softmax is the embedding if `tied`, and else a matrix of its own.

    Raises:
      UserError: a weight is missing, of another shape or not finite, or there is one more.
    """
    given = weights.renamed(lambda name: name.removeprefix("transformer."))
    given.check_layers(N)
    copies = ["wte.weight", "lm_head.weight"] if tied else ["wte.weight"]
    tables = {"embed": given.take_tied(copies, -1, d)}
    if not tied:
        tables["softmax"] = given.take("lm_head.weight", len(tables["embed"]), d)

    def norm(name: str) -> dict[str, Any]:
        return {"scale": given.take(f"{name}.weight", d), "bias": given.take(f"{name}.bias", d)}

    decoder: dict[str, Any] = {"final_norm": norm("ln_f")}
    for n in range(N):
        layer = f"h.{n}"
        weight = given.take(f"{layer}.attn.c_attn.weight", d, 3 * d)
        bias = given.take(f"{layer}.attn.c_attn.bias", 3 * d)
        attention = {
            "wo": given.take(f"{layer}.attn.c_proj.weight", d, d).reshape(h, -1, d),
            "bo": given.take(f"{layer}.attn.c_proj.bias", d),
        }
        for place, letter in enumerate("qkv"):
            attention[f"w{letter}"] = weight[:, place * d : (place + 1) * d].reshape(d, h, -1)
            attention[f"b{letter}"] = bias[place * d : (place + 1) * d].reshape(h, -1)
        inward = given.take(f"{layer}.mlp.c_fc.weight", d, -1)
        f = inward.shape[1]
        feed_forward = {
            "w1": inward,
            "b1": given.take(f"{layer}.mlp.c_fc.bias", f),
            "w2": given.take(f"{layer}.mlp.c_proj.weight", f, d),
            "b2": given.take(f"{layer}.mlp.c_proj.bias", d),
        }
        decoder[f"layer_{n}"] = {
            "self_attention": attention,
            "feed_forward": feed_forward,
            "norm_1": norm(f"{layer}.ln_1"),
            "norm_2": norm(f"{layer}.ln_2"),
        }
    params = {**tables, "positions": given.take("wpe.weight", -1, d), "decoder": decoder}
    given.check_all_read(_IGNORED)
    return params

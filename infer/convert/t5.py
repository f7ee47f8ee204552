"""T5 v1.0 of transformers as our encoder-decoder (Raffel et al. 2020)."""

from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from base.errors import UserError, shown
from configs.common import default
from data.imported import Unigram
from infer.convert.folders import Imported
from infer.convert.settings import EPSILON, ID, SIZE, obey, require
from infer.convert.vocabulary import our_rows, read_tokenizer, with_our_rows
from infer.convert.weights import Weights

_FIXED: dict[str, Any] = {
    "tie_word_embeddings": True,
    "scale_decoder_outputs": True,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
}
_SIZES = ("d_model", "d_kv", "d_ff", "num_layers", "num_heads", "vocab_size")
_IDS = ("pad_token_id", "eos_token_id", "decoder_start_token_id")
_RULES = {
    **dict.fromkeys(_SIZES, SIZE),
    **dict.fromkeys(_IDS, ID),
    "layer_norm_epsilon": EPSILON,
}
# The one embedding goes by any of these names, or by several.
_EMBEDDINGS = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
# The first published files have biases of relative positions for attention between the stacks, which has none.
_IGNORED = (r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",)


def read(folder: Path, sizes: dict[str, Any], weights: Weights) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    The token that starts a target is that of padding there; here BOS has its vector.

    Raises:
      UserError: a weight or a file is missing or wrong, or the model has an unsupported setting.
    """
    path = folder / "config.json"
    if sizes.setdefault("feed_forward_proj", "relu") != "relu":
        raise UserError(
            f"{path}: feed_forward_proj={shown(sizes['feed_forward_proj'])} is not supported (a gated layer, as in T5 "
            "v1.1); it must be 'relu', as in T5 v1.0"
        )
    sizes.setdefault("pad_token_id", 0)
    sizes.setdefault("eos_token_id", 1)
    sizes.setdefault("decoder_start_token_id", sizes["pad_token_id"])
    obey(path, sizes, _RULES)
    require(path, sizes, _FIXED | {"num_decoder_layers": sizes["num_layers"]})
    cfg = _config(sizes)
    inner = read_tokenizer(folder, "T5Tokenizer", "spiece.model")
    unknown = inner.token_to_id("<unk>")
    if unknown is None:
        raise UserError(f"{folder}: its vocabulary has no <unk>")
    params = parameters(weights, cfg.model.N, cfg.model.h, cfg.model.d_model, cfg.model.d_k)
    rows = our_rows(
        path,
        sizes["vocab_size"],
        pad=sizes["pad_token_id"],
        start=sizes["decoder_start_token_id"],
        eos=sizes["eos_token_id"],
        unk=unknown,
    )
    params = with_our_rows(folder, params, rows)
    return Imported(folder, cfg, Unigram.of(inner, rows, str(folder)), params)


def _config(sizes: dict[str, Any]) -> ConfigDict:
    """Returns our config of a model with these sizes and T5's departures from the paper."""
    cfg = default()
    cfg.model.N = sizes["num_layers"]
    cfg.model.d_model = sizes["d_model"]
    cfg.model.d_ff = sizes["d_ff"]
    cfg.model.h = sizes["num_heads"]
    cfg.model.d_k = sizes["d_kv"]
    cfg.model.d_v = sizes["d_kv"]
    cfg.model.positions = "t5"
    cfg.model.norm = "pre"
    cfg.model.norm_kind = "rms"
    cfg.model.norm_epsilon = sizes["layer_norm_epsilon"]
    cfg.model.feed_forward_biases = False
    cfg.model.scale_attention = False
    cfg.model.scale_embeddings = False
    cfg.model.scale_logits = True
    cfg.model.output_bias = True  # for rows that are copies of another
    cfg.decode.length_penalty = "power"
    cfg.decode.alpha = 1.0
    return cfg


def parameters(weights: Weights, N: int, h: int, d: int, k: int) -> dict[str, Any]:
    """Returns T5's weights under our names and in our shapes; ids are still its own.

    Raises:
      UserError: a weight is missing, of another shape or not finite, or there is one more.
    """
    weights.check_layers(N)
    embed = weights.take_tied(_EMBEDDINGS, -1, d)

    def attention(name: str) -> dict[str, Any]:
        params: dict[str, Any] = {}
        for letter in "qkv":
            projection = weights.take(f"{name}.{letter}.weight", h * k, d)
            params[f"w{letter}"] = projection.T.reshape(d, h, k)
        output = weights.take(f"{name}.o.weight", d, h * k)
        params["wo"] = output.T.reshape(h, k, d)
        return params

    def feed_forward(name: str) -> dict[str, Any]:
        w1_fd = weights.take(f"{name}.wi.weight", -1, d)
        w2_df = weights.take(f"{name}.wo.weight", d, len(w1_fd))
        return {"w1": w1_fd.T, "w2": w2_df.T}

    def layer(block: str, parts: int) -> dict[str, Any]:
        params: dict[str, Any] = {}
        for part in range(parts):
            params[f"norm_{part + 1}"] = {"scale": weights.take(f"{block}.{part}.layer_norm.weight", d)}
        params["self_attention"] = attention(f"{block}.0.SelfAttention")
        if parts == 3:
            params["cross_attention"] = attention(f"{block}.1.EncDecAttention")
        params["feed_forward"] = feed_forward(f"{block}.{parts - 1}.DenseReluDense")
        return params

    def stack(side: str, parts: int) -> dict[str, Any]:
        params: dict[str, Any] = {f"layer_{n}": layer(f"{side}.block.{n}.layer", parts) for n in range(N)}
        relative = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
        params["relative_bias"] = weights.take(f"{relative}.weight", -1, h)
        params["final_norm"] = {"scale": weights.take(f"{side}.final_layer_norm.weight", d)}
        return params

    params = {"embed": embed, "encoder": stack("encoder", 2), "decoder": stack("decoder", 3)}
    weights.check_all_read(_IGNORED)
    return params

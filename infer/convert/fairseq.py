"""fairseq's Transformer: a checkpoint file, with the dictionaries and the codes of its subwords beside it."""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from base.errors import UserError
from base.files import check
from configs.common import default
from data.imported import MosesBpe
from infer.convert import pytorch
from infer.convert.bart_names import entries, norms, to_ours, without_zero_biases
from infer.convert.folders import Imported, named, nested
from infer.convert.settings import head_width, wrong_weights
from infer.convert.vocabulary import bias_of_copies, our_pieces, our_rows
from model.transformer import init_params
from run.folder import model_config

EPSILON = 1e-5  # of PyTorch's layer norm
SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # the first ids of every dictionary, whose file has the rest
PAD, EOS, UNK = 1, 2, 3
FIRST_POSITION = PAD + 1  # positions count from it
CODES = ("bpecodes", "code", "codes")  # as published models name the file
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_accurate": "gelu_tanh", "swish": "silu"}
# What a model may have and ours has not, with the value that says that it has not.
_ABSENT: dict[str, Any] = {
    **dict.fromkeys(("encoder_learned_pos", "decoder_learned_pos", "layernorm_embedding", "adaptive_input"), False),
    **dict.fromkeys(("no_token_positional_embeddings", "no_cross_attention", "cross_self_attention"), False),
    "adaptive_softmax_cutoff": None,
}
# Settings that old checkpoints lack.
_DEFAULTS: dict[str, Any] = {
    **{"activation_fn": "relu", "no_scale_embedding": False, "max_source_positions": 1024},
    **{"max_target_positions": 1024, "share_all_embeddings": False},
    **{"encoder_normalize_before": False, "decoder_normalize_before": False},
}
_PER_SIDE = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before")


def read(path: Path) -> Imported:
    """Returns the model of a checkpoint; nothing in the file is executed.

    `dict.LANGUAGE.txt` of both languages and the codes, `bpecodes`, are read from the checkpoint's folder. Sinusoids
    become learned tables, since fairseq's are not the paper's: sines, then cosines, from position 2 on.

    Raises:
      UserError: a file is missing or damaged, or the model has a setting that ours has not.
    """
    state = pytorch.load(path, [argparse.Namespace])
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{path}: no checkpoint of fairseq; it has no parameters under 'model'")
    settings = _settings(path, state)
    config = _config(path, settings)
    languages = [settings["source_lang"], settings["target_lang"]]
    words = _dictionary(path.parent, languages)
    rows = our_rows(len(words), pad=PAD, start=EOS, eos=EOS, unk=UNK)
    params = _params(path, config, modern(pytorch.arrays(state["model"], path)), rows)
    tokenizer = MosesBpe.of(our_pieces(rows, dict(enumerate(words))), _codes(path.parent), languages)
    return Imported(path, config, tokenizer, params)


def _settings(path: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Returns the model's settings: `args` in old files, `cfg.model` in new ones."""
    found: Any = state.get("args")
    if found is None and isinstance(state.get("cfg"), dict):
        parts = state["cfg"]
        found, task = parts.get("model"), parts.get("task")
        languages = vars(task) if isinstance(task, argparse.Namespace) else task
    else:
        languages = {}
    if isinstance(found, argparse.Namespace):
        found = vars(found)
    if not isinstance(found, dict) or not isinstance(languages, dict):
        raise UserError(f"{path}: it has no settings of a model, neither 'args' nor 'cfg'")
    settings = _DEFAULTS | _ABSENT | {key: value for key, value in languages.items() if key.endswith("_lang")} | found
    sizes = {f"{side}_{key}": int for side in ("encoder", "decoder") for key in _PER_SIDE if key != "normalize_before"}
    return check(
        path, "its settings", settings, {**sizes, "source_lang": str, "target_lang": str, "activation_fn": str}
    )


def _config(path: Path, settings: dict[str, Any]) -> ConfigDict:
    for key, value in _ABSENT.items():
        if settings[key] != value:
            raise UserError(f"{path}: its {key} is {settings[key]}, which our model has not")
    for key in _PER_SIDE:
        if settings[f"encoder_{key}"] != settings[f"decoder_{key}"]:
            raise UserError(f"{path}: its encoder_{key} and decoder_{key} differ; here both sides are alike")
    activation = settings["activation_fn"]
    if activation not in _ACTIVATIONS:
        raise UserError(f"{path}: its activation_fn is {activation!r}, which model.activation has not")
    config, d, h = default(), settings["encoder_embed_dim"], settings["encoder_attention_heads"]
    width = head_width(path, d, h)
    config.model.update({"N": settings["encoder_layers"], "d_model": d, "d_ff": settings["encoder_ffn_embed_dim"]})
    config.model.update({"h": h, "d_k": width, "d_v": width, "norm_epsilon": EPSILON, "positions": "learned"})
    config.model.max_positions = min(settings["max_source_positions"], settings["max_target_positions"])
    config.model.update({"activation": _ACTIVATIONS[activation], "biases": True, "output_bias": True})
    config.model.norm = "pre" if settings["encoder_normalize_before"] else "post"
    config.model.scale_embeddings = not settings["no_scale_embedding"]
    config.model.tie_embeddings = bool(settings["share_all_embeddings"])
    config.decode.update({"length_penalty": "power", "alpha": 1.0, "beam": 5})
    return config


def modern(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the parameters under today's names: old files stack q, k and v, and number the layer norms."""
    found: dict[str, np.ndarray] = {}
    for name, array in weights.items():
        above, _, last = name.rpartition(".")
        if last.startswith("in_proj_"):
            for projection, part in zip("qkv", np.split(array, 3), strict=True):
                found[f"{above}.{projection}_proj.{last.removeprefix('in_proj_')}"] = part
        elif ".layer_norms." in name:
            layer, _, number = above.partition(".layer_norms.")
            found[f"{layer}.{norms(name.partition('.')[0])[int(number)]}.{last}"] = array
        elif name == "decoder.embed_out":
            found["decoder.output_projection.weight"] = array
        else:
            found[name] = array
    return found


def sinusoids(positions: int, d_model: int) -> np.ndarray:
    """Returns fairseq's table: sines, then cosines, of d/2 frequencies of which the last is exactly 1/10,000."""
    half = d_model // 2
    frequencies = np.exp(np.arange(half) * -(np.log(10_000.0) / (half - 1)))
    angles = (FIRST_POSITION + np.arange(positions))[:, None] * frequencies[None]
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.pad(table, ((0, 0), (0, d_model % 2))).astype(np.float32)


def _params(path: Path, config: ConfigDict, weights: dict[str, np.ndarray], rows: list[int]) -> dict[str, Any]:
    """Returns our parameters, and turns off in `config.model` the biases that are all zero."""
    model = model_config(config, len(rows))
    shapes = named(jax.eval_shape(lambda key: init_params(model, key), jax.random.key(0)))
    table, order = sinusoids(model.max_positions, model.d_model), np.arange(model.d_model)
    found = {"output_bias": bias_of_copies(rows), "source_positions": table, "target_positions": table.copy()}
    target = "decoder.embed_tokens.weight"
    softmax = "decoder.output_projection.weight"
    try:
        if model.tie_embeddings:
            found["embed"] = weights[target][rows]
        else:
            found["source_embed"] = weights["encoder.embed_tokens.weight"][rows]
            found["target_embed"] = weights[target][rows]
            found["softmax"] = weights[softmax if softmax in weights else target][rows]
        if len(weights[target]) != len(rows) - 1:
            raise ValueError(f"{len(weights[target])} rows of embeddings for {len(rows) - 1} subwords")
        for entry in entries(model.N, model.norm):
            found[entry.ours] = to_ours(weights[entry.theirs], entry, order, shapes[entry.ours].shape)
    except (KeyError, ValueError, IndexError) as error:
        raise wrong_weights(path, error) from error
    found = without_zero_biases(found)
    config.model.biases = any(name.endswith("/bq") for name in found)
    return nested(found)


def _dictionary(folder: Path, languages: list[str]) -> list[str]:
    """Returns the subwords by id, the same for both languages."""
    words = []
    for language in languages:
        lines = _lines(folder / f"dict.{Path(language).name}.txt")
        words.append([*SPECIALS, *(line.rsplit(" ", 1)[0] for line in lines if line)])
    if words[0] != words[1]:
        raise UserError(f"{folder}: the dictionaries of both languages differ; only a joined one can be read")
    return words[0]


def _codes(folder: Path) -> list[str]:
    for name in CODES:
        if (folder / name).is_file():
            return _lines(folder / name)
    raise UserError(f"{folder}: the codes of byte-pair encoding are not there; name their file {CODES[0]}")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").split("\n")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text") from error

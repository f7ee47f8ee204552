"""fairseq's Transformer: a checkpoint file, next to the dictionaries and the codes of its subwords."""

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from vaswani.data.imported import MosesBpe
from vaswani.data.pair import Pair
from vaswani.errors import UserError, format_value
from vaswani.infer.convert import pytorch, table
from vaswani.infer.convert.bart_names import stacks, without_zero_biases
from vaswani.infer.convert.folders import Imported
from vaswani.infer.convert.settings import BOOL, LAYERS, SIZE, Rule, activation_of, configure, obey, require, whole
from vaswani.infer.convert.vocabulary import bias_of_copies, lines_of, our_pieces, our_rows, with_our_rows
from vaswani.infer.convert.weights import Weights

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")  # the first ids of every dictionary, whose file lists the rest
_OVERWRITE = " #fairseq:overwrite"
PAD = 1
EOS = 2
UNK = 3
FIRST_POSITION = PAD + 1  # positions count from it
CODES = ("bpecodes", "code", "codes")  # as published models name the file
_ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",  # the old name of gelu_accurate
    "swish": "silu",
}
# Unsupported options, and the value that turns each off.
_ABSENT: dict[str, Any] = {
    "encoder_learned_pos": False,
    "decoder_learned_pos": False,
    "layernorm_embedding": False,
    "adaptive_input": False,
    "no_token_positional_embeddings": False,
    "no_cross_attention": False,
    "cross_self_attention": False,
    "adaptive_softmax_cutoff": None,
}
# Settings that old checkpoints lack; of these, positions may also be None.
_DEFAULTS: dict[str, Any] = {
    "activation_fn": "relu",
    "no_scale_embedding": False,
    "max_source_positions": 1024,
    "max_target_positions": 1024,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
    "encoder_normalize_before": False,
    "decoder_normalize_before": False,
}
_SIDES = ("encoder", "decoder")
# The names of a layer's norms today, by their numbers in old files.
_NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
_TIED = "decoder.embed_tokens.weight=encoder.embed_tokens.weight=decoder.output_projection.weight  embed  v d"
_SHARED_SOFTMAX = """
encoder.embed_tokens.weight                                    source_embed  u d
decoder.embed_tokens.weight=decoder.output_projection.weight  target_embed  v d
"""
_UNTIED = """
encoder.embed_tokens.weight       source_embed  u d
decoder.embed_tokens.weight       target_embed  v d
decoder.output_projection.weight  softmax       v d
"""
_LANGUAGES = ("source_lang", "target_lang")
_PER_SIDE = {
    "layers": LAYERS,
    "embed_dim": SIZE,
    "ffn_embed_dim": SIZE,
    "attention_heads": SIZE,
    "normalize_before": BOOL,
}
_ALIKE = tuple(key for key in _PER_SIDE if key != "layers")
_KEYS = {
    "N": "encoder_layers",
    "d_model": "encoder_embed_dim",
    "d_ff": "encoder_ffn_embed_dim",
    "h": "encoder_attention_heads",
    "tie_embeddings": "share_all_embeddings",
}
# Its epsilon is PyTorch's layer norm's.
_DEPARTURES = {"positions": "learned", "biases": True, "output_bias": True, "norm_epsilon": 1e-5}


def _is_language(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[\w.-]+", value) is not None


_LANGUAGE = Rule(_is_language, "the name of a language, or be told by a file next to it, as train.en-de.en.bin")
TABLE_LENGTH = whole(1, 2**17)
_SWITCHES = ("no_scale_embedding", "share_all_embeddings", "share_decoder_input_output_embed")
_RULES: dict[str, Rule] = {
    **{f"{side}_{key}": rule for side in _SIDES for key, rule in _PER_SIDE.items()},
    **dict.fromkeys(_LANGUAGES, _LANGUAGE),
    **dict.fromkeys(("max_source_positions", "max_target_positions"), TABLE_LENGTH),
    **dict.fromkeys(_SWITCHES, BOOL),
    "activation_fn": activation_of(_ACTIVATIONS),
}
# The number of a version, a tensor that tells sinusoids the device, and in the oldest files the sinusoids.
_IGNORED = (r"(encoder|decoder)\.version", r"(encoder|decoder)\.embed_positions\.(_float_tensor|weights)")


class _Ignored:
    """Takes the place of what a checkpoint records of its training: it is made of anything, and keeps nothing."""

    def __init__(self, *parts: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


# What these records consist of: the meters of fairseq up to 0.9, and NumPy's arrays and numbers.
_RECORDED = (
    *(f"fairseq.meters.{kind}Meter" for kind in ("Average", "Stopwatch", "Time")),
    *(f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    "numpy.dtype",
    "numpy.ndarray",
)


def read(path: Path) -> Imported:
    """Returns the model of a checkpoint; nothing in the file is executed.

    `dict.LANGUAGE.txt` of both languages and the codes, `bpecodes`, are read from the checkpoint's folder. Sinusoids
    become learned tables, since fairseq's are not the paper's: sines, then cosines, from position 2 on.

    Raises:
      UserError: a file is missing or damaged, or the model has an unsupported setting.
    """
    state = pytorch.load(path, [argparse.Namespace, *((_Ignored, name) for name in _RECORDED)])
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{path}: no checkpoint of fairseq; it has no parameters under 'model'")
    settings = _settings(path, state)
    config = _config(path, settings)
    languages = [settings["source_lang"], settings["target_lang"]]
    source_words, target_words = (_dictionary(path.parent, language) for language in languages)
    source_rows, rows = (_rows(path.parent, words) for words in (source_words, target_words))
    config.data.share_vocabulary = source_words == target_words
    if config.model.tie_embeddings and not config.data.share_vocabulary:
        raise UserError(f"{path.parent}: the dictionaries differ, but the model has one of both (share_all_embeddings)")
    weights = modern(path, pytorch.arrays(state["model"], path))
    params = _params(path, config, weights, rows, source_rows, settings["share_decoder_input_output_embed"])

    codes = _codes(path.parent)

    def tokenizer_of(words: list[str], rows: list[int], languages: list[str]) -> MosesBpe:
        return MosesBpe.of(our_pieces(rows, dict(enumerate(words))), lines_of(codes), languages, str(codes))

    if config.data.share_vocabulary:
        return Imported(path, config, tokenizer_of(target_words, rows, languages), params)
    source, target = languages
    pair = Pair(
        tokenizer_of(source_words, source_rows, [source, source]),
        tokenizer_of(target_words, rows, [target, target]),
    )
    return Imported(path, config, pair, params)


def _settings(path: Path, state: dict[str, Any]) -> dict[str, Any]:
    """Returns the model's settings: `args` in old files, `cfg.model` in new ones."""
    model: Any = state.get("args")
    task: Any = {}
    parts = state.get("cfg")
    if model is None and isinstance(parts, dict):
        model = _fields(parts.get("model"))
        task = _fields(parts.get("task"))
    model = _fields(model)
    if not isinstance(model, dict) or not isinstance(task, dict):
        raise UserError(f"{path}: it has no settings of a model, neither 'args' nor 'cfg'")
    settings = _DEFAULTS | _ABSENT | model
    for key, inferred in zip(_LANGUAGES, _pair_beside(path), strict=True):
        given = (model.get(key), task.get(key))
        settings[key] = next((language for language in given if language is not None), inferred)
    for key in ("max_source_positions", "max_target_positions"):
        if settings[key] is None:
            settings[key] = _DEFAULTS[key]
    obey(path, settings, _RULES)
    return settings


def _pair_beside(path: Path) -> tuple[str | None, str | None]:
    """Returns source and target as fairseq infers them: from a file of fairseq-preprocess, as `train.en-de.en.bin`.

    New versions save only languages that were given as options.
    """
    for file in sorted(path.parent.glob("*.*-*.*")):
        pair = file.name.split(".")[1].split("-")
        if len(pair) == 2 and all((path.parent / f"dict.{language}.txt").is_file() for language in pair):
            return pair[0], pair[1]
    return None, None


def _fields(settings: Any) -> Any:
    """Returns a namespace as a dict, and anything else as it is."""
    return vars(settings) if isinstance(settings, argparse.Namespace) else settings


def _config(path: Path, settings: dict[str, Any]) -> ConfigDict:
    require(path, settings, _ABSENT)
    for key in _ALIKE:
        if settings[f"encoder_{key}"] != settings[f"decoder_{key}"]:
            raise UserError(f"{path}: its encoder_{key} and decoder_{key} differ; here both sides are alike")
    config = configure(path, settings, _KEYS, _DEPARTURES)
    if config.model.d_model < 4:
        raise UserError(f"{path}: its model is {config.model.d_model} wide; fairseq's sinusoids need at least 4")
    config.model.max_positions = min(settings["max_source_positions"], settings["max_target_positions"])
    config.model.activation = _ACTIVATIONS[settings["activation_fn"]]
    config.model.norm = "pre" if settings["encoder_normalize_before"] else "post"
    config.model.scale_embeddings = not settings["no_scale_embedding"]
    config.decode.length_penalty = "power"
    config.decode.alpha = 1.0
    config.decode.stopping = "full"
    config.decode.beam = 5
    if settings["decoder_layers"] != config.model.N:
        config.model.N_decoder = settings["decoder_layers"]
    return config


def modern(source: Path, arrays: dict[str, np.ndarray]) -> Weights:
    """Returns the parameters under today's names: old files stack q, k and v, and number the layer norms.

    Raises:
      UserError: a parameter has both names.
    """
    unstacked: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        for part_name, part in _unstacked(name, array).items():
            if part_name != name and part_name in arrays:
                raise UserError(f"{source}: {format_value(name)} and {format_value(part_name)} are the same weight")
            unstacked[part_name] = part
    renamed = {f"{side}.{number}": name for side in _SIDES for number, name in enumerate(_NORMS[side])}

    def today(name: str) -> str:
        layer, numbered, last = name.partition(".layer_norms.")
        number, _, kind = last.partition(".")
        norm = renamed.get(f"{name.partition('.')[0]}.{number}")
        if numbered and norm:
            return f"{layer}.{norm}.{kind}"
        return "decoder.output_projection.weight" if name == "decoder.embed_out" else name

    return Weights(source, unstacked, today)


def _unstacked(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the projections of q, k and v that old files stack in one array; any other array as it is."""
    attention, _, kind = name.rpartition(".")
    if kind not in ("in_proj_weight", "in_proj_bias") or array.ndim == 0 or len(array) % 3:
        return {name: array}
    parts = zip("qkv", np.split(array, 3), strict=True)
    return {f"{attention}.{letter}_proj.{kind.removeprefix('in_proj_')}": part for letter, part in parts}


def sinusoids(positions: int, d_model: int, first: int = FIRST_POSITION) -> np.ndarray:
    """Returns fairseq's table: sines, then cosines, of d/2 frequencies of which the last is exactly 1/10,000.

    tensor2tensor and OpenNMT have the same, with another position as the `first`.
    """
    half = d_model // 2
    frequencies = np.exp(np.arange(half) * -(np.log(10_000.0) / (half - 1)))
    angles = (first + np.arange(positions))[:, None] * frequencies[None]
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.pad(table, ((0, 0), (0, d_model % 2))).astype(np.float32)


def _params(
    path: Path, config: ConfigDict, weights: Weights, rows: list[int], source_rows: list[int], shared_softmax: bool
) -> dict[str, Any]:
    """Returns our parameters, and turns off in `config.model` the biases that are all zero.

    With a vocabulary for each side, a softmax that shares the target's embeddings is one of our ties.
    """
    model = config.model
    depths = (model.N, model.N_decoder or model.N)
    embeddings = _UNTIED
    if model.tie_embeddings:
        embeddings = _TIED
    elif shared_softmax:
        embeddings = _SHARED_SOFTMAX
    sizes = table.sizes_of(model) | {"u": max(source_rows) + 1, "v": max(rows) + 1}
    params = table.read(weights, table.rows(embeddings, model.N) + stacks(depths, model.norm), sizes)
    weights.check_all_read(_IGNORED)

    params = with_our_rows(path, params, rows, source_rows)
    if shared_softmax and not config.data.share_vocabulary:
        model.tie_embeddings = True
    elif "target_embed" in params:
        params.setdefault("softmax", params["target_embed"])
    for side in ("source", "target"):
        params[f"{side}_positions"] = sinusoids(model.max_positions, model.d_model)
    params["output_bias"] = bias_of_copies(rows)
    params = without_zero_biases(params)
    model.biases = any(name.endswith("/bq") for name in params)
    return unflatten_dict(params, sep="/")


def _dictionary(folder: Path, language: str) -> list[str]:
    """Returns the subwords of a language by id."""
    path = folder / f"dict.{language}.txt"
    lines = enumerate(lines_of(path), 1)
    subwords = [_subword(line, f"{path}, line {number}") for number, line in lines if line]
    return [*SPECIALS, *subwords]


def _rows(folder: Path, words: list[str]) -> list[int]:
    """Returns for each of our ids fairseq's: a target starts with EOS."""
    return our_rows(folder, len(words), pad=PAD, start=EOS, eos=EOS, unk=UNK)


def _subword(line: str, where: str) -> str:
    """Returns the subword of a line of a dictionary, which a count follows.

    A flag may also follow, which says that the subword is a duplicate; a text uses the last one, as it does without the
    flag in older versions of fairseq.

    Raises:
      UserError: there is no count; the message begins with `where`.
    """
    subword, _, count = line.rstrip().removesuffix(_OVERWRITE).rpartition(" ")
    if not re.fullmatch(r"-?\d+", count):
        raise UserError(f"{where}: not a subword and its count, with a space between them")
    return subword


def _codes(folder: Path) -> Path:
    for name in CODES:
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"{folder}: the codes of byte-pair encoding are missing; name their file {CODES[0]}")

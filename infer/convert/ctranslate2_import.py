"""CTranslate2's Transformers: a folder with `model.bin`, vocabularies, `config.json` and perhaps subword models."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flax.traverse_util import unflatten_dict
from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.data.pair import Pair
from vaswani.data.symbols import Symbols
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError, format_value, note
from vaswani.files import content_of, local_path
from vaswani.ids import BOS
from vaswani.infer.convert.ctranslate2_file import ModelFile, read_file
from vaswani.infer.convert.ctranslate2_model import Opened, read_params
from vaswani.infer.convert.folders import Imported
from vaswani.infer.convert.settings import BOOL, Rule, obey
from vaswani.infer.convert.settings import EPSILON as ABOVE_ZERO
from vaswani.infer.convert.vocabulary import (
    COPY_BIAS,
    bias_of_copies,
    lines_of,
    our_pieces,
    our_rows,
    subword_tokenizer,
    with_our_rows,
)
from vaswani.read_json import read_json

# The specifications of encoder-decoders of text, with their heads where a file does not say how many there are.
_HEADS = {"": 8, "TransformerBase": 8, "TransformerBig": 16, "TransformerSpec": 8}
# In the first revision variables have OpenNMT-tf's names.
_OLDEST_NAMES = (
    ("^transformer/|:0$", ""),
    ("w_embs", "embeddings/weight"),
    ("kernel", "weight"),
    ("LayerNorm", "layer_norm"),
    ("dense", "projection"),
    ("conv1d_", "linear_"),
    ("conv1d", "linear_0"),
    ("masked_multi_head|(?<=^encoder)(.*)multi_head", r"\1self_attention"),
    ("multi_head", "attention"),
)
_TOKEN = Rule(lambda value: isinstance(value, str) and value != "", "a token")
_EPSILON = Rule(lambda value: value is None or ABOVE_ZERO.fits(value), f"{ABOVE_ZERO.described}, or null")
_RULES = {
    "unk_token": _TOKEN,
    "bos_token": _TOKEN,
    "eos_token": _TOKEN,
    "decoder_start_token": _TOKEN,
    "add_source_bos": BOOL,
    "add_source_eos": BOOL,
    "layer_norm_epsilon": _EPSILON,
}
# Names of the source's and target's sentencepiece models in a folder: transformers', those used by projects that
# publish such models, and ours.
_SUBWORDS = (
    ("source.spm", "target.spm"),
    ("src.spm.model", "tgt.spm.model"),
    ("sentencepiece.model", "sentencepiece.model"),
    ("source.model", "target.model"),
    ("tokenizer.model", "tokenizer.model"),
)


class _Vocabulary(NamedTuple):
    """The subwords of a side by their ids, and their id for each of ours."""

    subwords: list[str]
    rows: list[int]

    @property
    def pieces(self) -> list[str]:
        """The subwords by our ids; of equal ones the first keeps its name."""
        number_of: dict[str, int] = {}
        for number, subword in enumerate(self.subwords):
            number_of.setdefault(subword, number)
        return our_pieces(self.rows, {number: subword for subword, number in number_of.items()})


def read(folder: Path, subwords: str = "") -> Imported:
    """Returns the model of a folder, whose `subwords` are "sentencepiece:FILE" or "sentencepiece:SOURCE,TARGET".

    Without these they are the sentencepiece models in the folder, or else what stands between blanks.

    Raises:
      UserError: a file is missing or damaged, or the model has something that ours lacks.
    """
    path = folder / "model.bin"
    if not path.is_file():
        raise UserError(f"--from=ctranslate2:{folder}: there is no model.bin; give a folder that a converter wrote")
    file = _renamed(read_file(path))
    if file.specification not in _HEADS:
        raise UserError(
            f"{path}: its kind is {format_value(file.specification)}; only encoder-decoders of text, TransformerSpec, "
            "are read"
        )
    opened = Opened.of(path, file.variables)
    description = _description(folder, opened)
    config = default()
    config.decode.length_penalty = "power"
    config.decode.alpha = 1.0
    config.decode.stopping = "full"
    heads = _HEADS[file.specification]
    params = read_params(opened, config.model, heads, description["layer_norm_epsilon"])
    starts_from_zero = bool(opened.settings.alike("start_from_zero_embedding", 0))
    opened.settings.check_all_read()

    target = _vocabulary(folder, "target", description, len(params["target_embed"]))
    source = _vocabulary(folder, "source", description, len(params["source_embed"]))
    config.data.share_vocabulary = source.subwords == target.subwords
    if config.data.share_vocabulary:
        source = target
    params = with_our_rows(path, params, target.rows, source.rows)
    _tie(config, params, starts_from_zero, target.rows)
    if (folder / "vmap.txt").is_file():
        note(f"{folder / 'vmap.txt'} is ignored: any subword of the target may be written")
    tokenizer = _tokenizer(folder, subwords, source, target, description)
    config.data.units = tokenizer.units
    return Imported(path, config, tokenizer, unflatten_dict(params, sep="/"))


def _renamed(file: ModelFile) -> ModelFile:
    """Returns the variables of a file of any revision under today's names."""
    variables = {}
    for name, array in file.variables.items():
        if file.revision == 1:
            for old, new in _OLDEST_NAMES:
                name = re.sub(old, new, name)
        variables[re.sub("^encoder/embeddings/", "encoder/embeddings_0/", name)] = array
    return file._replace(variables=variables)


def _description(folder: Path, opened: Opened) -> dict[str, Any]:
    """Returns the fields of config.json that matter, which older files have among their variables.

    Raises:
      UserError: one has a value that it cannot have, or is not supported.
    """
    result: dict[str, Any] = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "layer_norm_epsilon": None}
    for name in ("unk_token", "bos_token", "eos_token"):
        if name in opened.variables:
            result[name] = opened.variables[name].tobytes().decode(errors="replace")
    settings = opened.settings
    result["add_source_bos"] = bool(settings.alike("with_source_bos", 0))
    result["add_source_eos"] = bool(settings.alike("with_source_eos", 0))
    begins_with_bos = settings.alike("with_target_bos", 1)
    result["decoder_start_token"] = result["bos_token" if begins_with_bos else "eos_token"]
    if settings.alike("user_decoder_start_tokens", 0):
        result["decoder_start_token"] = None

    path = folder / "config.json"
    if path.is_file():
        given = read_json(path, dict)
        result |= {key: value for key, value in given.items() if key in result}
    if result["decoder_start_token"] is None:
        raise UserError(f"{path}: decoder_start_token is null; models whose users give it with each text are not read")
    obey(path, result, _RULES)
    if result["add_source_bos"]:
        raise UserError(f"{path}: add_source_bos is true; sources that begin with a token are not supported")
    return result


def _vocabulary(folder: Path, side: str, description: dict[str, Any], size: int) -> _Vocabulary:
    """Returns the vocabulary of a side, of which the model has `size` embeddings.

    Padding, where it has no token `<pad>`, is a copy of the end.

    Raises:
      UserError: there is none, it has another size, or lacks a special token.
    """
    path = _vocabulary_file(folder, side)
    subwords = read_json(path, [str]) if path.suffix == ".json" else lines_of(path)
    unk_token = description["unk_token"]
    if unk_token not in subwords:
        subwords.append(unk_token)
    if len(subwords) != size:
        raise UserError(f"{path}: {len(subwords)} subwords, and model.bin has {size} embeddings of the {side}")

    def number(key: str) -> int:
        token = description[key]
        if token not in subwords:
            raise UserError(f"{path}: {key} is {format_value(token)}, which it lacks")
        return subwords.index(token)

    eos = number("eos_token")
    unk = number("unk_token")
    start = number("decoder_start_token")
    pad = subwords.index("<pad>") if "<pad>" in subwords else eos
    if pad in (start, unk):
        pad = eos
    return _Vocabulary(subwords, our_rows(path, size, pad=pad, start=start, eos=eos, unk=unk))


def _vocabulary_file(folder: Path, side: str) -> Path:
    for name in ("shared", side):
        for ending in ("json", "txt"):
            path = folder / f"{name}_vocabulary.{ending}"
            if path.is_file():
                return path
    raise UserError(f"{folder}: has neither shared_vocabulary.json nor {side}_vocabulary.json, nor one in .txt")


def _tie(config: ConfigDict, params: dict[str, Any], starts_from_zero: bool, rows: list[int]) -> None:
    """Makes one of equal embeddings, as our model ties them, and the bias of the softmax; `rows` are its ids there."""
    source_embed = params["source_embed"]
    target_embed = params["target_embed"]
    is_tied = np.array_equal(target_embed, params["softmax"])
    if config.data.share_vocabulary:
        is_tied = is_tied and np.array_equal(source_embed, target_embed)
    bias_v = bias_of_copies(rows)
    if starts_from_zero:
        target_embed[BOS] = 0.0
        bias_v[BOS] = COPY_BIAS
    if is_tied:
        del params["softmax"]
        if config.data.share_vocabulary:
            del params["source_embed"], params["target_embed"]
            params["embed"] = target_embed
    config.model.tie_embeddings = is_tied
    config.model.output_bias = "output_bias" in params or bool(bias_v.any())
    if config.model.output_bias:
        params["output_bias"] = params.get("output_bias", 0) + bias_v


def _tokenizer(
    folder: Path, subwords: str, source: _Vocabulary, target: _Vocabulary, description: dict[str, Any]
) -> Tokenizer:
    """Returns the tokenizer of the two vocabularies, which may be one."""
    source_eos = description["add_source_eos"]
    models = _sentencepiece(folder, subwords)
    sides: list[Tokenizer]
    if models is None:
        sides = [Symbols.of_pieces(side.pieces, source_eos=source_eos) for side in (source, target)]
    elif source is target:
        sides = [subword_tokenizer(target.pieces, *models, source_eos)] * 2
    else:
        pairs = zip((source, target), models, strict=True)
        sides = [subword_tokenizer(side.pieces, model, model, source_eos) for side, model in pairs]
    return sides[1] if source is target else Pair(*sides)


def _sentencepiece(folder: Path, subwords: str) -> tuple[bytes, bytes] | None:
    """Returns the sentencepiece models of both sides, which `subwords` names or the folder has; None if there is none.

    Raises:
      UserError: one that is named cannot be read.
    """
    kind, _, names = subwords.partition(":")
    files = [local_path(name, f"--tokenizer={subwords}") for name in names.split(",") if name]
    if subwords and (kind != "sentencepiece" or len(files) not in (1, 2)):
        raise UserError(f"--tokenizer={subwords}: write sentencepiece:FILE, or sentencepiece:SOURCE,TARGET")
    if not subwords:
        for pair in _SUBWORDS:
            files = [folder / name for name in pair]
            if all(file.is_file() for file in files):
                break
        else:
            return None
    return content_of(files[0]), content_of(files[-1])

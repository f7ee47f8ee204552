"""BART, mBART, M2M100 and NLLB of transformers as our encoder-decoder (Lewis et al. 2019 to NLLB Team 2022).

A text there begins with its language, which `data.multilingual` puts before it here; BART's with `<s>`.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vaswani.data.imported import ByteLevel, Marian, Unigram
from vaswani.data.multilingual import Multilingual
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError, format_value
from vaswani.files import content_of
from vaswani.infer.convert import table
from vaswani.infer.convert.bart_names import BIAS, config_of, finished, stacks
from vaswani.infer.convert.fairseq import FIRST_POSITION, PAD, TABLE_LENGTH, sinusoids
from vaswani.infer.convert.folders import Imported
from vaswani.infer.convert.settings import obey, require
from vaswani.infer.convert.vocabulary import (
    our_pieces,
    our_rows,
    read_tokenizer,
    read_vocabulary,
    tokenizer_settings,
)
from vaswani.infer.convert.weights import Weights

_TABLE = "shared.weight=encoder.embed_tokens.weight=decoder.embed_tokens.weight=lm_head.weight  embed  v d\n"
# For models with learned positions; the first two rows of their tables are of no use.
_LEARNED = """
{encoder,decoder}.embed_positions.weight             {source,target}_positions          l d
{encoder,decoder}.layernorm_embedding.{weight,bias}  {source,target}_norm/{scale,bias}  d
"""
_DEPARTURES: dict[str, dict[str, Any]] = {
    "bart": {"norm": "post", "norm_embeddings": True},
    "mbart": {"norm": "pre", "norm_embeddings": True},
    "m2m_100": {"norm": "pre"},
}
# The number of a version, and the sinusoids, which older versions saved.
_IGNORED = (r"(encoder|decoder)\.version", r"(encoder|decoder)\.embed_positions\.weights")
_USUAL_TOKENIZER = {"bart": "BartTokenizer", "mbart": "MBartTokenizer", "m2m_100": "M2M100Tokenizer"}
_LANGUAGE = re.compile(r"[a-z]{2,3}_[A-Z]\w+")  # as eng_Latn


class Vocabulary(NamedTuple):
    """The ids of a model's pieces, and how to make its tokenizer of our rows.

    `languages` are pieces, by name; `usual` is the pair of names where none is given.
    """

    ids: dict[str, int]
    languages: dict[str, str]
    usual: Sequence[Any]
    tokenizer: Callable[[Sequence[int]], Tokenizer]


def read(folder: Path, sizes: dict[str, Any], weights: Weights, languages: Sequence[str] = ()) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    `languages` are the source's and the target's; the default is in tokenizer_config.json.

    Raises:
      UserError: a weight or a file is missing or wrong, or the model has an unsupported setting.
    """
    path = folder / "config.json"
    for key, usual in {"pad_token_id": PAD, "eos_token_id": 2, "decoder_start_token_id": 2}.items():
        sizes.setdefault(key, usual)
    cfg = config_of(path, sizes, {"positions": "learned"} | _DEPARTURES[sizes["model_type"]])
    require(path, sizes, {"pad_token_id": PAD, "tie_word_embeddings": True})
    obey(path, sizes, {"max_position_embeddings": TABLE_LENGTH})
    cfg.model.max_positions = sizes["max_position_embeddings"]
    params = _params(cfg.model, weights, sizes["vocab_size"])
    vocabulary = _vocabulary(folder, sizes)
    rows = our_rows(
        path,
        sizes["vocab_size"],
        pad=PAD,
        start=sizes["decoder_start_token_id"],
        eos=sizes["eos_token_id"],
        unk=vocabulary.ids["<unk>"],
    )
    source, target = _pair(folder, vocabulary, languages)
    tokenizer = vocabulary.tokenizer(rows)
    multilingual = Multilingual(tokenizer, source, target, list(vocabulary.languages.values()), str(folder))
    return Imported(folder, cfg, multilingual, finished(folder, cfg.model, params, rows))


def _params(config: Any, weights: Weights, size: int) -> dict[str, Any]:
    """Returns our parameters by name; ids are still theirs."""
    weights = weights.renamed(lambda name: name.removeprefix("model."))
    depths = (config.N, config.N_decoder or config.N)
    text = _TABLE
    if "final_logits_bias" in weights:
        text += BIAS
    if config.norm_embeddings:
        text += _LEARNED
    entries = table.rows(f"{text}\n", 1) + stacks(depths, config.norm)
    lengths = {"v": size, "l": FIRST_POSITION + config.max_positions}
    params = table.read(weights, entries, table.sizes_of(config) | lengths)
    weights.check_all_read(_IGNORED)
    for name in ("source_positions", "target_positions"):
        if config.norm_embeddings:
            params[name] = params[name][FIRST_POSITION:]
        else:
            params[name] = sinusoids(config.max_positions, config.d_model)
    return params


def _vocabulary(folder: Path, sizes: dict[str, Any]) -> Vocabulary:
    """Returns the vocabulary of a folder; `UserError` if its tokenizer is of a class that is not read."""
    settings = tokenizer_settings(folder)
    given = settings.get("tokenizer_class") or _USUAL_TOKENIZER[sizes["model_type"]]
    kind = str(given).removesuffix("Fast")
    match kind:
        case "BartTokenizer" | "RobertaTokenizer":
            vocabulary = _of_bart(folder, kind)
        case "M2M100Tokenizer":
            vocabulary = _of_m2m100(folder, sizes, settings)
        case "MBart50Tokenizer" | "NllbTokenizer":
            require(folder / "tokenizer_config.json", settings, {"legacy_behaviour": False})
            vocabulary = _of_tokenizers(folder, kind, settings)
        case _:
            raise UserError(
                f"{folder}: tokenizer_class is {format_value(given)}; BartTokenizer, M2M100Tokenizer, MBart50Tokenizer "
                "and NllbTokenizer are read"
            )
    if "<unk>" not in vocabulary.ids:
        raise UserError(f"{folder}: its vocabulary has no <unk>")
    return vocabulary


def _of_m2m100(folder: Path, sizes: dict[str, Any], settings: dict[str, Any]) -> Vocabulary:
    """Returns the vocabulary of vocab.json, which the languages follow, as __en__, and a sentencepiece model."""
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

    codes = settings.get("language_codes", "m2m100")
    if not isinstance(codes, str) or codes not in FAIRSEQ_LANGUAGE_CODES:
        raise UserError(f"{folder}/tokenizer_config.json: language_codes is {format_value(codes)}, which is unknown")
    ids = read_vocabulary(folder / "vocab.json", sizes["vocab_size"])
    languages = {code: f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES[codes]}
    ids |= {piece: number for number, piece in enumerate(languages.values(), len(ids))}
    model = content_of(folder / "sentencepiece.bpe.model")
    piece_of = {number: piece for piece, number in ids.items()}
    usual = (settings.get("src_lang"), settings.get("tgt_lang"))
    return Vocabulary(ids, languages, usual, lambda rows: Marian.of(our_pieces(rows, piece_of), model, model))


def _of_bart(folder: Path, kind: str) -> Vocabulary:
    """Returns the vocabulary of tokenizer.json, whose one language is `<s>`."""
    inner = read_tokenizer(folder, kind, "vocab.json", "merges.txt")
    languages = {"<s>": "<s>"}
    return Vocabulary(inner.get_vocab(), languages, ("<s>", "<s>"), lambda rows: ByteLevel.of(inner, rows, str(folder)))


def _of_tokenizers(folder: Path, kind: str, settings: dict[str, Any]) -> Vocabulary:
    """Returns the vocabulary of tokenizer.json, which has the languages, as eng_Latn."""
    inner = read_tokenizer(folder, kind, "sentencepiece.bpe.model")
    ids = inner.get_vocab()
    languages = {piece: piece for piece in ids if _LANGUAGE.fullmatch(piece)}
    usual = (settings.get("src_lang"), settings.get("tgt_lang"))
    return Vocabulary(ids, languages, usual, lambda rows: Unigram.of(inner, rows, str(folder)))


def _pair(folder: Path, vocabulary: Vocabulary, given: Sequence[str]) -> list[str]:
    """Returns the pieces of the source's and the target's language."""
    names = given or vocabulary.usual
    for name in names:
        if not isinstance(name, str) or name not in vocabulary.languages:
            some = ", ".join(sorted(vocabulary.languages)[:6])
            raise UserError(
                f"{folder}: its source and target languages are {format_value(list(names))}; give "
                f"--languages=SOURCE,TARGET, two of {some}, ..."
            )
    return [vocabulary.languages[name] for name in names]

"""Marian (post-norm) and Pegasus (pre-norm) of transformers, which hold the paper's model, and opus-mt as Marian."""

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from safetensors.numpy import save_file

from vaswani.data.imported import Marian
from vaswani.data.pair import Pair
from vaswani.data.symbols import SPECIALS
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.files import content_of, write_json, write_text
from vaswani.ids import BOS, EOS, PAD
from vaswani.infer.convert import table
from vaswani.infer.convert.bart_names import BIAS, EPSILON, SIDES, config_of, finished, sines_first, stacks
from vaswani.infer.convert.check import (
    KNOWN_NORMS,
    check_holds,
    check_tokenizer,
    compare,
    named_pieces,
    penalty_note,
    scored_pairs,
)
from vaswani.infer.convert.folders import Imported
from vaswani.infer.convert.settings import BOOL, SIZE, obey
from vaswani.infer.convert.vocabulary import our_pieces, our_rows, read_vocabulary, subword_tokenizer
from vaswani.infer.convert.weights import Weights
from vaswani.infer.runs import Run
from vaswani.model.config import ModelConfig
from vaswani.model.positions import sinusoids
from vaswani.run.parameters import flatten_params

CLASSES = {"post": ("marian", "MarianMTModel"), "pre": ("pegasus", "PegasusForConditionalGeneration")}
THEIR_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new", "silu": "silu"}
_TIED = """
model.shared.weight=model.encoder.embed_tokens.weight=model.decoder.embed_tokens.weight=lm_head.weight  embed  v d
"""
_TIED_TARGET = """
model.encoder.embed_tokens.weight                 source_embed  u d
model.decoder.embed_tokens.weight=lm_head.weight  target_embed  v d
"""
_UNTIED = """
model.encoder.embed_tokens.weight  source_embed  u d
model.decoder.embed_tokens.weight  target_embed  v d
lm_head.weight                     softmax       v d
"""
POSITIONS = 1024
TOLERANCE = 1e-2  # of a subword's log-probability; ours has another epsilon, 1e-6 by default
POSITION_TOLERANCE = 1e-2  # of a sine: what bfloat16 rounds it by, and more
README = """A Transformer as {model} of transformers, and its sentencepiece model, shared by both languages.

    from transformers import {model}, MarianTokenizer
    tokenizer, model = MarianTokenizer.from_pretrained("."), {model}.from_pretrained(".")
    batch = tokenizer(["A sentence.", "Another one."], return_tensors="pt", padding=True)
    found = model.generate(**batch, num_beams={beam}, length_penalty={alpha})
    print(tokenizer.batch_decode(found, skip_special_tokens=True))

What differs from the code that trained it:

- Length penalty: {penalty}
- Length: an output had at most {extra_length} subwords more than its source; here `max_length` limits it, 512 unless
  generate() is given another. If generation_config.json has `early_stopping` "never", a search goes on for as long as a
  hypothesis of that length could win: a smaller `max_length` saves time.
- Layer norm's epsilon is fixed at {epsilon:g} there; the run's is {ours:g}.
- Text like a special symbol, `</s>` or `>>de<<`, is read as one.
- A text of more than {positions} subwords, the end counted, is an error.
"""


def write(model_run: Run, folder: Path) -> None:
    """Writes the model, its tokenizer and how to load them; checks it if transformers and PyTorch are installed.

    Raises:
      UserError: neither class can hold the model, or it computes something else.
    """
    config = model_run.model_config
    kind, name = CLASSES.get(config.norm, CLASSES["post"])  # which refuses any other norm
    _check_held(model_run, name)
    weights = _their_weights(flatten_params(model_run.params), config)
    if kind == "pegasus":  # which otherwise draws its sinusoids at random
        for side in SIDES:
            weights[f"model.{side}.embed_positions.weight"] = _sinusoids(POSITIONS, config.d_model)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    _write_settings(model_run, folder, kind, name)
    _write_readme(model_run, folder, name)
    _write_tokenizer(model_run.tokenizer, folder)
    _check(model_run, folder, name)


def _check_held(model_run: Run, name: str) -> None:
    """Raises `UserError` unless transformers' class `name` can hold the model and its tokenizer."""
    config = model_run.model_config
    either = (False, True)
    widths = (config.d_model // config.h,) if config.d_model % config.h == 0 else ()
    held = {
        "norm": KNOWN_NORMS,
        "activation": tuple(THEIR_ACTIVATIONS),
        "norm_epsilon": (config.norm_epsilon,),
        "d_k": widths,
        "d_v": widths,
        "biases": either,
        "output_bias": either,
        "scale_embeddings": either,
    }
    check_holds(name, config, held)
    check_tokenizer(name, model_run)


def _their_weights(params: dict[str, np.ndarray], config: ModelConfig) -> dict[str, np.ndarray]:
    """Returns our named parameters under their names; biases that we leave out are zero."""
    entries = table.rows(_TIED + BIAS, config.N) + _stacks(config.depths, config.norm)
    sizes = table.sizes_of(config) | {"v": config.vocab_size}
    return table.write(params, entries, sizes, sines_first(config.d_model))


def _stacks(depths: tuple[int, int], norm: str) -> list[table.Row]:
    """Returns the parameters of both stacks under the names here."""
    return [row._replace(names=[f"model.{name}" for name in row.names]) for row in stacks(depths, norm)]


def _write_settings(model_run: Run, folder: Path, kind: str, name: str) -> None:
    config = model_run.model_config
    decode = model_run.config.decode
    settings: dict[str, Any] = {
        "model_type": kind,
        "architectures": [name],
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "activation_function": THEIR_ACTIVATIONS[config.activation],
        "scale_embedding": config.scale_embeddings,
        "max_position_embeddings": POSITIONS,
        "tie_word_embeddings": True,
        "dropout": config.P_drop,
        "attention_dropout": config.P_drop_attention,
        "activation_dropout": config.P_drop_relu,
    }
    for side, depth in zip(SIDES, config.depths, strict=True):
        settings[f"{side}_layers"] = depth
        settings[f"{side}_ffn_dim"] = config.d_ff
        settings[f"{side}_attention_heads"] = config.h
    ids = {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
    }
    search = {
        "num_beams": decode.beam,
        "length_penalty": decode.alpha,
        "early_stopping": True if decode.stopping == "full" else "never",
        "max_length": 512,
        "bad_words_ids": [[PAD], [BOS]],
    }
    write_json(folder / "config.json", settings | ids)
    write_json(folder / "generation_config.json", ids | search)


def _write_readme(model_run: Run, folder: Path, name: str) -> None:
    decode = model_run.config.decode
    text = README.format(
        model=name,
        beam=decode.beam,
        alpha=decode.alpha,
        penalty=penalty_note("transformers", decode.length_penalty),
        extra_length=decode.extra_length,
        epsilon=EPSILON,
        ours=model_run.model_config.norm_epsilon,
        positions=POSITIONS,
    )
    write_text(folder / "README.md", text)


def _write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    for file in ("source.spm", "target.spm"):
        tokenizer.save(folder / file)
    pieces = named_pieces(tokenizer)
    write_json(folder / "vocab.json", {piece: number for number, piece in enumerate(pieces)})
    settings: dict[str, Any] = {"tokenizer_class": "MarianTokenizer", "model_max_length": POSITIONS}
    specials = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIALS, strict=True))
    write_json(folder / "tokenizer_config.json", settings | specials)


def _check(model_run: Run, folder: Path, name: str) -> None:
    missing = [package for package in ("torch", "transformers") if importlib.util.find_spec(package) is None]
    if missing:
        print(f"note: the written model is not checked: {' and '.join(missing)} not installed", file=sys.stderr)
        return
    import torch
    import transformers

    model, loading = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    if loading["missing_keys"] or loading["unexpected_keys"]:
        raise UserError(f"{name} does not load the written model: it has other parameters; nothing is written")
    model.eval()
    sentences = scored_pairs(model_run)
    their_log_probs = []
    for source, target in zip(sentences.sources, sentences.targets, strict=True):
        source_bs = torch.tensor([source])
        target_bt = torch.tensor([[BOS, *target[:-1]]])
        with torch.no_grad():
            logits_btv = model(input_ids=source_bs, decoder_input_ids=target_bt).logits
        log_probs_tv = torch.log_softmax(logits_btv[0], -1)
        their_log_probs.append(log_probs_tv[range(len(target)), target].tolist())
    compare(f"transformers' {name}", sentences, their_log_probs, TOLERANCE)


def read(folder: Path, sizes: dict[str, Any], weights: Weights) -> Imported:
    """Returns the model of a folder, given its config.json and its weights.

    Raises:
      UserError: a weight or a file is missing or wrong, or the model has an unsupported setting.
    """
    path = folder / "config.json"
    cfg = config_of(path, sizes, {"norm": "post" if sizes["model_type"] == "marian" else "pre"})
    if sizes.get("decoder_vocab_size") is None:
        sizes["decoder_vocab_size"] = sizes["vocab_size"]
    sizes.setdefault("share_encoder_decoder_embeddings", True)
    obey(path, sizes, {"decoder_vocab_size": SIZE, "share_encoder_decoder_embeddings": BOOL})
    pad = sizes["pad_token_id"]
    start = sizes["decoder_start_token_id"]
    eos = sizes["eos_token_id"]

    def vocabulary(name: str, size: int, start: int) -> tuple[list[int], list[str]]:
        tokens = read_vocabulary(folder / name, size)
        rows = our_rows(path, size, pad=pad, start=start, eos=eos, unk=tokens["<unk>"])
        return rows, our_pieces(rows, {number: piece for piece, number in tokens.items()})

    positions = sizes["max_position_embeddings"]
    if sizes["share_encoder_decoder_embeddings"]:
        rows, pieces = vocabulary("vocab.json", sizes["vocab_size"], start)
        params = _our_params(folder, cfg, weights, rows, None, positions)
        return Imported(folder, cfg, subword_tokenizer(pieces, *_sentencepiece(folder)), params)

    cfg.data.share_vocabulary = False
    source_rows, source_pieces = vocabulary("vocab.json", sizes["vocab_size"], pad)  # no source begins with a token
    rows, pieces = vocabulary("target_vocab.json", sizes["decoder_vocab_size"], start)
    params = _our_params(folder, cfg, weights, rows, source_rows, positions)
    source_spm, target_spm = _sentencepiece(folder)
    source = Marian.of(source_pieces, source_spm, source_spm)
    target = Marian.of(pieces, target_spm, target_spm)
    return Imported(folder, cfg, Pair(source, target), params)


def _our_params(
    folder: Path, cfg: ConfigDict, weights: Weights, rows: list[int], source_rows: list[int] | None, positions: int
) -> dict[str, Any]:
    """Returns our parameters, and turns off in `cfg.model` the biases that are all zero.

    `source_rows` are the source's, if it has a separate vocabulary.
    """
    config = cfg.model
    depths = (config.N, config.N_decoder or config.N)
    sizes = table.sizes_of(config) | {"u": max(source_rows or rows) + 1, "v": max(rows) + 1}
    embeddings = _embeddings(weights, config.tie_embeddings, source_rows is None)
    entries = table.rows(embeddings, config.N) + _stacks(depths, config.norm)
    params = table.read(weights, entries, sizes, sines_first(config.d_model))
    _check_positions(weights, positions, config.d_model)
    weights.check_all_read(() if config.tie_embeddings else ("model.shared.weight",))  # which is then of no use there
    return finished(folder, config, params, rows, source_rows)


def _embeddings(weights: Weights, tied: bool, shared: bool) -> str:
    """Returns the table of their one embedding, or with no ties of both sides' and the softmax's; and of the bias.

    With separate vocabularies, not `shared`, only the target's can be tied to the softmax.
    """
    bias = BIAS if "final_logits_bias" in weights else ""
    if tied:
        return (_TIED if shared else _TIED_TARGET) + bias
    names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
    if not any(name in weights for name in names):  # older versions save two that are the same as one
        return re.sub("|".join(names), "model.shared.weight", _UNTIED) + bias
    return _UNTIED + bias


def _check_positions(weights: Weights, positions: int, d_model: int) -> None:
    """Raises `UserError` if positions are saved that are not the sinusoids that our model computes."""
    for side in SIDES:
        name = f"model.{side}.embed_positions.weight"
        if name not in weights:
            continue
        table_ld = weights.take(name, positions, d_model)
        largest = float(np.abs(table_ld - _sinusoids(positions, d_model)).max())
        if largest > POSITION_TOLERANCE:
            raise weights.wrong(f"{name} is off by {largest:.2g} from sinusoids, which our model has")


def _sinusoids(positions: int, d_model: int) -> np.ndarray:
    """Returns a table of ours in their order."""
    table_ld = np.array(sinusoids(jnp.arange(positions)[None], d_model)[0])
    return np.ascontiguousarray(table_ld[:, sines_first(d_model)])


def _sentencepiece(folder: Path) -> tuple[bytes, bytes]:
    """Returns the sentencepiece models of the source and of the target."""
    return content_of(folder / "source.spm"), content_of(folder / "target.spm")

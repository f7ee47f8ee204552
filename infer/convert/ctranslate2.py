"""A translation run as a CTranslate2 model: positions of all kinds but shaw and t5, pre- and post-norm, any widths."""

import itertools
from pathlib import Path
from typing import Any

import ctranslate2
import jax
import numpy as np
from ctranslate2.specs import transformer_spec

from vaswani.data.imported import Marian
from vaswani.data.pair import Pair
from vaswani.data.symbols import Symbols
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.files import write_bytes, write_text
from vaswani.ids import EOS
from vaswani.infer.convert import table
from vaswani.infer.convert.check import (
    KNOWN_NORMS,
    ScoredPairs,
    check_holds,
    check_tokenizer,
    compare,
    named_pieces,
    penalty_note,
    scored_pairs,
    stopping_note,
)
from vaswani.infer.convert.ctranslate2_names import ACTIVATIONS, POSITION_ROWS, TABLE, alibi_table, our_sinusoids
from vaswani.infer.runs import Run
from vaswani.model.config import ModelConfig
from vaswani.run.parameters import flatten_params

# Allowed difference of a subword's log-probability, and the arithmetic of the check: a CPU has no 16-bit floats here.
TOLERANCES = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.3, "int16": 0.1, "int8": 1.0}
COMPUTE = {"int16": "int16", "int8": "int8"}
# Without VNNI oneDNN adds products of two bytes in 16 bits, which they may exceed; CTranslate2 takes it wherever the
# CPU is not Intel's.
INT8_ADVICE = "; if this CPU is not Intel's, try again with CT2_USE_MKL=1, whose int8 sums may be more exact"
_POSITIONS = ("sinusoidal", "learned", "rope", "alibi", "none")
README = """A CTranslate2 model ({quantization}) {subwords}.

    import ctranslate2{pieces}
    translator = ctranslate2.Translator(".", device="cpu", compute_type="{compute}")  # or device="cuda"
    lines = ["A sentence.", "Another one."]
    found = translator.translate_batch(
        {encoded}, beam_size={beam}, length_penalty={alpha}, max_decoding_length={longest},
        max_input_length=0, min_decoding_length=0, suppress_sequences=[["<pad>"], ["<s>"]],
    )
    {target_pieces}print([{decoded} for one in found])

What differs from the code that trained it:

- Length penalty: {penalty}
  Where they differ, beam search with the same alpha may choose another hypothesis.
- Stopping: {stopping}
- By itself CTranslate2 gives no empty translation, and it may write `<pad>` and `<s>`: hence the last two arguments.
- An output had at most {extra_length} subwords more than its source; max_decoding_length is one number for all.
- A sentence {length}; the code splits long lines into pieces. Without
  `max_input_length=0`, CTranslate2 drops what follows the first 1,024 subwords, and says nothing.
"""


def write(model_run: Run, folder: Path, quantization: str = "float32") -> float:
    """Writes the model, and returns the largest difference of its log-probabilities from ours.

    Raises:
      UserError: CTranslate2 cannot hold the model, computes something else, or cannot compute with these numbers on
        this CPU, so that it cannot be compared.
    """
    config = model_run.model_config
    _check_held(model_run)
    compute = COMPUTE.get(quantization, "float32")
    if compute not in ctranslate2.get_supported_compute_types("cpu"):
        raise UserError(
            f"--quantization={quantization}: CTranslate2 cannot compute with {compute} on this CPU, so the written "
            "model could not be compared with the run; choose another"
        )
    spec = specification(config, jax.tree.map(np.array, model_run.params))
    tokenizer = model_run.tokenizer
    source, target = _sides(tokenizer)
    spec.register_source_vocabulary(named_pieces(source))
    spec.register_target_vocabulary(named_pieces(target))
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.config.decoder_start_token = "<s>"
    spec.config.add_source_eos = tokenizer.source_end == (EOS,)
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    names = _write_subwords(tokenizer, folder)
    _write_readme(model_run, folder, quantization, compute, names)
    sentences = scored_pairs(model_run)
    written = log_probs(model_run, folder, compute, sentences)
    advice = INT8_ADVICE if compute == "int8" else ""
    return compare(f"CTranslate2 {quantization}", sentences, written, TOLERANCES[quantization], advice)


def _check_held(model_run: Run) -> None:
    """Raises `UserError` unless CTranslate2 can hold the model and its tokenizer."""
    config = model_run.model_config
    either = (False, True)
    held = {
        "positions": _POSITIONS,
        "norm": KNOWN_NORMS,
        "activation": tuple(filter(None, ACTIVATIONS)),
        "norm_epsilon": (config.norm_epsilon,),
        "d_k": (config.d_k,),
        "d_v": (config.d_v,),
        "biases": either,
        "output_bias": either,
        "scale_embeddings": either,
        "tie_embeddings": either,
    }
    check_holds("CTranslate2", config, held)
    check_tokenizer("CTranslate2", model_run, may_be_two=True, kinds=(Tokenizer, Marian, Symbols))
    if any(isinstance(side, Symbols) and side.units != "words" for side in _sides(model_run.tokenizer)):
        raise UserError(f"{model_run.workdir}: data.units is not words on both sides, which CTranslate2 exports need")


def _sides(tokenizer: Tokenizer) -> tuple[Tokenizer, Tokenizer]:
    """Returns the tokenizers of the source and of the target, which have a vocabulary each or the same one."""
    return (tokenizer.source, tokenizer.target) if isinstance(tokenizer, Pair) else (tokenizer, tokenizer)


def _write_subwords(tokenizer: Tokenizer, folder: Path) -> tuple[str, ...]:
    """Writes the sentencepiece models of source and target, or one of both; returns their names, none for words."""
    contents = []
    for number, side in enumerate(_sides(tokenizer)):
        if isinstance(side, Symbols):
            return ()
        contents.append(side.models[number] if isinstance(side, Marian) else side.content)
    names = ("source.model", "target.model") if contents[0] != contents[1] else ("tokenizer.model",)
    for name, content in zip(names, contents, strict=False):
        write_bytes(folder / name, content)
    return names


def _write_readme(model_run: Run, folder: Path, quantization: str, compute: str, names: tuple[str, ...]) -> None:
    """Writes how to load and use the model; `names` are the sentencepiece models'."""
    config = model_run.model_config
    decode = model_run.config.decode
    rows = config.limit or POSITION_ROWS
    subwords = "of words, which blanks separate"
    if names:
        subwords = "and its sentencepiece models, one of each language"
    if len(names) == 1:
        subwords = "and its sentencepiece model, shared by both languages"
    load = [f'pieces = sentencepiece.SentencePieceProcessor(model_file="{name}")\n    ' for name in names]
    text = README.format(
        subwords=subwords,
        pieces=f", sentencepiece\n    {load[0].rstrip()}" if load else "",
        target_pieces=load[1] if len(load) == 2 else "",
        encoded="pieces.encode(lines, out_type=str)" if load else "[line.split() for line in lines]",
        decoded="pieces.decode(one.hypotheses[0])" if load else '" ".join(one.hypotheses[0])',
        quantization=quantization,
        compute=compute,
        beam=decode.beam,
        alpha=decode.alpha,
        longest=min(rows, 256),
        penalty=penalty_note("CTranslate2", decode.length_penalty),
        stopping=stopping_note("CTranslate2", decode.stopping),
        extra_length=decode.extra_length,
        length=_about_length(config, rows),
    )
    write_text(folder / "README.md", text)


def _about_length(config: ModelConfig, rows: int) -> str:
    """Returns the README's words on long sentences; `rows` is the number of positions in the tables."""
    if config.positions == "rope":
        return "may be of any length"
    result = "is translated inexactly" if config.positions == "alibi" else "is an error"
    return f"of more than {rows} subwords, the end counted, {result}"


def log_probs(model_run: Run, folder: Path, compute: str, sentences: ScoredPairs) -> list[list[float]]:
    """Returns the log-probability of each target subword, EOS included, as the written model computes them."""
    translator = ctranslate2.Translator(str(folder), device="cpu", compute_type=compute, intra_threads=1)
    tokenizer = model_run.tokenizer
    sources = [tokenizer.pieces(ids[: len(ids) - len(tokenizer.source_end)]) for ids in sentences.sources]
    targets = [tokenizer.target.pieces(ids[:-1]) for ids in sentences.targets]
    return [result.log_probs for result in translator.score_batch(sources, targets)]


def specification(config: ModelConfig, params: Any) -> transformer_spec.TransformerSpec:
    """Returns the model of writable float32 arrays `params`, without vocabulary."""
    shape: dict[str, Any] = {
        "pre_norm": config.norm == "pre",
        "activation": ACTIVATIONS.index(config.activation),
        "relative_attention_bias": config.positions == "alibi",
        "head_dim": max(config.d_k, config.d_v),
        "rotary_dim": config.d_k if config.positions == "rope" else None,
    }
    encoder_depth, decoder_depth = config.depths
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(encoder_depth, config.h, **shape),
        transformer_spec.TransformerDecoderSpec(decoder_depth, config.h, **shape),
    )
    for stack, causal in ((spec.encoder, False), (spec.decoder, True)):
        stack.scale_embeddings = config.scale_embeddings
        for layer in stack.layer:
            layer.self_attention.queries_scale = float(config.d_k**-0.5)
            if config.positions == "alibi":
                layer.self_attention.relative_attention_bias = alibi_table(config.h, POSITION_ROWS, causal=causal)
                layer.self_attention.relative_attention_max_distance = np.int32(4 * POSITION_ROWS)
            if causal:
                layer.attention.queries_scale = float(config.d_k**-0.5)
    for name, array in _their_weights(config, flatten_params(params)).items():
        _set(spec, name, array)
    return spec


def _their_weights(config: ModelConfig, params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the parameters by their names there.

    Heads have one width there: the narrower of d_k and d_v is padded with zeros.
    """
    names = zip(("source_embed", "target_embed", "softmax"), config.tables, strict=True)
    params = params | {name: params[ours] for name, ours in names}
    if config.positions not in ("alibi", "rope"):
        for name in ("source_positions", "target_positions"):
            params.setdefault(name, _position_table(config))
    width = max(config.d_k, config.d_v)
    sizes = table.sizes_of(config) | {"k": width, "e": width}
    rows = [row for row in table.rows(TABLE, max(config.depths)) if row.paths[0] in params]
    padded = {}
    for path in itertools.chain.from_iterable(row.paths for row in rows):
        letters = table.AXES[path.rpartition("/")[2]]
        axes = zip(letters, params[path].shape, strict=True)
        padded[path] = np.pad(params[path], [(0, sizes.get(letter, size) - size) for letter, size in axes])
    return table.write(padded, rows, sizes)


def _set(spec: Any, name: str, array: np.ndarray) -> None:
    """Sets a variable of a specification by its name, in which `layer_0` is the first entry of a list `layer`."""
    *parts, last = name.split("/")
    for part in parts:
        entries, _, number = part.rpartition("_")
        spec = getattr(spec, part) if hasattr(spec, part) else getattr(spec, entries)[int(number)]
    setattr(spec, last, array)


def _position_table(config: ModelConfig) -> np.ndarray:
    """Returns the vectors added at each position; without any, CTranslate2 would add its own sinusoids."""
    if config.positions == "none":
        return np.zeros((POSITION_ROWS, config.d_model), np.float32)
    return our_sinusoids(POSITION_ROWS, config.d_model)

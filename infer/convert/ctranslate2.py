"""A translation run as a CTranslate2 model: positions of all kinds but shaw and t5, pre- and post-norm, any widths."""

import itertools
from pathlib import Path
from typing import Any

import ctranslate2
import jax
import jax.numpy as jnp
import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

from vaswani.data.pair import Pair
from vaswani.errors import UserError
from vaswani.files import write_text
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
from vaswani.infer.runs import Run
from vaswani.infer.translate.translator import MAX_INPUT
from vaswani.model.config import ModelConfig
from vaswani.model.positions import alibi_slopes, sinusoids
from vaswani.run.parameters import named

POSITION_ROWS = 2 * MAX_INPUT  # of the tables of sinusoids and of ALiBi's biases
# Allowed difference of a subword's log-probability, and the arithmetic of the check: a CPU has no 16-bit floats here.
TOLERANCES = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.3, "int16": 0.1, "int8": 1.0}
COMPUTE = {"int16": "int16", "int8": "int8"}
# Without VNNI oneDNN adds products of two bytes in 16 bits, which they may exceed; CTranslate2 takes it wherever the
# processor is not Intel's.
INT8_ADVICE = "; if this processor is not Intel's, try again with CT2_USE_MKL=1, whose int8 sums may be more exact"
_POSITIONS = ("sinusoidal", "learned", "rope", "alibi", "none")
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
_TABLE = """
{side}/layer_{n}/self_attention/linear_0/weight           {side}/layer_{n}/self_attention/wq+wk+wv  3hk d
{side}/layer_{n}/self_attention/linear_0/bias             {side}/layer_{n}/self_attention/bq+bk+bv  3hk
{side}/layer_{n}/self_attention/linear_1/weight           {side}/layer_{n}/self_attention/wo        d he
{side}/layer_{n}/self_attention/linear_1/bias             {side}/layer_{n}/self_attention/bo        d
decoder/layer_{n}/attention/linear_0/weight               decoder/layer_{n}/cross_attention/wq      hk d
decoder/layer_{n}/attention/linear_0/bias                 decoder/layer_{n}/cross_attention/bq      hk
decoder/layer_{n}/attention/linear_1/weight               decoder/layer_{n}/cross_attention/wk+wv   2hk d
decoder/layer_{n}/attention/linear_1/bias                 decoder/layer_{n}/cross_attention/bk+bv   2hk
decoder/layer_{n}/attention/linear_2/weight               decoder/layer_{n}/cross_attention/wo      d he
decoder/layer_{n}/attention/linear_2/bias                 decoder/layer_{n}/cross_attention/bo      d
{side}/layer_{n}/ffn/linear_0/weight                      {side}/layer_{n}/feed_forward/w1          f d
{side}/layer_{n}/ffn/linear_0/bias                        {side}/layer_{n}/feed_forward/b1          f
{side}/layer_{n}/ffn/linear_1/weight                      {side}/layer_{n}/feed_forward/w2          d f
{side}/layer_{n}/ffn/linear_1/bias                        {side}/layer_{n}/feed_forward/b2          d
{side}/layer_{n}/self_attention/layer_norm/{gamma,beta}   {side}/layer_{n}/norm_1/{scale,bias}      d
encoder/layer_{n}/ffn/layer_norm/{gamma,beta}             encoder/layer_{n}/norm_2/{scale,bias}     d
decoder/layer_{n}/attention/layer_norm/{gamma,beta}       decoder/layer_{n}/norm_2/{scale,bias}     d
decoder/layer_{n}/ffn/layer_norm/{gamma,beta}             decoder/layer_{n}/norm_3/{scale,bias}     d
{side}/layer_norm/{gamma,beta}                            {side}/final_norm/{scale,bias}            d
"""
README = """A CTranslate2 model ({quantization}) and its sentencepiece model{models}.

    import ctranslate2, sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(model_file="{source}")
    translator = ctranslate2.Translator(".", device="cpu", compute_type="{compute}")  # or device="cuda"
    lines = ["A sentence.", "Another one."]
    found = translator.translate_batch(
        pieces.encode(lines, out_type=str), beam_size={beam}, length_penalty={alpha}, max_decoding_length={longest},
        max_input_length=0, min_decoding_length=0, suppress_sequences=[["<pad>"], ["<s>"]],
    )
    {written}print([pieces.decode(one.hypotheses[0]) for one in found])

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
    source = tokenizer.source if isinstance(tokenizer, Pair) else tokenizer
    spec.register_source_vocabulary(named_pieces(source))
    spec.register_target_vocabulary(named_pieces(tokenizer.target))
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.config.decoder_start_token = "<s>"
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))
    names = ("tokenizer.model", "tokenizer.model")
    if isinstance(tokenizer, Pair):
        names = ("source.model", "target.model")
    source.save(folder / names[0])
    tokenizer.target.save(folder / names[1])
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
        "activation": tuple(_ACTIVATIONS),
        "norm_epsilon": (config.norm_epsilon,),
        "d_k": (config.d_k,),
        "d_v": (config.d_v,),
        "biases": either,
        "output_bias": either,
        "scale_embeddings": either,
        "tie_embeddings": either,
    }
    check_holds("CTranslate2", config, held)
    check_tokenizer("CTranslate2", model_run, may_be_two=True)


def _write_readme(model_run: Run, folder: Path, quantization: str, compute: str, names: tuple[str, str]) -> None:
    """Writes how to load and use the model; `names` are those of the files of source and target subwords."""
    config = model_run.model_config
    decode = model_run.config.decode
    rows = config.limit or POSITION_ROWS
    source, target = names
    models = ", which is that of both languages"
    written = ""
    if source != target:
        models = "s, one of each language"
        written = f'pieces = sentencepiece.SentencePieceProcessor(model_file="{target}")\n    '
    text = README.format(
        models=models,
        source=source,
        written=written,
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
    """Returns what the README says of long sentences; `rows` is how many positions the tables have."""
    if config.positions == "rope":
        return "may be of any length"
    result = "is translated inexactly" if config.positions == "alibi" else "is an error"
    return f"of more than {rows} subwords, the end counted, {result}"


def log_probs(model_run: Run, folder: Path, compute: str, sentences: ScoredPairs) -> list[list[float]]:
    """Returns the log-probability of each target subword, EOS included, as the written model computes them."""
    translator = ctranslate2.Translator(str(folder), device="cpu", compute_type=compute, intra_threads=1)
    tokenizer = model_run.tokenizer
    sources = [tokenizer.pieces(ids[:-1]) for ids in sentences.sources]
    targets = [tokenizer.target.pieces(ids[:-1]) for ids in sentences.targets]
    return [result.log_probs for result in translator.score_batch(sources, targets)]


def specification(config: ModelConfig, params: Any) -> transformer_spec.TransformerSpec:
    """Returns the model of writable float32 arrays `params`, without vocabulary."""
    shape: dict[str, Any] = {
        "pre_norm": config.norm == "pre",
        "activation": getattr(common_spec.Activation, _ACTIVATIONS[config.activation]),
        "relative_attention_bias": config.positions == "alibi",
        "head_dim": max(config.d_k, config.d_v),
        "rotary_dim": config.d_k if config.positions == "rope" else None,
    }
    encoder_depth, decoder_depth = config.depths
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(encoder_depth, config.h, **shape),
        transformer_spec.TransformerDecoderSpec(decoder_depth, config.h, **shape),
    )
    source_table, target_table, softmax_table = config.tables
    spec.encoder.embeddings[0].weight = params[source_table]
    spec.decoder.embeddings.weight = params[target_table]
    spec.decoder.projection.weight = params[softmax_table].copy()
    if config.output_bias:
        spec.decoder.projection.bias = params["output_bias"]
    for stack, side, name in ((spec.encoder, "encoder", "source"), (spec.decoder, "decoder", "target")):
        stack.scale_embeddings = config.scale_embeddings
        if config.positions not in ("alibi", "rope"):
            stack.position_encodings.encodings = _position_table(config, params.get(f"{name}_positions"))
        for layer in stack.layer:
            layer.self_attention.queries_scale = float(config.d_k**-0.5)
            if config.positions == "alibi":
                layer.self_attention.relative_attention_bias = _alibi_table(config.h, causal=side == "decoder")
                layer.self_attention.relative_attention_max_distance = np.int32(4 * POSITION_ROWS)
            if side == "decoder":
                layer.attention.queries_scale = float(config.d_k**-0.5)
    for name, array in _stacks(config, named(params)).items():
        _set(spec, name, array)
    return spec


def _stacks(config: ModelConfig, params: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns the parameters of both stacks by their names there.

    Heads have one width there: the narrower of d_k and d_v is padded with zeros.
    """
    width = max(config.d_k, config.d_v)
    sizes = table.sizes_of(config) | {"k": width, "e": width}
    rows = [row for row in table.rows(_TABLE, max(config.depths)) if row.paths[0] in params]
    padded = {}
    for path in itertools.chain.from_iterable(row.paths for row in rows):
        letters = table.AXES[path.rpartition("/")[2]]
        axes = zip(letters, params[path].shape, strict=True)
        padded[path] = np.pad(params[path], [(0, sizes[letter] - size) for letter, size in axes])
    return table.write(padded, rows, sizes)


def _set(spec: Any, name: str, array: np.ndarray) -> None:
    """Sets a variable of a specification by its name, in which `layer_0` is the first entry of a list `layer`."""
    *parts, last = name.split("/")
    for part in parts:
        entries, _, number = part.rpartition("_")
        spec = getattr(spec, part) if hasattr(spec, part) else getattr(spec, entries)[int(number)]
    setattr(spec, last, array)


def _position_table(config: ModelConfig, learned_ld: np.ndarray | None) -> np.ndarray:
    """Returns what is added at each position; without any, CTranslate2 would add sinusoids of its own."""
    if learned_ld is not None:
        return learned_ld
    if config.positions == "none":
        return np.zeros((POSITION_ROWS, config.d_model), np.float32)
    return np.array(sinusoids(jnp.arange(POSITION_ROWS)[None], config.d_model)[0])


def _alibi_table(h: int, *, causal: bool) -> np.ndarray:
    """Returns ALiBi as T5's biases, whose first buckets are single distances.

    There are 2 POSITION_ROWS buckets for keys before the query, of which the upper half, never reached, are wider ones,
    and in the encoder as many for keys after it.
    """
    near = -np.arange(POSITION_ROWS)[:, None] * alibi_slopes(h)[None]
    one_way = np.concatenate([near, np.repeat(near[-1:], POSITION_ROWS, 0)]).astype(np.float32)
    return one_way if causal else np.concatenate([one_way, one_way])

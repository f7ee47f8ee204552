"""A run's encoder and decoder as StableHLO, which any program with JAX or XLA can load and call, without our code."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import flatbuffers  # noqa: F401 (jax.export serialises with it)
import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from safetensors.numpy import save_file

from vaswani.errors import UserError
from vaswani.files import write_bytes, write_json, write_text
from vaswani.ids import BOS, EOS, PAD
from vaswani.infer.convert.check import ScoredPairs, check_tokenizer, compare, lengths, scored_pairs
from vaswani.infer.runs import Run
from vaswani.model.transformer import Transformer
from vaswani.run.parameters import flatten_params
from vaswani.tokens import Tokens

PLATFORMS = ("cpu", "cuda", "tpu")
TOLERANCE = 1e-4
MIXERS = ("attention", "recurrent", "convolution")  # whose programs are the same for rows of any length
README = """A Transformer as two functions in StableHLO, for {platforms}, any number of rows {lengths}:

- `encode.bin`: (parameters, source ids [b,s]) -> the encoder's output [b,s,d], float32
- `forward.bin`: (parameters, source ids [b,s], target ids [b,t]) -> logits of the next subword [b,t,v], float32

Ids are int32: a source ends with {eos}, a target begins with {bos}, rows are padded with {pad} at their end.
`parameters.json` gives the order of the parameters, a tuple of the arrays in `model.safetensors`; `tokenizer.model` is
a sentencepiece model.

    import json, jax, jax.export, numpy as np, sentencepiece
    from safetensors.numpy import load_file
    arrays = load_file("model.safetensors")
    params = tuple(arrays[name] for name in json.load(open("parameters.json")))
    forward = jax.export.deserialize(open("forward.bin", "rb").read())
    pieces = sentencepiece.SentencePieceProcessor(model_file="tokenizer.model")
    source = np.array([pieces.encode("A sentence.") + [{eos}]], np.int32)
    target = [{bos}]
    while len(target) < {longest} and target[-1] != {eos}:  # greedy
        target.append(int(np.argmax(forward.call(params, source, np.array([target], np.int32))[0, -1])))
    print(pieces.decode(target[1:]))

Beam search, its length penalty and a cache of keys and values are not in it. `Exported.mlir_module()` is the text.
Both were written by jax {jax}. Its promise is that a jax of up to six months later reads them, and one of up to three
weeks before; a later one may refuse them, so keep the run, and export it again.
"""


def write(model_run: Run, folder: Path) -> float:
    """Writes both functions and the parameters; returns the largest difference of the read ones' log-probabilities.

    Raises:
      UserError: the mixer's program is one of a single length, or what is read again computes something else.
    """
    check_tokenizer("StableHLO", model_run)
    plain = {"dtype": "float32", "attention_impl": "einsum", "remat": "none"}
    config = dataclasses.replace(model_run.model_config, **plain)
    if config.mixer not in MIXERS:
        raise UserError(f"model.mixer is {config.mixer!r}, which StableHLO cannot hold; take another format")
    model = Transformer(config)
    leaves = flatten_params(model_run.params)
    structure = jax.tree.structure(model_run.params)
    names = list(leaves)

    def encode(params: tuple, source_bs: jax.Array) -> jax.Array:
        tree = jax.tree.unflatten(structure, params)
        return model.apply({"params": tree}, Tokens.of(source_bs), method="encode")

    def forward(params: tuple, source_bs: jax.Array, target_bt: jax.Array) -> jax.Array:
        tree = jax.tree.unflatten(structure, params)
        source = Tokens.of(source_bs)
        target = Tokens.of(target_bt)
        return model.apply({"params": tree}, source, target)

    params = tuple(leaves.values())
    shapes = tuple(map(_shape_of, params))
    limit = config.limit
    write_bytes(folder / "encode.bin", _serialized(encode, shapes, "s", limit))
    write_bytes(folder / "forward.bin", _serialized(forward, shapes, "st", limit))
    arrays = {name: np.ascontiguousarray(leaf) for name, leaf in leaves.items()}
    save_file(arrays, folder / "model.safetensors")
    write_json(folder / "parameters.json", names)
    model_run.tokenizer.save(folder / "tokenizer.model")
    platforms = ", ".join(PLATFORMS)
    readme = README.format(jax=jax.__version__, platforms=platforms, pad=PAD, bos=BOS, eos=EOS, **lengths(config))
    write_text(folder / "README.md", readme)

    pairs = scored_pairs(model_run)
    log_probs = _log_probs(folder, params, pairs)
    return compare("StableHLO", pairs, log_probs, TOLERANCE)


def _shape_of(leaf: np.ndarray) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


def _serialized(function: Callable[..., jax.Array], shapes: tuple, sides: str, limit: int | None) -> bytes:
    """Returns a function of the parameters and of ids [b,s], or [b,s] and [b,t], for any sizes up to `limit`."""
    constraints = []
    if limit:
        constraints = [f"{side} <= {limit}" for side in sides]
    axes = ", ".join(["b", *sides])
    b, *widths = export.symbolic_shape(axes, constraints=constraints)
    inputs = [jax.ShapeDtypeStruct((b, width), jnp.int32) for width in widths]
    exporter = export.export(jax.jit(function), platforms=PLATFORMS)
    exported = exporter(shapes, *inputs)
    return bytes(exported.serialize())


def _log_probs(folder: Path, params: tuple, pairs: ScoredPairs) -> list[list[float]]:
    """Returns the log-probability of each target subword, EOS included, as the written function computes them."""
    serialized = (folder / "forward.bin").read_bytes()
    forward = export.deserialize(bytearray(serialized))
    log_probs: list[list[float]] = []
    for source, target in zip(pairs.sources, pairs.targets, strict=True):
        source_bs = np.array([source], np.int32)
        target_bt = np.array([[BOS, *target[:-1]]], np.int32)
        logits_tv = forward.call(params, source_bs, target_bt)[0]
        log_probs_tv = np.asarray(jax.nn.log_softmax(logits_tv))
        places_t = np.arange(len(target))
        log_probs_t = log_probs_tv[places_t, target]
        log_probs.append(log_probs_t.tolist())
    return log_probs

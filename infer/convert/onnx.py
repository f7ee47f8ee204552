"""A translation run as two ONNX graphs, encoder and decoder, with attention and all kinds of positions but shaw."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx

from vaswani.errors import UserError
from vaswani.files import write_bytes, write_text
from vaswani.ids import BOS, EOS, PAD
from vaswani.infer.convert.check import (
    KNOWN_NORMS,
    ScoredPairs,
    check_holds,
    check_tokenizer,
    compare,
    lengths,
    scored_pairs,
    widths_and_switches,
)
from vaswani.infer.convert.onnx_graph import OPSET, decoder, encoder
from vaswani.infer.runs import Run

LARGEST = 2**31 - 2**24  # bytes of parameters: a file is limited to 2 GiB
TOLERANCE = 1e-4
README = """A Transformer as two ONNX graphs (opset {opset}), for any number of rows {lengths}:

- `encoder.onnx`: source [b,s] -> memory [b,s,d], the encoder's output
- `decoder.onnx`: memory [b,s,d], source [b,s], target [b,t] -> logits of the next subword [b,t,v]

Source and target are ids, int64; memory and logits are float32. A source ends with {eos}, a target begins with {bos},
rows are padded with {pad} at their end. `tokenizer.model` is a sentencepiece model.

    import numpy as np, onnxruntime, sentencepiece
    encoder = onnxruntime.InferenceSession("encoder.onnx", providers=["CPUExecutionProvider"])
    decoder = onnxruntime.InferenceSession("decoder.onnx", providers=["CPUExecutionProvider"])
    pieces = sentencepiece.SentencePieceProcessor(model_file="tokenizer.model")
    source = np.array([pieces.encode("A sentence.") + [{eos}]], np.int64)
    memory = encoder.run(None, {{"source": source}})[0]
    target = [{bos}]
    while len(target) < {longest} and target[-1] != {eos}:  # greedy
        given = {{"memory": memory, "source": source, "target": np.array([target], np.int64)}}
        target.append(int(np.argmax(decoder.run(None, given)[0][0, -1])))
    print(pieces.decode(target[1:]))

Beam search, its length penalty and a cache of keys and values are not in it: each step computes the whole target again.
"""


def write(model_run: Run, folder: Path) -> float | None:
    """Writes both graphs and the tokenizer, and returns the largest difference of log-probabilities from ours.

    It is None, and a line says so, where onnxruntime is not installed.

    Raises:
      UserError: an ONNX graph cannot hold the model, or computes something else.
    """
    config = model_run.model_config
    held: dict[str, Any] = {
        "positions": ("sinusoidal", "learned", "rope", "alibi", "t5", "none"),
        "norm": KNOWN_NORMS,
        "norm_kind": ("layer", "rms"),
        "activation": ("relu", "gelu", "gelu_tanh", "silu"),
        **widths_and_switches(config),
    }
    check_holds("ONNX", config, held)
    check_tokenizer("ONNX", model_run)
    params = jax.tree.map(np.asarray, model_run.params)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
    if size > LARGEST:
        raise UserError(f"the parameters have {size / 2**30:.2g} GiB, an ONNX file at most 2; take another format")
    for name, build in (("encoder", encoder), ("decoder", decoder)):
        graph = build(config, params)
        onnx.checker.check_model(graph, full_check=True)
        write_bytes(folder / f"{name}.onnx", graph.SerializeToString())
    model_run.tokenizer.save(folder / "tokenizer.model")
    write_text(folder / "README.md", README.format(opset=OPSET, pad=PAD, bos=BOS, eos=EOS, **lengths(config)))
    if importlib.util.find_spec("onnxruntime") is None:
        print("note: the written model is not checked: onnxruntime is not installed", file=sys.stderr)
        return None
    sentences = scored_pairs(model_run)
    return compare("ONNX", sentences, log_probs(folder, sentences), TOLERANCE)


def log_probs(folder: Path, sentences: ScoredPairs) -> list[list[float]]:
    """Returns the log-probability of each target subword, EOS included, as the written model computes them."""
    import onnxruntime

    providers = ["CPUExecutionProvider"]
    encode = onnxruntime.InferenceSession(folder / "encoder.onnx", providers=providers).run
    decode = onnxruntime.InferenceSession(folder / "decoder.onnx", providers=providers).run
    result = []
    for source, target in zip(sentences.sources, sentences.targets, strict=True):
        source_bs = np.array([source])
        target_bt = np.array([[BOS, *target[:-1]]])
        memory_bsd = encode(None, {"source": source_bs})[0]
        logits_btv = decode(None, {"memory": memory_bsd, "source": source_bs, "target": target_bt})[0]
        log_probs_tv = np.asarray(jax.nn.log_softmax(logits_btv[0]))
        result.append(log_probs_tv[np.arange(len(target)), target].tolist())
    return result

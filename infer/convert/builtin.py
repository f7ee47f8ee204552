"""A run as a bundled one (`run.builtin`): parameters in float16, config, tokenizer and its scores."""

from pathlib import Path

import jax
import numpy as np
from safetensors.numpy import save_file

from vaswani.errors import UserError
from vaswani.files import write_json
from vaswani.infer.evaluate.sentences import open_split
from vaswani.infer.evaluate.translations import evaluate
from vaswani.infer.runs import Run
from vaswani.infer.translate.options import make_decoding
from vaswani.run.averaging import list_checkpoints
from vaswani.run.builtin import WEIGHTS
from vaswani.run.folder import as_json
from vaswani.run.parameters import named

RECORD = "record.json"


def write(model_run: Run, folder: Path) -> None:
    """Writes the run's parameters in float16, config and tokenizer; and the records of the test split.

    `record.json` has one of the parameters in "float32", as they are in the run, and one of those in "float16".

    Raises:
      UserError: the run has no test split, or a parameter is too large for float16.
    """
    with np.errstate(over="ignore"):
        rounded = {name: np.asarray(leaf, np.float16) for name, leaf in named(model_run.params).items()}
    if not all(np.isfinite(leaf).all() for leaf in rounded.values()):
        raise UserError(f"{model_run.workdir}: a parameter is too large for float16")
    sentences = open_split(model_run, "test")
    decoding = make_decoding(model_run.config.decode)
    float16 = model_run._replace(params=jax.tree.map(_rounded, model_run.params))
    records = {}
    for name, run in (("float32", model_run), ("float16", float16)):
        records[name], _ = evaluate(run, sentences, decoding)

    saved = {checkpoint.step: checkpoint.time for checkpoint in list_checkpoints(model_run.workdir)}
    metadata = {"step": str(model_run.step), "time": str(saved[model_run.step])}
    save_file(rounded, folder / WEIGHTS, metadata=metadata)
    config = model_run.config.copy_and_resolve_references()
    config.decode.checkpoint = "latest"  # there is no other
    write_json(folder / "config.json", as_json(config))
    model_run.tokenizer.save(folder / "tokenizer.model")
    write_json(folder / RECORD, records)


def _rounded(leaf: np.ndarray) -> np.ndarray:
    """Returns a parameter in float32 as it is after it was in float16."""
    return np.asarray(leaf, np.float16).astype(np.float32)

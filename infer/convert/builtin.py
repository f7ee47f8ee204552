"""A run as a bundled model (`run.builtin`): parameters in float16, config, tokenizer, its scores and a card."""

import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save_file

from vaswani.errors import UserError
from vaswani.files import write_json, write_text
from vaswani.infer.evaluate.sentences import Sentences, open_split
from vaswani.infer.evaluate.translations import evaluate
from vaswani.infer.runs import Run
from vaswani.infer.translate.options import make_decoding
from vaswani.run.averaging import list_checkpoints
from vaswani.run.builtin import WEIGHTS
from vaswani.run.folder import as_json
from vaswani.run.parameters import flatten_params

RECORD = "record.json"
CARD = "README.md"
SAMPLED = 20  # sentences of the card


def write(model_run: Run, folder: Path) -> None:
    """Writes the run's parameters in float16, config and tokenizer; the records of the test split, and a card.

    `record.json` has one of the parameters in "float32", as they are in the run, and one of those in "float16".
    `README.md` says how good it is, with translations that chance chose.

    Raises:
      UserError: the run has no test split, or a parameter is too large for float16.
    """
    with np.errstate(over="ignore"):
        rounded = {name: np.asarray(leaf, np.float16) for name, leaf in flatten_params(model_run.params).items()}
    if not all(np.isfinite(leaf).all() for leaf in rounded.values()):
        raise UserError(f"{model_run.workdir}: a parameter is too large for float16")
    sentences = open_split(model_run, "test")
    decoding = make_decoding(model_run.config.decode)
    float16 = model_run._replace(params=jax.tree.map(_rounded, model_run.params))
    records = {}
    records["float32"], _ = evaluate(model_run, sentences, decoding)
    records["float16"], translations = evaluate(float16, sentences, decoding)

    saved = {checkpoint.step: checkpoint.time for checkpoint in list_checkpoints(model_run.workdir)}
    metadata = {"step": str(model_run.step), "time": str(saved[model_run.step])}
    save_file(rounded, folder / WEIGHTS, metadata=metadata)
    config = model_run.config.copy_and_resolve_references()
    config.decode.checkpoint = "latest"  # there is no other
    config.data.tokenizer = ""  # tokenizer.model, wherever training had it from
    write_json(folder / "config.json", as_json(config))
    model_run.tokenizer.save(folder / "tokenizer.model")
    write_json(folder / RECORD, records)
    write_text(folder / CARD, card(config, records, sentences, translations))


def card(config: Any, records: dict[str, Any], sentences: Sentences, translations: list[str]) -> str:
    """Returns the card of a model, in Markdown: its size, its scores, and translations drawn by a seed."""
    record = records["float16"]
    drawn = sorted(random.Random(0).sample(range(len(translations)), min(SAMPLED, len(translations))))
    lines = [
        f"{record['params']:,} parameters, {config.model.N} layers on each side, d_model {config.model.d_model};"
        f" trained on `{config.data.train}`.",
        "",
        f"| on `{sentences.data}` | as trained (float32) | as bundled (float16) |",
        "|---|---:|---:|",
    ]
    for score in ("sacrebleu", "chrf", "exact_match", "perplexity"):
        lines.append(f"| {score} | {records['float32'][score]:.2f} | {record[score]:.2f} |")
    lines += [
        "",
        f"{len(translations):,} sentences; sacreBLEU's signature is `{record['signatures']['sacrebleu']}`.",
        "",
        f"## {len(drawn)} of these sentences, which chance chose (`random.Random(0).sample`)",
        "",
        "| source | translation | reference |",
        "|---|---|---|",
    ]
    for number in drawn:
        cells = (sentences.sources[number], translations[number], sentences.references[number])
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _rounded(leaf: np.ndarray) -> np.ndarray:
    """Returns a parameter in float32 as it is after it was in float16."""
    return np.asarray(leaf, np.float16).astype(np.float32)

"""Our own parameters, by their own names, as safetensors; with config and tokenizer a run can be made of them again."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import unflatten_dict
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from vaswani.data.imported import open_tokenizer
from vaswani.errors import UserError, format_value
from vaswani.files import write_json, write_text
from vaswani.infer.convert.folders import Imported, shapes
from vaswani.infer.convert.weights import Weights
from vaswani.infer.runs import Run
from vaswani.run.config import LARGEST, read_config
from vaswani.run.folder import as_json
from vaswani.run.parameters import flatten_params
from vaswani.tasks import task_of

NAME = "model.safetensors"
README = """Parameters of a Transformer in float32, under the names that its code gives them, such as
`encoder/layer_0/self_attention/wq` of shape [d_model, h, d_k]; `config.json` has the sizes, `tokenizer.model`, where
the model reads text, the subwords. They were trained for {step} updates.

    from safetensors.numpy import load_file
    params = load_file("model.safetensors")

To make a run of them again, which every command takes:

    python -m infer.convert --from=safetensors:THIS_FOLDER --workdir=runs/NEW
"""


def write(model_run: Run, folder: Path) -> None:
    """Writes the run's parameters, config and tokenizer, if it has one, into `folder`."""
    params = {name: np.ascontiguousarray(leaf) for name, leaf in flatten_params(model_run.params).items()}
    save_file(params, folder / NAME, metadata={"step": str(model_run.step)})
    write_json(folder / "config.json", as_json(model_run.config))
    if model_run.text:
        model_run.text.save(folder / "tokenizer.model")
    write_text(folder / "README.md", README.format(step=model_run.step))


def read(folder: Path) -> Imported:
    """Returns the exported run.

    Raises:
      UserError: a file is missing or damaged.
    """
    for name in (NAME, "config.json"):
        if not (folder / name).is_file():
            raise UserError(
                f"--from=safetensors:{folder}: there is no {name}; give a folder that --to=safetensors wrote"
            )
    params, metadata = load(folder / NAME)
    step = metadata.get("step", "0")
    if not re.fullmatch(r"[0-9]{1,10}", step) or int(step) > LARGEST:
        raise UserError(f"{folder / NAME}: damaged: its step is {format_value(step)}")

    weights = Weights(folder / NAME, params)
    config = read_config(folder)
    tokenizer = None
    if not task_of(config.task).images:
        tokenizer = open_tokenizer(folder / "tokenizer.model")

    leaves = {}
    for name, expected in flatten_params(shapes(config, tokenizer)).items():
        leaves[name] = weights.take(name, *expected.shape)
    weights.check_all_read()
    return Imported(folder / NAME, config, tokenizer, unflatten_dict(leaves, sep="/"), int(step))


def load(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the arrays of a safetensors file by name, of floating types as float32, and its metadata.

    Raises:
      UserError: it is damaged, or has an array of a type that NumPy does not know.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
            metadata = file.metadata() or {}
    except (SafetensorError, OSError, TypeError, ValueError, AttributeError, KeyError) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path}: cannot be read as safetensors ({reason})") from error

    floating = ("f", "V")  # bfloat16 is of kind V
    with np.errstate(over="ignore"):  # a weight that is infinite then is an error where it is read
        for name, array in arrays.items():
            if array.dtype.kind in floating:
                arrays[name] = array.astype(np.float32)
    return arrays, metadata

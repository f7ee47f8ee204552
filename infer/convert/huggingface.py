"""Models of Hugging Face's transformers: a folder with config.json, weights and the tokenizer's files."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from vaswani.errors import UserError, format_value
from vaswani.infer.convert import bart, bert, gpt2, marian, pytorch, t5, vit
from vaswani.infer.convert.folders import Imported
from vaswani.infer.convert.safetensors import NAME, load
from vaswani.infer.convert.weights import Weights
from vaswani.read_json import read_json

MULTILINGUAL = ("mbart", "m2m_100")
INDEX = f"{NAME}.index.json"
write = marian.write
READERS = {
    "marian": marian.read,
    "pegasus": marian.read,
    "bart": bart.read,
    "mbart": bart.read,
    "m2m_100": bart.read,
    "gpt2": gpt2.read,
    "bert": bert.read,
    "t5": t5.read,
    "vit": vit.read,
}


def read(folder: Path, languages: Sequence[str] = ()) -> Imported:
    """Returns the model in `folder`; of a multilingual one, to translate between two `languages`.

    Raises:
      UserError: a file is missing or damaged, or the model is of an unsupported type or has an unsupported setting.
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"--from=huggingface:{folder}: there is no config.json; give a folder of save_pretrained")
    sizes = read_json(folder / "config.json", {"model_type": str})
    kind = sizes["model_type"]
    if kind not in READERS:
        raise UserError(f"{folder}/config.json: model_type is {format_value(kind)}; {', '.join(READERS)} can be read")
    reader: Callable[..., Imported] = READERS[kind]
    if languages:
        if kind not in MULTILINGUAL:
            raise UserError(f"--languages is for {', '.join(MULTILINGUAL)}; this model is of type {kind}")
        reader = partial(reader, languages=languages)
    imported = reader(folder, sizes, weights(folder))
    imported.config.data.tokens_per_batch = 4_096  # to score in: of GPT-2's vocabulary these are 0.8 GB of logits
    return imported


def weights(folder: Path) -> Weights:
    """Returns the parameters by their names on disk."""
    if (folder / NAME).is_file():
        return Weights(folder / NAME, load(folder / NAME)[0])
    if (folder / INDEX).is_file():
        return Weights(folder / INDEX, _of_several_files(folder / INDEX))
    path = folder / "pytorch_model.bin"
    if path.is_file():
        return Weights(path, pytorch.arrays(pytorch.load(path), path))
    raise UserError(
        f"{folder}: has neither {NAME}, nor {INDEX} of several files, nor pytorch_model.bin; several .bin files "
        "are not read"
    )


def _of_several_files(index: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of the safetensors files that an index names, each of which has the arrays it says.

    Raises:
      UserError: a file is missing or damaged, in another folder, or has other arrays.
    """
    file_of = read_json(index, {"weight_map": dict})["weight_map"]
    arrays: dict[str, np.ndarray] = {}
    for file in sorted(set(map(str, file_of.values()))):
        if Path(file).name != file:
            raise UserError(f"{index}: a file is called {format_value(file)}; it must be one of the same folder")
        of_file, _ = load(index.with_name(file))
        expected = {name for name, place in file_of.items() if place == file}
        other = min(expected ^ of_file.keys(), default=None)
        if other is not None:
            raise UserError(f"{index}: {format_value(other)} is in one of the index and {file}, and not in the other")
        arrays |= of_file
    return arrays

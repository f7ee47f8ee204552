"""Models of Hugging Face's transformers: a folder with config.json, weights and the tokenizer's files."""

from pathlib import Path

from vaswani.checked_json import read_json
from vaswani.errors import UserError, shown
from vaswani.infer.convert import bert, gpt2, marian, pytorch, t5, vit
from vaswani.infer.convert.folders import Imported
from vaswani.infer.convert.safetensors import NAME, load
from vaswani.infer.convert.weights import Weights

write = marian.write
READERS = {
    "marian": marian.read,
    "pegasus": marian.read,
    "gpt2": gpt2.read,
    "bert": bert.read,
    "t5": t5.read,
    "vit": vit.read,
}


def read(folder: Path) -> Imported:
    """Returns the model in `folder`.

    Raises:
      UserError: a file is missing or damaged, or the model is of an unsupported type or has an unsupported setting.
    """
    if not (folder / "config.json").is_file():
        raise UserError(f"--from=huggingface:{folder}: there is no config.json; give a folder of save_pretrained")
    sizes = read_json(folder / "config.json", {"model_type": str})
    kind = sizes["model_type"]
    if kind not in READERS:
        raise UserError(f"{folder}/config.json: model_type is {shown(kind)}; {', '.join(READERS)} can be read")
    imported = READERS[kind](folder, sizes, weights(folder))
    imported.config.data.tokens_per_batch = 4_096  # to score in: of GPT-2's vocabulary these are 0.8 GB of logits
    return imported


def weights(folder: Path) -> Weights:
    """Returns the parameters by their names on disk."""
    if (folder / NAME).is_file():
        return Weights(folder / NAME, load(folder / NAME)[0])
    path = folder / "pytorch_model.bin"
    if path.is_file():
        return Weights(path, pytorch.arrays(pytorch.load(path), path))
    raise UserError(f"{folder}: neither {NAME} nor pytorch_model.bin is there; a model in several files is not read")

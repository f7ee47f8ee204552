"""What `python -m infer.convert` does once its flags have been checked: a format is a module of this folder."""

import importlib
from functools import partial
from typing import Any

from base.files import expanded
from infer.convert.folders import make_run, needed, new_folder
from infer.runs import open_run


def main(options: Any) -> None:
    """Exports a run or imports a checkpoint, and prints the folder that was made."""
    if options.to:
        export(options)
        print(options.output)
    else:
        read(options["from"].value, options.workdir)
        print(options.workdir)


def export(options: Any) -> None:
    """Writes the run of the flags in the format --to. Its packages are looked for before the run is opened."""
    with needed(f"--to={options.to}"):
        form = importlib.import_module(f"infer.convert.{options.to}")
        save = form.write
        if options.quantization == "bfloat16":
            importlib.import_module("torch")  # with which CTranslate2 rounds to it
    if options.to == "ctranslate2":
        save = partial(save, quantization=options.quantization or "float32")
    # Only our own format holds a run of any task.
    task = None if options.to == "safetensors" else "translation"
    model_run = open_run(options.workdir, options.checkpoint, task)
    with new_folder("output", options.output) as folder, needed(f"--to={options.to}"):
        save(model_run, folder)


def read(source: str, workdir: str) -> None:
    """Makes the run `workdir` of a checkpoint, given as FORMAT:PATH."""
    kind, _, path = source.partition(":")
    place = expanded(path, f"--from={source}")
    with needed(f"--from={kind}"):
        checkpoint = importlib.import_module(f"infer.convert.{kind}").read(place)
    make_run(workdir, checkpoint)

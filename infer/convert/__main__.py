"""Exports a run in another engine's format, or imports a checkpoint of another engine as a run.

python -m infer.convert --workdir=runs/quickstart --to=safetensors --output=exported [--checkpoint=best]
python -m infer.convert --workdir=runs/quickstart --to=ctranslate2 --output=served --quantization=int8
python -m infer.convert --from=safetensors:exported --workdir=runs/again

--to=ctranslate2       a CTranslate2 model, with --quantization=int8, int16, float16 or bfloat16 a smaller one
--to=huggingface       MarianMTModel (post-norm) or Pegasus (pre-norm) of transformers, where these can hold the model
--to=stablehlo         encoder and decoder as functions that JAX and XLA call without our code, on CPU, GPU and TPU
--to=onnx              encoder and decoder as ONNX graphs, for ONNX Runtime from any language, and similar engines
--to=safetensors       our parameters under their own names, config and tokenizer: bitwise the same when read again
--to=builtin           a folder of run/models/, which --workdir=builtin:NAME opens: float16, scored on its test split

--from=safetensors:DIR what --to=safetensors wrote
--from=huggingface:DIR a folder of transformers: Marian (opus-mt) and Pegasus, T5, BART, GPT-2 as a language model,
                       BERT as a masked one, ViT as a classifier of images; and mBART-50, M2M100 and NLLB, to translate
                       between two of their languages, --languages=eng_Latn,deu_Latn
--from=fairseq:FILE    a checkpoint of fairseq's Transformer, next to dict.LANGUAGE.txt and bpecodes
--from=ctranslate2:DIR a CTranslate2 encoder-decoder, its subwords given as --tokenizer=sentencepiece:FILE, or
                       sentencepiece:SOURCE,TARGET; by default a sentencepiece model in DIR, or tokens between blanks

--output, or with --from the folder --workdir, must be new or empty; a conversion that fails leaves nothing behind.
"""

import importlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from absl import flags

from vaswani.errors import UserError
from vaswani.files import local_path
from vaswani.infer.convert.folders import make_run, new_folder, requires_package
from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import open_run

OUT = ("builtin", "ctranslate2", "huggingface", "onnx", "safetensors", "stablehlo")
IN = {  # and the modules that read them
    "ctranslate2": "ctranslate2_import",
    "fairseq": "fairseq",
    "huggingface": "huggingface",
    "safetensors": "safetensors",
}
QUANTIZATIONS = ("float32", "int8", "int16", "float16", "bfloat16")


def check(options: Any) -> None:
    """Raises a `UserError` unless the flags name one conversion."""
    to = options.to
    source = options["from"].value
    if (to is None) == (source is None):
        raise UserError("give one of --to=FORMAT and --from=FORMAT:PATH; --help describes them")
    if to and not options.output:
        raise UserError(f"--to={to} needs --output=DIR, a new folder")
    if options.quantization and to != "ctranslate2":
        raise UserError("--quantization is for --to=ctranslate2; the other formats are float32")
    if source and (options.output or options.checkpoint):
        raise UserError("--output and --checkpoint are for --to; --from makes the folder --workdir")
    if source:
        kind, _, path = source.partition(":")
        if kind not in IN or not path:
            raise UserError(f"--from={source}: write FORMAT:PATH, with the format one of {', '.join(IN)}")
    languages = options.languages
    if languages and not (source and kind == "huggingface" and len(languages) == 2):
        raise UserError("--languages=SOURCE,TARGET is for --from=huggingface:DIR, and names two languages")
    if options.tokenizer and not (source and kind == "ctranslate2"):
        raise UserError("--tokenizer is for --from=ctranslate2:DIR; other formats have one with them")


def main(options: Any) -> None:
    """Exports a run or imports a checkpoint, and prints the folder that was made."""
    if options.to:
        export(options)
        print(options.output)
    else:
        read(options["from"].value, options.workdir, options.languages, options.tokenizer)
        print(options.workdir)


def export(options: Any) -> None:
    """Writes the run of the flags in the format --to. Its packages are looked for before the run is opened."""
    with requires_package(f"--to={options.to}"):
        form = importlib.import_module(f"vaswani.infer.convert.{options.to}")
        save = form.write
        if options.quantization == "bfloat16":
            importlib.import_module("torch")  # with which CTranslate2 rounds to it
    if options.to == "ctranslate2":
        save = partial(save, quantization=options.quantization or "float32")
    # Only our own format holds a run of any task.
    task = None if options.to == "safetensors" else "translation"
    model_run = open_run(options.workdir, options.checkpoint, task)
    with new_folder("output", options.output) as folder, requires_package(f"--to={options.to}"):
        save(model_run, folder)


def read(source: str, workdir: str, languages: Sequence[str] = (), tokenizer: str = "") -> None:
    """Makes the run `workdir` of a checkpoint, given as FORMAT:PATH.

    Of a multilingual one, it is for two `languages`; of one of CTranslate2, `tokenizer` names the subwords.
    """
    kind, _, path = source.partition(":")
    place = local_path(path, f"--from={source}")
    with requires_package(f"--from={kind}"):
        reader = importlib.import_module(f"vaswani.infer.convert.{IN[kind]}").read
        given = languages or tokenizer
        checkpoint = reader(place, given) if given else reader(place)
    make_run(workdir, checkpoint)


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_enum("to", None, OUT, "format to write the run in")
    flags.DEFINE_string("from", None, f"FORMAT:PATH of a checkpoint to import as the run; formats: {', '.join(IN)}")
    flags.DEFINE_list("languages", [], "with --from=huggingface: source and target of a multilingual model")
    flags.DEFINE_string("tokenizer", "", "with --from=ctranslate2: sentencepiece:FILE, or sentencepiece:SOURCE,TARGET")
    flags.DEFINE_string("output", None, "with --to: the new folder to write")
    flags.DEFINE_enum("quantization", None, QUANTIZATIONS, "with --to=ctranslate2: the type of its weights")
    start(main, hint="the run is given as --workdir=DIR", check=check)

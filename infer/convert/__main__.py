"""Writes a run in another engine's format, or makes a run of a checkpoint in one.

python -m infer.convert --workdir=runs/quickstart --to=safetensors --output=exported [--checkpoint=best]
python -m infer.convert --workdir=runs/quickstart --to=ctranslate2 --output=served --quantization=int8
python -m infer.convert --from=safetensors:exported --workdir=runs/again

--to=ctranslate2       a CTranslate2 model, with --quantization=int8, int16, float16 or bfloat16 a smaller one
--to=safetensors       our parameters under their own names, config and tokenizer: bitwise the same when read again
--from=safetensors:DIR what that wrote

--output, or with --from the folder --workdir, must be new or empty; nothing is left of a conversion that fails.
"""

from pathlib import Path

from absl import flags

from base.errors import UserError, run
from infer.convert.folders import make_run, needed, new_folder
from infer.options import define_run_flags
from infer.runs import open_run

OUT, IN = ("ctranslate2", "safetensors"), ("safetensors",)
QUANTIZATIONS = ("float32", "int8", "int16", "float16", "bfloat16")


def write(to: str, output: str) -> None:
    """Writes the run of the flags as format `to`."""
    options = flags.FLAGS
    with needed(f"--to={to}"):
        match to:
            case "ctranslate2":
                from infer.convert import ctranslate2

                model_run = open_run(options.workdir, options.checkpoint)
                with new_folder("output", output) as folder:
                    ctranslate2.write(model_run, folder, options.quantization or "float32")
            case _:
                from infer.convert import safetensors

                model_run = open_run(options.workdir, options.checkpoint, task=None)
                with new_folder("output", output) as folder:
                    safetensors.write(model_run, folder)


def read(source: str, workdir: str) -> None:
    """Makes the run `workdir` of a checkpoint, given as FORMAT:PATH."""
    kind, _, path = source.partition(":")
    if kind not in IN or not path:
        raise UserError(f"--from={source}: write FORMAT:PATH, with the format one of {', '.join(IN)}")
    with needed(f"--from={kind}"):
        from infer.convert import safetensors

        make_run(workdir, safetensors.read(Path(path).expanduser()))


def main(argv: list[str]) -> None:
    """See the module's docstring."""
    options = flags.FLAGS
    to, source = options.to, options["from"].value
    if (to is None) == (source is None):
        raise UserError("give one of --to=FORMAT and --from=FORMAT:PATH; --help describes them")
    if to and not options.output:
        raise UserError(f"--to={to} needs --output=DIR, a new folder")
    if options.quantization and to != "ctranslate2":
        raise UserError("--quantization is for --to=ctranslate2; the other formats are float32")
    if source and (options.output or options.checkpoint):
        raise UserError("--output and --checkpoint are for --to; --from makes the folder --workdir")
    write(to, options.output) if to else read(str(source), options.workdir)
    print(options.output or options.workdir)


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_enum("to", None, OUT, "format to write the run in")
    flags.DEFINE_string("from", None, f"FORMAT:PATH of a checkpoint to make the run of; formats: {', '.join(IN)}")
    flags.DEFINE_string("output", None, "with --to: the new folder to write")
    flags.DEFINE_enum("quantization", None, QUANTIZATIONS, "with --to=ctranslate2: the type of its weights")
    run(main, stray="the run is given as --workdir=DIR")

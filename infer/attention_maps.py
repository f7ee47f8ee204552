r"""Draws the attention of every head for a pair of sentences, or for a text, as a PNG or as an interactive HTML page.

NAME.json has the arguments of BertViz's model_view and head_view, NAME.npz the arrays; both have every layer and head.

python -m infer.attention_maps --workdir=runs/quickstart --source="The dog sleeps." --output=attention.html
python -m infer.attention_maps --workdir=runs/quickstart --source="The dog sleeps." --target="Der Hund schläft." \
    --kind=cross --layer=2 --head=1 --output=attention.png

Rows are queries and columns keys (section 3.2). A decoder row is labelled with the token that it predicts, a column of
decoder self-attention with its input token: `<s>`, then the target. Layers and heads count from 1.

Language models, masked ones (with blanks, as in `infer.fill`) and text classifiers read the source alone. In a
decoder-only translator the source's tokens come before the target's. For images use `infer.patches`.
"""

from typing import Any

from absl import flags

from vaswani.errors import UserError
from vaswani.files import output_file
from vaswani.infer.attention import files
from vaswani.infer.attention.choices import run_choices
from vaswani.infer.attention.drawing import draw_png, write_html
from vaswani.infer.attention.kinds import KINDS, TITLES
from vaswani.infer.attention.maps import ONE_TEXT, TASKS, require_weights, run_maps
from vaswani.infer.options import define_run_flags, start
from vaswani.infer.runs import open_run
from vaswani.infer.translate.translator import translate_one


def check(options: Any) -> None:
    """Raises a `UserError` unless --output can be written and shows what is chosen, and there is a source in UTF-8."""
    output_file("output", options.output, (".png", ".html", ".json", ".npz"))
    if not options.source.strip():
        raise UserError("--source is empty: give a sentence")
    try:
        f"{options.source}{options.target}".encode()
    except UnicodeEncodeError as error:
        raise UserError("--source, --target: not UTF-8") from error
    if options.output.endswith(".png"):
        return
    for name in ("kind", "layer", "head"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name} chooses what a PNG shows; the other files hold everything: leave it out")


def main(options: Any) -> None:
    """Draws the attention of a pair of sentences or of a text."""
    output = output_file("output", options.output)
    model_run = open_run(options.workdir, options.checkpoint, TASKS)
    target = options.target
    if target is None and model_run.config.task not in ONE_TEXT:
        require_weights(model_run.model_config)
        target = translate_one(model_run, options.source)
    try:
        title, maps = run_maps(model_run, options.source, target)
    except ValueError as error:
        raise UserError(f"--source, --target: {error}") from error
    kind = options.kind or list(maps)[-1]
    if kind not in maps:
        only = next(iter(maps))
        task = model_run.config.task
        raise UserError(f"--kind={kind}: a model of task {task} has attention of kind {only} alone")
    if output.suffix in (".json", ".npz"):
        files.write(maps, output)
    elif output.suffix == ".html":
        choices = None if target is None else run_choices(model_run, maps, options.source, target)
        write_html(maps, title, output, choices)
    else:
        draw_png(maps[kind], f"{TITLES[kind]}: {title}", options.layer, options.head, output)
    print(f"{title}\n{output}")


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_string("source", None, "the source sentence, or the text")
    flags.DEFINE_string("target", None, "its translation; default: the model's own")
    flags.DEFINE_enum("kind", None, KINDS, "which attention to draw in a PNG; default: cross, or the only one")
    flags.DEFINE_integer("layer", None, "layer to draw in a PNG, from 1; default: all")
    flags.DEFINE_integer("head", None, "head to draw in a PNG, from 1; default: all")
    flags.DEFINE_string("output", None, "file to write: NAME.png, NAME.html, NAME.json (for BertViz) or NAME.npz")
    flags.mark_flags_as_required(["source", "output"])
    start(main, hint='put the sentence in quotes: --source="..."', check=check)

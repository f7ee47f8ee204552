"""Draws the attention of every head for a pair of sentences, or for a text, as a PNG or as an interactive HTML page.

python -m infer.attention_maps --workdir=runs/quickstart --source="The dog sleeps." --output=attention.html
python -m infer.attention_maps --workdir=runs/quickstart --source="The dog sleeps." --target="Der Hund schläft." \
    --kind=cross --layer=2 --head=1 --output=attention.png

Rows are queries and columns keys (section 3.2). A decoder row is labelled with the token that it predicts, a column of
decoder self-attention with its input token: `<s>`, then the target. Layers and heads count from 1.

Language models, masked ones (with blanks, as in `infer.fill`) and text classifiers read the source alone. In a
decoder-only translator the source's tokens come before the target's. For images use `infer.patches`.
"""

from absl import flags

from base.errors import UserError
from base.files import output_file
from infer.attention.page import KINDS, TITLES
from infer.options import define_run_flags, start


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    options = flags.FLAGS
    output = output_file("output", options.output)
    if output.suffix not in (".png", ".html"):
        raise UserError(f"--output={output}: its name must end in .png or .html")
    try:
        f"{options.source}{options.target}".encode()
    except UnicodeEncodeError as error:
        raise UserError("--source, --target: not UTF-8") from error
    from infer.attention.drawing import draw_png, write_html
    from infer.attention.maps import TASKS, run_maps, select
    from infer.runs import open_run

    model_run = open_run(options.workdir, options.checkpoint, TASKS)
    try:
        title, maps = run_maps(model_run, options.source, options.target)
    except ValueError as error:
        raise UserError(f"--source, --target: {error}") from error
    kind = options.kind or list(maps)[-1]
    if kind not in maps:
        only, task = next(iter(maps)), model_run.config.task
        raise UserError(f"--kind={kind}: a model of task {task} has attention of kind {only} alone")
    if output.suffix == ".html":
        select(maps[kind], options.layer, options.head)
        write_html(maps, title, output)
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
    flags.DEFINE_string("output", None, "file to write: NAME.png or NAME.html")
    flags.mark_flags_as_required(["source", "output"])
    start(main, stray='put the sentence in quotes: --source="..."')

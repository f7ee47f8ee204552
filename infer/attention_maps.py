"""Draws the attention of every head for any pair of sentences, as a PNG or as an interactive HTML page.

python -m infer.attention_maps --workdir=runs/quickstart --source="The dog sleeps." --output=attention.html
python -m infer.attention_maps --workdir=runs/quickstart --source="The dog sleeps." --target="Der Hund schläft." \
    --kind=cross --layer=2 --head=1 --output=attention.png

Rows are queries and columns keys (section 3.2). A decoder row is labelled with the token that it predicts, a column of
decoder self-attention with its input token: `<s>`, then the target. Layers and heads count from 1.
"""

from pathlib import Path

from absl import flags

from base.errors import UserError
from infer import load_run
from infer.attention.page import KINDS, TITLES
from infer.options import define_run_flags, start


def main(argv: list[str]) -> None:
    """Runs the command; flags below."""
    options = flags.FLAGS
    output = Path(options.output).expanduser()
    if output.suffix not in (".png", ".html"):
        raise UserError(f"--output={output}: its name must end in .png or .html")
    if not output.parent.is_dir():
        raise UserError(f"--output={output}: there is no folder {output.parent}")
    from infer.attention.drawing import draw_png, write_html
    from infer.attention.maps import select

    model = load_run(options.workdir, options.checkpoint)
    target = model.translate([options.source])[0] if options.target is None else options.target
    try:
        maps = model.attention_maps(options.source, target)
    except ValueError as error:
        raise UserError(f"--source, --target: {error}") from error
    title = f"{options.source} → {target}"
    if output.suffix == ".html":
        select(maps[options.kind], options.layer, options.head)
        write_html(maps, title, output)
    else:
        draw_png(maps[options.kind], f"{TITLES[options.kind]}: {title}", options.layer, options.head, output)
    print(f"{title}\n{output}")


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_string("source", None, "the source sentence")
    flags.DEFINE_string("target", None, "its translation; default: the model's own")
    flags.DEFINE_enum("kind", "cross", KINDS, "which attention to draw in a PNG; a page has all three")
    flags.DEFINE_integer("layer", None, "layer to draw in a PNG, from 1; default: all")
    flags.DEFINE_integer("head", None, "head to draw in a PNG, from 1; default: all")
    flags.DEFINE_string("output", None, "file to write: NAME.png or NAME.html")
    flags.mark_flags_as_required(["source", "output"])
    start(main, stray='put the sentence in quotes: --source="..."')

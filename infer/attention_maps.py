"""Draws what every attention head looks at, for any pair of sentences, as a PNG or as one interactive HTML page.

python -m infer.attention_maps --workdir=runs/quickstart --source="The dog sleeps." --output=attention.html
python -m infer.attention_maps --workdir=runs/quickstart --source="The dog sleeps." --target="Der Hund schläft." \
    --kind=cross --layer=1 --head=0 --output=attention.png

Rows are queries and columns keys (section 3.2). A decoder row is named after the token that it writes, and a column of
decoder self-attention after the token that was read: `<s>`, then the target. Layers and heads count from 0, as in the
parameters' names.
"""

import textwrap
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from jaxtyping import Float

from base.errors import UserError, run
from base.ids import BOS, EOS
from data.tokenizer import Tokenizer
from infer.attention.page import page
from infer.runs import Run, open_run
from infer.translator import Translator
from model.config import ModelConfig
from model.tokens import Tokens
from model.transformer import Transformer

KINDS = ("encoder", "decoder", "cross")
TITLES = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "decoder over encoder"}


class AttentionMap(NamedTuple):
    """One kind of attention over one pair of sentences: weights of each layer and head, and the tokens' spelling."""

    queries: list[str]
    keys: list[str]
    weights_nhts: Float[np.ndarray, "n h t s"]


def attention_maps(
    config: ModelConfig, params: Any, tokenizer: Tokenizer, source: str, target: str
) -> dict[str, AttentionMap]:
    """Attention of every layer and head, by kind, when `target` is read and written as a translation of `source`."""
    source_ids, target_ids = [*tokenizer.encode(source), EOS], [*tokenizer.encode(target), EOS]
    model = Transformer(config)
    maps = jax.jit(partial(model.apply, method="attention_maps"))(
        {"params": params}, *(Tokens.of(jnp.array([ids])) for ids in (source_ids, [BOS, *target_ids[:-1]]))
    )
    read, written = tokenizer.pieces([BOS, *target_ids[:-1]]), tokenizer.pieces(target_ids)
    pieces = tokenizer.pieces(source_ids)
    tokens = {"encoder": (pieces, pieces), "decoder": (written, read), "cross": (written, pieces)}
    return {kind: AttentionMap(*tokens[kind], np.asarray(maps[kind][:, 0], np.float32)) for kind in KINDS}


def select(attention: AttentionMap, layer: int | None, head: int | None) -> dict[tuple[int, int], np.ndarray]:
    """The chosen maps by (layer, head); None chooses all. `UserError` for a layer or head that there is not."""
    n, h = attention.weights_nhts.shape[:2]
    for name, value, count in (("layer", layer, n), ("head", head, h)):
        if value is not None and not 0 <= value < count:
            raise UserError(f"--{name}={value}: the model's {name}s are 0 to {count - 1}")
    layers, heads = range(n) if layer is None else (layer,), range(h) if head is None else (head,)
    return {(i, j): attention.weights_nhts[i, j] for i in layers for j in heads}


def draw_png(attention: AttentionMap, title: str, layer: int | None, head: int | None, output: Path) -> None:
    """Heat maps, layers downwards and heads rightwards, or the one that `layer` and `head` name; 0 white, 1 dark."""
    from matplotlib.figure import Figure

    maps = select(attention, layer, head)
    rows, columns = len({i for i, _ in maps}), len({j for _, j in maps})
    single = len(maps) == 1
    cell = 0.28 if single else min(0.16, 30 / (max(rows, columns) * max(len(attention.queries), len(attention.keys))))
    size = (cell * len(attention.keys), cell * len(attention.queries))
    margin = 1.6 if single else 1.0
    figure = Figure(
        figsize=(columns * size[0] + margin + 1, rows * (size[1] + 0.3) + margin + 0.6), layout="constrained"
    )
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    labels: dict[str, Any] = {"fontsize": min(10, 60 * cell), "parse_math": False}  # a $ in a sentence is not a formula
    for axes, ((i, j), weights_ts) in zip(grid.flat, maps.items(), strict=True):
        axes.imshow(weights_ts, cmap="Blues", vmin=0, vmax=1, aspect="equal", interpolation="nearest")
        axes.set_title(f"layer {i}, head {j}", fontsize=8)
        axes.set_xticks(range(len(attention.keys)), attention.keys, rotation=90, **labels)
        axes.set_yticks(range(len(attention.queries)), attention.queries, **labels)
        axes.tick_params(length=0)
    wide = int(12 * figure.get_figwidth())  # characters of this size that fit
    figure.suptitle(textwrap.fill(title, wide), fontsize=10, parse_math=False)
    _save(figure, output)


def _save(figure: Any, output: Path) -> None:
    import logging
    import warnings

    with warnings.catch_warnings():
        # A sentence may hold characters that the font lacks: they are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
        try:
            figure.savefig(output, dpi=150)
        except OSError as error:
            raise UserError(f"--output={output}: cannot be written ({error.strerror})") from error


def write_html(maps: dict[str, AttentionMap], title: str, output: Path) -> None:
    """One page with everything in it: choose kind, layer and head, point at a token to see its weights."""
    try:
        output.write_text(page(title, {kind: (TITLES[kind], *maps[kind]) for kind in KINDS}), encoding="utf-8")
    except OSError as error:
        raise UserError(f"--output={output}: cannot be written ({error.strerror})") from error


def translate_one(model_run: Run, source: str) -> str:
    """The run's own translation of one sentence."""
    decode = model_run.config.decode
    translator = Translator(
        model_run.model_config,
        model_run.tokenizer,
        beam=decode.beam,
        alpha=decode.alpha,
        extra_length=decode.extra_length,
    )
    return translator.translate(model_run.params, [source])[0].text


def main(argv: list[str]) -> None:
    """Entry point; flags below."""
    options = flags.FLAGS
    if len(argv) > 1:
        raise UserError(f'unexpected argument {argv[1]!r}; put the sentence in quotes: --source="..."')
    output = Path(options.output).expanduser()
    if output.suffix not in (".png", ".html"):
        raise UserError(f"--output={output}: its name must end in .png or .html")
    if not output.parent.is_dir():
        raise UserError(f"--output={output}: there is no folder {output.parent}")
    model_run = open_run(options.workdir, options.checkpoint)
    target = translate_one(model_run, options.source) if options.target is None else options.target
    try:
        maps = attention_maps(model_run.model_config, model_run.params, model_run.tokenizer, options.source, target)
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
    flags.DEFINE_string("workdir", None, "folder of the run")
    flags.DEFINE_string("source", None, "the sentence to read")
    flags.DEFINE_string("target", None, "its translation; default: the model's own")
    flags.DEFINE_string("checkpoint", None, "latest, STEP, best, average:N; default: config.decode.checkpoint")
    flags.DEFINE_enum("kind", "cross", KINDS, "which attention a PNG shows; a page has all three")
    flags.DEFINE_integer("layer", None, "layer of a PNG, from 0; default: all")
    flags.DEFINE_integer("head", None, "head of a PNG, from 0; default: all")
    flags.DEFINE_string("output", None, "file to write: NAME.png or NAME.html")
    flags.mark_flags_as_required(["workdir", "source", "output"])
    run(main)

"""Attention maps as files: a PNG of one kind of attention, or one interactive HTML page of all kinds."""

import io
import json
import logging
import textwrap
import warnings
from pathlib import Path
from typing import Any

from vaswani.errors import UserError
from vaswani.files import write_bytes, write_text, writing
from vaswani.infer.attention.maps import AttentionMap, select, titled
from vaswani.infer.attention.page import Choice, labels, page


def draw_png(attention: AttentionMap, title: str, layer: int | None, head: int | None, output: Path) -> None:
    """Draws heat maps, one row per layer and one column per head, or only the chosen one; 0 is white, 1 dark.

    The file also holds as text what is written in the picture, and the subwords, so that an old picture can be told.

    Raises:
      UserError: the model has no such layer or head, or the file cannot be written.
    """
    from matplotlib.figure import Figure

    maps = select(attention, layer, head)
    rows = len({i for i, _ in maps})
    columns = len({j for _, j in maps})
    queries = labels(attention.queries)
    keys = labels(attention.keys)

    # All lengths are in inches.
    if len(maps) == 1:
        cell = 0.28
        margin = 1.6
    else:
        longest_side = max(rows, columns) * max(len(queries), len(keys))
        cell = min(0.16, 30 / longest_side)
        margin = 1.0
    width = columns * cell * len(keys) + margin + 1
    height = rows * (cell * len(queries) + 0.3) + margin + 0.6
    figure = Figure(figsize=(width, height), layout="compressed")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)

    style: dict[str, Any] = {"fontsize": min(10, 60 * cell), "parse_math": False}  # a $ in a sentence is not a formula
    headings = []
    for axes, ((i, j), weights_ts) in zip(grid.flat, maps.items(), strict=True):
        image = axes.imshow(weights_ts, cmap="Blues", vmin=0, vmax=1, aspect="equal", interpolation="nearest")
        heading = f"layer {i}, head {j}"
        headings.append(heading)
        axes.set_title(heading, fontsize=8)
        axes.set_xticks(range(len(keys)), keys, rotation=90, **style)
        axes.set_yticks(range(len(queries)), queries, **style)
        axes.tick_params(length=0)
    figure.colorbar(image, ax=grid, label="attention weight", shrink=0.6, pad=0.02)
    characters = int(12 * width)  # that fit into a line of the title
    figure.suptitle(textwrap.fill(title, characters), fontsize=10, parse_math=False)
    written = {"headings": headings, "rows": queries, "columns": keys}
    subwords = {"queries": attention.queries, "keys": attention.keys}
    about = {"Title": title, "Description": json.dumps(written), "Source": json.dumps(subwords)}
    save(figure, output, f"--output={output}", dpi=150, metadata=about)


def save(figure: Any, path: Path, name: str, **options: Any) -> None:
    """Writes a matplotlib figure; characters that the font lacks become boxes. `options` are those of `savefig`.

    Raises:
      UserError: the file cannot be written, or is of a kind that matplotlib does not know; `name` begins the message.
    """
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        # savefig itself adds .png to a name without an ending, and waits for ever at a pipe.
        drawn = io.BytesIO()
        kind = path.suffix.removeprefix(".") or "without an ending"
        try:
            figure.savefig(drawn, format=kind, **options)
            write_bytes(path, drawn.getvalue())
        except (OSError, ValueError) as error:
            raise UserError(f"{name}: cannot be written ({getattr(error, 'strerror', None) or error})") from error


def write_html(
    maps: dict[str, AttentionMap], title: str, output: Path, choices: dict[str, list[Choice | None]] | None = None
) -> None:
    """Writes one self-contained page: choose kind, layer and head; point at a token to see its weights.

    With `choices`, it also says how probable each subword of the output is, and what else is.

    Raises:
      UserError: the file cannot be written.
    """
    with writing(f"--output={output}"):
        write_text(output, page(title, titled(maps), choices))

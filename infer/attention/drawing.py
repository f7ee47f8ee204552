"""Attention maps as files: a PNG of one kind of attention, or one interactive HTML page of all kinds."""

import io
import logging
import textwrap
import warnings
from pathlib import Path
from typing import Any

from base.errors import UserError
from base.files import write_bytes, write_text
from infer.attention.maps import AttentionMap, select
from infer.attention.page import TITLES, labels, page


def draw_png(attention: AttentionMap, title: str, layer: int | None, head: int | None, output: Path) -> None:
    """Draws heat maps, one row per layer and one column per head, or only the chosen one; 0 is white, 1 dark.

    Raises:
      UserError: the model has no such layer or head, or the file cannot be written.
    """
    from matplotlib.figure import Figure

    maps = select(attention, layer, head)
    rows, columns = len({i for i, _ in maps}), len({j for _, j in maps})
    single = len(maps) == 1
    queries, keys = labels(attention.queries), labels(attention.keys)
    cell = 0.28 if single else min(0.16, 30 / (max(rows, columns) * max(len(queries), len(keys))))
    size = (cell * len(keys), cell * len(queries))
    margin = 1.6 if single else 1.0
    figure = Figure(
        figsize=(columns * size[0] + margin + 1, rows * (size[1] + 0.3) + margin + 0.6), layout="constrained"
    )
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    style: dict[str, Any] = {"fontsize": min(10, 60 * cell), "parse_math": False}  # a $ in a sentence is not a formula
    for axes, ((i, j), weights_ts) in zip(grid.flat, maps.items(), strict=True):
        image = axes.imshow(weights_ts, cmap="Blues", vmin=0, vmax=1, aspect="equal", interpolation="nearest")
        axes.set_title(f"layer {i}, head {j}", fontsize=8)
        axes.set_xticks(range(len(keys)), keys, rotation=90, **style)
        axes.set_yticks(range(len(queries)), queries, **style)
        axes.tick_params(length=0)
    figure.colorbar(image, ax=grid, label="attention weight", shrink=0.6, pad=0.02)
    wide = int(12 * figure.get_figwidth())  # characters that fit at this font size
    figure.suptitle(textwrap.fill(title, wide), fontsize=10, parse_math=False)
    save(figure, output, f"--output={output}", dpi=150)


def save(figure: Any, path: Path, name: str, **options: Any) -> None:
    """Writes a matplotlib figure; characters that the font lacks become boxes. `options` are those of `savefig`.

    Raises:
      UserError: the file cannot be written, or is of a kind that matplotlib does not know; `name` begins the message.
    """
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        try:
            drawn = io.BytesIO()  # savefig itself adds .png to a name without an ending, and waits for ever at a pipe
            figure.savefig(drawn, format=path.suffix.removeprefix(".") or "without an ending", **options)
            write_bytes(path, drawn.getvalue())
        except (OSError, ValueError) as error:
            raise UserError(f"{name}: cannot be written ({getattr(error, 'strerror', None) or error})") from error


def write_html(maps: dict[str, AttentionMap], title: str, output: Path) -> None:
    """Writes one self-contained page: choose kind, layer and head; point at a token to see its weights.

    Raises:
      UserError: the file cannot be written.
    """
    try:
        write_text(output, page(title, {kind: (TITLES[kind], *of_kind) for kind, of_kind in maps.items()}))
    except OSError as error:
        raise UserError(f"--output={output}: cannot be written ({error.strerror})") from error

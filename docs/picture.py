"""Draws the README's picture: the explorer's first view, in a headless Chromium.

python -m docs.picture docs/explorer.png

The file has the texts of the page, too, so that a test can tell whether the picture is still of the page.
"""

import html
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from vaswani.command import run
from vaswani.errors import UserError
from vaswani.infer.explorer import export
from vaswani.infer.runs import open_run

WIDTH, HEIGHT = 1280, 925
SCALE = 1.25  # pixels of the picture for one of the page
BAR = 140  # of the window is not drawn: a browser has a bar there
FLAGS = "--headless --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=30000"
FLAGS += f" --window-size={WIDTH},{HEIGHT + BAR} --force-device-scale-factor={SCALE}"
NO_TEXT = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)


def draw(output: Path) -> None:
    """Writes the picture as a PNG file, with the texts of the page under the name "Source".

    Raises:
      UserError: there is no Chromium.
    """
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise UserError("the picture is drawn by Chromium: install chromium or google-chrome")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "explorer.html"
        page.write_text(export.page(export.as_json(open_run("builtin:tatoeba"))), encoding="utf-8")
        address = page.as_uri()
        command = [chromium, *FLAGS.split(), f"--user-data-dir={folder}/profile"]
        drawn = Path(folder) / "drawn.png"
        subprocess.run([*command, f"--screenshot={drawn}", address], check=True, capture_output=True)
        dom = subprocess.run([*command, "--dump-dom", address], check=True, capture_output=True, encoding="utf-8")
        texts = PngInfo()
        texts.add_text("Source", " ".join(html.unescape(NO_TEXT.sub(" ", dom.stdout)).split()), zip=True)
        with Image.open(drawn) as picture:
            page_alone = picture.convert("RGB").crop((0, 0, int(SCALE * WIDTH), int(SCALE * HEIGHT)))
            page_alone.quantize(192, dither=Image.Dither.NONE).save(output, pnginfo=texts, optimize=True)


def main(argv: list[str]) -> None:
    """Draws the picture into the file that is named."""
    if len(argv) != 2:
        raise UserError("give the file: python -m docs.picture docs/explorer.png")
    draw(Path(argv[1]))
    print(argv[1])


if __name__ == "__main__":
    run(main)

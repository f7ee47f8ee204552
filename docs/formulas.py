"""Draws the formulas of the notebooks: a hook of mkdocs (mkdocs.yml). MathJax would be loaded from elsewhere."""

import html
import re

from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

MATHJAX = re.compile(r"<!-- Load mathjax -->.*?<!-- End of mathjax configuration -->", re.DOTALL)
CODE = r'<(?:pre|code|script|style|div class="clipboard-copy-txt)\b.*?</(?:pre|code|script|style|div)>'
NOT_TEXT = re.compile(rf"({CODE}|<[^>]*>)", re.DOTALL)
FORMULA = re.compile(r"\$\$([^$]+)\$\$|\$([^$]+)\$")
FONT = FontProperties(math_fontfamily="stix")
LETTERS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C", Outline.CLOSEPOLY: "Z"}


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Draws each formula of a notebook's page, which loses its script for them."""
    if not page.file.src_uri.endswith(".ipynb"):
        return output
    parts = NOT_TEXT.split(MATHJAX.sub("", output))
    parts[::2] = [FORMULA.sub(_drawn, text) for text in parts[::2]]
    return "".join(parts)


def _drawn(formula: re.Match[str]) -> str:
    """Returns a formula as SVG in the colour and size of the text around it; one between two $ has its own line."""
    tex = " ".join(html.unescape(formula[1] or formula[2]).split())
    spaced = tex.replace(r"\frac", r"\dfrac") if formula[1] else tex
    outline = TextPath((0, 0), f"${spaced}$", size=115, prop=FONT)  # in hundredths of an em; STIX has small letters
    box = outline.get_extents()
    strokes = []
    for points, code in outline.iter_segments(curves=True, simplify=False):
        # SVG's y points down.
        numbers = " ".join(f"{x:.0f} {-y:.0f}" for x, y in points.reshape(-1, 2))
        strokes.append("Z" if code == Outline.CLOSEPOLY else LETTERS[code] + numbers)
    style = f"width:{box.width / 100:.2f}em; height:{box.height / 100:.2f}em; fill:currentColor; overflow:visible; "
    style += "display:block; margin:1em auto" if formula[1] else f"vertical-align:{box.y0 / 100:.2f}em"
    view = f"{box.x0:.0f} {-box.y1:.0f} {box.width:.0f} {box.height:.0f}"
    label = html.escape(tex)
    return f'<svg role="img" aria-label="{label}" viewBox="{view}" style="{style}"><path d="{"".join(strokes)}"/></svg>'

"""Text on the pages can be read in both themes, whatever the weight below it (WCAG 2.1: a contrast of at least 4.5)."""

import re
from pathlib import Path

import pytest

from vaswani.infer.attention import page
from vaswani.infer.demo import server
from vaswani.infer.html import read_template
from vaswani.infer.translate import explain

PAGES = (page.TEMPLATE, server.PAGE, explain.TEMPLATE)
Colour = tuple[float, float, float]


def themes(text: str) -> dict[str, dict[str, Colour]]:
    """The colours of a page by name: the first rule is the light theme, the second what the dark one changes."""
    found = []
    for rule in re.findall(r":root \{(.*?)\}", text):
        colours = {}
        for name, digits in re.findall(r"--(\w+): #([0-9a-f]{6});", rule):
            colours[name] = (int(digits[:2], 16) / 255, int(digits[2:4], 16) / 255, int(digits[4:], 16) / 255)
        found.append(colours)
    light, dark = found
    return {"light": light, "dark": light | dark}


def luminance(colour: Colour) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Colour, other: Colour) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def mixed(paper: Colour, heat: Colour, share: float) -> Colour:
    """What `color-mix(in srgb, heat share, transparent)` shows on paper."""
    red, green, blue = (share * h + (1 - share) * p for h, p in zip(heat, paper, strict=True))
    return red, green, blue


def test_the_formula_is_that_of_the_standard() -> None:
    assert contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21)
    grey = 0x77 / 255
    assert contrast((grey, grey, grey), (1, 1, 1)) == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("template", PAGES, ids=lambda path: path.name)
def test_ink_is_readable_on_every_weight(template: Path, scheme: str) -> None:
    colours = themes(read_template(template))[scheme]
    paper, heat = colours["paper"], colours["heat"]
    for thousandths in range(1001):
        assert contrast(colours["ink"], mixed(paper, heat, thousandths / 1000)) >= 4.5, thousandths
    for name in ("soft", "mark"):
        assert contrast(colours[name], paper) >= 4.5, name
    assert contrast(colours["ink"], colours["line"]) >= 4.5, "the node of the tree that is pointed at"

"""The page of `python -m train.runs --plot=F.html` in Chromium: its curves are hidden, smoothed, read, and fit."""

from pathlib import Path
from typing import Any

import pytest

from tests.infer.test_browser import CHROMIUM, Browser, browser  # noqa: F401 - a fixture
from tests.infer.test_demo import NASTY
from vaswani.train.overview.curves import Curve
from vaswani.train.overview.page import page
from vaswani.train.table import Table

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]
STEPS = [100, 200, 400, 800]
FALLING = Curve(STEPS, [8.0, 4.0, 2.0, 1.0], [7.5, 3.5, 1.5, 0.5], [8.5, 4.5, 2.5, 1.5])
DIVERGED = Curve(STEPS, [8.0, 16.0, float("nan"), float("inf")], [], [])
NONE = Curve([], [], [], [])
GROUPS = {
    NASTY: [FALLING, Curve([400, 800], [2.5, 1.5], [], []), NONE, NONE, NONE],
    "h=8": [DIVERGED, NONE, NONE, NONE, NONE],
}
TABLE = Table("", "2 done", ("run",), [(NASTY,)], [])
PANEL = "document.querySelectorAll('figure svg')[0]"


def opened(browser: Browser, folder: Path, groups: Any = GROUPS, width: int = 1280) -> None:  # noqa: F811
    path = folder / "curves.html"
    path.write_text(page(groups, TABLE), encoding="utf-8")
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(path.as_uri())
    browser.wait_for("!!document.querySelector('polyline')")


def values(browser: Browser) -> list[str]:  # noqa: F811
    """What the legend says of each curve, in training and in validation."""
    found: list[str] = browser.value("[...document.querySelectorAll('#legend td')].map(one => one.textContent)")
    return found


def points(browser: Browser, curve: int) -> list[float]:  # noqa: F811
    """The heights of a curve's points in the first panel, the drawn one, not its faint original."""
    text = browser.value(f"{PANEL}.querySelector('.line[data-curve=\"{curve}\"]:not(.raw)').getAttribute('points')")
    return [float(point.split(",")[1]) for point in text.split()]


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_names_are_text_and_the_page_fits(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:  # noqa: F811
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    opened(browser, tmp_path, width=width)
    names = browser.value("[...document.querySelectorAll('#legend label span')].map(one => one.textContent)")
    assert names == [NASTY, "h=8"]
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("document.querySelectorAll('script, img').length") == 2, "the page's own script and its data"
    assert not [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]


def test_arrow_keys_and_the_pointer_read_values(browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    opened(browser, tmp_path)
    assert values(browser) == ["1.0000", "1.5000", "not finite", ""]
    browser.value(f"{PANEL}.focus()")
    for key in ("Home", "ArrowRight"):
        browser.ask("Input.dispatchKeyEvent", type="keyDown", key=key)
    assert values(browser) == ["4.0000", "2.5000", "16.0000", ""], "the nearest that each curve has"
    assert browser.value("by('update').textContent") == "Values at update 200, or nearest to it"
    told = browser.value(f"{PANEL}.getAttribute('aria-valuetext')")
    assert told == f"update 200, training nll: {NASTY} 4.0000; h=8 16.0000"
    box = browser.value(f"(box => [box.right - 12, box.top + 50])({PANEL}.getBoundingClientRect())")
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    browser.wait_for("by('update').textContent.includes('800')")
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=5, y=5)
    browser.wait_for("by('update').textContent == 'Values at the end of each curve'")


def test_curves_are_hidden_smoothed_and_put_on_log_axes(browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    opened(browser, tmp_path)
    lines = "document.querySelectorAll('.line').length"
    assert browser.value(lines) == 3 + 1, "one is empty"
    assert browser.value("document.querySelectorAll('.band').length") == 1
    browser.value("document.querySelectorAll('#legend input')[1].click()")
    assert browser.value(lines) == 2
    straight = [first - second for first, second in zip(points(browser, 0), points(browser, 0)[1:], strict=False)]
    assert straight[0] == pytest.approx(2 * straight[1], abs=0.3), "8, 4, 2 on a linear axis"
    for name in ("logx", "logy"):
        browser.value(f"by('{name}').click()")
    steps = [first - second for first, second in zip(points(browser, 0), points(browser, 0)[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * 3, abs=0.3), "halved each time"
    browser.value("by('smoothing').value = 0.5; by('smoothing').dispatchEvent(new Event('input'))")
    assert browser.value("document.querySelectorAll('.raw').length") == 2
    assert browser.value("smoothed([8, null, 4], 0.5)") == pytest.approx([8, None, 16 / 3])
    assert points(browser, 0)[-1] < points(browser, 0)[0] + sum(-step for step in steps), "above the original"
    assert values(browser)[0] == "1.0000", "not smoothed"


@pytest.mark.parametrize(("low", "high"), [(1.9, 6.2), (0.0001, 0.0021), (40.4, 41.6), (3.01, 3.96), (120.0, 9400.0)])
def test_on_a_telephone_the_y_axis_has_at_least_three_ticks(
    browser: Browser,  # noqa: F811
    tmp_path: Path,
    low: float,
    high: float,
) -> None:
    opened(browser, tmp_path, {"a": [Curve([1, 2], [low, high], [], []), NONE, NONE, NONE, NONE]}, width=390)
    assert browser.value(f"{PANEL}.querySelectorAll('text[text-anchor=end]').length - 1") >= 3, "one is the x axis's"

"""The explorer's page in Chromium: it translates by itself, hostile sentences are text, and nothing leaves."""

import json
import time
from pathlib import Path

import pytest

from tests.infer.test_browser import CHROMIUM, Browser, browser  # noqa: F401 - a fixture
from tests.infer.test_demo import NASTY
from vaswani.infer.explorer import export
from vaswani.infer.runs import open_run

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]
SOURCE = "The dog sleeps."
TRANSLATION = "document.getElementById('translation').textContent"


def test_it_translates_from_a_file_and_shows_hostile_text_as_text(browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    file = tmp_path / "explorer.html"
    file.write_text(export.page(export.as_json(open_run("builtin:quickstart"), source=SOURCE)), encoding="utf-8")
    began = time.monotonic()
    browser.open(file.as_uri())
    browser.wait_for("document.body.dataset.translated")
    took = time.monotonic() - began
    milliseconds = browser.value("Math.round(performance.now())")
    print(f"first translation after {milliseconds} ms of the page's clock, {took:.2f} s of ours")
    assert browser.value(TRANSLATION) == "Der Hund schläft."
    assert browser.value("document.querySelectorAll('#subwords span').length") >= 3
    assert browser.value("document.querySelectorAll('.matrix td').length") > 9, "a heat map"
    assert browser.value("document.querySelectorAll('.queries small').length") >= 3, "with probabilities"
    assert browser.value("document.querySelectorAll('.beam g.returned').length") > 1

    scripts = browser.value("document.querySelectorAll('script, img').length")
    typed = NASTY.replace("\u2028", "").replace("\n", "")
    browser.value(
        f"document.getElementById('source').value = {json.dumps(typed)};"
        "document.getElementById('source').dispatchEvent(new Event('input'))"
    )
    browser.wait_for("document.body.dataset.translated == 2")
    assert browser.value("document.querySelectorAll('script, img').length") == scripts
    asked = {e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"}
    assert asked == {file.as_uri()}
    assert not [e for e in browser.events if e["method"] in ("Page.javascriptDialogOpening", "Runtime.exceptionThrown")]

"""The demo's page in a real browser, Chromium, where it is installed: hostile text stays text, and nothing leaves.

The browser is driven by its DevTools protocol over two pipes, which needs no package.
"""

import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infer.demo.server import serve
from tests.infer.test_demo import NASTY

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
FLAGS += " --disable-component-update --disable-sync --remote-debugging-pipe"
MAP = {
    "title": "cross",
    "queries": [NASTY, "b"],
    "keys": ["<b>a</b>", "x" * 300],
    "weights": [[[[900, 100], [0, 1000]]]],
}

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]


class Browser:
    """One page; `events` are what it reported."""

    def __init__(self, profile: Path) -> None:
        (read_theirs, write_ours), (read_ours, write_theirs) = os.pipe(), os.pipe()
        line = f'exec "$0" {FLAGS} "$1" 3<&{read_theirs} 4>&{write_theirs}'
        command = ["bash", "-c", line, str(CHROMIUM), f"--user-data-dir={profile}"]
        self.process = subprocess.Popen(command, pass_fds=(read_theirs, write_theirs), stderr=subprocess.DEVNULL)
        os.close(read_theirs)
        os.close(write_theirs)
        self._to, self._from = os.fdopen(write_ours, "wb"), os.fdopen(read_ours, "rb")
        self.events: list[dict[str, Any]] = []
        self._number, self._session, self._rest = 0, {}, b""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Returns the browser's answer to one command."""
        self._number += 1
        self._to.write(
            json.dumps({"id": self._number, "method": method, "params": params, **self._session}).encode() + b"\0"
        )
        self._to.flush()
        while True:
            while b"\0" not in self._rest:
                self._rest += os.read(self._from.fileno(), 1 << 16) or pytest.fail("the browser has ended")
            message, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(message)
            if answer.get("id") == self._number:
                return answer["result"]
            self.events.append(answer)

    def value(self, script: str) -> Any:
        """Returns what a script evaluates to, once it is resolved."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def close(self) -> None:
        """Ends the browser."""
        self.process.terminate()
        self.process.wait(timeout=30)
        self._to.close()
        self._from.close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    opened = Browser(tmp_path / "profile")
    yield opened
    opened.close()


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_text_stays_text_and_fits_and_nothing_leaves(browser: Browser, width: int, scheme: str) -> None:
    def answer(text: str) -> list[dict[str, Any]]:
        best = [{"text": text, "score": -1.0}, {"text": "", "score": -2.0}]
        return [{"name": NASTY, "hypotheses": best, "maps": {"cross": MAP}}] * 2

    server = serve(answer, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}/"
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.ask("Emulation.setDeviceMetricsOverride", **size)
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.ask("Page.navigate", url=address)
    browser.value("new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))")
    assert browser.value("document.querySelector('.controls label').hidden")
    text = NASTY.replace("\u2028", "") + "x" * 500
    browser.value(f"document.getElementById('text').value = {json.dumps(text)}; translate()")
    shown = browser.value(
        "[...document.querySelectorAll('h2, .best, bdi, .tokens button')].map(one => one.textContent)"
    )
    assert shown.count(NASTY) == 2 + 2 and shown.count("(empty)") == 2 and len(shown) == 2 * (1 + 1 + 2 + 2)
    assert browser.value("document.querySelectorAll('script, img').length") == 1, "the page's own script"
    assert browser.value("document.documentElement.scrollWidth") <= width
    dark = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", dark))) < 64) == (scheme == "dark")
    browser.value("document.querySelectorAll('.tokens button')[1].click()")
    assert browser.value("document.querySelectorAll('.tokens span small')[1].textContent") == "100.0 %"
    asked = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert sorted(set(asked)) == [address, f"{address}translate"]
    assert not [e for e in browser.events if e["method"] in ("Page.javascriptDialogOpening", "Runtime.exceptionThrown")]
    server.shutdown()
    server.server_close()

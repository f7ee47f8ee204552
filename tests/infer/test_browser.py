"""The pages in a real browser, Chromium, where it is installed: hostile text stays text, nothing leaves, all works.

The browser is driven by its DevTools protocol over two pipes, which needs no package.
"""

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import tiny
from tests.infer.test_demo import NASTY
from vaswani.errors import UserError
from vaswani.infer.attention.page import Choice, page
from vaswani.infer.demo.answers import check_sentence
from vaswani.infer.demo.server import Answer, Server, listen
from vaswani.infer.demo.training import marked
from vaswani.infer.translate import explain
from vaswani.infer.translate.explain import FINISHED, KEPT, PRUNED, BeamTree, Node
from vaswani.infer.translate.translator import source_sentences
from vaswani.search.options import Decoding

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

    def open(self, address: str) -> None:
        """Loads a page."""
        self.ask("Page.navigate", url=address)
        self.value("new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))")

    def wait_for(self, script: str) -> None:
        """Waits until a script is true; fails after half a minute."""
        for _ in range(1500):
            if self.value(script):
                return
            time.sleep(0.02)
        pytest.fail(f"waited in vain for {script}")

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


def serving(answers: dict[str, Answer]) -> tuple[Server, str]:
    """Returns a demo that answers so, and splits texts as always, and its address."""
    server = listen("127.0.0.1", 0)
    server.answers = {
        "/sentences": lambda text, target: {"sentences": source_sentences(tiny.tokenizer(), text)},
        **answers,
    }
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}/"


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_hostile_text_stays_text_and_fits_and_nothing_leaves(browser: Browser, width: int, scheme: str) -> None:
    def answer(text: str, target: str) -> dict[str, Any]:
        best = [{"text": text, "score": -1.0}, {"text": "", "score": -2.0}]
        return {"runs": [{"name": NASTY, "hypotheses": best, "maps": {"cross": MAP}}] * 2}

    server, address = serving({"/translate": answer})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.ask("Emulation.setDeviceMetricsOverride", **size)
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(address)
    assert not browser.value("document.querySelectorAll('.controls').length"), "nothing to choose yet"
    text = NASTY.replace("\u2028", "") + "x" * 500
    browser.value(f"document.getElementById('text').value = {json.dumps(text)}; translate()")
    shown = browser.value(
        "[...document.querySelectorAll('h2, .best, bdi, .matrix tbody th')].map(one => one.textContent)"
    )
    assert shown.count(NASTY) == 2 + 2 and shown.count("(empty)") == 2 and len(shown) == 2 * (1 + 1 + 2 + 2)
    assert browser.value("document.querySelectorAll('script, img').length") == 2, "the page's own script and its data"
    assert browser.value("document.documentElement.scrollWidth") <= width
    dark = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, re.findall(r"\d+", dark))) < 64) == (scheme == "dark")
    browser.value("document.querySelectorAll('.matrix .heat')[3].click()")
    told = browser.value("document.querySelector('output').textContent")
    assert told == f"“b” attends to {'x' * 300} 100.0 % · <b>a</b> 0.0 %"
    asked = [
        event["params"]["request"]["url"] for event in browser.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert sorted(set(asked)) == [address, f"{address}sentences", f"{address}translate"]
    assert not [e for e in browser.events if e["method"] in ("Page.javascriptDialogOpening", "Runtime.exceptionThrown")]
    server.shutdown()
    server.server_close()


def maps_page(folder: Path) -> str:
    """Writes a page of three kinds of attention, 2 layers and 2 heads, and returns its address."""
    source, output = ["a", "b", "</s>"], ["c", "d", "e", "</s>"]
    random = np.random.default_rng(0)
    weights = random.dirichlet(np.ones(4), size=(2, 2, 4)).astype(np.float32)
    weights_of_3 = random.dirichlet(np.ones(3), size=(2, 2, 4)).astype(np.float32)
    kinds = {
        "encoder": ("encoder", source, source, weights_of_3[:, :, :3]),
        "decoder": ("decoder", output, ["<s>", "c", "d", "e"], weights),
        "cross": ("cross", output, source, weights_of_3),
    }
    choices = [Choice(0.5, 2, [(NASTY, 0.7), (piece, 0.5)]) for piece in output]
    path = folder / "map.html"
    path.write_text(page("t", kinds, {"decoder": choices, "cross": choices}), encoding="utf-8")
    return path.as_uri()


CHOOSE = """(name, value) => {
  const select = document.querySelectorAll("select")[["kind", "layer", "head"].indexOf(name)];
  select.value = value;
  select.dispatchEvent(new Event("change"));
}"""
CHOSEN = "[...document.querySelectorAll('.matrix tr.on th')].map(one => one.textContent).join()"
WEIGHTS = "[...document.querySelectorAll('.matrix tr.on .heat')].map(one => one.title).join()"


def test_the_word_chosen_stays_while_kind_layer_and_head_change(browser: Browser, tmp_path: Path) -> None:
    browser.open(maps_page(tmp_path))
    browser.value("document.querySelectorAll('.matrix tbody tr')[2].querySelector('.heat').click()")
    assert browser.value(CHOSEN) == "e"
    shown = set()
    for name, value in (("layer", 0), ("head", 1), ("head", 0), ("kind", "decoder"), ("layer", 1), ("kind", "cross")):
        browser.value(f"({CHOOSE})('{name}', '{value}')")
        assert browser.value(CHOSEN) == "e", (name, value)
        shown.add(browser.value(WEIGHTS))
    assert len(shown) == 6, "other weights each time"
    browser.value(f"({CHOOSE})('kind', 'encoder')")
    browser.value("document.querySelectorAll('.matrix tbody tr')[1].querySelector('.heat').click()")
    browser.value(f"({CHOOSE})('kind', 'cross')")
    assert browser.value(CHOSEN) == "e", "a word of the output, although another of the source was looked at"
    browser.value(f"({CHOOSE})('kind', 'encoder')")
    assert browser.value(CHOSEN) == "b"
    assert not [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]


@pytest.mark.parametrize("layers", [[2, 4], [4, 2]])
def test_the_demo_opens_on_the_last_layer_of_each_run(browser: Browser, layers: list[int]) -> None:
    runs = []
    for count in layers:
        maps = {"cross": MAP | {"weights": MAP["weights"] * count}}
        runs.append({"name": "run", "hypotheses": [{"text": "Gut", "score": -1.0}], "maps": maps})
    server, address = serving({"/translate": lambda text, target: {"runs": runs}})
    browser.open(address)
    browser.value("by('text').value = 'Good'; translate()")
    selects = browser.value("[...document.querySelectorAll('select')].map(one => one.value)")
    assert selects == ["cross", str(layers[0] - 1), "mean", "cross", str(layers[1] - 1), "mean"]
    server.shutdown()
    server.server_close()


def test_the_overview_opens_a_head_and_probabilities_are_told(browser: Browser, tmp_path: Path) -> None:
    browser.open(maps_page(tmp_path))
    opened = browser.value("[...document.querySelectorAll('select')].map(one => one.value)")
    assert opened == ["cross", "1", "mean"], "the last layer"
    assert browser.value("document.querySelectorAll('.overview canvas').length") == 4
    browser.value("document.querySelectorAll('.overview button')[1].click()")
    assert browser.value("[...document.querySelectorAll('select')].map(one => one.value)") == ["cross", "0", "1"]
    pressed = "[...document.querySelectorAll('.overview button')].map(one => one.getAttribute('aria-pressed'))"
    assert browser.value(pressed) == ["false", "true", "false", "false"]
    told = browser.value("document.querySelector('.choices').textContent")
    assert told == f"“c” has probability 50.0 %, rank 2; the most probable: {NASTY} 70.0 % · c 50.0 %"
    column = "[...document.querySelectorAll('.matrix .probability')].map(one => one.textContent)"
    assert browser.value(column) == ["probability", *["50.0 %"] * 4], "a column of its own"
    browser.value(f"({CHOOSE})('kind', 'encoder')")
    assert browser.value("document.querySelector('.choices').hidden"), "no source word is predicted"
    assert not browser.value(column)


CAPTION = "document.querySelector('.maps .caption').textContent"


def test_arrow_keys_reach_every_weight_and_the_caption_is_of_this_model(browser: Browser, tmp_path: Path) -> None:
    browser.open(maps_page(tmp_path))
    first = "document.querySelector('.matrix .heat')"
    assert browser.value("[...document.querySelectorAll('.matrix .heat')].filter(one => one.tabIndex == 0).length") == 1
    browser.value(f"{first}.focus()")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowDown", "ArrowDown"):
        browser.ask("Input.dispatchKeyEvent", type="keyDown", key=key)
    assert browser.value("document.activeElement.title").startswith("e → </s>: "), "it stops at the edge"
    assert browser.value(CHOSEN) == "e"
    assert "softmax_one" not in browser.value(CAPTION) and "Rows of the source" not in browser.value(CAPTION)

    less = np.full((1, 1, 2, 2), 0.4, np.float32)
    choice = Choice(0.5, 1, [("b", 0.5)])
    path = tmp_path / "prefix.html"
    path.write_text(page("t", {"decoder": ("decoder", ["a", "b"], ["a", "<s>"], less)}, {"decoder": [None, choice]}))
    browser.open(path.as_uri())
    assert "attention to nothing (model.softmax_one)" in browser.value(CAPTION)
    assert "Rows of the source are its own subwords." in browser.value(CAPTION)
    assert browser.value("document.querySelector('td.probability').textContent") == "given"


def test_the_demo_opens_with_sentences_and_marks_words_that_training_has_not_read(browser: Browser) -> None:
    asked: list[str] = []

    def translate(text: str, target: str) -> dict[str, Any]:
        asked.append(text)
        run = {"name": "run", "hypotheses": [{"text": "Gut", "score": -1.0}], "maps": {"cross": MAP}}
        known = {"unknown": "no corpus is named"}
        return {"runs": [run | {"source": marked(text, frozenset({"the", "dog"}))}, run | known]}

    server, address = serving({"/translate": translate})
    server.about = {"runs": [f"one: en → de {NASTY}"], "examples": ["The dog.", "The cat."]}
    browser.open(address)
    assert browser.value("by('about').textContent") == f"one: en → de {NASTY}"
    assert browser.value("[...by('examples').children].map(one => one.textContent)") == ["The dog.", "The cat."]
    browser.value("by('examples').children[0].click()")
    browser.wait_for("!!document.querySelector('.best')")
    assert not browser.value("document.querySelectorAll('mark, .warning').length")
    browser.value("by('examples').children[1].click()")
    browser.wait_for("!!document.querySelector('mark')")
    assert browser.value("[...document.querySelectorAll('mark')].map(one => one.textContent)") == ["cat"]
    assert browser.value("document.querySelector('.source').textContent") == "The cat."
    assert browser.value("document.querySelectorAll('.warning').length") == 1
    browser.value("by('text').value = 'The dog. A cat.'; translate()")
    assert browser.value("[...document.querySelectorAll('#sentences mark')].map(one => one.textContent)") == [
        "A",
        "cat",
    ]
    browser.value("by('text').value = 'The cat.'; translate()")
    unknown = "Words that training has not read are not marked: no corpus is named."
    assert browser.value("document.querySelectorAll('section')[1].textContent").count(unknown) == 1
    tops = browser.value("['.matrix', 'ol'].map(one => document.querySelector(one).getBoundingClientRect().top)")
    assert tops[0] < tops[1], "the heat map is above the other translations"
    assert asked == ["The dog.", "The cat.", "The dog.", "A cat.", "The cat."]
    assert browser.value("[0, 0.0003, 0.0005, 0.999].map(percent)") == ["0.0 %", "< 0.1 %", "0.1 %", "99.9 %"]
    server.shutdown()
    server.server_close()


def test_an_error_leaves_no_translation_of_another_text(browser: Browser) -> None:
    def translate(text: str, target: str) -> dict[str, Any]:
        check_sentence(text)
        return {"runs": [{"name": "run", "hypotheses": [{"text": "Gut", "score": -1.0}], "maps": {"cross": MAP}}]}

    server, address = serving({"/translate": translate, "/warm": lambda text, target: {}})
    browser.open(address)
    wrong = {
        "": "give one line of 1 to 1,000 characters a sentence; here are 0",
        "x" * 1001: "give one line of 1 to 1,000 characters a sentence; here are 1,001",
    }
    for text, message in wrong.items():
        browser.value("by('text').value = 'Good'; translate()")
        assert browser.value("document.querySelector('.best').textContent") == "Gut"
        browser.value(f"by('text').value = {json.dumps(text)}; translate()")
        assert browser.value("by('status').textContent") == message
        assert not browser.value("document.querySelectorAll('section').length")
        assert browser.value("by('text').value") == text
    browser.value("by('text').value = 'Good'; translate()")
    server.shutdown()
    server.server_close()
    browser.value("by('text').value = 'Bad'; translate()")
    assert browser.value("by('status').textContent").startswith("no answer from the server: ")
    assert not browser.value("document.querySelectorAll('section').length")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_weight_can_be_read(browser: Browser, scheme: str, tmp_path: Path) -> None:
    """The contrast that the browser computes, of the colours that it shows."""
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.open(maps_page(tmp_path))
    contrasts = browser.value("""(() => {
      const parts = colour => {
        const context = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
        context.fillStyle = getComputedStyle(document.body).backgroundColor;
        context.fillRect(0, 0, 1, 1);
        context.fillStyle = colour;
        context.fillRect(0, 0, 1, 1);
        return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map(part => part / 255);
      };
      const linear = part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
      const light = colour => {
        const [red, green, blue] = parts(colour).map(linear);
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
      };
      const key = document.querySelector(".matrix .heat");
      return [...Array(1001).keys()].map(w => {
        key.style.setProperty("--w", w / 10);
        const [ink, ground] = [light(getComputedStyle(key).color), light(getComputedStyle(key).backgroundColor)];
        return Math.max(ink, ground) / Math.min(ink, ground);
      });
    })()""")
    assert len(contrasts) == 1001 and min(contrasts) >= 4.5 and max(contrasts) > 2 * min(contrasts)


def test_the_demo_splits_sentences_forces_a_target_warms_up_and_is_a_link(browser: Browser) -> None:
    asked: list[tuple[str, str, str]] = []

    def translate(text: str, target: str) -> dict[str, Any]:
        asked.append(("translate", text, target))
        run = {"name": "run", "hypotheses": [{"text": text.upper(), "score": -1.0}], "maps": {"cross": MAP}}
        run |= {"score": "what a score is"} | ({"forced": {"text": target, "score": -3.0}} if target else {})
        return {"runs": [run]}

    def warm(text: str, target: str) -> dict[str, Any]:
        asked.append(("warm", text, target))
        return {}

    def beam(text: str, target: str) -> dict[str, Any]:
        asked.append(("beam", text, target))
        return {"runs": [{"name": "run", "tree": TREE.as_json()}]}

    server, address = serving({"/translate": translate, "/warm": warm, "/beam": beam})
    browser.open(address)
    browser.value("by('text').value = 'The dog sleeps. It is old!\\nGood'")
    browser.value("by('text').dispatchEvent(new Event('input', { bubbles: true }))")
    for _ in range(500):
        if asked:
            break
        time.sleep(0.02)
    assert asked == [("warm", "The dog sleeps.", "")]
    browser.value("translate()")
    sentences = ["The dog sleeps.", "It is old!", "Good"]
    assert asked[1:] == [("translate", sentence, "") for sentence in sentences]
    buttons = "[...document.querySelectorAll('.sentences button')].map(one => one.textContent)"
    assert browser.value(buttons) == sentences
    assert browser.value("document.querySelector('.whole').textContent") == "THE DOG SLEEPS. IT IS OLD! GOOD"
    assert browser.value("document.querySelector('.best').textContent") == "THE DOG SLEEPS."
    assert browser.value("joined(['你好。', '（再见。）', '', 'One.', 'Two.'])") == "你好。（再见。）One. Two."
    browser.value("document.querySelectorAll('.sentences button')[1].click()")
    assert browser.value("document.querySelector('.best').textContent") == "IT IS OLD!"

    del asked[:]
    browser.value("document.querySelector('details').open = true")
    browser.wait_for("!!document.querySelector('.beam g[role=img]')")
    assert asked == [("beam", "It is old!", "")]
    assert browser.value("document.querySelectorAll('.beam g[role=img]').length") == 5

    del asked[:]
    browser.value("by('target').value = 'Er ist alt. Ja.'; translate()")
    assert asked == [("translate", "The dog sleeps. It is old! Good", "Er ist alt. Ja.")]
    assert browser.value("document.querySelector('.forced').textContent") == "yours: Er ist alt. Ja. -3.000"
    link = browser.value("location.href")

    del asked[:]
    browser.open("about:blank")
    browser.open(link)
    browser.wait_for("!!document.querySelector('.forced')")
    assert asked == [("translate", "The dog sleeps. It is old! Good", "Er ist alt. Ja.")]
    assert browser.value("by('text').value") == "The dog sleeps. It is old!\nGood"
    assert not [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]
    server.shutdown()
    server.server_close()


TREE = BeamTree(
    source=NASTY,
    decoding=Decoding(beam=2, alpha=0.6, extra_length=1),
    steps=[
        [
            Node(7, NASTY, -1, -0.5, KEPT, None, 0),
            Node(8, "b", -1, -1.0, KEPT, None, 0),
            Node(9, "x" * 50, -1, -2.0, PRUNED, None, 0),
        ],
        [Node(2, NASTY, 0, -1.0, FINISHED, -0.9, 1), Node(2, "b", 1, -1.5, FINISHED, -1.4, 0)],
    ],
    pieces={7: NASTY, 8: "b", 9: "x" * 50, 2: "</s>"},
)


@pytest.mark.parametrize("width", [400, 1280])
def test_the_beam_is_drawn_with_what_was_pruned_and_returned(browser: Browser, width: int, tmp_path: Path) -> None:
    path = tmp_path / "beam.html"
    path.write_text(explain.page([TREE, TREE]), encoding="utf-8")
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.open(path.as_uri())
    classes = browser.value(
        "[...document.querySelectorAll('.beam')[0].querySelectorAll('g[role=img]')].map(one => one.className.baseVal)"
    )
    assert classes == ["kept returned best", "kept", "pruned", "finished returned best", "finished"]
    labels = browser.value(
        "[...document.querySelectorAll('.beam')[1].querySelectorAll('title')].map(one => one.textContent)"
    )
    assert labels[3] == f"{NASTY}: finished, translation 1, log p −1.000, score −0.900"
    assert labels[4] == "b: finished, not among those returned, log p −1.500, score −1.400"
    browser.value("document.querySelectorAll('.beam g[role=img]')[4].dispatchEvent(new Event('focus'))")
    assert browser.value("document.querySelector('output').textContent") == labels[4]
    lit = browser.value("[...document.querySelectorAll('g.on')].map(one => one.querySelector('title').textContent)")
    assert lit == [labels[1], labels[4]], "the whole hypothesis"
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("document.querySelectorAll('script, img').length") == 2, "the page's own script and its data"
    assert not [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]


def test_a_beam_that_failed_is_asked_for_again(browser: Browser) -> None:
    asked: list[str] = []

    def translate(text: str, target: str) -> dict[str, Any]:
        return {"runs": [{"name": "run", "hypotheses": [{"text": "Gut", "score": -1.0}], "maps": {"cross": MAP}}]}

    def beam(text: str, target: str) -> dict[str, Any]:
        asked.append(text)
        if len(asked) == 1:
            raise UserError("busy")
        return {"runs": [{"name": "run", "tree": TREE.as_json()}]}

    server, address = serving({"/translate": translate, "/warm": lambda text, target: {}, "/beam": beam})
    browser.open(address)
    browser.value("by('text').value = 'Good'; translate()")
    browser.value("document.querySelector('details').open = true")
    browser.wait_for("document.querySelector('details p')?.textContent == 'busy'")
    for is_open in ("false", "true"):
        browser.value(f"document.querySelector('details').open = {is_open}; new Promise(done => setTimeout(done, 50))")
    browser.wait_for("!!document.querySelector('.beam g[role=img]')")
    assert asked == ["Good", "Good"]
    assert "busy" not in browser.value("document.querySelector('details').textContent")
    server.shutdown()
    server.server_close()

"""The explorer's page in Chromium: it translates by itself, every part of it can be reached, and nothing leaves."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image

from docs import picture
from tests import tiny
from tests.conftest import ROOT
from tests.infer.test_browser import CHROMIUM, Browser
from tests.infer.test_demo import NASTY
from tests.infer.test_explorer import small
from vaswani.infer.explorer import export
from vaswani.infer.runs import open_run

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]
SOURCE = "The dog sleeps."
SENTENCE = "The tired doctor puts the old letters onto the table."
LONG = (
    "The tired doctor put the old letters onto the table in the kitchen and the old cat swam to the bank because "
    "the dog did not leave the house."
)
TRANSLATION = "document.getElementById('translation').textContent"
LIT = "[...document.querySelectorAll('.word.target')].findIndex(one => one.classList.contains('on'))"
BLOCKS = "[...document.querySelectorAll('#figure .block')].map(one => one.dataset.key.slice(6))"
CROSS = "decoder/layer_1/cross_attention"


@pytest.fixture(scope="module")
def opened_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    one = Browser(tmp_path_factory.mktemp("profile"))
    one.ask("Log.enable")
    yield one
    one.close()


@pytest.fixture
def browser(opened_browser: Browser) -> Iterator[Browser]:
    """One browser for all tests, as wide as a screen, in light colours; after each, the console is empty."""
    opened_browser.events.clear()
    sized(opened_browser, 1280)
    media(opened_browser)
    yield opened_browser
    said = [event for event in opened_browser.events if event["method"].startswith(("Runtime.exception", "Log."))]
    said += [event for event in opened_browser.events if event["method"] == "Runtime.consoleAPICalled"]
    assert not said


def sized(browser: Browser, width: int, height: int = 900) -> None:
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)


def media(browser: Browser, **features: str) -> None:
    wanted = {"prefers-color-scheme": "light", "prefers-reduced-motion": "no-preference"}
    wanted |= {name.replace("_", "-"): value for name, value in features.items()}
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": n, "value": v} for n, v in wanted.items()])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(export.page(export.as_json(open_run("builtin:quickstart"))), encoding="utf-8")
    return path


def opened(browser: Browser, file: Path, **place: Any) -> None:
    """Opens the page at a place of the address, and waits for its translation."""
    browser.open("about:blank")
    browser.open(f"{file.as_uri()}#{urlencode(place)}")
    browser.wait_for("document.body.dataset.translated")


def done(browser: Browser, script: str) -> None:
    """Does something that changes the translation, and waits for it."""
    before = browser.value("document.body.dataset.translated")
    browser.value(script)
    browser.wait_for(f"document.body.dataset.translated != {before}")


def typed(browser: Browser, text: str) -> None:
    field = "document.getElementById('source')"
    done(browser, f"{field}.value = {json.dumps(text)}; {field}.dispatchEvent(new Event('input'))")


def press(browser: Browser, *keys: str) -> None:
    codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
    for key in keys:
        text = {"Enter": "\r", " ": " "}.get(key, "")
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        browser.ask("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, text=text, **code)
        browser.ask("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, **code)


def point(browser: Browser, selector: str) -> None:
    """Moves the pointer onto an element."""
    x, y = browser.value(
        f"(box => [box.x + box.width / 2, box.y + box.height / 2])"
        f"(document.querySelector({json.dumps(selector)}).getBoundingClientRect())"
    )
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)


def key(name: str) -> str:
    return f'[data-key="{name}"]'


def click(browser: Browser, name: str) -> None:
    browser.value(f"document.querySelector({json.dumps(key(name))}).click()")


def text(browser: Browser, selector: str) -> str:
    found: str = browser.value(f"document.querySelector({json.dumps(selector)}).textContent").replace("\u00a0", " ")
    return found


def pixels(name: str, place: str, what: str) -> str:
    """Returns a script that reads a canvas of the figure, from a copy: a canvas that is read becomes slow."""
    return f"""(canvas => {{
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', {{ willReadFrequently: true }});
        copy.drawImage(canvas, 0, 0);
        return [...copy.getImageData({place}).data].{what};
    }})(document.querySelector('#figure .{name}'))"""


# The first view


def test_it_opens_with_a_sentence_translated_and_says_what_it_is(browser: Browser, file: Path) -> None:
    began = time.monotonic()
    browser.open("about:blank")
    browser.open(file.as_uri())
    browser.wait_for("document.body.dataset.translated")
    milliseconds = browser.value("Math.round(performance.now())")
    print(f"first translation after {milliseconds} ms of the page's clock, {time.monotonic() - began:.2f} s of ours")
    assert browser.value(TRANSLATION) == "Der müde Arzt hat gestern die alten Briefe auf den Tisch gelegt."
    assert text(browser, "#about") == (
        "The model of Attention Is All You Need, small enough for a page: 1.15 million parameters, trained on 40,000 "
        "sentence pairs that a small English–German grammar of 355 words made; it gets 92 % of 1,000 new sentences "
        "right to the letter, and outside that grammar it is lost."
    )
    assert "step 370. Matrices are stored with 16 bits a number, which are exactly the run’s." in text(
        browser, "footer"
    )
    assert text(browser, "#whole") == "probability of just this sentence: 9.6 %"
    assert text(browser, "#card h3") == "gelegt49 %", "where it was least sure"
    assert browser.value("document.querySelectorAll('.unsure').length") == 1
    examples = browser.value("[...document.querySelectorAll('#examples button')].map(one => one.textContent)")
    assert len(examples) == 5 and examples[0] == "Two verbs for “put”"
    done(browser, "document.querySelectorAll('#examples button')[1].click()")
    assert browser.value(TRANSLATION) == "Die alte Katze ist gestern zum Ufer geschwommen."
    asked = {e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"}
    assert {address.partition("#")[0] for address in asked} <= {file.as_uri(), "about:blank"}


def test_hostile_text_stays_text(browser: Browser, file: Path) -> None:
    hostile = NASTY.replace("\u2028", "").replace("\n", "")[:40]
    opened(browser, file)
    scripts = browser.value("document.querySelectorAll('script, img').length")
    typed(browser, hostile)
    for block in browser.value(BLOCKS):
        browser.value(f"go({{ block: '{block}', fold: 'numbers', word: '1' }})")
        assert browser.value("document.querySelectorAll('#panel *').length") > 20, block
        assert browser.value("document.querySelectorAll('script, img').length") == scripts
    assert not [event for event in browser.events if event["method"] == "Page.javascriptDialogOpening"]


def test_a_word_under_the_pointer_lights_its_part(browser: Browser, file: Path) -> None:
    opened(browser, file)
    drawn = pixels("lit", "0, 0, canvas.width, canvas.height", "filter((value, i) => i % 4 == 3 && value > 0).length")
    assert browser.value(drawn) == 0 and browser.value(LIT) == -1
    point(browser, key("t11"))
    assert browser.value(LIT) == 11 and browser.value(drawn) > 1000
    assert browser.value("document.querySelector('#figure').classList.contains('looked')")
    numbers = browser.value("[...document.querySelectorAll('#figure .number')].map(one => one.textContent)")
    assert [(n, one.replace("\u00a0", " ")) for n, one in enumerate(numbers) if one] == [(3, "71 %"), (11, "26 %")]
    seen = "[...document.querySelectorAll('.word.input.seen')].map(one => one.textContent)"
    assert browser.value(seen) == [
        "start", "Der", "müde", "Arzt", "hat", "gestern", "die", "alten", "Briefe", "auf", "den", "Tisch",
    ], "none that comes later"  # fmt: skip
    assert text(browser, "#card .key") == "Word 12 of 14"
    point(browser, key("s2"))
    assert browser.value(LIT) == -1 and text(browser, "#card h3") == "doctor"
    x = browser.value("(figure.g.from + figure.g.to) / 2 + document.querySelector('#figure').getBoundingClientRect().x")
    y = browser.value("figure.g.y(0) + document.querySelector('#figure').getBoundingClientRect().y")
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert browser.value(LIT) == 0, "a ribbon is its word"
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=5, y=5)
    assert browser.value(LIT) == -1 and browser.value(drawn) == 0


def test_what_is_drawn_are_the_models_numbers(browser: Browser, file: Path) -> None:
    """The ribbons of a target word add up to one full width, each as wide as its weight."""
    opened(browser, file, s=SENTENCE)
    sums = browser.value("weightsOf(CROSS(1)).map(row => row.reduce((a, b) => a + b))")
    np.testing.assert_allclose(sums, 1, atol=1e-6)
    off = browser.value("""Math.max(...figure.ribbons.map(one =>
        Math.abs(one.h1 / figure.g.unit - now.trace['decoder/layer_1/cross_attention/weights'].rows[one.t]
            .reduce((sum, weight, i) => sum + (i % now.ids.length == one.s ? weight / 4 : 0), 0))))""")
    assert off < 1e-6
    shares = browser.value("now.choices.map(({ p }) => p)")
    widths = browser.value(
        "[...document.querySelectorAll('#figure .sure i:not(.rival)')].map(one => parseFloat(one.style.width))"
    )
    np.testing.assert_allclose(widths, 52 * np.array(shares), atol=1e-3)


def test_the_keyboard_alone_goes_through_all_of_it(browser: Browser, file: Path) -> None:
    opened(browser, file)
    at = "document.activeElement.dataset.key ?? document.activeElement.id"
    stops = []
    for _ in range(60):
        press(browser, "Tab")
        stops.append(browser.value(f"({at}) || document.activeElement.tagName"))
        if stops[-1] == "BODY":
            break
    blocks = browser.value(BLOCKS)
    assert {"Colours auto", "Two verbs for “put”", "source", "play", "layer 1", "head mean", "s0", "t0", "next"} <= set(
        stops
    )
    assert {f"block {block}" for block in blocks} <= set(stops) and len(blocks) == 13
    assert {"beam", "alpha", "grown"} <= set(stops)

    browser.value(f"document.querySelector('{key('t0')}').focus()")
    press(browser, *["ArrowDown"] * 11)
    assert browser.value(LIT) == 11
    press(browser, "Enter")
    assert browser.value("location.hash") == "#pin=11" and "Pinned" in text(browser, "#card .key")
    press(browser, "ArrowLeft")
    assert browser.value(at) == "s3", "the source word that it looks at most"
    press(browser, "ArrowRight", "Escape")
    assert browser.value("location.hash") == ""
    press(browser, "End")
    assert browser.value(at) == "t13"

    browser.value(f"document.querySelector('{key(f'block {CROSS}')}').focus()")
    press(browser, "Enter")
    assert text(browser, "#panel h2") == "Decoder, layer 2: cross-attention"
    assert browser.value(at) == "panel"
    browser.value("document.querySelector('.matrix [tabindex=\"0\"]').focus()")
    press(browser, "ArrowDown", "ArrowRight")
    assert text(browser, "#panel output").startswith("“müde” looks at “tired”: ")
    press(browser, "Escape")
    assert browser.value("document.querySelector('#panel').hidden") and browser.value(at) == f"block {CROSS}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_can_be_told_from_the_ground_and_chosen(browser: Browser, file: Path, scheme: str) -> None:
    media(browser, prefers_color_scheme=scheme)
    opened(browser, file)
    contrasts = """(() => {
        const light = name => {
            const [red, green, blue] = colour(name).match(/[\\d.]+/g).map(part => part / 255)
                .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
        };
        return ["ink", "soft", "encoder", "cross", "decoder"].flatMap(name => ["paper", "raised"].map(ground =>
            Math.max(light(name), light(ground)) / Math.min(light(name), light(ground))));
    })()"""
    ground = "getComputedStyle(document.body).backgroundColor"
    pixel = pixels("flow", "figure.g.from + 3, figure.g.y(0), 1, 1", "slice(0, 3)")
    before = browser.value(ground)
    drawn = browser.value(pixel)
    assert min(browser.value(contrasts)) >= 4.5
    other = {"light": "dark", "dark": "light"}[scheme]
    click(browser, f"Colours {other}")
    assert browser.value(ground) != before and browser.value(pixel) != drawn, "the canvas follows"
    assert min(browser.value(contrasts)) >= 4.5 and browser.value("location.hash") == f"#theme={other}"


def test_all_of_it_fits_a_telephone(browser: Browser, file: Path) -> None:
    sized(browser, 390)
    opened(browser, file, tour=4)
    wide = "document.documentElement.scrollWidth"
    assert browser.value(wide) <= 390
    assert browser.value("document.querySelectorAll('#figure .block').length") == 0
    names = browser.value("[...document.querySelectorAll('#map button')].map(one => one.dataset.key.slice(4))")
    assert len(names) == 13
    for name in names:
        click(browser, f"map {name}")
        assert browser.value("document.querySelector('#panel h2')") is not None
        assert browser.value(wide) <= 390, name
    opened(browser, file, s=LONG, word=2)
    assert browser.value(wide) <= 390
    sized(browser, 320)
    browser.wait_for(f"{wide} <= 320")  # once it has been drawn again


def test_nothing_moves_while_a_sentence_is_translated(browser: Browser, file: Path) -> None:
    opened(browser, file)
    shifts = browser.value("""new Promise(done => {
        new PerformanceObserver(list => done(list.getEntries().map(entry => entry.value)))
            .observe({ type: "layout-shift", buffered: true });
        setTimeout(() => done([]), 300);
    })""")
    assert sum(shifts) < 0.02
    top = "document.getElementById('picture').offsetTop"
    before = browser.value(top)
    for words in ("T", "The zebra", SENTENCE):
        typed(browser, words)
        assert browser.value(top) == before, words


def test_cleared_it_asks_for_a_sentence(browser: Browser, file: Path) -> None:
    opened(browser, file)
    browser.value("element('source').value = ''; element('source').dispatchEvent(new Event('input'))")
    assert browser.value(TRANSLATION) == "Type a sentence, in English."
    assert browser.value("document.querySelector('#picture').hidden")
    typed(browser, SOURCE)
    assert browser.value(TRANSLATION) == "Der Hund schläft." and not browser.value("element('picture').hidden")


def test_words_are_completed_and_unknown_ones_named(browser: Browser, file: Path) -> None:
    opened(browser, file)
    typed(browser, "The old doc")
    offered = "[...document.querySelectorAll('#notes button')].map(one => one.textContent)"
    assert browser.value(offered) == ["doctor", "doctors"]
    done(browser, "document.querySelector('#notes button').click()")
    assert browser.value("element('source').value") == "The old doctor"
    typed(browser, "The zebra sleeps.")
    told = text(browser, "#notes span")
    assert told == "Not in the training sentences, so expect nonsense: zebra. "
    typed(browser, SOURCE)
    assert text(browser, "#notes span") == ""


def test_play_writes_word_by_word_and_steps_with_reduced_motion(browser: Browser, file: Path) -> None:
    opened(browser, file, s=SOURCE)
    later = "[...document.querySelectorAll('.word.target.later')].length"
    browser.value("element('play').click()")
    assert browser.value(later) == 4 and text(browser, "#play") == "■ Stop"
    browser.wait_for(f"{later} == 2")
    assert browser.value("Math.max(...figure.ribbons.map(one => one.t))") == 2, "no ribbon of a later word"
    browser.value("element('play').click()")
    assert browser.value(later) == 0 and text(browser, "#play") == "▶ Play"
    media(browser, prefers_reduced_motion="reduce")
    for left in (4, 3, 2, 1, 0):
        browser.value("element('play').click()")
        assert browser.value(later) == left


def test_six_layers_fold_to_the_first_the_chosen_and_the_last(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "six.html"
    path.write_text(export.page(export.as_json(small(N=6), source=SOURCE)), encoding="utf-8")
    opened(browser, path, layer=2)
    layers = "[...new Set(figure.g.columns.map(({ block }) => layerIn(block)))].filter(n => n >= 0)"
    assert browser.value(layers) == [0, 2, 5]
    folded = "[...document.querySelectorAll('.label.folded')].map(one => one.textContent)"
    assert browser.value(folded) == ["2", "4–5"] * 2
    browser.value("go({ layer: '4' })")
    assert browser.value(layers) == [0, 4, 5]
    assert browser.value("figure.g.to - figure.g.from") >= 220
    assert browser.value("document.querySelector('#examples').children.length") == 0
    assert text(browser, "#about").endswith("trained on sentence pairs."), "no record, no corpus"


def test_an_address_may_be_wrong(browser: Browser, file: Path) -> None:
    wrong = {
        "view": "map",
        "off": "__proto__,out:a:b,only:softmax:0",
        "block": "a/b",
        "layer": "x",
        "head": "99",
        "pin": "-3",
    }
    opened(browser, file, s=SOURCE, beam="many", alpha="x", grown="y", checkpoint="7", theme="pink", tour="z", **wrong)
    assert browser.value(TRANSLATION) == "Der Hund schläft."
    assert browser.value("element('changed').hidden && element('panel').hidden")
    browser.value("go({ word: '99', query: '99' })")
    assert text(browser, "#card h3") == "Der87 %", "what is pinned comes first"


# The blocks


def test_a_block_opens_to_its_heat_map_and_heads(browser: Browser, file: Path) -> None:
    opened(browser, file, s=SENTENCE)
    click(browser, f"block {CROSS}")
    assert browser.value("document.querySelectorAll('.matrix .heat').length") == 12 * 12
    assert browser.value("document.querySelectorAll('.heads button').length") == 5
    before = browser.value("figure.ribbons.length")
    click(browser, "head 1")
    assert browser.value("location.hash").endswith(f"head=1&block={CROSS.replace('/', '%2F')}")
    browser.wait_for(f"figure.ribbons.length != {before}")
    assert text(browser, ".fact").startswith("Measured: same token, translated. In 91.3 % of 25,949 cases")
    masked = "block decoder/layer_0/self_attention"
    click(browser, masked)
    assert browser.value("document.querySelectorAll('.matrix .masked').length") == 12 * 11 / 2
    click(browser, masked)
    assert browser.value("document.querySelector('#panel').hidden")
    browser.value("history.back()")
    browser.wait_for("document.querySelector('#panel h2')?.textContent.includes('masked')")


def test_heads_with_a_measured_role_lead_to_it(browser: Browser, file: Path) -> None:
    measured = export.measured_roles(open_run("builtin:quickstart"))["roles"]
    opened(browser, file, block=CROSS)
    assert browser.value("document.querySelectorAll('.roles button').length") == len(measured)
    for role in measured:
        click(browser, f"role {role['kind']} {role['relation']}")
        share = browser.value(f"exact({role['accuracy']})")
        assert f"layer {role['layer']}: " in text(browser, "#panel h2")
        assert text(browser, ".heads [aria-pressed=true]") == f"head {role['head']}"
        assert f"Measured: {role['relation']}. In {share} of" in text(browser, ".fact")


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_block_has_its_numbers(browser: Browser, file: Path, norm: str, tmp_path: Path) -> None:
    if norm == "pre":
        file = tmp_path / "small.html"
        file.write_text(export.page(export.as_json(small(norm=norm), source=SOURCE)), encoding="utf-8")
    opened(browser, file, s=SOURCE, fold="numbers")
    reached = set()
    for block in browser.value(BLOCKS):
        browser.value(f"go({{ block: '{block}', fold: 'numbers', part: '' }})")
        parts = browser.value("partsOf(at.block).map(([name]) => name)")
        for part in parts:
            browser.value(f"go({{ part: '{part}' }})")
            first = text(browser, "#panel .grid td[role]")
            assert any(digit in first for digit in "0123456789−"), part
        reached |= set(parts)
    sides = ("/embedding", "/layer_0", "/layer_1")
    computed = set(browser.value("Object.keys(now.trace)"))
    assert computed - reached <= {f"{stack}{side}" for stack in ("encoder", "decoder") for side in ("", *sides)}
    browser.value(f"go({{ block: '{CROSS}', part: '{CROSS}/weights' }})")
    if norm == "post":
        assert text(browser, "#panel .shape") == "5 positions × 4 heads × 5 keys"


CELLS = """[...document.querySelectorAll('#panel .grid')].slice(-4).map(table => [...table.tBodies[0].rows].map(row =>
    [...row.cells].slice(1).map(cell => parseFloat(cell.textContent.replace('−', '-').replace('< ', '')))))"""


@pytest.mark.parametrize("block", ["encoder/layer_1/self_attention", "decoder/layer_1/self_attention", CROSS])
def test_the_steps_of_a_head_add_up(browser: Browser, file: Path, block: str) -> None:
    """As a reader would check them, with a pocket calculator."""
    opened(browser, file, block=block, fold="numbers", head=2, own=2, query=3, s=SENTENCE)
    keys, weights, values, heads = (np.array(table, float) for table in browser.value(CELLS))
    is_masked = block == "decoder/layer_1/self_attention"
    np.testing.assert_allclose(keys[1:] @ keys[0], weights[:, 0], atol=0.8)
    np.testing.assert_allclose(weights[:, 0] / 32**0.5, weights[:, 1], atol=0.06)
    seen = np.arange(len(weights)) <= 3 if is_masked else np.full(len(weights), True)
    assert np.isnan(weights[~seen, 2]).all() and (weights[~seen, 3] == 0).all()
    exponentials = np.where(seen, np.exp(weights[:, 1]), 0)
    np.testing.assert_allclose(100 * exponentials / exponentials.sum(), weights[:, 3], atol=1.5)
    np.testing.assert_allclose(weights[:, 3] / 100 @ values[:-1], values[-1], atol=0.04)
    np.testing.assert_allclose(heads[:-1].sum(axis=0), heads[-1], atol=0.03)
    assert ("Without the mask" in text(browser, "#panel")) == is_masked


def test_arrow_keys_reach_every_number(browser: Browser, file: Path) -> None:
    opened(browser, file, block="softmax", fold="numbers")
    browser.value("document.querySelector('.grid [tabindex=\"0\"]').focus()")
    at = "document.activeElement.title"
    press(browser, "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft")
    assert browser.value(at) == "Der, <s>"
    press(browser, "End")
    last = browser.value("model.tokenizer.label(1799)")
    assert browser.value(at) == f"Der, {last}", "columns are turned"
    assert browser.value("document.querySelectorAll('.grid [tabindex=\"0\"]').length") == 1, "one stop for Tab"


def test_a_position_further_on_is_a_rotation(browser: Browser, file: Path) -> None:
    opened(browser, file, block="encoder/embedding", fold="positions", pos=7, k=5)
    rotation, alike = browser.value(CELLS)
    values = np.array(rotation)
    np.testing.assert_allclose(values[:, 3:5], values[:, 5:7], atol=0.011)
    np.testing.assert_allclose(values[0, 1:3], [np.sin(7), np.cos(7)], atol=0.006)
    assert alike[0][0] == 64 and alike[0][1] < 64, "d / 2"
    slide(browser, "pos", 20)
    np.testing.assert_allclose(browser.value(CELLS)[1], alike, atol=0.06)


def test_the_logit_lens_ends_in_the_prediction(browser: Browser, file: Path) -> None:
    opened(browser, file, block="decoder/layer_0/feed_forward", fold="lens")
    last = browser.value("[...document.querySelector('.grid').tBodies[0].rows].at(-1).textContent")
    assert all(word in last for word in ("Der", "müde", "Arzt", "gelegt"))
    browser.wait_for(
        "document.querySelector('#card .lens').textContent.startsWith('Layer 1 alone would say “gewartet”')"
    )


# The model changed


def test_switches_change_the_translation_and_the_changes_are_marked(browser: Browser, file: Path) -> None:
    opened(browser, file, s=SENTENCE, block=CROSS, head=0, layer=1)
    whole = browser.value(TRANSLATION)
    found = {}
    places = {
        "scale": CROSS, f"out:{CROSS}:0": CROSS, f"only:{CROSS}:0": CROSS, "mask": "decoder/layer_0/self_attention",
        "positions": "encoder/embedding", "order": "encoder/embedding",
    }  # fmt: skip
    for name, block in places.items():
        browser.value(f"go({{ block: '{block}' }})")
        done(browser, f"document.querySelector('{key(f'switch {name}')}').click()")
        found[name] = browser.value("now.choices.map(({ p }) => p).join()")
        assert f"As trained it wrote “{whole}”" in text(browser, "#changed")
        changed = browser.value(TRANSLATION) != whole
        assert bool(browser.value("document.querySelectorAll('.outcome :is(ins, del)').length")) == changed
        if name in ("positions", "order"):
            assert changed
        done(browser, f"document.querySelector('{key('as trained')}').click()")
        assert browser.value(TRANSLATION) == whole and browser.value("element('changed').hidden")
    assert len(set(found.values())) == 6
    done(browser, "go({ off: 'positions' })")
    bag = browser.value(TRANSLATION)
    done(browser, f"document.querySelector('{key('switch order')}').click()")
    assert browser.value(TRANSLATION) == bag, "as the tour says"


def test_patching_finds_where_a_word_is_kept(browser: Browser, file: Path) -> None:
    opened(browser, file, s=SENTENCE, word=2, other="teacher")
    rows = browser.value("""[...document.querySelectorAll('.patches > div')].map(row =>
        [row.children[0].textContent, parseFloat(row.children[2].textContent.replace('< ', ''))])""")
    of_lehrer = dict(rows)
    assert "How probable “Lehrer” then is, where “Arzt” stands." in text(browser, "#card")
    assert of_lehrer["nothing"] < 5
    for place in ("embedding", "layer 1", "layer 2"):
        assert of_lehrer[f"{place}: doctor"] > 50 and of_lehrer[f"{place}: all but doctor"] < 20, place
    assert of_lehrer["cross-attention 2: here"] > 50
    opened(browser, file, s=SENTENCE, word=2, other="zebra")
    assert "choose a word that is one" in text(browser, "#card")


def slide(browser: Browser, name: str, value: float) -> None:
    browser.value(
        f"(slider => {{ slider.value = {value}; slider.dispatchEvent(new Event('input')); }})"
        f"(document.querySelector('{key(name)}'))"
    )


def test_the_beam_grows_and_follows_its_sliders(browser: Browser, file: Path) -> None:
    opened(browser, file, s=SENTENCE)
    columns = "document.querySelectorAll('.beam text.number').length"
    nodes = "document.querySelectorAll('.beam g[role=img]').length"
    whole = browser.value(columns)
    assert whole > 10 and browser.value("document.querySelectorAll('.beam g.best').length") == 12
    assert browser.value("document.querySelector('.ends p').textContent.trim()") == browser.value(TRANSLATION)
    scores = [
        float(one.split("score ")[1].replace("−", "-"))
        for one in browser.value("[...document.querySelectorAll('.ends li')].map(one => one.textContent)")
    ]
    assert len(scores) == 4 and scores == sorted(scores, reverse=True), "the best first"
    shown = browser.value(nodes)
    browser.value("document.querySelector('#beam .link').click()")
    assert browser.value(nodes) > shown, "what was dropped"
    slide(browser, "grown", 3)
    assert browser.value(columns) == 3 and browser.value("document.querySelectorAll('.beam .returned').length") == 0
    done(
        browser,
        f"document.querySelector('{key('beam')}').value = 1;"
        f"document.querySelector('{key('beam')}').dispatchEvent(new Event('input'))",
    )
    assert browser.value(nodes) == 3, "greedy"
    assert browser.value("location.hash").endswith("grown=3&beam=1")


def test_the_tour_has_ten_steps_and_can_be_skipped(browser: Browser, file: Path) -> None:
    opened(browser, file, s=SENTENCE)
    asked = []
    for _ in range(10):
        browser.value(f"document.querySelector('#tour {key('next')}').click()")
        browser.wait_for("document.querySelector('#translation').getAttribute('aria-busy') == 'false'")
        asked.append(text(browser, "#tour strong"))
    assert len(set(asked)) == 10 and all("?" in one for one in asked)
    changes = """new Promise(done => {
        let count = 0;
        new MutationObserver(() => { count++; }).observe(document.getElementById("tour"), { childList: true });
        go({ pin: "1" });
        setTimeout(() => done(count), 50);
    })"""
    assert browser.value(changes) == 0, "the tour is not read out again"
    browser.value("history.back()")
    browser.wait_for("document.querySelector('#tour strong').textContent.startsWith('9 of 10')")
    browser.value(f"document.querySelector('#tour {key('skip')}').click()")
    assert text(browser, "#tour") == "Take the tour: ten questions"


def test_a_slider_goes_through_checkpoints(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    model_run = open_run(tiny.write_run(tmp_path / "run"))
    path.write_text(export.page(export.as_json(model_run, export.spaced(model_run, 2), SOURCE)), encoding="utf-8")
    opened(browser, path)
    told = "[model.step, now.logits[0][0]]"
    step, last = browser.value(told)
    assert step == 4
    slider = f"document.querySelector('{key('checkpoint')}')"
    assert browser.value(f"[{slider}.min, {slider}.max, {slider}.value]") == ["0", "2", "2"]
    done(browser, f"{slider}.value = 0; {slider}.dispatchEvent(new Event('input'))")
    step, first = browser.value(told)
    assert step == 1 and first != last
    assert browser.value("location.hash") == "#checkpoint=0"


def test_a_screen_reader_finds_names_and_headers(browser: Browser, file: Path) -> None:
    opened(browser, file, block=CROSS, fold="numbers", tour=4)
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(node.get("role", {}).get("value", ""), []).append(node.get("name", {}).get("value", ""))
    assert {"query and keys", "from products to weights"} <= set(names["grid"])
    assert {"q", "output"} <= set(names["rowheader"]) and "softmax" in names["columnheader"]
    for role in ("button", "radio", "slider", "textbox", "listbox", "option", "combobox"):
        assert all(names.get(role, [""])), role
    assert "gelegt, 49\u00a0%; else gestellt, 43\u00a0%" in names["option"]


def test_a_browser_that_lacks_something_says_so_in_one_line(browser: Browser, file: Path) -> None:
    line = "getComputedStyle(document.getElementById('needs'))"
    visible = (
        "[...document.querySelectorAll('body *')].filter(one => one.checkVisibility({ visibilityProperty: true }))"
    )
    opened(browser, file)
    assert browser.value(f"{line}.display") == "none"
    old = browser.ask("Page.addScriptToEvaluateOnNewDocument", source="delete window.ResizeObserver")
    browser.open("about:blank")
    browser.open(file.as_uri())
    browser.wait_for(f"{line}.visibility == 'visible'")
    assert browser.value(f"{visible}.map(one => one.tagName)") == ["HEADER", "H1", "P"]
    assert text(browser, "#needs").endswith("a browser of 2024 or later.")
    browser.ask("Page.removeScriptToEvaluateOnNewDocument", identifier=old["identifier"])
    browser.events.clear()  # the error that this browser reports


def test_the_readmes_picture_is_of_the_page_as_it_is_now(tmp_path: Path) -> None:
    """Its texts are compared, not its pixels: another machine has other fonts."""
    picture.draw(tmp_path / "now.png")
    with Image.open(tmp_path / "now.png") as now, Image.open(ROOT / "docs" / "explorer.png") as kept:
        assert "Der müde Arzt hat gestern" in now.text["Source"]
        assert (now.size, now.text["Source"]) == (kept.size, kept.text["Source"]), "python -m docs.picture"
    assert (ROOT / "docs" / "explorer.png").stat().st_size < 300_000


def test_a_hover_updates_only_what_changed(browser: Browser, file: Path) -> None:
    opened(browser, file, s=LONG)
    count = browser.value("now.ids.length")
    milliseconds = browser.value("""(() => {
        const began = performance.now();
        for (let i = 0; i < 50; i++) look({ t: i % now.output.length });
        return (performance.now() - began) / 50;
    })()""")
    print(f"a hover over one of {count} subwords takes {milliseconds:.1f} ms of script")
    drawn = "(() => { window.count = 0; const old = drawFlow; drawFlow = () => { window.count++; old(); }; })()"
    browser.value(drawn)
    browser.value("look({ t: 3 }); look({ s: 3 }); look({})")
    assert count >= 30 and browser.value("window.count") == 0, "the picture behind it is not drawn again"


def test_a_translators_bleu_has_its_sentences_and_signature(browser: Browser, tmp_path: Path) -> None:
    data = export.as_json(small(), source=SOURCE)
    score = {"bleu": 41.26, "signature": "a signature", "exact": 20.0, "sentences": 2000, "split": "test"}
    data["about"] |= {"score": score, "pairs": 163_000, "languages": ["en", "fr"], "bits": 8, "difference": 0.012}
    data["about"]["examples"] = [{"title": "a", "source": "b"}]
    path = tmp_path / "other.html"
    path.write_text(export.page(data), encoding="utf-8")
    opened(browser, path)
    assert text(browser, "#about").endswith(
        "trained on 163,000 English–French sentence pairs; its translations of 2,000 test sentences have 41.3 BLEU."
    )
    assert browser.value("document.querySelector('#about [title]').title") == "a signature"
    assert text(browser, "#targetName") == "French"
    assert "rounded to 8 bits a number: in the translations of the 1 examples no log-probability differs" in text(
        browser, "footer"
    )

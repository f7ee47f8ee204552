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
LIT = "figure.targets.findIndex(one => one.classList.contains('here'))"
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
        "sentence pairs that a small grammar made; it gets 92 % of 1,000 new sentences right to the letter, and "
        "outside that grammar it is lost."
    )
    assert "with the parameters of step 370, exactly the run’s." in text(browser, "footer")
    assert "sacreBLEU: nrefs:1|" in text(browser, "footer"), "no score without its signature"
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
        browser.value(f"go({{ block: '{block}', pin: 's1' }})")
        assert browser.value("document.querySelectorAll('#panel *').length") > 20, block
        assert browser.value("document.querySelectorAll('script, img').length") == scripts
    assert not [event for event in browser.events if event["method"] == "Page.javascriptDialogOpening"]


def test_a_word_under_the_pointer_lights_its_part(browser: Browser, file: Path) -> None:
    opened(browser, file)
    drawn = "document.querySelectorAll('#lit *').length"
    assert browser.value(drawn) == 0 and browser.value(LIT) == -1
    point(browser, key("t11"))
    assert browser.value(LIT) == 11 and browser.value(drawn) > 20
    assert browser.value("document.body.className") == "looked"
    numbers = browser.value("figure.sources.map(one => one.dataset.share)")
    assert [(n, one) for n, one in enumerate(numbers) if one] == [(3, "71 %"), (11, "26 %")]
    seen = "[...document.querySelectorAll('.inputs span:not(.unread)')].map(one => one.textContent)"
    assert browser.value(seen) == [
        "start", "Der", "müde", "Arzt", "hat", "gestern", "die", "alten", "Briefe", "auf", "den", "Tisch",
    ], "none that comes later"  # fmt: skip
    assert text(browser, "#card .key") == "Word 12 of 14"
    point(browser, key("s2"))
    assert browser.value(LIT) == -1 and text(browser, "#card h3") == "doctor"
    x = browser.value("(figure.from + figure.to) / 2 + document.querySelector('#figure').getBoundingClientRect().x")
    y = browser.value("laneOf(0) + document.querySelector('#figure').getBoundingClientRect().y")
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert browser.value(LIT) == 0, "a ribbon is its word"
    browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=5, y=5)
    assert browser.value(LIT) == -1 and browser.value(drawn) == 0


def test_what_is_drawn_are_the_models_numbers(browser: Browser, file: Path) -> None:
    """The ribbons of a target word add up to one full width, each as wide as its weight."""
    opened(browser, file, s=SENTENCE)
    sums = browser.value("figure.weights.map(row => row.reduce((a, b) => a + b))")
    np.testing.assert_allclose(sums, 1, atol=1e-6)
    widths = browser.value("""[...document.querySelectorAll('#ribbons path')].map(one => {
        const [, end, low] = one.getAttribute('d').match(/ (\\S+)L\\S+ ([^C]+)C/);
        return low - end;
    })""")
    weights = browser.value("""now.trace['decoder/layer_1/cross_attention/weights'].flatMap(row =>
        now.ids.map((_, s) => (row[s] + row[s + now.ids.length] + row[s + 2 * now.ids.length]
            + row[s + 3 * now.ids.length]) / 4))""")
    np.testing.assert_allclose(np.array(widths), 17 * np.array(weights), atol=1e-4)
    shares = browser.value("now.choices.map(({ p }) => p)")
    bars = browser.value(
        "[...document.querySelectorAll('.sure i:not(.rival)')].map(one => parseFloat(one.style.width))"
    )
    np.testing.assert_allclose(bars, 52 * np.array(shares), atol=1e-3)


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
    first = browser.value("`example ${data.source}`")
    assert {first, "source", "play", "layer 1", "head mean", "s0", "t0", "SUMMARY"} <= set(stops)
    assert {f"block {block}" for block in blocks} <= set(stops) and len(blocks) == 13
    assert {"beam", "alpha"} <= set(stops)

    browser.value(f"document.querySelector('{key('t0')}').focus()")
    press(browser, *["ArrowDown"] * 11)
    assert browser.value(LIT) == 11
    press(browser, "Enter")
    assert browser.value("location.hash") == "#pin=t11" and browser.value(at) == "t11"
    press(browser, "ArrowLeft")
    assert browser.value(at) == "s3", "the source word that it looks at most"
    press(browser, "ArrowRight", "Escape", "ArrowUp")
    assert browser.value("location.hash") == "" and browser.value(LIT) == int(browser.value(at)[1:])

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
def test_colours_can_be_told_from_the_ground(browser: Browser, file: Path, scheme: str) -> None:
    media(browser, prefers_color_scheme=scheme)
    opened(browser, file)
    contrasts = """(() => {
        const light = colour => {
            const [red, green, blue] = colour.match(/[\\d.]+/g).map(part => part / 255)
                .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
        };
        const ground = light(getComputedStyle(document.body).backgroundColor);
        return ["body", "#about", "#sourceName", "#targetName", ".space b"].map(one => {
            const own = light(getComputedStyle(document.querySelector(one)).color);
            return Math.max(own, ground) / Math.min(own, ground);
        });
    })()"""
    assert min(browser.value(contrasts)) >= 4.5
    dark = browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(18, 21, 26)"
    assert dark == (scheme == "dark")


def test_all_of_it_fits_a_telephone(browser: Browser, file: Path) -> None:
    sized(browser, 390)
    opened(browser, file)
    wide = "document.documentElement.scrollWidth"
    assert browser.value(wide) <= 390
    assert browser.value("document.querySelectorAll('#figure .block').length") == 0
    names = browser.value("[...document.querySelectorAll('#map button')].map(one => one.dataset.key.slice(4))")
    assert len(names) == 13
    for name in names:
        click(browser, f"map {name}")
        assert browser.value("document.querySelector('#panel h2')") is not None
        assert browser.value(wide) <= 390, name
    opened(browser, file, s=LONG, pin="s2")
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
    top = "document.getElementById('figure').offsetTop"
    before = browser.value(top)
    for words in ("T", "The zebra", SENTENCE):
        typed(browser, words)
        assert browser.value(top) == before, words


def test_cleared_it_asks_for_a_sentence(browser: Browser, file: Path) -> None:
    opened(browser, file)
    browser.value("element('source').value = ''; element('source').dispatchEvent(new Event('input'))")
    assert browser.value(TRANSLATION) == "Type a sentence, in English."
    assert browser.value("document.querySelector('#figure').hidden")
    typed(browser, SOURCE)
    assert browser.value(TRANSLATION) == "Der Hund schläft." and not browser.value("element('figure').hidden")


def test_unknown_words_are_named(browser: Browser, file: Path) -> None:
    opened(browser, file)
    typed(browser, "The zebra sleeps.")
    assert text(browser, "#notes") == "Not in the training sentences, so expect nonsense: zebra."
    typed(browser, SOURCE)
    assert text(browser, "#notes") == ""


def test_play_writes_word_by_word_and_steps_with_reduced_motion(browser: Browser, file: Path) -> None:
    opened(browser, file, s=SOURCE)
    later = "document.querySelectorAll('.words .later').length"
    browser.value("element('play').click()")
    assert browser.value(later) == 4 and text(browser, "#play") == "■ Stop"
    browser.wait_for(f"{later} == 2")
    lit = "Math.max(...[...document.querySelectorAll('#lit [data-t]')].map(one => one.dataset.t))"
    assert browser.value(lit) == 2, "no ribbon of a later word"
    browser.value("element('play').click()")
    assert browser.value(later) == 0 and text(browser, "#play") == "▶ Play"
    media(browser, prefers_reduced_motion="reduce")
    for left in (4, 3, 2, 1, 0):
        browser.value("element('play').click()")
        assert browser.value(later) == left


def test_six_layers_fold_to_the_first_the_chosen_and_the_last(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "six.html"
    data = export.as_json(small(N=6), source=SOURCE)
    data["about"]["languages"] = ["a", ""]  # the ends of files' names, which need not be languages
    path.write_text(export.page(data), encoding="utf-8")
    opened(browser, path, layer=2)
    layers = "[...document.querySelectorAll('.encoder.self-attention')].map(one => layerIn(one.dataset.key))"
    assert browser.value(layers) == [0, 2, 5]
    folded = "[...document.querySelectorAll('#columns > small')].map(one => one.textContent)"
    assert browser.value(folded) == ["2", "4–5"] * 2
    browser.value("go({ layer: '4' })")
    assert browser.value(layers) == [0, 4, 5]
    assert browser.value("figure.to - figure.from") >= 240
    assert browser.value("document.querySelector('#examples .chips').children.length") == 0
    assert text(browser, "#about").endswith("trained on sentence pairs."), "no record, no corpus"
    assert (text(browser, "#sourceName"), text(browser, "#targetName")) == ("a", "target")


def test_an_address_may_be_wrong(browser: Browser, file: Path) -> None:
    wrong = {"view": "map", "off": "__proto__,out:a:b,only:softmax:0", "block": "a/b", "layer": "x", "head": "99"}
    opened(browser, file, s=SOURCE, beam="many", alpha="x", part="y", pin="t99", **wrong)
    assert browser.value(TRANSLATION) == "Der Hund schläft."
    assert text(browser, "#changed") == "" and browser.value("element('panel').hidden")
    browser.value("go({ block: 'softmax', from: '99999' })")
    assert browser.value("document.querySelectorAll('.grid .heat').length") == 5, "the last column"


# The blocks


def test_a_block_opens_to_its_heat_map_and_heads(browser: Browser, file: Path) -> None:
    opened(browser, file, s=SENTENCE)
    click(browser, f"block {CROSS}")
    assert browser.value("document.querySelectorAll('.matrix .heat').length") == 12 * 12
    assert browser.value("document.querySelectorAll('.heads canvas').length") == 5
    ribbon = "document.querySelector('#ribbons path').getAttribute('d')"
    before = browser.value(ribbon)
    click(browser, "head 1")
    assert browser.value("location.hash").endswith(f"head=1&block={CROSS.replace('/', '%2F')}")
    assert browser.value(ribbon) != before
    measured = export.measured_roles(open_run("builtin:quickstart"))["roles"]
    told = browser.value("[...document.querySelectorAll('.heads small')].map(one => one.textContent)")
    own = [role for role in measured if (role["kind"], role["layer"]) == ("cross", 2)]
    assert len(told) == len({role["head"] for role in own}) > 0 and "same token, translated: 91 %" in told
    masked = "block decoder/layer_0/self_attention"
    click(browser, masked)
    assert browser.value("document.querySelectorAll('.matrix .masked').length") == 12 * 11 / 2
    click(browser, masked)
    assert browser.value("document.querySelector('#panel').hidden")
    browser.value("history.back()")
    browser.wait_for("document.querySelector('#panel h2')?.textContent.includes('masked')")


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_activation_has_its_numbers(browser: Browser, file: Path, norm: str, tmp_path: Path) -> None:
    if norm == "pre":
        file = tmp_path / "small.html"
        file.write_text(export.page(export.as_json(small(norm=norm), source=SOURCE)), encoding="utf-8")
    opened(browser, file, s=SOURCE)
    reached = set()
    for block in browser.value(BLOCKS):
        browser.value(f"go({{ block: '{block}' }})")
        for part in browser.value("[...document.querySelectorAll('[data-key^=part]')].map(one => one.dataset.key)"):
            name = part.removeprefix("part ")
            if name in reached:
                continue
            click(browser, part)
            assert browser.value("document.querySelector('.grid').getAttribute('aria-label')") == name
            first = browser.value("now.trace[at.part][0][0]")
            shown = text(browser, ".grid .heat").replace("−", "-").replace("∞", "inf")
            assert abs(first - float(shown)) < 0.006 if first is not None else shown == "-inf"
            reached.add(name)
    assert reached == set(browser.value("Object.keys(now.trace)"))


def test_arrow_keys_and_a_slider_reach_every_number(browser: Browser, file: Path) -> None:
    opened(browser, file, block="softmax", s=SENTENCE)
    browser.value("document.querySelector('.grid [tabindex=\"0\"]').focus()")
    press(browser, "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft")
    assert browser.value("document.activeElement.title").startswith("Der → <s>: ")
    slide(browser, "from", 1799)
    assert text(browser, ".grid thead th") == browser.value("model.target.label(1799)")
    assert browser.value("document.querySelectorAll('.grid [tabindex=\"0\"]').length") == 1, "one stop for Tab"


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
        assert bool(browser.value("document.querySelectorAll('#changed mark').length")) or not changed
        if name in ("positions", "order"):
            assert changed
        done(browser, f"document.querySelector('{key('as trained')}').click()")
        assert browser.value(TRANSLATION) == whole and text(browser, "#changed") == ""
    assert len(set(found.values())) == 6
    done(browser, "go({ off: 'positions' })")
    bag = browser.value(TRANSLATION)
    done(browser, f"document.querySelector('{key('switch order')}').click()")
    assert browser.value(TRANSLATION) == bag, "as the tour says"


def slide(browser: Browser, name: str, value: float) -> None:
    browser.value(
        f"(slider => {{ slider.value = {value}; slider.dispatchEvent(new Event('change')); }})"
        f"(document.querySelector('{key(name)}'))"
    )


def test_the_beam_follows_its_sliders(browser: Browser, file: Path) -> None:
    opened(browser, file, s=SENTENCE)
    nodes = "document.querySelectorAll('.beam g[role=img]').length"
    assert browser.value("document.querySelectorAll('.beam g.best').length") == 12
    assert browser.value("document.querySelector('.ends p').textContent.trim()") == browser.value(TRANSLATION)
    lines = browser.value("[...document.querySelectorAll('.ends li')].map(one => one.textContent)")
    scores = [float(one.split("score ")[1].replace("−", "-")) for one in lines]
    assert len(scores) == 4 and scores == sorted(scores, reverse=True), "the best first"
    shown = browser.value(nodes)
    browser.value("document.querySelector('#beam .link').click()")
    assert browser.value(nodes) > shown, "what was dropped"
    before = browser.value("document.body.dataset.translated")
    slide(browser, "beam", 1)
    browser.wait_for(f"document.body.dataset.translated != {before}")
    assert browser.value(nodes) == 12, "greedy"
    assert browser.value("location.hash").endswith("beam=1")


def test_the_questions_lead_to_their_answers(browser: Browser, file: Path) -> None:
    opened(browser, file, s=SENTENCE)
    answers = "[...document.querySelectorAll('#tour a')]"
    blocks = []
    for n in range(browser.value(f"{answers}.length")):
        browser.value(f"{answers}[{n}].click()")
        browser.wait_for("document.querySelector('#main').classList.contains('old') == false")
        blocks.append(text(browser, "#panel h2"))
    assert blocks == [
        "Decoder, layer 1: cross-attention", "Decoder, layer 1: masked self-attention", "Encoder: embedding",
        "Decoder: softmax",
    ]  # fmt: skip


def test_a_screen_reader_finds_names_and_headers(browser: Browser, file: Path) -> None:
    opened(browser, file, block=CROSS)
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(node.get("role", {}).get("value", ""), []).append(node.get("name", {}).get("value", ""))
    assert {"attention weights, in per cent; rows look at columns", CROSS} <= set(names["grid"])
    assert {"gelegt", "start"} <= set(names["rowheader"]) and "doctor" in names["columnheader"]
    for role in ("button", "slider", "textbox", "listbox", "option"):
        assert all(names.get(role, [""])), role


def test_the_readmes_picture_is_of_the_page_as_it_is_now(tmp_path: Path) -> None:
    """Its texts are compared, not its pixels: another machine has other fonts."""
    picture.draw(tmp_path / "now.png")
    with Image.open(tmp_path / "now.png") as now, Image.open(ROOT / "docs" / "explorer.png") as kept:
        assert "Ich glaube, dass sie das Buch bereits gelesen hat." in now.text["Source"]
        assert (now.size, now.text["Source"]) == (kept.size, kept.text["Source"]), "python -m docs.picture"
    assert (ROOT / "docs" / "explorer.png").stat().st_size < 200_000


def test_a_hover_updates_only_what_changed(browser: Browser, file: Path) -> None:
    opened(browser, file, s=LONG)
    count = browser.value("now.ids.length")
    milliseconds = browser.value("""(() => {
        const began = performance.now();
        for (let i = 0; i < 50; i++) follow({ target: figure.targets[i % now.output.length] });
        return (performance.now() - began) / 50;
    })()""")
    print(f"a hover over one of {count} subwords takes {milliseconds:.1f} ms of script")
    browser.value("(() => { window.count = 0; const old = drawFlow; drawFlow = () => { window.count++; old(); }; })()")
    point(browser, key("t3"))
    point(browser, key("s3"))
    assert count >= 30 and browser.value("window.count") == 0, "the picture behind it is not drawn again"

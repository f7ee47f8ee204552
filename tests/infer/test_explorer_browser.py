"""The explorer's page in Chromium: it translates by itself, hostile sentences are text, and nothing leaves."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from PIL import Image

from docs import picture
from tests import tiny
from tests.conftest import ROOT
from tests.infer.test_browser import CHROMIUM, Browser, browser  # noqa: F401 - a fixture
from tests.infer.test_demo import NASTY
from tests.infer.test_explorer import small
from vaswani.infer.explorer import export
from vaswani.infer.runs import open_run

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]
SOURCE = "The dog sleeps."
TRANSLATION = "document.getElementById('translation').textContent"


SENTENCE = "The tired doctor puts the old letters onto the table."


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(export.page(export.as_json(open_run("builtin:quickstart"), source=SOURCE)), encoding="utf-8")
    return path


def opened(browser: Browser, file: Path, **place: Any) -> None:  # noqa: F811
    """Opens the page at a place of the address, and waits for its translation."""
    browser.open("about:blank")
    browser.open(f"{file.as_uri()}#{urlencode(place)}")
    browser.wait_for("document.body.dataset.translated")


def typed(browser: Browser, text: str) -> None:  # noqa: F811
    """Types a sentence, and waits for its translation."""
    before = browser.value("document.body.dataset.translated")
    browser.value(
        f"document.getElementById('source').value = {json.dumps(text)};"
        "document.getElementById('source').dispatchEvent(new Event('input'))"
    )
    browser.wait_for(f"document.body.dataset.translated != {before}")


def press(browser: Browser, *keys: str) -> None:  # noqa: F811
    for key in keys:
        for kind in ("keyDown", "keyUp"):
            browser.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)


def test_it_translates_from_a_file_and_shows_hostile_text_as_text(browser: Browser, file: Path) -> None:  # noqa: F811
    began = time.monotonic()
    browser.open(file.as_uri())
    browser.wait_for("document.body.dataset.translated")
    took = time.monotonic() - began
    milliseconds = browser.value("Math.round(performance.now())")
    print(f"first translation after {milliseconds} ms of the page's clock, {took:.2f} s of ours")
    assert browser.value(TRANSLATION) == "Der Hund schläft."
    assert browser.value("document.querySelectorAll('#subwords span').length") >= 3
    assert browser.value("document.querySelectorAll('#outputs small').length") >= 3, "with probabilities"

    scripts = browser.value("document.querySelectorAll('script, img').length")
    hostile = NASTY.replace("\u2028", "").replace("\n", "")
    views = browser.value("[...document.querySelectorAll('#views a')].map(link => link.dataset.view)")
    typed(browser, hostile)
    for view in views:
        opened(browser, file, view=view, s=hostile)
        assert browser.value("document.querySelectorAll('#view *, #attention *').length") > 3, view
        assert browser.value("document.querySelectorAll('script, img').length") == scripts
    asked = {e["params"]["request"]["url"] for e in browser.events if e["method"] == "Network.requestWillBeSent"}
    assert {address.partition("#")[0] for address in asked} <= {file.as_uri(), "about:blank"}
    assert not [e for e in browser.events if e["method"] in ("Page.javascriptDialogOpening", "Runtime.exceptionThrown")]


def test_the_address_holds_sentence_and_view(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file, view="heads", s=SENTENCE)
    assert browser.value(TRANSLATION) == "Der müde Arzt stellt die alten Briefe auf den Tisch."
    assert browser.value("document.querySelectorAll('.matrix .heat').length") == 12 * 12
    selects = browser.value("[...document.querySelectorAll('#attention select')].map(one => one.value)")
    assert selects[:2] == ["cross", "1"], "the last layer, as the page of infer.attention_maps and the demo"
    typed(browser, SOURCE)
    browser.value("document.querySelector('[data-view=words]').click()")
    assert browser.value("location.hash") == "", "the view and the sentence that it opens with"
    typed(browser, SENTENCE)
    assert browser.value("location.hash.slice(1)") == urlencode({"s": SENTENCE})
    browser.value("history.back()")
    browser.wait_for("document.querySelector('#views [aria-current=page]').dataset.view == 'heads'")
    browser.wait_for("document.querySelectorAll('.matrix .heat').length == 5 * 5")


def test_words_are_completed_and_unknown_ones_named(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file)
    typed(browser, "The old doc")
    offered = "[...document.querySelectorAll('#completions option')].map(option => option.value)"
    assert browser.value(offered) == ["The old doctor", "The old doctors"]
    typed(browser, "Doc")
    assert "Doctor" in browser.value(offered)
    assert browser.value("document.getElementById('unknown').textContent").endswith("expect nonsense: Doc. ")
    typed(browser, "The zebra sleeps.")
    told = browser.value("document.getElementById('unknown').textContent")
    assert "split: zebra." in told and "nonsense: zebra." in told and "sleeps" not in told
    typed(browser, "The dog sleeps.")
    assert browser.value("document.getElementById('unknown').textContent") == ""


def test_heads_have_their_measured_roles(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file, view="heads", head="mean")
    roles = "[...document.querySelectorAll('[aria-label=\"heads with a role\"] button')]"
    measured = export.measured_roles(open_run("builtin:quickstart"))["roles"]
    assert len(measured) == browser.value(f"{roles}.length")
    assert browser.value(f"{roles}.filter(one => one.ariaPressed == 'true').length") == 0, "a mean is no head"
    (place,) = (n for n, role in enumerate(measured) if role["relation"] == "same token, translated")
    role = measured[place]
    told = f"{role['relation']} {100 * role['accuracy']:.1f} %"
    browser.value(f"{roles}[{place}].click()")
    assert browser.value(f"{roles}.filter(one => one.ariaPressed == 'true').map(one => one.firstChild.data)") == [told]
    selects = browser.value("[...document.querySelectorAll('.viewer select')].map(one => one.value)")
    assert selects == ["cross", str(role["layer"] - 1), str(role["head"] - 1)]
    browser.value("document.querySelector('[data-view=head]').click()")
    chosen = "document.querySelectorAll('#controls select')[2].selectedOptions[0].textContent"
    assert browser.value(chosen) == f"{role['head']}: {told}"


def test_a_browser_that_lacks_something_says_so_in_one_line(browser: Browser, file: Path) -> None:  # noqa: F811
    line = "getComputedStyle(document.getElementById('needs'))"
    visible = "[...document.body.children].filter(one => getComputedStyle(one).visibility == 'visible')"
    opened(browser, file)
    assert browser.value(f"{line}.display") == "none"
    old = browser.ask("Page.addScriptToEvaluateOnNewDocument", source="delete Object.hasOwn")["identifier"]
    browser.open("about:blank")
    browser.open(file.as_uri())
    browser.wait_for(f"{line}.visibility == 'visible'")
    assert browser.value(f"{visible}.map(one => one.tagName)") == ["H1", "P"]
    assert browser.value("document.getElementById('needs').textContent").endswith("a browser of 2024 or later.")
    browser.ask("Page.removeScriptToEvaluateOnNewDocument", identifier=old)


def test_the_readmes_picture_is_of_the_page_as_it_is_now(tmp_path: Path) -> None:
    """Its texts are compared, not its pixels: another machine has other fonts."""
    picture.draw(tmp_path / "now.png")
    with Image.open(tmp_path / "now.png") as now, Image.open(ROOT / "docs" / "explorer.png") as kept:
        assert "Der müde Arzt stellt" in now.text["Source"]
        assert (now.size, now.text["Source"]) == (kept.size, kept.text["Source"]), "python -m docs.picture"


def test_nothing_moves_while_a_sentence_is_translated_or_typed(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file)
    shifts = browser.value("""new Promise(done => {
        new PerformanceObserver(list => done(list.getEntries().map(entry => entry.value)))
            .observe({ type: "layout-shift", buffered: true });
        setTimeout(() => done([]), 300);
    })""")
    assert sum(shifts) < 0.02
    tops = "['translation', 'outputs', 'views', 'view'].map(id => document.getElementById(id).offsetTop)"
    before = browser.value(tops)
    for text in ("T", "The zebra", "The dog sees the tired doctor in the old kitchen of the small house today. " * 3):
        typed(browser, text)
        assert browser.value(tops) == before, text


def test_arrow_keys_reach_every_number(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file)
    browser.value("document.querySelector('.grid [tabindex=\"0\"]').focus()")
    at = "[document.activeElement.title, document.activeElement.textContent, document.activeElement.tabIndex]"
    press(browser, "ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft")
    place, text, tab = browser.value(at)
    assert place == "\u2009Hund, 1st" and text.startswith("Hund ") and text.endswith(" %") and tab == 0
    assert browser.value("document.querySelectorAll('.grid [tabindex=\"0\"]').length") == 1, "one stop for Tab"
    press(browser, "End", "ArrowRight", "Home", "ArrowUp", "ArrowUp")
    assert browser.value("document.activeElement.title") == "\u2009Der, p", "it stays inside"


def test_a_screen_reader_finds_names_and_headers(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file, view="head", tour=4)
    nodes = browser.ask("Accessibility.getFullAXTree")["nodes"]
    names: dict[str, list[str]] = {}
    for node in nodes:
        names.setdefault(node.get("role", {}).get("value", ""), []).append(node.get("name", {}).get("value", ""))
    assert {"query and keys", "from products to weights"} <= set(names["grid"])
    assert len(names["gridcell"]) > 500
    assert names["gridcell"].count("") <= len(names["grid"]), "the corner of each table"
    assert {"q", "output"} <= set(names["rowheader"]) and "softmax" in names["columnheader"]
    for role in ("button", "combobox", "checkbox", "link", "textbox"):
        assert all(names.get(role, ["none"])), role
    changes = """new Promise(done => {
        let count = 0;
        new MutationObserver(() => { count++; }).observe(document.getElementById("tour"), { childList: true });
        go({ query: "1" });
        setTimeout(() => done(count), 50);
    })"""
    assert browser.value(changes) == 0, "the tour is not read out again"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_marks_can_be_told_from_the_ground(browser: Browser, file: Path, scheme: str) -> None:  # noqa: F811
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    opened(browser, file)
    contrasts = browser.value("""(() => {
        const light = name => {
            const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
            const [red, green, blue] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
                .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
        };
        const contrast = (one, other) => Math.max(light(one), light(other)) / Math.min(light(one), light(other));
        return ["--ink", "--soft", "--mark"].map(name => contrast(name, "--paper")).concat(contrast("--ink", "--heat"));
    })()""")
    assert min(contrasts) >= 4.5, contrasts


@pytest.mark.parametrize("view", ["words", "heads", "map", "head", "beam", "decoder", "inside", "positions"])
def test_every_view_fits_320_pixels(browser: Browser, file: Path, view: str) -> None:  # noqa: F811
    browser.ask("Emulation.setDeviceMetricsOverride", width=320, height=800, deviceScaleFactor=1, mobile=False)
    opened(browser, file, view=view, s=SENTENCE, tour=4)
    assert browser.value("document.documentElement.scrollWidth") <= 320


def test_one_viewer_listens_to_the_colour_scheme(browser: Browser, file: Path) -> None:  # noqa: F811
    """Of the viewers that others have replaced, none is drawn again."""
    source = """(() => {
        const add = EventTarget.prototype.addEventListener;
        const remove = EventTarget.prototype.removeEventListener;
        window.listening = 0;
        MediaQueryList.prototype.addEventListener = function (...given) { listening++; add.apply(this, given); };
        MediaQueryList.prototype.removeEventListener = function (...given) { listening--; remove.apply(this, given); };
    })()"""
    browser.ask("Page.addScriptToEvaluateOnNewDocument", source=source)
    opened(browser, file, view="heads")
    for text in (SENTENCE, SOURCE):
        typed(browser, text)
    assert browser.value("document.querySelectorAll('.overview canvas').length") == 8
    assert browser.value("listening") == 1
    browser.value("document.querySelector('#attention').remove()")
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.wait_for("listening == 0")


CELLS = """[...document.querySelectorAll('.grid')].map(table => [...table.tBodies[0].rows].map(row =>
    [...row.cells].slice(1).map(cell => parseFloat(cell.textContent.replace('−', '-').replace('< ', '')))))"""


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_the_steps_of_a_head_add_up(browser: Browser, file: Path, kind: str) -> None:  # noqa: F811
    """As a reader would check them, with a pocket calculator."""
    opened(browser, file, view="head", kind=kind, layer=1, head=2, query=3, s=SENTENCE)
    keys, weights, values, heads = (np.array(table, float) for table in browser.value(CELLS))
    np.testing.assert_allclose(keys[1:] @ keys[0], weights[:, 0], atol=0.8)
    np.testing.assert_allclose(weights[:, 0] / 32**0.5, weights[:, 1], atol=0.06)
    seen = np.arange(len(weights)) <= 3 if kind == "decoder" else np.full(len(weights), True)
    assert np.isnan(weights[~seen, 2]).all() and (weights[~seen, 3] == 0).all()
    exponentials = np.where(seen, np.exp(weights[:, 1]), 0)
    np.testing.assert_allclose(100 * exponentials / exponentials.sum(), weights[:, 3], atol=1.5)
    np.testing.assert_allclose(weights[:, 3] / 100 @ values[:-1], values[-1], atol=0.04)
    np.testing.assert_allclose(heads[:-1].sum(axis=0), heads[-1], atol=0.03)
    told = browser.value("document.querySelector('#view').textContent")
    assert ("Without the mask" in told) == (kind == "decoder")


def switch(browser: Browser, name: str) -> None:  # noqa: F811
    before = browser.value("document.body.dataset.translated")
    browser.value(f"document.querySelector('#switches [value={name}]').click()")
    browser.wait_for(f"document.body.dataset.translated != {before}")


def test_switches_change_the_translation(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file, view="head", s=SENTENCE, layer=1, head=0)
    whole = browser.value(TRANSLATION)
    found = {}
    for name in ("scale", "mask", "positions", "order", "head", "only"):
        switch(browser, name)
        found[name] = browser.value("[...document.querySelectorAll('#outputs small')].map(p => p.textContent).join()")
        told = browser.value("document.getElementById('changed').textContent")
        assert f"With nothing changed: “{whole}”, p " in told
        if name in ("positions", "order"):
            assert browser.value(TRANSLATION) != whole
        if name in ("head", "only"):
            assert "head 1, decoder over encoder, layer 2" in told
        if name != "head":
            switch(browser, name)
            assert browser.value(TRANSLATION) == whole
    assert "off" not in browser.value("location.hash"), "with only this head, it is not out"
    switch(browser, "positions")
    bag = browser.value(TRANSLATION)
    switch(browser, "order")
    assert browser.value(TRANSLATION) == bag, "as the tour says"
    assert len(set(found.values())) == 6


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_box_of_the_figure_has_its_numbers(browser: Browser, file: Path, norm: str, tmp_path: Path) -> None:  # noqa: F811
    if norm == "pre":
        file = tmp_path / "small.html"
        file.write_text(export.page(export.as_json(small(norm=norm), source=SOURCE)), encoding="utf-8")
    opened(browser, file, view="map")
    names = browser.value("[...document.querySelectorAll('.figure button')].map(button => button.dataset.key)")
    per_layer = {"post": [4, 6], "pre": [6, 9]}[norm]
    assert len(names) == 2 * sum(per_layer) + 4 + 2 * (norm == "pre"), "two layers"
    for name in names:
        browser.value(f"document.querySelector('[data-key=\"{name}\"]').click()")
        count = browser.value("document.querySelectorAll('.panel .tokens button').length")
        assert bool(count) == ("attention" in name or name.endswith("feed_forward")), name
        for i in range(max(1, count)):
            browser.value(f"document.querySelectorAll('.panel .tokens button')[{i}]?.click()")
            first = browser.value("document.querySelector('.panel td[role]').textContent")
            assert any(digit in first for digit in "0123456789"), (name, i)
    opened(browser, file, view="map", box="decoder/layer_0/cross_attention", part="weights")
    if norm == "post":
        assert browser.value("document.querySelector('.shape').textContent") == "5 positions × 4 heads × 5 keys"
    browser.value("document.querySelector('.panel a').click()")
    browser.wait_for("document.querySelector('#views [aria-current=page]').dataset.view == 'head'")
    assert not [e for e in browser.events if e["method"] == "Runtime.exceptionThrown"]


def slide(browser: Browser, place: int, value: float) -> None:  # noqa: F811
    """Moves a slider of the view."""
    browser.value(
        f"(slider => {{ slider.value = {value}; slider.dispatchEvent(new Event('input')); }})"
        f"(document.querySelectorAll('#controls input[type=range]')[{place}])"
    )


def test_the_beam_grows_and_follows_its_sliders(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file, view="beam", s=SENTENCE)
    columns = "document.querySelectorAll('.beam text.number').length ? [...document.querySelectorAll('.beam text')]"
    columns += ".filter(text => text.textContent.startsWith('step')).length : 0"
    whole = browser.value(columns)
    assert whole > 10 and browser.value("document.querySelectorAll('.beam g.returned').length") >= 12
    slide(browser, 2, 3)
    assert browser.value(columns) == 3
    before = browser.value("document.body.dataset.translated")
    slide(browser, 0, 1)
    browser.wait_for(f"document.body.dataset.translated != {before}")
    assert browser.value("document.querySelectorAll('.beam g[role=img]').length") == 3, "greedy"
    assert browser.value("location.hash").endswith("view=beam&grown=3&beam=1")
    slide(browser, 2, 99)
    assert browser.value("document.querySelector('.grid td:last-child').textContent") == browser.value(TRANSLATION)
    returned = "document.querySelectorAll('.beam g.returned').length"
    opened(browser, file, view="beam", s="The old dog.", alpha=1)
    assert browser.value(columns) == 9 and browser.value(returned) == 6, "the search goes on after the best has ended"
    scores = browser.value("[...document.querySelectorAll('.grid tr')].slice(1).map(row => row.cells[1].textContent)")
    numbers = [float(score.replace("−", "-")) for score in scores]
    assert len(numbers) > 1 and numbers == sorted(numbers, reverse=True), "the best first"
    opened(browser, file, view="beam", s="The old dog.", alpha=1, grown=7)
    assert browser.value(columns) == 7 and browser.value(returned) == 0, "nobody knows yet that it is the best"


def test_the_decoder_goes_forwards_and_back_with_its_cache(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file, view="decoder", s=SENTENCE, kind="decoder", token=3)
    read = "[...document.querySelectorAll('#view .tokens span')].map(one => one.textContent.trim())"
    rows = "[...document.querySelectorAll('.grid')].map(table => table.tBodies[0].rows.length)"
    said = "document.querySelector('.grid th:nth-child(2)').textContent.trim()"
    assert browser.value(read) == ["<s>", "Der", "müde"]
    assert browser.value(rows) == [1, 3, 3] and browser.value(said) == "Arzt"
    browser.value("document.querySelectorAll('#view .pages button')[1].focus(); document.activeElement.click()")
    assert browser.value(read)[-1] == "Arzt" and browser.value(rows) == [1, 4, 4]
    assert browser.value("document.activeElement.textContent") == "forwards ›", "the focus stays"
    for _ in range(5):
        browser.value("document.querySelectorAll('#view .pages button')[0].click()")
    assert browser.value(read) == ["<s>"] and browser.value(said) == "Der"
    opened(browser, file, view="decoder", s=SENTENCE, kind="cross", token=3)
    assert browser.value(rows) == [1, 12, 12]
    switch(browser, "mask")
    assert browser.value(rows) == [1] and "nothing can be kept" in browser.value(
        "document.querySelector('#view').textContent"
    )


def test_the_tour_has_ten_steps_and_can_be_skipped(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file, s=SENTENCE)
    asked = []
    for _ in range(10):
        browser.value(
            "[...document.querySelectorAll('#tour button')].find(one => /Take|next/.test(one.textContent)).click()"
        )
        browser.wait_for("document.querySelector('#translation').getAttribute('aria-busy') == 'false'")
        asked.append(browser.value("document.querySelector('#tour strong').textContent"))
        assert browser.value("document.querySelectorAll('#view *, #attention *').length") > 5
    assert len(set(asked)) == 10 and all("?" in one for one in asked)
    browser.value("history.back()")
    browser.wait_for("document.querySelector('#tour strong').textContent.startsWith('9 of 10')")
    browser.value("[...document.querySelectorAll('#tour button')].at(-1).click()")
    assert browser.value("document.querySelector('#tour').textContent") == "Take the tour: ten questions"
    assert not [e for e in browser.events if e["method"] == "Runtime.exceptionThrown"]


def test_lens_and_patch_find_where_a_word_is_kept(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file, view="inside", s=SENTENCE, word=2, other="teacher")
    lens, patches = (
        browser.value("""[...document.querySelectorAll('.grid')].map(table => [...table.tBodies[0].rows].map(
        row => [...row.cells].map(cell => cell.textContent.trim())))""")
    )
    output = browser.value(
        "[...document.querySelectorAll('#outputs span')].map(one => one.firstChild.textContent.trim())"
    )
    assert [cell.rsplit(" ", 2)[0] for cell in lens[-1][1:]] == output, "the last layer is the prediction"
    of_lehrer = {row[0]: float(row[2].strip("< %")) for row in patches}
    assert of_lehrer["nothing"] < 5
    for place in ("embedding", "encoder's layer 1", "encoder's layer 2"):
        assert of_lehrer[f"{place}: doctor"] > 50, place
        assert of_lehrer[f"{place}: all but doctor"] < 20, place
    assert of_lehrer["attention to the encoder, layer 2: at this place"] > 50
    opened(browser, file, view="inside", s=SENTENCE, word=2, other="zebra")
    assert "choose a word that is one" in browser.value("document.querySelector('#view').textContent")


def test_a_position_further_on_is_a_rotation(browser: Browser, file: Path) -> None:  # noqa: F811
    opened(browser, file, view="positions", pos=7, k=5)
    rotation, alike, _ = browser.value(CELLS)
    values = np.array(rotation)
    np.testing.assert_allclose(values[:, 3:5], values[:, 5:7], atol=0.011)
    np.testing.assert_allclose(values[0, 1:3], [np.sin(7), np.cos(7)], atol=0.006)
    assert alike[0][0] == 64 and alike[0][1] < 64, "d / 2"
    slide(browser, 0, 20)
    np.testing.assert_allclose(browser.value(CELLS)[1], alike, atol=0.06)


def test_a_slider_goes_through_checkpoints(browser: Browser, tmp_path: Path) -> None:  # noqa: F811
    path = tmp_path / "run.html"
    model_run = open_run(tiny.write_run(tmp_path / "run"))
    path.write_text(export.page(export.as_json(model_run, export.spaced(model_run, 2), SOURCE)), encoding="utf-8")
    opened(browser, path)
    told = "[document.getElementById('about').textContent, now.logits[0][0]]"
    about, last = browser.value(told)
    assert "step 4." in about
    slider = "document.querySelector('#training input')"
    assert browser.value(f"[{slider}.min, {slider}.max, {slider}.value]") == ["0", "2", "2"]
    before = browser.value("document.body.dataset.translated")
    browser.value(f"{slider}.value = 0; {slider}.dispatchEvent(new Event('input'))")
    browser.wait_for(f"document.body.dataset.translated != {before}")
    about, first = browser.value(told)
    assert "step 1." in about and first != last
    assert browser.value("location.hash") == "#checkpoint=0"

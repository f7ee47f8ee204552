"""What a command of the README or of docs/ writes as a page shows a translation once it is opened, in Chromium."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.infer.test_browser import CHROMIUM, Browser, browser  # noqa: F401 - a fixture
from tests.written import Command, commands

pytestmark = [pytest.mark.long, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")]
# The German that each command's page must show.
SHOWN = {"infer.explorer": "Brief", "infer.translate": "Hund", "infer.attention_maps": "Hund"}
FIRST_OF_TATOEBA = "gelesen"  # in the explorer's first example


def documented() -> list[Command]:
    """Returns the commands of `SHOWN` that write a page, each once."""
    pages = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    found = [command for page in pages for command in commands(page.read_text(encoding="utf-8"))]
    written = [one for one in found if any(word.endswith(".html") for word in one.words) and one.words[2] in SHOWN]
    return list({one.line: one for one in written}.values())


@pytest.mark.parametrize("command", documented(), ids=lambda command: command.line)
def test_the_page_that_a_documented_command_writes_is_not_empty(
    browser: Browser,  # noqa: F811
    tmp_path: Path,
    command: Command,
) -> None:
    page = tmp_path / "page.html"
    arguments = []
    for word in command.words[1:]:
        flag, _, value = word.partition("=")
        arguments.append(f"{flag}={page}" if value.endswith(".html") else word.replace("=D", "=builtin:quickstart"))
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, input="The dog sleeps.\n", text=True, check=False)
    assert done.returncode == 0
    browser.open(page.as_uri())
    expected = FIRST_OF_TATOEBA if "--workdir=builtin:tatoeba" in arguments else SHOWN[command.words[2]]
    browser.wait_for(f"document.body.innerText.includes({expected!r})")
    assert not [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]


def test_all_kinds_of_pages_are_documented() -> None:
    assert {command.words[2] for command in documented()} == SHOWN.keys()

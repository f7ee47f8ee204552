"""docs/commands.md says of which models there is no attention to draw."""

import re
from pathlib import Path

from vaswani.configs.rules import CHOICES, WITH_WEIGHTS

PAGE = Path(__file__).parent.parent.parent / "docs" / "commands.md"


def test_the_page_names_the_mixers_without_weights() -> None:
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    (about,) = re.findall(r"`infer\.attention_maps` draws [^:]*", text)
    without = set(CHOICES["model.mixer"]) - set(WITH_WEIGHTS)
    assert without <= set(re.findall(r"`(\w+)`", about))

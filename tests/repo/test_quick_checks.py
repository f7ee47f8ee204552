"""What the page of quick checks tells readers to look for is there: a notebook's heading, a switch of the explorer."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_what_the_page_quotes_is_there() -> None:
    page = (ROOT / "docs" / "quick_checks.md").read_text(encoding="utf-8")
    quoted = [" ".join(text.split()) for text in re.findall(r'"([^"=]+)"', page)]
    sources = [*ROOT.glob("notebooks/*.py"), *ROOT.glob("infer/explorer/**/*.js")]
    there = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert len(quoted) >= 6 and [text for text in quoted if text not in there] == []

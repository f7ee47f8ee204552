"""Pages that are one file: what a template includes, the data in it, and the only scripts that a browser may run."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path

_INCLUDED = re.compile(r"__INCLUDE (\S+)__")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def read_template(template: Path) -> str:
    """Returns a template's text, with the files that it includes; they are named from its own folder."""
    text = template.read_text(encoding="utf-8")
    return _INCLUDED.sub(lambda match: (template.parent / match[1]).read_text(encoding="utf-8"), text)


def inline_scripts(page: str) -> list[str]:
    """Returns the text of each inline script of a page."""
    return _SCRIPT.findall(page)


def script_policy(scripts: Sequence[str]) -> str:
    """Returns the source that a Content-Security-Policy allows for only these scripts: their hashes."""
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    return " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"


def script_json(data: object) -> str:
    """Returns JSON that cannot close the script element around it, whatever the data's texts are."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

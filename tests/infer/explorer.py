"""The explorer's engine, taken out of an exported page and run by node."""

import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from vaswani.infer.html import inline_scripts

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no node")
EXPORTS = "openModel, sourceIds, encode, decode, forward, translate, logitLens"
_DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
_PROGRAM = f"""
const [page, wanted] = JSON.parse(require("fs").readFileSync(0, "utf8"));
const engine = new Function(page.script + "; return {{ {EXPORTS} }}")();
const data = JSON.parse(page.data);
const plain = x => ArrayBuffer.isView(x) ? Array.from(x) : x;
const run = new Function("engine", "model", "input", "data", wanted.script);
engine.openModel(data).then(model => {{
  process.stdout.write(JSON.stringify(run(engine, model, wanted.input, data), (_, value) => plain(value)));
}});
"""


def in_node(page: str, script: str, given: Any = None) -> Any:
    """Returns what a script with `engine`, `model` and `input` returns, with the engine and the `data` of this page."""
    (data,) = _DATA.findall(page)
    parts = {"script": inline_scripts(page)[0], "data": data}
    text = json.dumps([parts, {"script": script, "input": given}])
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.js"
        program.write_text(_PROGRAM, encoding="utf-8")
        done = subprocess.run([str(NODE), program], input=text, capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)

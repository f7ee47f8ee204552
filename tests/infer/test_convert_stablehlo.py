"""The exported functions run, for any sizes, in a process that imports none of our code.

Skipped without flatbuffers, see tests/extras.py.
"""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.extras import flatbuffers  # noqa: F401 - without it this file is skipped

# isort: split
from tests.tiny import random_run
from vaswani.errors import UserError
from vaswani.infer.convert import stablehlo
from vaswani.model.transformer import Transformer
from vaswani.tokens import Tokens

PROGRAM = """
import json, sys, jax, jax.export, numpy as np
from safetensors.numpy import load_file
arrays = load_file("model.safetensors")
params = tuple(arrays[name] for name in json.load(open("parameters.json")))
given = np.load("given.npz")
names = ("encode", "forward")
functions = {name: jax.export.deserialize(bytearray(open(name + ".bin", "rb").read())) for name in names}
assert functions["forward"].platforms == ("cpu", "cuda", "tpu")
np.save("encoded.npy", functions["encode"].call(params, given["source"]))
np.save("logits.npy", functions["forward"].call(params, given["source"], given["target"]))
assert "vaswani" not in sys.modules, "it imports our code"
"""


@pytest.mark.slow
def test_it_runs_without_our_code(tmp_path: Path) -> None:
    model_run = random_run(positions="rope", norm="pre", N=1)
    assert stablehlo.write(model_run, tmp_path) <= 1e-5
    source, target = np.array([[5, 6, 2, 0, 0], [9, 8, 7, 6, 2]], np.int32), np.array([[1, 7, 9], [1, 8, 0]], np.int32)
    np.savez(tmp_path / "given.npz", source=source, target=target)
    command = [sys.executable, "-I", "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    model, rows = Transformer(model_run.model_config), [Tokens.of(jnp.asarray(ids)) for ids in (source, target)]
    expected = jax.jit(model.apply)({"params": model_run.params}, *rows)
    assert np.load(tmp_path / "encoded.npy").shape == (2, 5, 8)
    real = target != 0
    assert np.abs(np.load(tmp_path / "logits.npy") - np.asarray(expected))[real].max() <= 1e-5
    readme = (tmp_path / "README.md").read_text()
    assert "any number of rows" in readme and f"written by jax {jax.__version__}" in readme


def test_learned_positions_limit_the_rows_and_what_it_cannot_hold_is_one_line(tmp_path: Path) -> None:
    assert stablehlo.write(random_run(positions="learned", max_positions=40, N=1), tmp_path) <= 1e-5
    readme = (tmp_path / "README.md").read_text()
    assert "any number of rows of at most 40 subwords" in readme and "while len(target) < 40 and" in readme
    for mixer in ("restricted", "strided", "linear"):
        with pytest.raises(UserError, match=rf"^model\.mixer is '{mixer}', which StableHLO cannot hold; take"):
            stablehlo.write(random_run(mixer=mixer), tmp_path)

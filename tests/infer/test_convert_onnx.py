"""The ONNX graphs compute what our model does, for any sizes, and run in a process that imports none of our code.

Skipped without onnx and onnxruntime, see tests/extras.py.
"""

import dataclasses
import importlib.util
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.extras import onnx as package  # noqa: F401 - without it this file is skipped
from tests.extras import onnxruntime

# isort: split
from tests.tiny import TINY, random_run
from vaswani.errors import UserError
from vaswani.ids import EOS
from vaswani.infer.convert import onnx, onnx_graph
from vaswani.infer.runs import Run
from vaswani.model.transformer import Transformer
from vaswani.tokens import Tokens

TOLERANCE = 1e-5
# Each position kind with each norm; d_k below and above d_v; each field that may be otherwise.
CASES = {
    "sinusoidal-post": {"N": 2, "N_encoder": 3},
    "sinusoidal-pre": {"norm": "pre", "d_k": 6, "d_v": 3, "biases": True, "scale_logits": True},
    "learned-post": {"positions": "learned", "max_positions": 200, "tie_embeddings": False, "activation": "gelu"},
    "learned-pre": {"positions": "learned", "max_positions": 200, "norm": "pre", "scale_embeddings": False},
    "rope-post": {"positions": "rope", "d_k": 4, "d_v": 6, "activation": "silu", "output_bias": True},
    "rope-pre": {"positions": "rope", "norm": "pre", "d_k": 6, "d_v": 4, "biases": True},
    "alibi-post": {"positions": "alibi", "h": 3, "tie_embeddings": False, "output_bias": True},
    "alibi-pre": {"positions": "alibi", "norm": "pre", "d_v": 7, "norm_epsilon": 1e-2},
    "none-post": {"positions": "none", "activation": "gelu_tanh", "norm_kind": "rms", "norm_epsilon": 1e-2},
    "none-pre": {"positions": "none", "norm": "pre", "feed_forward_biases": False},
    "t5-post": {"positions": "t5"},
    "t5-pre": {"positions": "t5", "norm": "pre", "norm_kind": "rms", "scale_attention": False},
}
SOURCE = np.array([[5, 6, 2, 0, 0, 0], [9, 8, 7, 6, 4, 2]])
TARGET = np.arange(400).reshape(2, 200) % 9 + 3  # beyond the distances that T5's buckets tell apart
TARGET[0, 3:] = 0
AFTERWARDS = """
import sys
np.savez("found.npz", source=source, target=target)
assert not {"vaswani", "jax"} & set(sys.modules), "it imports our code"
"""


def ours(model_run: Run, source_bs: np.ndarray, target_bt: np.ndarray) -> np.ndarray:
    rows = [Tokens.of(jnp.asarray(ids, jnp.int32)) for ids in (source_bs, target_bt)]
    return np.asarray(jax.jit(Transformer(model_run.model_config).apply)({"params": model_run.params}, *rows))


def onnx_logits(model_run: Run) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    params = jax.tree.map(np.asarray, model_run.params)
    encode, decode = (
        onnxruntime.InferenceSession(build(model_run.model_config, params).SerializeToString()).run
        for build in (onnx_graph.encoder, onnx_graph.decoder)
    )

    def logits(source_bs: np.ndarray, target_bt: np.ndarray) -> np.ndarray:
        rows = {"source": source_bs}
        return decode(None, {"memory": encode(None, rows)[0], "target": target_bt} | rows)[0]

    return logits


@pytest.mark.parametrize("case", CASES)
def test_logits_are_ours_at_every_size(case: str) -> None:
    model_run = random_run(**{"N": 1} | CASES[case])
    expected, theirs = ours(model_run, SOURCE, TARGET), onnx_logits(model_run)
    assert np.abs(theirs(SOURCE, TARGET) - expected).max() <= TOLERANCE  # at padding, too
    assert np.abs(theirs(SOURCE[:1, :3], TARGET[:1, :3]) - expected[:1, :3]).max() <= TOLERANCE


def test_the_readme_runs_without_our_code(tmp_path: Path) -> None:
    model_run = random_run(positions="learned", max_positions=20, norm="pre", N=1)
    difference = onnx.write(model_run, tmp_path)
    assert difference is not None and difference <= TOLERANCE
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("README.md", "decoder.onnx", "encoder.onnx", "tokenizer.model")
    ]
    text = (tmp_path / "README.md").read_text()
    assert "of at most 20 subwords" in text
    program = textwrap.dedent("\n".join(re.findall("^    .*", text, re.MULTILINE))) + AFTERWARDS
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npz")
    assert found["source"].tolist() == [[*model_run.tokenizer.encode("A sentence."), EOS]]
    target = found["target"][None]
    assert target.shape[1] == 20 or target[0, -1] == EOS
    assert target[0, 1:].tolist() == ours(model_run, found["source"], target)[0, :-1].argmax(-1).tolist()


def test_what_it_cannot_hold_and_a_wrong_model_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"^model.mixer is 'convolution', which ONNX cannot hold; take another format$"):
        onnx.write(random_run(mixer="convolution"), tmp_path)
    model_run = random_run(N=1)
    with monkeypatch.context() as patch:
        patch.setattr(onnx, "LARGEST", 1000)
        with pytest.raises(
            UserError, match=r"^the parameters have .* GiB, an ONNX file at most 2; take another format$"
        ):
            onnx.write(model_run, tmp_path)
    monkeypatch.setattr(onnx_graph, "MASKED", 0.0)
    with pytest.raises(UserError, match=r"^ONNX: log-probabilities of \d+ subwords differ by at most .* nothing is wr"):
        onnx.write(model_run, tmp_path)


def test_what_has_no_nodes_is_written_as_nothing_else() -> None:
    config = dataclasses.replace(TINY)
    for field in ("activation", "norm_kind"):
        object.__setattr__(config, field, "new")
    graph = onnx_graph.Graph(config)
    with pytest.raises(ValueError, match=r"^model\.activation is 'new', which has no node here$"):
        graph.feed_forward({"w1": np.ones((2, 3)), "w2": np.ones((3, 2))}, "x")
    with pytest.raises(ValueError, match=r"^model\.norm_kind is 'new', which has no nodes here$"):
        graph.norm({"scale": np.ones(2)}, "x")


def test_without_onnxruntime_it_says_that_nothing_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert onnx.write(random_run(N=1), tmp_path) is None
    assert "is not checked: onnxruntime is not installed" in capsys.readouterr().err

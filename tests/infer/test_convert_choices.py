"""Every value of every choice of the model is written by each export or refused by its name, never a traceback.

What an export writes is compared with our model in its own tests; here it is only written. StableHLO, safetensors and
built-in runs are not here: they hold our own functions, or our own parameters, whatever the choice.
"""

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.extras import ctranslate2 as engine  # noqa: F401 - without one of them this file is skipped
from tests.extras import onnx as package  # noqa: F401

# isort: split
from tests.tiny import random_run
from vaswani.configs.rules import CHOICES
from vaswani.errors import UserError
from vaswani.infer.convert import ctranslate2, marian, onnx
from vaswani.infer.explorer.export import check
from vaswani.infer.runs import Run
from vaswani.model.config import ModelConfig

NEEDS = {"mup": {"tie_embeddings": False}, "cudnn": {"dtype": "bfloat16", "d_k": 8, "d_v": 8}}
FIELDS = {field.name: field.default for field in dataclasses.fields(ModelConfig)}
SWITCHES = {name: (True, False) for name, default in FIELDS.items() if isinstance(default, bool)}
VALUES = {name: CHOICES[f"model.{name}"] for name in FIELDS if f"model.{name}" in CHOICES} | SWITCHES
WRITERS: dict[str, Callable[[Run, Path], Any]] = {
    "ctranslate2": ctranslate2.write,
    "huggingface": marian.write,
    "onnx": onnx.write,
    "explorer": lambda model_run, folder: check(model_run),
}
CASES = [(name, value) for name, values in VALUES.items() for value in values]


@cache
def run_of(**model: Any) -> Run:
    return random_run(**{"N": 1} | model)


@pytest.fixture(autouse=True)
def no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ctranslate2, onnx):
        for name in ("scored_pairs", "log_probs", "compare"):
            monkeypatch.setattr(module, name, lambda *given: 0.0)
    monkeypatch.setattr(marian, "_check", lambda *given: None)


@pytest.mark.parametrize("form", WRITERS)
def test_every_choice_is_written_or_refused_by_its_name(form: str, tmp_path: Path) -> None:
    wrong = []
    for name, value in CASES:
        changes = {name: value} | NEEDS.get(value, {})
        plain = run_of()
        config = dataclasses.replace(plain.model_config, **changes)
        try:
            try:  # a refusal comes before the parameters, and many configs have the same ones
                WRITERS[form](plain._replace(model_config=config), tmp_path)
            except UserError:
                raise
            except Exception:
                WRITERS[form](run_of(**changes), tmp_path)
        except UserError as refusal:
            if not any(f"model.{field} is" in str(refusal) for field in changes):
                wrong.append(f"{name}={value!r} is refused, but not by its name: {refusal}")
        except Exception as error:
            wrong.append(f"{name}={value!r}: {str(error)[:100]!r}")
    assert not wrong, "\n".join(wrong)

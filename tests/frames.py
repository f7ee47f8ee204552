"""How far it is from `python -m train` to the softmax of equation 1: prints our own stack frames there.

    python -m tests.frames

Trains one update of a tiny quickstart in a temporary folder, and looks at the stack where the model first calls
`jax.nn.softmax`.
"""

import runpy
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import jax

ROOT = Path(__file__).parent.parent
TINY = {"steps": 1, "data.train": "grammar:train:200", "data.valid": "grammar:valid:8", "data.vocab_size": 400}


class Reached(BaseException):
    """The softmax has been reached; no command catches this."""


def main() -> None:
    softmax = jax.nn.softmax

    def first_call(*arguments: Any, **options: Any) -> Any:
        jax.nn.softmax = softmax
        raise Reached

    jax.nn.softmax = first_call
    with tempfile.TemporaryDirectory() as folder:
        changes = [f"--config.{key}={value}" for key, value in {**TINY, "data.cache": folder}.items()]
        sys.argv = ["train", "--config=configs/quickstart.py", f"--workdir={folder}/run", *changes]
        try:
            runpy.run_module("vaswani.train", run_name="__main__", alter_sys=True)
        except Reached as reached:
            frames = [frame for frame in traceback.extract_tb(reached.__traceback__) if is_ours(frame.filename)]
    for frame in frames:
        print(f"{Path(frame.filename).relative_to(ROOT)}:{frame.lineno} {frame.name}")
    print(f"{len(frames)} frames in {len({frame.filename for frame in frames})} files")
    modules = [module for module in sys.modules.values() if is_ours(getattr(module, "__file__", None) or "")]
    print(f"{len(modules)} own files are imported")


def is_ours(file: str) -> bool:
    """Returns whether a file is one of the reference's."""
    path = Path(file)
    return path.is_relative_to(ROOT) and path != Path(__file__) and ".venv" not in path.parts


if __name__ == "__main__":
    main()

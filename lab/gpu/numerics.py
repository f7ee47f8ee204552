"""What must agree: cuDNN and the einsum, a run that was killed and one that was not."""

import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lab.gpu.sitting import Context
from lab.gpu.step import BASE, LENGTH, TINY
from lab.gpu.training import MINIATURE, ROOT
from lab.gpu.whole_model import compare
from vaswani.errors import UserError
from vaswani.model.masks import Mask
from vaswani.model.mixers.kernels import attend
from vaswani.run.averaging import load_choice
from vaswani.run.parameters import params_sha256

WIDTHS = (16, 32, 64, 128)  # d_k = d_v of the rows of Table 3 that cuDNN takes


def kernel(context: Context, width: int) -> dict[str, Any]:
    """Returns the largest relative error of heads and gradients over packed, causal and cross attention."""
    impl = "chunked" if context.tiny else "cudnn"  # which runs on a GPU alone
    rng = np.random.default_rng(0)
    packed_bt = jnp.asarray(np.sort(rng.integers(1, 6, (4, 128)), axis=1), jnp.int32)
    source_bs = jnp.asarray(np.sort(rng.integers(1, 6, (4, 96)), axis=1), jnp.int32)
    masks = {
        "packed": Mask(packed_bt, packed_bt),
        "causal": Mask(packed_bt, packed_bt, causal=True),
        "cross": Mask(packed_bt, source_bs),
    }

    def einsum(q: Any, k: Any, v: Any, mask: Mask) -> Any:
        weights = jnp.einsum("bhtk,bhsk->bhts", q, k) / width**0.5
        return jnp.einsum("bhts,bhse->bhte", jax.nn.softmax(jnp.where(mask.dense()[:, None], weights, -1e30)), v)

    errors: dict[str, Any] = {}
    for name, mask in masks.items():
        shapes = [(4, 2, segments.shape[1], width) for segments in (mask.queries_bt, mask.keys_bs, mask.keys_bs)]
        arrays = [jnp.asarray(rng.standard_normal(shape), jnp.bfloat16) for shape in shapes]
        exact_arrays = [array.astype(jnp.float32) for array in arrays]
        with jax.default_matmul_precision("highest"):  # otherwise a GPU would multiply in TF32
            expected = _loss_and_gradients(partial(einsum, mask=mask), exact_arrays)
        found = _loss_and_gradients(partial(attend, impl, mask=mask), arrays)
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
        errors[name] = max(_relative_error(leaf, expected_leaf) for leaf, expected_leaf in pairs)
    return errors


def _loss_and_gradients(attention: Any, arrays: list[Any]) -> Any:
    """Returns the sum of the squared heads of an attention, and its gradients by q, k and v."""

    def loss(q: Any, k: Any, v: Any) -> Any:
        heads = attention(q, k, v).astype(jnp.float32)
        return (heads**2).sum()

    return jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(*arrays)


def _relative_error(found: Any, expected: Any) -> float:
    difference = np.asarray(found, np.float32) - np.asarray(expected)
    return float(np.linalg.norm(difference) / np.linalg.norm(np.asarray(expected)))


def whole_model(context: Context) -> dict[str, Any]:
    """Compares the whole model under cuDNN with the einsum, see `whole_model.compare`."""
    if context.tiny:
        return compare(TINY, "einsum", 2, 16)
    return compare(BASE, "cudnn", 16, LENGTH)


def killed(context: Context) -> dict[str, Any]:
    """Kills a training run after its second checkpoint and resumes it; returns whether the parameters are the same.

    On a GPU that needs --xla_gpu_deterministic_ops, which the part's environment has.
    """
    steps = 8 if context.tiny else 80
    keys = {"steps": steps, "model.P_drop": 0.1, "model.dtype": "bfloat16", "eval.bleu_sentences": 0}
    if context.tiny:
        keys |= MINIATURE | {"steps": steps}
    keys |= {"checkpoint.every": steps // 4, "eval.every": steps}
    folder = context.runs / "resume"
    if folder.exists():
        shutil.rmtree(folder)  # a run that is resumed proves nothing new

    def start(name: str) -> subprocess.Popen[bytes]:
        changes = [f"--config.{key}={value}" for key, value in keys.items()]
        command = [sys.executable, "-m", "train", "--config=configs/quickstart.py", f"--workdir={folder / name}"]
        return subprocess.Popen([*command, *changes], cwd=ROOT)

    def wait(process: subprocess.Popen[bytes]) -> None:
        if process.wait():
            raise UserError(f"training ended with {process.returncode}")

    wait(start("whole"))
    first = start("killed")
    second_checkpoint = folder / "killed" / "checkpoints" / str(steps // 2)
    while not second_checkpoint.exists() and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    wait(start("killed"))
    whole, resumed = (params_sha256(load_choice(folder / name, "latest")[1]) for name in ("whole", "killed"))
    return {"equal": whole == resumed}

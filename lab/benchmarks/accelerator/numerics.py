"""What must agree: float32 and bfloat16, cuDNN and the einsum, a run that was killed and one that was not."""

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lab.benchmarks.accelerator.record import Options, Part
from lab.benchmarks.accelerator.step import BASE, LENGTH, TINY
from lab.benchmarks.accelerator.training import emptied, miniature, write_config
from lab.benchmarks.accelerator.whole_model import compare
from vaswani.checked_json import read_json_lines
from vaswani.configs import quickstart
from vaswani.errors import UserError
from vaswani.model.masks import Mask
from vaswani.model.mixers.kernels import attend
from vaswani.run.averaging import load_choice
from vaswani.run.parameters import params_sha256
from vaswani.train.loop import train

DETERMINISTIC = "--xla_gpu_deterministic_ops=true"
WIDTHS = (16, 32, 64, 128)  # d_k = d_v of the rows of Table 3 that cuDNN takes


def recipe(options: Options, dtype: str, steps: int) -> Any:
    """Returns configs/quickstart.py, with dropout, for so many updates."""
    cfg = quickstart.get_config()
    cfg.model.P_drop = 0.1
    if options.tiny:
        miniature(cfg)
    cfg.model.dtype = dtype
    cfg.steps = steps
    cfg.log_every = 2 if options.tiny else 10
    cfg.checkpoint.every = max(1, steps // 4)
    cfg.eval.every = steps
    cfg.eval.bleu_sentences = 0
    return cfg


def curves(options: Options) -> dict[str, Any]:
    """Returns the training loss of the last quarter and the validation loss in both types, and their difference."""
    found: dict[str, Any] = {}
    for dtype in ("float32", "bfloat16"):
        workdir = options.runs / f"numerics-{dtype}"
        precision = "highest" if dtype == "float32" else None  # otherwise a GPU would multiply in TF32
        with jax.default_matmul_precision(precision):
            train(recipe(options, dtype, 4 if options.tiny else 370), workdir)
        records = read_json_lines(workdir / "metrics.jsonl", {"kind": str})
        losses = [record["loss"] for record in records if record["kind"] == "train"]
        found[f"train_{dtype}"] = float(np.mean(losses[-max(1, len(losses) // 4) :]))
        found[f"valid_{dtype}"] = [record["loss"] for record in records if record["kind"] == "valid"][-1]
    for split in ("train", "valid"):
        found[f"{split}_percent"] = 100 * abs(found[f"{split}_bfloat16"] / found[f"{split}_float32"] - 1)
    return found


def kernel(impl: str, width: int) -> dict[str, Any]:
    """Returns the largest relative error of heads and gradients over packed, causal and cross attention."""
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


def killed(options: Options) -> dict[str, Any]:
    """Kills a training run after its second checkpoint and resumes it; returns whether the parameters are the same.

    On a GPU that needs `DETERMINISTIC`, whose cost is the difference between the rates with it and without.
    """
    steps = 8 if options.tiny else 80
    cfg = recipe(options, "float32" if options.tiny else "bfloat16", steps)
    folder = emptied(options.runs / "numerics-resume")
    config = write_config(folder / "config.py", cfg)
    second = folder / "killed" / "checkpoints" / str(steps // 2)
    flags = os.environ.get("XLA_FLAGS", "")
    environment = {**os.environ, "XLA_FLAGS": flags if options.tiny else f"{flags} {DETERMINISTIC}".strip()}

    def start(name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "train", f"--config={config}", f"--workdir={folder / name}"]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def wait(process: subprocess.Popen[bytes]) -> None:
        log = process.communicate()[1]
        if process.returncode:
            raise UserError(f"training ended with {process.returncode}: {log.decode()[-300:]}")

    wait(start("whole"))
    first = start("killed")
    while not second.exists() and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    wait(start("killed"))
    whole, resumed = (params_sha256(load_choice(folder / name, "latest")[1]) for name in ("whole", "killed"))
    found: dict[str, Any] = {"equal": whole == resumed}
    if not options.tiny:
        environment["XLA_FLAGS"] = flags
        wait(start("free"))
        last = {name: last_line(folder / name) for name in ("whole", "free")}
        found |= {f"{name}_rate": line["tokens_per_second"] for name, line in last.items()} | {"flag": DETERMINISTIC}
        found["free_loss_percent"] = 100 * abs(last["whole"]["loss"] / last["free"]["loss"] - 1)
    return found


def last_line(workdir: Path) -> dict[str, Any]:
    """Returns what a run logged last of its training."""
    records = read_json_lines(workdir / "metrics.jsonl", {"kind": str})
    return [record for record in records if record["kind"] == "train"][-1]


def parts(options: Options) -> dict[str, Part]:
    """Returns the comparisons; in miniature without cuDNN, which needs a GPU."""
    found: dict[str, Part] = {"float32 and bfloat16": partial(curves, options)}
    if options.tiny:
        found["whole model, einsum"] = partial(compare, TINY, "einsum", 2, 16)
    else:
        found |= {f"cudnn, d_k {width}": partial(kernel, "cudnn", width) for width in WIDTHS}
        found["whole model, cudnn"] = partial(compare, BASE, "cudnn", 16, LENGTH)
    return found | {"killed and resumed": partial(killed, options)}

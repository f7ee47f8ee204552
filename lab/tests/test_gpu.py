"""`python -m lab.gpu`: its sittings, what it refuses, the rehearsal, its page, and the count of a program's kernels."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from lab.benchmarks.contenders import Peer, our_step, torch_step
from lab.benchmarks.process import in_fresh_process
from lab.gpu import libraries, machine
from lab.gpu.page import OURS, page
from lab.gpu.parts import PARTS
from lab.gpu.program import Kernel, Program
from lab.gpu.sitting import RECORDS, Code, Context, Part, commit_here, read_records, sit
from lab.gpu.training import letter_by_letter
from lab.gpu.whole_model import packed_and_alone
from lab.tests import small_parts
from tests.conftest import ROOT
from tests.extras import needed
from vaswani.data.batching import random_batch
from vaswani.errors import UserError
from vaswani.model.config import ModelConfig
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.tasks.translation import objective

HERE = Code("c0ffee", {"device": "NVIDIA H200", "driver": "580"})


def finds(name: str, seconds: float = 20.0, flags: str = "") -> Part:
    return Part(name, seconds, partial(small_parts.finds, name=name), (("XLA_FLAGS", flags),))


@pytest.fixture
def context(tmp_path: Path) -> Context:
    (tmp_path / "runs").mkdir()
    return Context(tmp_path / "runs", tiny=False)


def calls(context: Context) -> list[str]:
    path = context.runs / "calls"
    return path.read_text().split() if path.exists() else []


def test_a_second_sitting_goes_on_and_tries_again_what_failed(tmp_path: Path, context: Context) -> None:
    parts = [finds("a", flags="--b=1"), Part("fails", 20.0, small_parts.fails), Part("dies", 20.0, small_parts.dies)]
    parts += [finds("long", seconds=1_000.0), finds("c")]
    missing = sit(parts, HERE, context, tmp_path, seconds=200.0)
    assert missing.keys() == {"fails", "dies", "long"}
    assert missing["fails"] == "failed: KeyError: 'no such key'"
    assert missing["dies"].startswith("failed: the process ended with 3")
    assert missing["long"].startswith("skipped: 1000 s expected, ")
    assert calls(context) == ["a", "c"]
    records = {record["part"]: record for record in read_records(tmp_path / RECORDS)}
    assert records["a"]["found"] == {"name": "a", "flags": "--b=1"}
    assert Code(records["a"]["commit"], records["a"]["machine"]) == HERE

    parts[1] = finds("fails")
    missing = sit(parts, HERE, context, tmp_path, seconds=1_200.0)
    assert missing.keys() == {"dies"}
    assert calls(context) == ["a", "c", "long", "fails"]  # first what was not tried


@pytest.mark.parametrize(
    "other",
    [
        HERE._replace(commit="bada55"),
        HERE._replace(machine={"device": "NVIDIA H100", "driver": "580"}),
        HERE._replace(machine={"device": "NVIDIA H200", "driver": "590"}),
    ],
)
def test_a_record_of_another_commit_or_machine_is_not_taken_for_this_one(
    tmp_path: Path, context: Context, other: Code
) -> None:
    assert sit([finds("a")], other, context, tmp_path, seconds=200.0) == {}
    assert sit([finds("a")], HERE, context, tmp_path, seconds=200.0) == {}
    assert sit([finds("a")], HERE, context, tmp_path, seconds=200.0) == {}
    assert calls(context) == ["a", "a"]
    records = read_records(tmp_path / RECORDS)
    assert [Code(record["commit"], record["machine"]) for record in records] == [other, HERE]


def test_records_name_a_commit_that_is_known() -> None:
    assert commit_here(None, {"commit": "c0ffee", "dirty": False}) == "c0ffee"
    assert commit_here("c0ffee", None) == "c0ffee"
    with pytest.raises(UserError, match="--commit=HASH"):
        commit_here(None, None)
    with pytest.raises(UserError, match="commit them first"):
        commit_here(None, {"commit": "c0ffee", "dirty": True})
    with pytest.raises(UserError, match="--commit=bada55: this checkout is at c0ffee"):
        commit_here("bada55", {"commit": "c0ffee", "dirty": False})


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def ended(context: Context) -> bool:
    """Returns whether the child of a part that hangs has ended, or ends within ten seconds."""
    child = int((context.runs / "pid").read_text())
    for _ in range(100):  # whoever inherits it must collect it first
        if not is_running(child):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
def test_a_part_that_hangs_leaves_no_child_behind(tmp_path: Path, context: Context) -> None:
    hangs = Part("hangs", 5.0, small_parts.hangs)
    assert sit([hangs], HERE, context, tmp_path, seconds=60.0) == {"hangs": "failed: killed after 15 s"}
    assert ended(context)
    assert sit([hangs], HERE, context, tmp_path, seconds=8.0)["hangs"].endswith("when the time was over")
    assert len(read_records(tmp_path / RECORDS)) == 1  # the time was the sitting's: it is no failure


SITTING = """
import sys
from functools import partial
from pathlib import Path

from lab.gpu.sitting import Code, Context, Part, sit
from lab.tests import small_parts

if __name__ == "__main__":
    output = Path(sys.argv[1])
    a, c = (Part(name, 20.0, partial(small_parts.finds, name=name)) for name in "ac")
    hangs = Part("hangs", 60.0, small_parts.hangs)
    here = Code("c0ffee", {"device": "NVIDIA H200", "driver": "580"})
    sit([a, hangs, c], here, Context(output / "runs", False), output, 600.0)
"""


@pytest.mark.slow
def test_a_sitting_that_is_killed_ends_its_part_and_loses_no_record(tmp_path: Path, context: Context) -> None:
    (tmp_path / "begin.py").write_text(SITTING)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, tmp_path / "begin.py", str(tmp_path)], env=environment, cwd=ROOT)
    while not (context.runs / "pid").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert ended(context)
    assert [record["part"] for record in read_records(tmp_path / RECORDS)] == ["a"]
    parts = [finds("a"), finds("hangs"), finds("c")]
    assert sit(parts, HERE, context, tmp_path, seconds=200.0) == {}
    assert calls(context) == ["a", "hangs", "c"]


def rehearse(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}  # as most users have it
    command = [sys.executable, "-m", "lab.gpu", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


@pytest.mark.long  # minutes
def test_every_part_ends_in_miniature(tmp_path: Path) -> None:
    needed("torch")
    needed("ctranslate2")
    done = rehearse("--rehearse", f"--output={tmp_path}", "--minutes=60")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    records = {record["part"]: record for record in read_records(tmp_path / RECORDS)}
    assert list(records) == [part.name for part in PARTS]
    assert records["numerics: killed and resumed"]["found"]["equal"]
    again = rehearse("--rehearse", f"--output={tmp_path}")
    assert again.returncode == 0 and again.stderr == ""  # nothing is missing: nothing is run


@pytest.mark.slow
def test_a_part_of_the_rehearsal_is_recorded_with_the_machine(tmp_path: Path) -> None:
    done = rehearse("--rehearse", f"--output={tmp_path}", "--only=step: matrix peak")
    assert done.returncode == 0, done.stderr[-3000:]
    (record,) = read_records(tmp_path / RECORDS)
    assert record["commit"] == "rehearsal" and record["machine"]["device"].startswith("cpu, ")
    assert record["machine"]["jax"] == jax.__version__ and record["found"]["tflops"] > 0


def test_what_cannot_begin_is_refused_in_a_line(tmp_path: Path) -> None:
    done = rehearse("--only=stp", f"--output={tmp_path / 'output'}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --only=stp: there is no such part; there are public log, ")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "output").exists()


def test_a_process_of_its_own_answers() -> None:
    assert in_fresh_process(os.getpid) != os.getpid()


def test_a_gpu_is_described_by_nvidia_smi_and_a_machine_without_it_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "is_gpu", lambda: True)
    answer = subprocess.CompletedProcess([], 0, "1980 MHz, 1980 MHz, 2619 MHz, 71.03 W, 700.00 W, 31\n")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: answer)
    assert machine.state()["clocks.sm"] == "1980 MHz" and machine.state()["power.limit"] == "700.00 W"

    answer = subprocess.CompletedProcess(
        [], 9, "NVIDIA-SMI has failed because it couldn't communicate with the driver\n"
    )
    assert machine.state() == {}

    def missing(*arguments: Any, **options: Any) -> Any:
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "run", missing)
    assert machine.state() == {} and machine.machine()["driver"] == "unknown"


def test_cublas_13_stands_in_for_12_only_where_12_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = tmp_path / "links"
    library = tmp_path / "lib"
    library.mkdir()
    monkeypatch.setattr(libraries, "SYSTEM", ())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    assert libraries.with_cublas_12(links) == {} and not links.exists()
    (library / libraries.NEW).touch()
    for _ in range(2):  # the second call finds the link
        assert libraries.with_cublas_12(links) == {"LD_LIBRARY_PATH": f"{links}:{library}:{library}"}
        assert (links / libraries.OLD).resolve() == library / libraries.NEW
    (library / libraries.OLD).touch()
    assert libraries.with_cublas_12(links) == {}


def test_packed_rows_have_the_sentences_of_the_others() -> None:
    packed, alone = packed_and_alone(2, 8, 100)
    assert packed.labels_bt.shape == (2, 8) and alone.labels_bt.shape == (8, 2)
    np.testing.assert_array_equal(packed.labels_bt.ravel(), alone.labels_bt.ravel())
    np.testing.assert_array_equal(packed.target.segments_bt[0], [1, 1, 2, 2, 3, 3, 4, 4])
    np.testing.assert_array_equal(packed.source.positions_bt[1], [0, 1] * 4)


def test_pytorch_starts_from_our_weights_in_every_form() -> None:
    """Without dropout the first loss is that of the same model; the forms differ by bfloat16 alone, 2^-8 an operation.

    Label smoothing is not the same: PyTorch gives every token eps / v, ours each wrong one eps / (v - 1).
    """
    needed("torch")
    config = ModelConfig(vocab_size=50, N=1, d_model=16, d_ff=32, h=2, d_k=8, d_v=8, P_drop=0.0)
    params = jax.tree.map(np.asarray, init_params(Transformer(config), jax.random.key(0)))
    batch = random_batch(2, 6, config.vocab_size)
    log_probs = np.asarray(jax.nn.log_softmax(jax.jit(objective(config, 0.1).logits)(params, batch)), np.float64)
    right = np.take_along_axis(log_probs, batch.labels_bt[..., None], axis=2)[..., 0]
    expected = -np.mean(0.9 * right + 0.1 * log_probs.mean(axis=2))
    others = (log_probs.sum(axis=2) - right) / (config.vocab_size - 1)
    assert float(our_step(config, batch).run()) == pytest.approx(-np.mean(0.9 * right + 0.1 * others), rel=1e-5)
    forms = {
        Peer(): 1e-5,
        Peer(fused=True, chunk=5): 1e-5,
        Peer(fast=True): 1e-2,
        Peer(fast=True, half=True, chunk=5): 1e-2,
    }
    for peer, tolerance in forms.items():
        step = torch_step(config, batch, peer=peer, params=params, rate=lambda update: 1e-2)
        assert float(step.run()) == pytest.approx(expected, rel=tolerance)
        for _ in range(5):
            last = float(step.run())
        assert last < expected - 0.1  # it learns


def test_the_document_is_that_of_the_committed_records() -> None:
    records = read_records(OURS)
    assert (ROOT / "lab" / "docs" / "accelerator.md").read_text() == page(records)
    assert page([]).count("not run") == len(PARTS)


def test_the_page_tells_one_sitting_from_another_and_what_the_paper_s_models_would_take(tmp_path: Path) -> None:
    def record(commit: str, form: str, milliseconds: float) -> dict[str, Any]:
        found = {"milliseconds": milliseconds, "target_tokens_per_second": 1e6 / milliseconds}
        return {"part": f"step: {form}", "commit": commit, "machine": HERE.machine, "seconds": 1.0, "found": found}

    forms = {"base: ours": 36.0, "base: ours, no mask": 0.1, "base: PyTorch": 72.0, "big: ours": 84.0}
    text = page(
        [record("c0ffee", form, value) for form, value in forms.items()] + [record("bada55", "base: ours", 72.0)]
    )
    assert "- base: ours: 100,000 updates, the paper's, would take 1.0 hours (the paper: 12 on 8 P100)\n" in text
    assert "- big: ours: 300,000 updates, the paper's, would take 7.0 hours (the paper: 84 on 8 P100)\n" in text
    assert "- base: ours: 2.00 x the tokens per second of PyTorch\n" in text
    _, first, second = text.split("\n## ")[-3:]
    assert first.startswith("c0ffee: NVIDIA H200\n") and second.startswith("bada55: NVIDIA H200\n")
    assert "would take 2.0 hours" in second


def test_korean_is_written_letter_by_letter(tmp_path: Path) -> None:
    for split in ("train", "dev", "test"):
        (tmp_path / f"kor_{split}.tsv").write_text("한\th a n\n", encoding="utf-8")
    prefix = letter_by_letter(tmp_path / "kor", tmp_path / "jamo" / "kor")
    letters, phones = prefix.with_name("kor_dev.tsv").read_text(encoding="utf-8").split("\t")
    assert (len(letters), phones) == (3, "h a n\n")


TEXT = """
%fused (p0: f32[4,8], p1: f32[8,2]) -> f32[4,2] {
  %p0 = f32[4,8]{1,0} parameter(0)
  %p1 = f32[8,2]{1,0} parameter(1)
  ROOT %dot = f32[4,2]{1,0} dot(%p0, %p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%body (state: (s32[], bf16[4,2])) -> (s32[], bf16[4,2]) {
  %state = (s32[], bf16[4,2]{1,0}) parameter(0)
  %rows = bf16[4,2]{1,0} get-tuple-element(%state), index=1
  %halved = bf16[4,2]{1,0} copy(%rows)
  ROOT %next = (s32[], bf16[4,2]{1,0}) tuple(%n, %halved)
}

ENTRY %main (a: f32[4,8], b: f32[8,2]) -> f32[4,2] {
  %a = f32[4,8]{1,0} parameter(0)
  %b = f32[8,2]{1,0} parameter(1)
  %product = f32[4,2]{1,0} fusion(%a, %b), kind=kCustom, calls=%fused
  %start = (s32[], bf16[4,2]{1,0}) tuple(%n, %rows)
  %loop = (s32[], bf16[4,2]{1,0}) while(%start), body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %called = f32[4,2]{1,0} custom-call(%product, %product), custom_call_target="__cudnn$fmhaSoftmax"
}
"""


def test_kernels_are_counted_with_their_bytes_as_often_as_a_loop_runs() -> None:
    product = Kernel("products", bytes=4 * (32 + 16 + 8), flops=2 * 4 * 8 * 2)
    copy = Kernel("copies", bytes=2 * (8 + 8), flops=0)
    attention = Kernel("attention (cuDNN)", bytes=3 * 4 * 8, flops=0)
    assert list(Program(TEXT).kernels()) == [product, copy, copy, copy, attention]

"""Trains, times and tests what only an accelerator can show, on one GPU, in about an hour.

    python -m lab.benchmarks.accelerator --output=DIR [--corpora=FOLDER] [--minutes=60] [--only=step,decoding]
    python -m lab.benchmarks.accelerator --output=DIR --tiny        # every row in miniature, on the CPU

The rows run in this order, the most convincing first. Each is a process of its own, which has the minutes that it
needs, of those that are left. DIR/ROW.json is written after each part:

  step      one update of base and big in bfloat16: ours in several forms, and PyTorch's
  trainer   `python -m train` of base and big, compared with the bare update of the same model
  multi30k  the published small model at its published batch, three seeds
  numerics  float32 against bfloat16; cuDNN against the einsum, also in the whole model; kill -9 and resume
  decoding  beam search of 1 to 512 sentences, and CTranslate2's
  corpus    the base recipe on news and on short sentences, or else on the built-in grammar: all readings of BLEU
  tests     pytest of the kernels and of sharding
  table3    the scaled-down models of Table 3: 45 minutes, so only if --only names it

The same command on the same DIR goes on with what is missing, so several short calls add up, and --runs keeps what was
compiled; a part that failed says why, and is tried again once its row's file is deleted. A table is printed at the end,
and written to DIR/table.md; DIR/accelerator.tar.gz has it and all records.
FOLDER holds wmt/en-de/{news_mini_train.en-de,newstest2013,newstest2014}.{en,de}.gz, tatoeba/ as configs/tatoeba.py and
multi30k/ as configs/multi30k.py describe it. Exit status 1: a row is incomplete; 2: nothing was begun.
"""

import os
import sys
import time

from absl import flags

from lab.benchmarks.accelerator.checks import check_corpora, check_device, check_output, check_packages
from lab.benchmarks.accelerator.libraries import with_cublas_12
from lab.benchmarks.accelerator.process import run_whole
from lab.benchmarks.accelerator.record import MINUTES, ON_REQUEST, finished, save_archive, save_failure
from lab.benchmarks.accelerator.report import tables
from vaswani.command import run
from vaswani.errors import UserError
from vaswani.files import folder, write_text, writing
from vaswani.table import as_markdown, as_text

flags.DEFINE_string("output", None, "folder of the results; created if absent")
_RUNS = flags.DEFINE_string("runs", "runs/accelerator", "folder of the runs that are trained")
_CORPORA = flags.DEFINE_string("corpora", None, "folder of the corpora")
_MINUTES = flags.DEFINE_float("minutes", 60.0, "for all rows that are missing", lower_bound=0.1)
_ONLY = flags.DEFINE_list("only", None, f"rows to run (all but {', '.join(ON_REQUEST)}; with --tiny all)")
_TINY = flags.DEFINE_bool("tiny", False, "every row in miniature on the CPU, to check that this program works")

GRACE = 60.0  # seconds that a row has to save what it does when its time is over


def main(argv: list[str]) -> int:
    rows = _rows()
    output = folder("output", flags.FLAGS.output)
    runs = folder("runs", _RUNS.value)
    corpora = folder("corpora", _CORPORA.value).resolve() if _CORPORA.value else None
    environment = {
        **os.environ,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # PyTorch and CTranslate2 share the card
        "JAX_COMPILATION_CACHE_DIR": str(runs.resolve() / "compiled"),
        "TORCHINDUCTOR_CACHE_DIR": str(runs.resolve() / "compiled-torch"),
    }
    check_output(output, is_tiny=_TINY.value)
    check_corpora(corpora, rows)
    if _TINY.value:
        environment["JAX_PLATFORMS"] = "cpu"
        environment.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # it compiles far more than it runs
    else:
        check_device(environment)
        environment |= with_cublas_12(runs.resolve() / "libraries")
    check_packages(rows, environment)
    with writing(f"--output={output}"):
        output.mkdir(parents=True, exist_ok=True)

    end = time.monotonic() + 60 * _MINUTES.value
    for row in rows:
        path = output / f"{row}.json"
        seconds = min(60.0 * MINUTES[row], end - time.monotonic())
        if finished(path) or seconds <= 0:
            continue
        print(f"{row}: at most {seconds / 60:.1f} minutes", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "lab.benchmarks.accelerator.row", f"--row={row}", f"--file={path}"]
        command += [f"--runs={runs}", f"--seconds={seconds}", f"--tiny={_TINY.value}"]
        if corpora:
            command.append(f"--corpora={corpora}")
        ended = run_whole(command, environment, seconds + GRACE)
        if ended.reason:
            save_failure(path, ended.reason, ended.log)
    made = tables(output)
    print("\n\n".join(map(as_text, made)))
    write_text(output / "table.md", "\n\n".join(map(as_markdown, made)) + "\n")
    save_archive(output)
    return int(not all(finished(output / f"{row}.json") for row in rows))


def _rows() -> list[str]:
    """Returns the rows to run, in the order of `MINUTES`."""
    if _ONLY.value is None:
        return [row for row in MINUTES if _TINY.value or row not in ON_REQUEST]
    for name in _ONLY.value:
        if name not in MINUTES:
            raise UserError(f"--only={name}: there is no such row; the rows are {', '.join(MINUTES)}")
    return [row for row in MINUTES if row in _ONLY.value]


if __name__ == "__main__":
    flags.mark_flags_as_required(["output"])
    run(main, hint="rows are named by --only=ROW,ROW")

"""Trains, times and tests what only an accelerator can show, on one GPU, in about half an hour.

    python -m benchmarks.accelerator --output=DIR [--corpora=FOLDER] [--minutes=25] [--only=step,decoding]
    python -m benchmarks.accelerator --output=DIR --tiny        # every row in miniature, on the CPU

The rows, in this order; each is a process with its share of the minutes, and DIR/ROW.json is written after each part:

  step      one update of base and big in bfloat16: ours in several forms, and PyTorch's
  corpus    the base recipe on news and on short sentences, or else on the built-in grammar: all readings of BLEU
  multi30k  the published small model at its published batch, three seeds
  table3    the scaled-down models of Table 3
  numerics  float32 against bfloat16; cuDNN against the einsum; kill -9 and resume
  decoding  beam search of 1 to 512 sentences, and CTranslate2's
  tests     pytest of the kernels and of sharding

The same command on the same DIR goes on with what is missing, so several short calls add up; a part that failed says
why, and is tried again once its row's file is deleted. A table is printed at the end, and written to DIR/table.md.
FOLDER holds wmt/en-de/{news_mini_train.en-de,newstest2013,newstest2014}.{en,de}.gz, tatoeba/ as configs/tatoeba.py and
multi30k/ as configs/multi30k.py describe it. Exit status 1: a row is incomplete; 2: nothing was begun.
"""

import os
import subprocess
import sys
import time

from absl import flags

from base.command import run
from base.errors import UserError
from base.files import folder, write_text
from base.table import as_markdown, as_text
from benchmarks.accelerator.checks import check_corpora, check_device
from benchmarks.accelerator.record import MINUTES, finished, save_failure
from benchmarks.accelerator.report import tables

_OUTPUT = flags.DEFINE_string("output", None, "folder of the results; created if absent")
_RUNS = flags.DEFINE_string("runs", "runs/accelerator", "folder of the runs that are trained")
_CORPORA = flags.DEFINE_string("corpora", None, "folder of the corpora")
_MINUTES = flags.DEFINE_float("minutes", 25.0, "for all rows that are missing", lower_bound=0.1)
_ONLY = flags.DEFINE_list("only", list(MINUTES), "rows to run")
_TINY = flags.DEFINE_bool("tiny", False, "every row in miniature on the CPU, to check that this program works")


def main(argv: list[str]) -> int:
    for name in _ONLY.value:
        if name not in MINUTES:
            raise UserError(f"--only={name}: there is no such row; the rows are {', '.join(MINUTES)}")
    output = folder("output", _OUTPUT.value)
    corpora = folder("corpora", _CORPORA.value).resolve() if _CORPORA.value else None
    environment = {
        **os.environ,
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # PyTorch and CTranslate2 share the card
        "JAX_COMPILATION_CACHE_DIR": str(folder("runs", _RUNS.value).resolve() / "compiled"),
        **({"JAX_PLATFORMS": "cpu"} if _TINY.value else {}),
    }
    check_corpora(corpora, _ONLY.value)
    if not _TINY.value:
        check_device(environment)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output={output}: cannot be written ({error.strerror})") from error

    missing = [row for row in MINUTES if row in _ONLY.value and not finished(output / f"{row}.json")]
    end = time.monotonic() + 60 * _MINUTES.value
    for number, row in enumerate(missing):
        share = MINUTES[row] / sum(MINUTES[name] for name in missing[number:])
        seconds = max(1.0, (end - time.monotonic()) * share)
        print(f"{row}: at most {seconds / 60:.1f} minutes", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "benchmarks.accelerator.row", f"--row={row}", f"--file={output / row}.json"]
        command += [f"--runs={folder('runs', _RUNS.value)}", f"--seconds={seconds}", f"--tiny={_TINY.value}"]
        command += [f"--corpora={corpora}"] if corpora else []
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds + 60)
        except subprocess.TimeoutExpired as late:
            log = (late.stderr or b"").decode(errors="replace")
            save_failure(output / f"{row}.json", f"killed after {seconds + 60:.0f} s", log)
        else:
            if done.returncode:
                reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
                save_failure(output / f"{row}.json", f"status {done.returncode}: {reason}", done.stderr)
    made = tables(output)
    print("\n\n".join(map(as_text, made)))
    write_text(output / "table.md", "\n\n".join(map(as_markdown, made)) + "\n")
    return int(not all(finished(output / f"{row}.json") for row in _ONLY.value))


if __name__ == "__main__":
    flags.mark_flags_as_required(["output"])
    run(main, hint="rows are named by --only=ROW,ROW")

"""Trains, times and compares what needs a GPU: one card, for as many minutes as there are.

    python -m lab.gpu --minutes=13 [--output=runs/gpu] [--corpora=FOLDER] [--only=step,tatoeba] [--commit=HASH]
    python -m lab.gpu --rehearse [--output=runs/gpu-rehearsal]      # every part in miniature, on the CPU
    python -m lab.gpu --list

The parts (`--list`) are in the order of their worth. One that does not fit in what is left is skipped and named. Each
is written to OUTPUT/records.jsonl as soon as it ends, with the commit, the device and the versions; the same command in
a second sitting goes on with what has no record of that commit on such a machine. OUTPUT/caches has the compiled
programs, and OUTPUT/runs/COMMIT the runs: take OUTPUT along to another machine, or the first two if it is to be small.

FOLDER is that of all corpora (data/corpora.py): multi30k_spacy, multi30k_published, sigmorphon2021 and tatoeba. It
needs pip install -e '.[cuda,bench]', and where there is no git checkout --commit. Exit status: 1 if a part has no
result, 2 if nothing was begun.
"""

import os
import sys
from pathlib import Path
from typing import Any

from absl import flags

from vaswani.command import run
from vaswani.errors import UserError
from vaswani.files import folder, writing

CACHES = {  # where each compiler keeps its programs, in OUTPUT/caches
    "JAX_COMPILATION_CACHE_DIR": "jax",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
}


def main(argv: list[str]) -> int:
    options = flags.FLAGS
    from lab.gpu import sitting
    from lab.gpu.machine import machine
    from lab.gpu.parts import PARTS, check_supplies

    chosen = [part for part in PARTS if not options.only or part.name.startswith(tuple(options.only))]
    if not chosen:
        groups = dict.fromkeys(part.name.split(":")[0] for part in PARTS)
        raise UserError(f"--only={','.join(options.only)}: there is no such part; there are {', '.join(groups)}")
    if options.list:
        for part in chosen:
            print(f"{part.seconds:4.0f} s  {part.name}")
        return 0

    from vaswani.run.folder import git

    output = folder("output", options.output or ("runs/gpu-rehearsal" if options.rehearse else "runs/gpu")).resolve()
    commit = "rehearsal" if options.rehearse else sitting.commit_here(options.commit, git())
    prepare(output, options)
    check_supplies(chosen, with_corpora=not options.rehearse)
    context = sitting.Context(output / "runs" / commit[:12], options.rehearse)
    context.runs.mkdir(parents=True, exist_ok=True)
    here = sitting.in_own_group(sitting.Part("machine", 60, machine), context, output / "logs" / "machine.log", 120)
    code = sitting.Code(commit, checked(here, options.rehearse))
    earlier = sitting.read_records(output / sitting.RECORDS)
    others = [record for record in earlier if not sitting.is_of(record, code)]
    if others:
        print(f"{len(others)} records of another commit, machine or version do not count", file=sys.stderr)

    missing = sitting.sit(chosen, code, context, output, 60 * options.minutes)
    for name, reason in missing.items():
        print(f"{name}: {reason}")
    print(f"{len(chosen) - len(missing)} of {len(chosen)} parts have a result; records: {output / sitting.RECORDS}")
    return int(bool(missing))


def prepare(output: Path, options: Any) -> None:
    """Sets the environment that all parts have."""
    with writing(f"--output={output}"):
        output.mkdir(parents=True, exist_ok=True)
    for variable, name in CACHES.items():
        os.environ[variable] = str(output / "caches" / name)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # several processes, and PyTorch, share the card
    if options.corpora:
        os.environ["VASWANI_CORPORA"] = str(folder("corpora", options.corpora).resolve())
    if options.rehearse:
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # it compiles far more than it runs
    else:
        from lab.gpu.libraries import with_cublas_12

        os.environ |= with_cublas_12(output / "libraries")


def checked(machine: dict[str, str] | None, tiny: bool) -> dict[str, str]:
    """Returns the machine; raises a `UserError` if it has no GPU, but for the rehearsal."""
    if machine is None or "failed" in machine:
        reason = "no answer" if machine is None else machine["failed"]
        raise UserError(f"JAX finds no device ({reason}); this needs a GPU, or --rehearse")
    if machine["device"].startswith("cpu") and not tiny:
        raise UserError("JAX's backend is cpu; this needs a GPU (pip install -e '.[cuda]'), or --rehearse")
    return machine


if __name__ == "__main__":
    flags.DEFINE_float("minutes", 13.0, "of this sitting", lower_bound=0.1)
    flags.DEFINE_string("output", None, "folder of records, runs and caches; by default runs/gpu")
    flags.DEFINE_string("corpora", None, "folder of all corpora; by default where data.download puts them")
    flags.DEFINE_list("only", None, "parts whose names begin so, such as step,tatoeba")
    flags.DEFINE_string("commit", None, "that of this code, where there is no git checkout")
    flags.DEFINE_bool("rehearse", False, "every part in miniature on the CPU")
    flags.DEFINE_bool("list", False, "print the parts with their expected seconds, and do nothing")
    run(main, hint="parts are named by --only=NAME,NAME")

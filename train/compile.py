"""Compiles a run: does it fit, and how long might it take? Here, or on TPUs and GPUs that you do not have.

    python -m train.compile --config=configs/quickstart.py
    python -m train.compile --config=configs/base.py --config.model.dtype=bfloat16 --topology=v5e:4x4
    python -m train.compile --config=configs/big.py --topology=v5e:4x4 --slices=2 --config.mesh.fsdp=4 --json
    python -m train.compile --config=configs/big.py --config.model.dtype=bfloat16 --topology=h100:8 --nosearch

A topology is a TPU generation (v4, v5e, v5p, v6e, tpu7x) and the layout of its chips: v5e:2x2, v6e:4x4, v5p:2x2x2; or
a GPU (a100, h100) and the number of them in one node: h100:1, h100:8. The train step is compiled for the longest rows,
which need the most memory. For the middle bucket it is compiled with one and with two layers in each stack, from which
FLOPs, collectives and time of the whole are estimated. Beam search is compiled for a full batch of short sentences.
This needs the extra `tpu`, or for GPUs `aot-gpu`, but no TPU or GPU, and takes minutes at the paper's sizes. Nothing is
executed. For GPUs the report also lists the calls to cuDNN, and says whether two runs give the same bits.

Without --topology (or with --topology=local) it compiles for this machine's own devices and needs no extra. If the run
fits, it times three steps of the middle bucket, on random ids, and says how many minutes the whole run may
take; neither corpus nor run folder is needed, and nothing is written.

Exit status: 0 if it fits, 1 if not (one line on stderr says what is needed and available), 2 for a wrong flag or key.
"""

import json
import os
import sys
from typing import Any

from absl import flags
from ml_collections import config_flags

from vaswani.command import run
from vaswani.compiled import ENABLED
from vaswani.configs.common import default
from vaswani.errors import UserError
from vaswani.train.check import check

# Keeps the compiler from looking for TPU hosts, and lets several processes load its library.
ENVIRONMENT = {
    ENABLED: "0",  # without the device, jax could not load what it has kept
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_WORKER_ID": "0",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


def prepare() -> None:
    """Sets the environment for compiling; to be called before jax is imported."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def check_flags(options: Any) -> None:
    """Raises a `UserError` unless the config is one of ours, and of a translator; before that, it calls `prepare`."""
    if options.topology != "local":
        prepare()  # the checks load jax
    check(options.config, default())
    if options.config.task != "translation":
        raise UserError(f"config: task is {options.config.task}; only translation can be compiled ahead of time so far")


def main(argv: list[str]) -> int:
    options = flags.FLAGS
    from vaswani.train.aot.report import as_text, refusal, report  # only now: jax reads the environment at import

    compiled = report(options.config, options.topology, options.slices, with_search=options.search)
    print(json.dumps(compiled, indent=1) if options.json else as_text(compiled))
    if "refused" in compiled:
        print(refusal(compiled), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    config_flags.DEFINE_config_file("config", None, "the experiment, a file in configs/", lock_config=True)
    flags.DEFINE_string("topology", "local", "TPU generation and layout, like v5e:4x4, or GPUs, like h100:8; "
                        "local: this machine")  # fmt: skip
    flags.DEFINE_integer("slices", 1, "slices of that topology, connected by the data-centre network", lower_bound=1)
    flags.DEFINE_boolean("search", True, "also compile beam search")
    flags.DEFINE_boolean("json", False, "print everything as JSON")
    flags.mark_flags_as_required(["config"])
    run(main, default().to_dict(), hint="keys are set as --config.KEY=VALUE", check=check_flags)

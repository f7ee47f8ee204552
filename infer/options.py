"""What the commands of this package share: how they start, and their flags. Nothing here imports jax."""

import atexit
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from vaswani import command
from vaswani.errors import UserError
from vaswani.files import folders, output_file
from vaswani.infer.translate.options import ACCELERATED, FULL_BATCH, NARROW_BEAM, make_decoding
from vaswani.run import connect, unchanged
from vaswani.run.builtin import run_folder
from vaswani.run.config import SPLITS
from vaswani.run.signals import Signals, leave
from vaswani.search.options import STOPPINGS, Decoding, allowed, limits

WORKDIR = (
    "folder of the run, or a bundled model: builtin:quickstart (the grammar), builtin:tatoeba (everyday English to "
    "German, trained on sentences of Tatoeba, CC-BY 2.0 FR)"
)


def start(main: Callable[[Any], int | None], hint: str = "", check: Callable[[Any], None] | None = None) -> None:
    """Runs `main` with the flags as `vaswani.command.run` does; Ctrl-C and SIGTERM end it even while jax compiles."""

    def interruptible(argv: list[str]) -> int | None:
        signals = Signals(saves=False)
        try:
            with signals:
                return main(flags.FLAGS)
        finally:
            if signals.received:
                leave(signals.exit_code)

    # A short command spends a sixth of its time looking for garbage among what imports and tracing create, nearly all
    # of which stays until the end; and again at the end, when nothing need be freed.
    gc.set_threshold(50_000)
    atexit.register(gc.freeze)

    def checked(options: Any) -> None:
        _check_no_file(options)
        if check:
            check(options)

    command.run(interruptible, hint=hint, check=checked)


def _check_no_file(options: Any) -> None:
    """Raises a `UserError` if --workdir names a file, before jax is loaded."""
    if "workdir" not in options or not options.workdir:
        return
    workdirs = folders("workdir", options.workdir) if isinstance(options.workdir, str) else options.workdir
    for workdir in workdirs:
        if workdir and run_folder("workdir", workdir).is_file():
            raise UserError(f"--workdir={workdir}: this is a file; name the folder of a run")


def define_run_flags(several: bool = False) -> None:
    """Defines --workdir, --checkpoint and --accept_changes; with `several`, --workdir may be repeated."""
    if several:
        flags.DEFINE_multi_string("workdir", None, WORKDIR)  # absl adds that it may be repeated
    else:
        flags.DEFINE_string("workdir", None, WORKDIR)
    flags.DEFINE_string("checkpoint", None, "latest, STEP, best, ema, average:N, average:N@MINUTES or average-best:N; "
                        "default: config.decode.checkpoint")  # fmt: skip
    flags.mark_flag_as_required("workdir")
    unchanged.define_flag()


def define_decoding_flags() -> None:
    """Defines --beam, --alpha, --extra_length and --stopping."""
    flags.DEFINE_integer("beam", None, "beam size, 1 is greedy; default: config.decode.beam")
    flags.DEFINE_float("alpha", None, "length penalty; default: config.decode.alpha")
    flags.DEFINE_integer(
        "extra_length",
        None,
        "how many more subwords than its source an output may have; default: config.decode.extra_length",
    )
    flags.DEFINE_enum(
        "stopping",
        None,
        STOPPINGS,
        "stopping rule of beam search: exact, once no hypothesis could still win; full, once as many are finished "
        "as the beam holds, which is usually faster and may miss the best; default: config.decode.stopping",
    )
    within_limits("beam", "alpha", "extra_length")


def define_batch_flag() -> None:
    """Defines --batch_tokens."""
    flags.DEFINE_integer(
        "batch_tokens",
        None,
        "source positions of a batch, padding included, whose sentences are decoded together: more keep a GPU busy, "
        f"fewer need less memory; default: {FULL_BATCH:,} on a CPU, elsewhere {ACCELERATED * FULL_BATCH:,}, or fewer "
        f"with a beam above {NARROW_BEAM} or an ensemble",
        lower_bound=1,
        upper_bound=1 << 24,
    )


def define_evaluation_flags(written: str) -> None:
    """Defines the flags that all evaluations share; `written` names what the model outputs."""
    connect.define_flags()
    define_run_flags()
    define_decoding_flags()
    flags.DEFINE_enum("split", None, SPLITS, "split of the run's config to read the sentences from")
    flags.DEFINE_bool("json", False, "print JSON instead of a table")
    flags.DEFINE_string("output", None, f"also write the {written} to this file, one per line")


def check_output(output: str | None, **inputs: str | None) -> None:
    """Raises a `UserError` if the file of --output cannot be written, or is one of these inputs, by their flags."""
    if output is None:
        return
    path = output_file("output", output)
    for flag, value in inputs.items():
        if value and path.is_file() and Path(value).exists() and path.samefile(value):
            raise UserError(f"--output={output}: this is the file of --{flag}, which would be lost; name another")


def within_limits(*names: str) -> None:
    """Makes the command line reject values of these flags outside `search.options.LIMITS`."""
    for name in names:
        flags.register_validator(
            name, lambda value, name=name: allowed(name, value), message=f"it must be {limits(name)}"
        )


def decoding(options: Any, config: ConfigDict, **more: Any) -> Decoding:
    """Returns the decoding options of the flags; those not given come from the run's `config.decode`.

    `more` are options that have no flag in `define_decoding_flags`.
    """
    return make_decoding(
        config.decode,
        beam=options.beam,
        alpha=options.alpha,
        extra_length=options.extra_length,
        stopping=options.stopping,
        **more,
    )

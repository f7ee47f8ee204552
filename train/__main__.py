"""Trains a Transformer.

    python -m train --config=configs/base.py[:ARGUMENT] --workdir=DIR [--config.model.h=4 ...]
    python -m train --config=FILE --workdir=DIR --init=RUN[:CHECKPOINT] --config.data.tokenizer=RUN/tokenizer.model

Every key of the config can be set with --config.KEY=VALUE; configs/common.py lists and explains them. If DIR holds a
run of the same config, training resumes from its latest checkpoint, so the same command starts and resumes. Some keys
may differ then, such as the keys of eval and checkpoint: docs/faults.md lists them.
With --init a new run begins with the parameters of another, wherever path and shape match; --init is ignored once DIR
has a checkpoint.
Ctrl-C finishes the current step, saves a checkpoint and exits with 130 (SIGTERM: 143); a second Ctrl-C exits at once.

DIR receives config.json (every key), run.json (versions, git commit, device, data), tokenizer.model, checkpoints/STEP,
metrics.jsonl and files for TensorBoard (the extra `tensorboard` has the viewer); python -m train.runs DIR sums it up.
Exit status: 0 when done; 2 for a wrong config, folder or corpus, or a loss that is no longer finite (one line on stderr
says which).
"""

from typing import Any, cast

from absl import flags
from ml_collections import config_flags

from vaswani.command import run
from vaswani.configs.common import default
from vaswani.files import output_folder
from vaswani.run import connect, unchanged
from vaswani.run.signals import leave
from vaswani.train import huge_pages
from vaswani.train.check import check, parse_profile
from vaswani.train.trackers import NAMES, check_installed


def check_flags(options: Any) -> None:
    """Raises a `UserError` unless the config is one of ours, and the other flags fit it and this machine."""
    output_folder("workdir", options.workdir)
    check(options.config, default())
    check_installed(options.tracker)


def main(argv: list[str]) -> int:
    import jax

    from vaswani.train.loop import train
    from vaswani.train.nans import check_nans
    from vaswani.train.start import check_device, config_line

    options = flags.FLAGS
    profile = None if options.profile is None else parse_profile(options.profile, options.config.steps)
    connect.connect(options, stops_together=True)
    check_device(options.config)
    if options.debug_nans:
        check_nans()
    file = config_flags.get_config_filename(options["config"])
    overrides = config_flags.get_override_values(options["config"])
    try:
        status = train(
            options.config,
            output_folder("workdir", options.workdir),
            options.init,
            config_line=config_line(file, overrides),
            profile=profile,
            tracker=options.tracker,
        )
    except SystemExit as stopped:
        status = cast(int, stopped.code)
    if status and jax.process_count() == 1:  # of several processes, each tells the others when it exits
        leave(status)
    return status


if __name__ == "__main__":
    huge_pages.start_again("train")
    config_flags.DEFINE_config_file("config", None, "the experiment, a file in configs/", lock_config=True)
    flags.DEFINE_string("workdir", None, "folder of the run; created if absent")
    flags.DEFINE_string(
        "init",
        None,
        "RUN[:CHECKPOINT] to take parameters from: latest, STEP, best, average:N, ..; default: its "
        "config.decode.checkpoint",
    )
    flags.DEFINE_string("profile", None, "FIRST:LAST, steps to trace with jax's profiler into DIR/profile")
    flags.DEFINE_enum("tracker", None, NAMES, "also send every record of metrics.jsonl there; extras wandb, mlflow")
    flags.DEFINE_bool("debug_nans", False, "stop at the first NaN and name the operation and the parameters; slow")
    unchanged.define_flag()
    connect.define_flags()
    flags.mark_flags_as_required(["config", "workdir"])
    run(main, default().to_dict(), hint="keys are set as --config.KEY=VALUE", check=check_flags)

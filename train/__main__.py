"""Trains a Transformer.

    python -m train --config=configs/base.py[:ARGUMENT] --workdir=DIR [--config.model.h=4 ...]

Every key of the config can be set with --config.KEY=VALUE; configs/common.py lists and explains them. If DIR holds a
run of the same config, training resumes from its latest checkpoint, so the same command starts and resumes.
Ctrl-C finishes the current update, saves a checkpoint and exits with 130 (SIGTERM: 143); a second Ctrl-C exits at once.

DIR receives config.json (every key), run.json (versions, git commit, device, data), tokenizer.model, checkpoints/STEP,
metrics.jsonl and TensorBoard files. Exit status: 0 when done; 2 for a wrong config, folder or corpus, or a loss that
is no longer finite (one line on stderr says which).
"""

from absl import flags
from ml_collections import config_flags

from base.errors import run
from base.files import folder
from configs.common import default
from run.distributed import connect
from train.check import check, check_device

_CONFIG = config_flags.DEFINE_config_file("config", None, "the experiment, a file in configs/", lock_config=True)
flags.DEFINE_string("workdir", None, "folder of the run; created if absent")


def main(argv: list[str]) -> int:
    """See the module's docstring."""
    workdir = folder("workdir", flags.FLAGS.workdir)
    check(_CONFIG.value, default())
    connect()
    check_device(_CONFIG.value)
    from train.loop import train  # only now, so that a mistyped key is reported without waiting for jax to load
    from train.tasks import language_model, translation, vision

    tasks = {"translation": translation.task, "language_model": language_model.task, "vision": vision.task}
    return train(_CONFIG.value, workdir, tasks[_CONFIG.value.task])


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    run(main, default().to_dict(), stray="keys are set as --config.KEY=VALUE")

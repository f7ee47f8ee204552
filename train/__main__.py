"""Trains a Transformer.

    python -m train --config=configs/base.py[:ARGUMENT] --workdir=DIR [--config.model.h=4 ...]

Every key of the config can be set with --config.KEY=VALUE; configs/common.py lists and explains them. When DIR holds a
run of the same config, training goes on from its latest checkpoint, so the same command starts and resumes.
Ctrl-C finishes the update in hand, saves a checkpoint and exits with 130 (SIGTERM: 143); Ctrl-C twice exits at once.

DIR receives config.json (every key), run.json (versions, git commit, device, data), tokenizer.model, checkpoints/STEP,
metrics.jsonl and TensorBoard files. Exit status: 0 done, 2 a wrong config, folder or corpus, or a loss that is not
finite any more (one line on stderr says which).
"""

from absl import flags
from ml_collections import config_flags

from base.errors import UserError, run
from base.files import folder
from configs.common import default
from run.distributed import connect
from train.check import check, check_device

_CONFIG = config_flags.DEFINE_config_file("config", None, "the experiment, a file of configs/", lock_config=True)
flags.DEFINE_string("workdir", None, "folder of the run; made if absent")


def main(argv: list[str]) -> int:
    """See the module's docstring."""
    if len(argv) > 1:
        raise UserError(f"{argv[1]}: not a flag; keys are set as --config.KEY=VALUE")
    workdir = folder("workdir", flags.FLAGS.workdir)
    check(_CONFIG.value, default())
    connect()
    check_device(_CONFIG.value)
    from train.loop import train  # only now: nobody should wait for jax to load to read about a mistyped key
    from train.tasks import language_model, translation

    tasks = {"translation": translation.task, "language_model": language_model.task}
    return train(_CONFIG.value, workdir, tasks[_CONFIG.value.task])


if __name__ == "__main__":
    flags.mark_flags_as_required(["config", "workdir"])
    run(main, default().to_dict())

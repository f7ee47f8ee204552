"""Shows what is in the folder of a run: config, checkpoints, parameter count and hash.

python -m infer.inspect --workdir=runs/quickstart [--json]
"""

from absl import flags

from base.command import imported
from infer.options import start

if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "folder of the run")
    flags.DEFINE_bool("json", False, "print JSON instead of a summary")
    flags.mark_flags_as_required(["workdir"])
    start(imported("run.summary"), hint="the run is given as --workdir=DIR")

"""Shows what is in the folder of a run: config, checkpoints, parameter count and hash.

python -m infer.inspect --workdir=runs/quickstart [--json]
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from absl import flags

from vaswani.errors import UserError
from vaswani.infer.options import start
from vaswani.keys import flat
from vaswani.run.averaging import check_began, list_checkpoints, load_choice
from vaswani.run.builtin import run_folder
from vaswani.run.config import read_config
from vaswani.run.parameters import count_parameters, params_sha256


def summary(workdir: Path) -> dict[str, Any]:
    """Returns facts about a run as JSON values; step, params and params_sha256 are of the newest intact checkpoint."""
    config = read_config(workdir)
    check_began(workdir)
    checkpoints = list_checkpoints(workdir)
    if not checkpoints:
        raise UserError(f"--workdir={workdir}: the run has no checkpoint yet")
    steps, params = load_choice(workdir, "latest")
    return {
        "workdir": str(workdir),
        "step": steps[0],
        "params": count_parameters(params),
        "params_sha256": params_sha256(params),
        "checkpoints": [
            {
                "step": step,
                "time": datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds"),
                "metrics": metrics,
            }
            for step, time, metrics, _ in checkpoints
        ],
        "config": config.to_dict(),
    }


def as_text(facts: dict[str, Any]) -> str:
    """Returns the same facts as text."""
    lines = [f"{name:<14} {facts[name]}" for name in ("workdir", "step")]
    lines += [
        f"{'params':<14} {facts['params']:,}",
        f"{'params_sha256':<14} {facts['params_sha256']}",
        "",
        "checkpoints",
    ]
    for checkpoint in facts["checkpoints"]:
        metrics = "  ".join(f"{name} {value:.4g}" for name, value in sorted(checkpoint["metrics"].items()))
        lines.append(f"  {checkpoint['step']:>9}  {checkpoint['time']}  {metrics}".rstrip())
    lines += ["", "config"] + [f"  {key} = {value!r}" for key, value in flat(facts["config"]).items()]
    return "\n".join(lines)


def main(options: Any) -> None:
    """Prints the summary of a run."""
    facts = summary(run_folder("workdir", options.workdir))
    print(json.dumps(facts, indent=2) if options.json else as_text(facts))


if __name__ == "__main__":
    flags.DEFINE_string("workdir", None, "folder of the run")
    flags.DEFINE_bool("json", False, "print JSON instead of a summary")
    flags.mark_flags_as_required(["workdir"])
    start(main, hint="the run is given as --workdir=DIR")

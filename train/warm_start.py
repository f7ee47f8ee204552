"""Warm start: a new run begins with parameters of another, to fine-tune them."""

import re
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from base.errors import UserError
from base.files import folder, sha256
from run.averaging import load_choice
from run.changes import check_unchanged
from run.config import read_config
from run.distributed import is_main

TOKENIZER = "tokenizer.model"


def warm_start(source: str, params: dict, workdir: Path) -> tuple[dict, dict[str, Any]]:
    """Returns `params` with those of another run wherever path and shape match, and what `run.json` records of it.

    `source` is RUN or RUN:CHECKPOINT, the checkpoint as for inference (`run.averaging.choose`); by default it is the
    one that RUN's config names. One message on stderr counts the parameters and names those without a match.

    Raises:
      UserError: RUN is not the folder of a run, or has no such checkpoint; its subwords are not those of the run in
        `workdir`; or nothing matches.
    """
    run, choice = _parts(source)
    if not (run / "config.json").is_file():
        raise UserError(f"--init={source}: {run} is not the folder of a run; write RUN or RUN:CHECKPOINT")
    try:
        steps, theirs = load_choice(run, choice or str(read_config(run).decode.checkpoint))
        check_unchanged(run, steps[-1])
    except UserError as error:
        raise UserError(f"--init={source}: {error}") from error
    tokenizers = [path / TOKENIZER for path in (run, workdir) if (path / TOKENIZER).exists()]
    if len({sha256(path) for path in tokenizers}) == 2:
        raise UserError(f"--init={source}: that run has other subwords; set --config.data.tokenizer={run / TOKENIZER}")
    there, here = flatten_dict(theirs, sep="/"), flatten_dict(params, sep="/")
    taken = {name for name, leaf in here.items() if name in there and np.shape(there[name]) == leaf.shape}
    if not taken:
        raise UserError(f"--init={source}: no parameter there has the path and the shape of one of this model")
    new, unused = here.keys() - taken, there.keys() - taken
    if is_main():
        where = f"{run}, step {', '.join(map(str, steps))}"
        print(f"{len(taken)} of {len(here)} parameters from {where}; {_listed(new)} new; {_listed(unused)} there not "
              "used", file=sys.stderr)  # fmt: skip
    mixed = {name: jax.device_put(there[name], leaf.sharding) if name in taken else leaf for name, leaf in here.items()}
    record = {"run": str(run), "checkpoints": steps, "taken": len(taken), "new": sorted(new), "unused": sorted(unused)}
    return unflatten_dict(mixed, sep="/"), record


def _parts(source: str) -> tuple[Path, str]:
    """Splits RUN[:CHECKPOINT]; a folder whose own name has a colon is taken as it is."""
    whole = folder("init", source)
    if whole.is_dir():
        return whole, ""
    run, _, choice = source.partition(":")
    return folder("init", run), choice


def _listed(names: set[str]) -> str:
    """Returns how many there are, and their names, once for all layers."""
    shown = sorted({re.sub(r"layer_\d+", "layer_*", name) for name in names})
    return f"{len(names)} ({', '.join(shown)})" if names else "0"

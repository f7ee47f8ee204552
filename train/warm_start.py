"""Warm start: a new run begins with parameters of another, to fine-tune them."""

import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from vaswani.errors import UserError
from vaswani.files import sha256
from vaswani.run.averaging import load_choice
from vaswani.run.builtin import run_folder
from vaswani.run.config import read_config
from vaswani.run.distributed import check_same_params, is_main
from vaswani.run.parameters import params_sha256
from vaswani.run.sharding import place_array
from vaswani.run.unchanged import check_unchanged

TOKENIZER = "tokenizer.model"


def warm_start(source: str, params: dict, workdir: Path) -> tuple[dict, dict[str, Any]]:
    """Returns `params` with another run's values wherever path and shape match, and a record of that for `run.json`.

    `source` is RUN or RUN:CHECKPOINT, the checkpoint as for inference (`run.averaging.choose`); by default it is the
    one that RUN's config names. One message on stderr counts the parameters and names those without a match.

    Raises:
      UserError: RUN is not a run folder, or has no such checkpoint; its tokenizer differs from the one in `workdir`;
        or nothing matches.
    """
    run, choice = _split(source)
    if not (run / "config.json").is_file():
        raise UserError(f"--init={source}: {run} is not a run folder; write RUN or RUN:CHECKPOINT")
    try:
        steps, source_params = load_choice(run, choice or str(read_config(run).decode.checkpoint))
        check_unchanged(run, steps[-1])
        check_same_params(source_params)
    except UserError as error:
        raise UserError(f"--init={source}: {error}") from error
    if not _same_subwords(run / TOKENIZER, workdir / TOKENIZER):
        raise UserError(f"--init={source}: its tokenizer is different; set --config.data.tokenizer={run / TOKENIZER}")

    given = flatten_dict(source_params, sep="/")
    initial = flatten_dict(params, sep="/")
    taken = {name for name, leaf in initial.items() if name in given and np.shape(given[name]) == leaf.shape}
    if not taken:
        raise UserError(f"--init={source}: no parameter there has the path and the shape of one of this model")
    new = initial.keys() - taken
    unused = given.keys() - taken
    if is_main():
        counted = f"{len(taken)} of {len(initial)} parameters from {run}, step {', '.join(map(str, steps))}"
        print(f"{counted}; {_describe(new)} new; {_describe(unused)} of that run unused", file=sys.stderr)

    mixed = dict(initial)
    for name in taken:
        mixed[name] = place_array(given[name], initial[name].sharding)
    record = {
        "run": str(run),
        "checkpoints": steps,
        "params_sha256": params_sha256(source_params),
        "taken": len(taken),
        "new": sorted(new),
        "unused": sorted(unused),
    }
    return unflatten_dict(mixed, sep="/"), record


def _split(source: str) -> tuple[Path, str]:
    """Splits RUN[:CHECKPOINT]. The name of a folder may have colons: the longest that there is, is meant."""
    as_it_is = run_folder("init", source)
    if as_it_is.is_dir():
        return as_it_is, ""
    parts = source.split(":")
    for count in range(len(parts) - 1, 1, -1):
        run = run_folder("init", ":".join(parts[:count]))
        if run.is_dir():
            return run, ":".join(parts[count:])
    return run_folder("init", parts[0]), ":".join(parts[1:])


def _same_subwords(theirs: Path, own: Path) -> bool:
    """Returns whether two tokenizers are the same file, or one of them does not exist, as with images."""
    if not (theirs.exists() and own.exists()):
        return True
    return sha256(theirs) == sha256(own)


def _describe(names: Collection[str]) -> str:
    """Returns how many there are, and their names, once for all layers."""
    if not names:
        return "0"
    shown = {re.sub(r"layer_\d+", "layer_*", name) for name in names}
    return f"{len(names)} ({', '.join(sorted(shown))})"

"""Records an ensemble: as its first run's record, with the scores of all together."""

from pathlib import Path
from typing import Any

from vaswani.errors import UserError
from vaswani.paper.records import read_run
from vaswani.paper.results import evaluation_part, make_record


def make_ensemble_record(workdirs: list[Path], split: str, *, allow_dirty: bool = False) -> dict[str, Any]:
    """Returns the record of the newest evaluation of `split` by these runs together.

    It is the first run's record, but for the scores, the caveats, which are those of any, and the minutes, which are
    the sum over all. An ensemble is known by the parameters of its members, and these by each one's newest single
    evaluation. Its records are in the first run's folder.

    Raises:
      UserError: as `make_record`, for any of the runs, or the split has not been evaluated by them together.
    """
    records = [make_record(workdir, split, allow_dirty=allow_dirty) for workdir in workdirs]
    members = [record["evaluation"]["params_sha256"] for record in records]
    evaluations = [
        evaluation
        for evaluation in read_run(workdirs[0]).evaluations
        if evaluation.scores["split"] == split and evaluation.scores.get("members") == members
    ]
    if not evaluations:
        paths = ",".join(map(str, workdirs))
        raise UserError(
            f"{workdirs[0]}: no evaluation of the {split} split by the ensemble of these runs; run "
            f"python -m infer --workdir={paths} --split={split}"
        )
    newest = max(evaluations, key=lambda evaluation: evaluation.scores["time"])
    first = records[0]
    caveats = dict.fromkeys(caveat for record in records for caveat in record["caveats"])
    minutes = sum(record["training"]["minutes"] for record in records)
    together = {
        **evaluation_part(newest),
        "caveats": [*caveats],
        "training": first["training"] | {"minutes": minutes},
    }
    return first | together

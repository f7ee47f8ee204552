"""What is due after an update, and when a run stops early: patience with the validation loss."""

from collections.abc import Iterable
from typing import Any

from ml_collections import ConfigDict

from vaswani.data.pipeline import State
from vaswani.numbers import counted


def due(cfg: ConfigDict, step: int, position: State) -> bool:
    """Returns whether something happens after this update: every `cfg.every` updates, or every so many epochs.

    Args:
      cfg: `config.eval` or `config.checkpoint`.
      step: number of the update.
      position: in the data, after it.
    """
    if cfg.every_epochs:
        epoch_ended = position["batch"] == 0
        return epoch_ended and position["epoch"] % cfg.every_epochs == 0
    return step % cfg.every == 0


def has_ended(records: list[dict[str, Any]], steps: int, patience: int) -> bool:
    """Returns whether a run with these records has made its `steps` updates, or stopped early for its patience.

    One that a signal stopped between its last update and the validation after it has not ended.
    """
    made_all = bool(records) and records[-1]["kind"] == "valid" and records[-1]["step"] >= steps
    return made_all or Patience(patience, records).ended


class Patience:
    """Counts the validations in a row that have not lowered the best nll.

    It follows from the run's records alone, so that a resumed run counts on: those of updates that no checkpoint has
    are dropped on resume (`train.metrics`), and nothing else has to be saved.
    """

    def __init__(self, limit: int, records: Iterable[dict[str, Any]]) -> None:
        """Counts the validations in the records of a `metrics.jsonl`; with `limit` 0 patience has no end."""
        self.limit = limit
        self.waited = 0
        self.best = float("inf")
        self.last_step = -1  # of the records, the last that was validated
        for record in records:
            if record["kind"] == "valid":
                self.add(record)
                self.last_step = record["step"]

    def add(self, metrics: dict[str, Any]) -> None:
        """Counts one more validation."""
        nll = metrics["nll"]
        self.waited = 0 if nll < self.best else self.waited + 1
        self.best = min(self.best, nll)

    def __str__(self) -> str:
        since = counted(self.waited, "validations")
        return f"no lower nll than {self.best:.4f} in the last {since} (eval.patience)"

    @property
    def ended(self) -> bool:
        """Whether the run is to stop."""
        return 0 < self.limit <= self.waited

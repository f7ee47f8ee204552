"""When a run validates, saves and ends: pure functions of its config, a step, and what has been validated so far."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from vaswani.data.pipeline import State
from vaswani.numbers import pluralize


@dataclass(frozen=True)
class Every:
    """Every so many steps or, unless `epochs` is 0, at the end of every so many epochs."""

    steps: int
    epochs: int

    def falls_on(self, step: int, position: State) -> bool:
        """Returns whether it falls on `step`, after which training stands at `position` in the data."""
        if self.epochs:
            epoch_ended = position["batch"] == 0
            return epoch_ended and position["epoch"] % self.epochs == 0
        return step % self.steps == 0


class Due(NamedTuple):
    """What follows a step."""

    validates: bool
    reason: str | None  # why the step is saved, "schedule" or "end"; None if neither asks for it


@dataclass(frozen=True)
class Schedule:
    """Which steps are validated and saved.

    Attributes:
      steps: number of the last step, which is validated and saved.
      validation: the steps that are validated.
      checkpoint: the steps that are saved, from `counted_from` on.
      counted_from: the first step that may be saved for its number; earlier ones are saved by the clock.
      minutes: between checkpoints by the clock; 0 if there are none.
      clock_every: steps between two looks at the clock.
    """

    steps: int
    validation: Every
    checkpoint: Every
    counted_from: int
    minutes: float
    clock_every: int

    @classmethod
    def of(cls, cfg: ConfigDict) -> "Schedule":
        """Returns the schedule of a whole config."""
        checkpoint = cfg.checkpoint
        # By the clock, only the last ones are saved for their number: those that are averaged (section 6.1).
        is_by_clock = checkpoint.every_minutes > 0 and checkpoint.every_epochs == 0
        averaged = checkpoint.keep_last * checkpoint.every
        return cls(
            steps=cfg.steps,
            validation=Every(cfg.eval.every, cfg.eval.every_epochs),
            checkpoint=Every(checkpoint.every, checkpoint.every_epochs),
            counted_from=cfg.steps - averaged + 1 if is_by_clock else 1,
            minutes=checkpoint.every_minutes,
            clock_every=cfg.log_every,
        )

    def reads_clock(self, step: int) -> bool:
        """Returns whether a checkpoint may be overdue after `step`. Processes must agree on it, which takes time."""
        return self.minutes > 0 and step % self.clock_every == 0

    def after(self, step: int, position: State, overdue: bool = False) -> Due:
        """Returns the validation and checkpoint due after `step`.

        Args:
          step: number of the step, from 1.
          position: in the data, after it.
          overdue: whether `minutes` have passed since the last checkpoint.
        """
        is_last = step >= self.steps
        is_counted = step >= self.counted_from and self.checkpoint.falls_on(step, position)
        validates = is_last or self.validation.falls_on(step, position)
        reason = "schedule" if is_counted or overdue else "end" if is_last else None
        return Due(validates, reason)


def reason_to_save(due: Due, has_ended: bool, is_stopping: bool) -> str | None:
    """Returns the reason to save a step, once it has been validated; None if it is not saved.

    It is the first of these that holds, since the checkpoint would exist without the others: the reason of `due`,
    "patience" if that `has_ended`, "signal" if one `is_stopping` the run.
    """
    return due.reason or ("patience" if has_ended else "signal" if is_stopping else None)


class Patience:
    """Counts the validations in a row that have not lowered the best nll.

    It depends only on the run's records, so that a resumed run counts on: records later than the checkpoint are
    dropped on resume (`train.metrics`), and nothing else has to be saved.
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
        since = pluralize(self.waited, "validations")
        return f"no lower nll than {self.best:.4f} in the last {since} (eval.patience)"

    @property
    def ended(self) -> bool:
        """Whether the run is to stop."""
        return 0 < self.limit <= self.waited


def has_ended(records: list[dict[str, Any]], steps: int, patience: int) -> bool:
    """Returns whether a run with these records has made its `steps` steps, or stopped early for its patience.

    One that a signal stopped between its last step and the validation after it has not ended.
    """
    made_all = bool(records) and records[-1]["kind"] == "valid" and records[-1]["step"] >= steps
    return made_all or Patience(patience, records).ended

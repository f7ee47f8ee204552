"""The enumerated points of a sweep, as a list that many workers share through its folder."""

import time
from pathlib import Path

from run.folder import read_json
from train.sweep.claims import Claim, Silence, latest_claim, take, write_once
from train.sweep.expressions import Point
from train.sweep.point import Lost, Outcome, Row, read_records, summary


class Grid:
    """Points that are claimed one by one; `results/POINT.json` says how one ended."""

    def __init__(self, workdir: Path, points: dict[str, Point], silence: float) -> None:
        """Opens the list.

        Args:
          workdir: folder of the sweep, the same for all workers.
          points: what to change in the config, by the name of the point.
          silence: seconds without a sign of life after which a worker is taken for dead.
        """
        self._workdir, self._points, self._silence = workdir, points, Silence(silence)
        self._claims, self._results = workdir / "sweep" / "claims", workdir / "sweep" / "results"
        self._results.mkdir(parents=True, exist_ok=True)

    def finished(self) -> bool:
        """Whether every point is done or has failed."""
        return not self._unfinished()

    def take(self) -> "HeldPoint | None":
        """Returns a point that is now this worker's alone; None while others have all that are left."""
        for name in self._unfinished():
            if claim := take(self._claims / name, self._silence):
                if not self._result(name).exists():  # it may have been finished since the list was made
                    return HeldPoint(name, self._points[name], claim, self._result(name))
                claim.release()
        return None

    def rows(self) -> list[Row]:
        """What is known of each point, in the order of the list."""
        return [self._row(name) for name in self._points]

    def _row(self, name: str) -> Row:
        if self._result(name).exists():
            result = read_json(self._result(name))
            return Row(name, self._points[name], result["state"], result["reason"], result["summary"])
        claims = self._claims / name
        latest = latest_claim(claims) if claims.exists() else 0
        sign = (claims / str(latest)).stat().st_mtime if latest else 0.0
        # Only for the eye, so by the wall clock: nobody acts on it.
        silent = time.time() - sign > self._silence.seconds
        state = "waiting" if not latest else "interrupted" if silent else "running"
        return Row(name, self._points[name], state, "", summary(read_records(self._workdir / name)))

    def _result(self, name: str) -> Path:
        return self._results / f"{name}.json"

    def _unfinished(self) -> list[str]:
        finished = {path.name for path in self._results.iterdir()}
        return [name for name in self._points if f"{name}.json" not in finished]


class HeldPoint:
    """A point of a grid in the hands of this worker."""

    def __init__(self, name: str, overrides: Point, claim: Claim, result: Path) -> None:
        self.name, self.overrides, self.attempt = name, overrides, claim.attempt
        self._claim, self._result = claim, result

    def renew(self) -> bool:
        """Keeps hold of it; False: no point of a grid is stopped early.

        Raises:
          Lost: another worker has it, or may have it soon.
        """
        self._claim.renew()
        return False

    def release(self) -> None:
        """Gives it back unfinished."""
        self._claim.release()

    def finish(self, outcome: Outcome) -> None:
        """Records how it ended, once and for all.

        Raises:
          Lost: another worker has recorded it.
        """
        if not write_once(self._result, {**outcome._asdict(), "attempt": self.attempt}):
            raise Lost
        self._claim.release()

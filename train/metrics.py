"""What a run reports: `metrics.jsonl` (the record), TensorBoard files, and a bar or plain lines on stderr.

Records of `metrics.jsonl`, one JSON object per line; `loss` and `nll` are in nats per prediction, which is a target
token that is no padding, a masked token of a masked language model, or the class of a text or an image:

    {"step", "kind": "train", "loss", "nll", "perplexity", "gradient_norm", "learning_rate", "tokens_per_second",
     "non_pad_share", "seconds", "mfu"}                   means over the steps since the previous record, or since
                                                          the launch if that was later;
                                                          "gradient_norm" (before clipping) and "learning_rate" are
                                                          the last step's
    {"step", "kind": "valid", "loss", "nll", "perplexity", "bleu", "accuracy"}
                                                          "bleu", in percent, and "accuracy", in [0, 1], where measured

`loss` is label-smoothed (`loss.eps_ls`), and is what training minimises; `nll` and `perplexity`, its exponential, are
not smoothed. These names mean the same everywhere; a sweep ranks by `nll`. `tokens_per_second` counts predictions and
wall time outside validation and checkpointing, compilation included. `non_pad_share` is non-pad tokens over
computed positions, both sides. `mfu` is the share of an accelerator's peak in bfloat16 that the steps' matmuls
take, where both are known (`train.utilisation`). `seconds` is that wall time since the run's first step; a
resumed run continues the count of its last record. With `diagnose_every` there are also the metrics of
`train.diagnose`.
"""

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import jax
from jaxtyping import Array

from vaswani.errors import UserError, one_line
from vaswani.files import in_bucket, read_bytes, write_text
from vaswani.numbers import from_nll
from vaswani.progress import Bar
from vaswani.run.records import read_metrics
from vaswani.run.uploads import Uploads
from vaswani.train import table
from vaswani.train.start import peak_memory
from vaswani.train.step import Sums
from vaswani.train.tensorboard import EventFile
from vaswani.train.trackers import Tracker, metrics_of


class NotFiniteError(ArithmeticError):
    """The loss or the gradient of a step is NaN or infinite."""


@dataclass
class _Totals:
    """Sums over the steps since the last record."""

    loss_sum: float = 0.0
    nll_sum: float = 0.0
    target_tokens: float = 0.0  # that are predicted
    input_tokens: int = 0  # that the model reads, on both sides, without padding
    positions: int = 0  # the same with padding
    flops: int = 0


class _Moment(NamedTuple):
    """After which step, and after how many seconds of training."""

    step: int
    seconds: float


class Reporter:
    """Turns the sums of steps into one record per `every` steps."""

    def __init__(
        self,
        workdir: Path | None,
        rate: Callable[[int], Array],
        *,
        first: int,
        last: int,
        every: int,
        peak: float = 0.0,
        tracker: Tracker | None = None,
        uploads: Uploads | None = None,
    ) -> None:
        """Continues the log of `workdir` at step `first`; drops records from `first` on, which no checkpoint has.

        Args:
          workdir: folder of the run; None in a process other than 0, which only checks that losses are finite.
          rate: learning rate of a step.
          first: number of the next step.
          last: number of the run's last step.
          every: steps per record.
          peak: FLOPs a second that all devices can do, for "mfu"; 0 if it is not known.
          tracker: also gets every record.
          uploads: of the run; by default one for `workdir`.
        """
        self._rate = rate
        self._first = first
        self._every = every
        self._last = last
        self._peak = peak
        self._tracker = tracker
        self._elapsed = 0.0
        self._uploads: Uploads | None = None
        self._file = None
        self._tensorboard = None
        if workdir:
            self._elapsed = _drop_records(workdir, first)
            self._uploads = uploads or Uploads(workdir)
            folder = self._uploads.folder
            if folder != workdir:
                (folder / "metrics.jsonl").write_bytes(read_bytes(workdir / "metrics.jsonl"))
            self._file = (folder / "metrics.jsonl").open("a", encoding="utf-8")
            self._tensorboard = EventFile(folder / "tensorboard", first)
        self._totals = _Totals()
        self._newest = (0, 0.0)  # the last step, and the norm of its gradient
        self._diagnosis: Mapping[str, Array] = {}
        self._window_start = self._elapsed
        self._timed = _Moment(first, self._elapsed)
        self._is_first_record = True
        self._resumed_at = time.perf_counter()
        self._bar = Bar("training", total=last, done=first - 1, stays=True, enabled=workdir is not None)

    def __enter__(self) -> "Reporter":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()
        if self._file and self._tensorboard:
            with closing(self._file), closing(self._tensorboard), suppress(*(OSError, UserError) if error else ()):
                self.send()

    def update(
        self, step: int, sums: Sums, positions: int, flops: int = 0, diagnosis: Mapping[str, Array] | None = None
    ) -> None:
        """Adds one step, after waiting until the device has finished it.

        Args:
          step: its number.
          sums: what it returned.
          positions: the number of positions in its batch, padding included.
          flops: what it computed; 0 if it is not known.
          diagnosis: what `train.diagnose` has found out about it, for the next record; empty or None if nothing.

        Raises:
          NotFiniteError: its loss or gradient is NaN or infinite; the message names the step.
        """
        sums = jax.device_get(sums)
        loss_sum = float(sums.loss.loss_sum)
        gradient_norm = float(sums.gradient_norm)
        if not (math.isfinite(loss_sum) and math.isfinite(gradient_norm)):
            raise NotFiniteError(f"step {step}: the loss is {loss_sum} and the gradient norm {gradient_norm}")
        self._totals.loss_sum += loss_sum
        self._totals.nll_sum += float(sums.loss.nll_sum)
        self._totals.target_tokens += float(sums.loss.tokens)
        self._totals.input_tokens += int(sums.input_tokens)
        self._totals.positions += positions
        self._totals.flops += flops
        self._diagnosis = diagnosis or self._diagnosis
        self._newest = step, gradient_norm
        if step % self._every == 0 or step == self._last:
            self._record(step, gradient_norm)
        elif step == self._first:
            now = self._seconds()
            self._timed = _Moment(step, now)  # without the time that it took to compile
            loss = self._totals.loss_sum / max(self._totals.target_tokens, 1.0)
            waited = f"{now - self._elapsed:,.1f} s, compilation included"
            self.message(f"step {step}/{self._last}: loss {loss:.4f}  after {waited}")
        self._bar.update(step)

    def finish(self) -> None:
        """Records the steps since the last record, if there are any: of a run that ends before its last step."""
        if self._totals.positions:
            self._record(*self._newest)

    def record_validation(self, step: int, metrics: dict[str, float]) -> None:
        """Records the result of a validation, and sends it."""
        self._write({"step": step, "kind": "valid", **metrics})
        self.send()

    def send(self) -> None:
        """Uploads the records so far, where the run is in a bucket; raises as `Uploads.send`."""
        if self._uploads and self._tensorboard and in_bucket(self._uploads.workdir):
            self._tensorboard.flush()
            self._uploads.send()

    def message(self, text: str) -> None:
        """Prints a line on stderr, above the bar if there is one."""
        self._bar.message(text)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Excludes the time spent inside from the training time."""
        self._elapsed = self._seconds()
        try:
            yield
        finally:
            self._resumed_at = time.perf_counter()

    def _seconds(self) -> float:
        return self._elapsed + time.perf_counter() - self._resumed_at

    def _record(self, step: int, gradient_norm: float) -> None:
        totals = self._totals
        seconds = self._seconds()
        window_seconds = max(seconds - self._window_start, 1e-9)
        target_tokens = max(totals.target_tokens, 1.0)
        nll = totals.nll_sum / target_tokens
        record = {
            "step": step,
            "kind": "train",
            "loss": totals.loss_sum / target_tokens,
            "nll": nll,
            "perplexity": from_nll(nll),
            "gradient_norm": gradient_norm,
            "learning_rate": float(self._rate(step)),
            "tokens_per_second": totals.target_tokens / window_seconds,
            "non_pad_share": totals.input_tokens / totals.positions,
            "seconds": seconds,
        }
        if self._peak and totals.flops:
            record["mfu"] = totals.flops / window_seconds / self._peak
        record |= {name: float(value) for name, value in jax.device_get(self._diagnosis).items()}
        self._diagnosis = {}
        self._totals = _Totals()
        self._window_start = seconds
        self._write(record, self._time_left(step, seconds))
        if self._is_first_record:
            self.message(peak_memory())
            self._is_first_record = False

    def _time_left(self, step: int, seconds: float) -> str:
        """Returns the log's words for the time left, at the pace since the last record."""
        updates = step - self._timed.step
        pace = (seconds - self._timed.seconds) / max(updates, 1)
        self._timed = _Moment(step, seconds)
        if updates == 0 or step == self._last:
            return ""
        return f"  {pace * (self._last - step) / 60:,.1f} min left"

    def _write(self, record: dict[str, Any], left: str = "") -> None:
        if not (self._file and self._tensorboard):
            return
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()
        metrics = metrics_of(record)
        self._tensorboard.write(record["step"], metrics)
        self._track(record["step"], metrics)
        self.message(f"step {record['step']}/{self._last} {record['kind']}: {_line(record)}{left}")

    def _track(self, step: int, metrics: dict[str, float]) -> None:
        """Tells the tracker; one that fails, whatever the reason, is told no more, and training goes on."""
        if self._tracker is None:
            return
        try:
            self._tracker.log(step, metrics)
        except Exception as error:
            self._tracker = None
            self.message(f"note: the tracker gets no more records: {one_line(str(error))}")


def _line(record: dict[str, Any]) -> str:
    perplexity = table.number(record["perplexity"])
    line = f"loss {record['loss']:.4f}  nll {record['nll']:.4f}  perplexity {perplexity}"
    if "bleu" in record:
        line += f"  BLEU {record['bleu']:.2f}"
    if "accuracy" in record:
        line += f"  accuracy {record['accuracy']:.1%}"
    if record["kind"] == "train":
        line += (
            f"  lr {record['learning_rate']:.2e}  {record['tokens_per_second']:,.0f} target tokens/s"
            f"  padding {1.0 - record['non_pad_share']:.1%}"
        )
    if "mfu" in record:
        line += f"  MFU {record['mfu']:.1%}"
    return line


def _drop_records(workdir: Path, first: int) -> float:
    """Drops the records of steps from `first` on, and a half-written last line; returns the last kept "seconds".

    Raises:
      UserError: a line is damaged.
    """
    records = [record for record in read_metrics(workdir) if record["step"] < first]
    write_text(workdir / "metrics.jsonl", "".join(f"{json.dumps(record)}\n" for record in records))
    seconds = [float(record["seconds"]) for record in records if "seconds" in record]
    return seconds[-1] if seconds else 0.0

"""What a run and the same run trained again have in common: parameters, loss, processor, packages."""

from math import log
from typing import Any

from vaswani.paper.records import RunRecord


def verdict_of(record: RunRecord, again: RunRecord, tolerance: float) -> str:
    """Returns whether a run was repeated; on another processor, a larger difference of the loss says nothing."""
    if is_close(record, again, tolerance):
        return "repeated"
    alike = processor(record.launches[-1]) == processor(again.launches[-1])
    return "NOT repeated" if alike else "another processor"


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Returns a note on the processors, and one on packages, of two launches that differ."""
    notes: list[str] = []
    recorded = processor(before)
    now = processor(after)
    if recorded != now:
        notes.append(f"recorded on {recorded}, now on {now}")
    installed = after.get("versions", {})
    changed = [
        f"{package} {version}, now {installed.get(package, 'none')}"
        for package, version in before.get("versions", {}).items()
        if installed.get(package) != version
    ]
    if changed:
        notes.append(f"packages: {'; '.join(changed)}")
    return notes


def processor(launch: dict[str, Any]) -> str:
    """Returns the processor of a launch or, where it was not recorded, the kind of its devices."""
    device = launch["device"]
    return str(device.get("cpu") or device["kind"])


def is_close(record: RunRecord, again: RunRecord, tolerance: float) -> bool:
    """Returns whether a new run has the record's parameters, or a loss that differs by at most `tolerance` nats."""
    return same_parameters(record, again) or abs(loss_of(again) - loss_of(record)) <= tolerance


def loss_of(run_record: RunRecord) -> float:
    """Returns the loss of a run's evaluation in nats; of a parser's, which has none, that of its last validation."""
    scores = run_record.evaluations[0].scores
    if "nll" in scores:
        return float(scores["nll"])
    if "perplexity" not in scores:
        scores = run_record.validations[-1]
    return log(scores["perplexity"])


def same_parameters(record: RunRecord, again: RunRecord) -> bool:
    before = record.evaluations[0].scores
    after = again.evaluations[0].scores
    return bool(before["params_sha256"] == after["params_sha256"])

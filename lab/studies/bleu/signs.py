"""What in a run's log says that something is wrong: its record beside the base's of the same seed.

The thresholds are part of the design. A sign is what a user can see without a second run, by knowing what the base's
number is; where the subwords are others, losses per subword say nothing and are left out.
"""

from collections.abc import Mapping
from typing import Any

from vaswani.train.table import number

Record = Mapping[str, Any]


def signs(run: Record, base: Record) -> list[str]:
    """Returns the signs of a run, most telling first; none of the base itself."""
    if run["failed"]:
        return [run["failed"]]
    found = [*_of_rate(run, base), *_of_data(run, base)]
    subwords, usual = run["valid_subwords"], base["valid_subwords"]
    if abs(subwords / usual - 1) > 0.05:
        found.append(f"validation has {subwords:,} target subwords, not {usual:,}")
    else:
        found += _of_losses(run, base)
    return [*found, *_of_translations(run["test"], base["test"])]


def _of_rate(run: Record, base: Record) -> list[str]:
    """Compares the learning rate in the log's first line, and the last norm of the gradient."""
    found: list[str] = []
    ours, usual = run["log"][0], base["log"][0]
    is_same_step = ours["step"] == usual["step"]
    if is_same_step and abs(ours["learning_rate"] / usual["learning_rate"] - 1) > 0.1:
        rates = f"{ours['learning_rate']:.1e}, not {usual['learning_rate']:.1e}"
        found.append(f"learning rate at step {ours['step']}: {rates}")
    norm, usual_norm = run["log"][-1]["gradient_norm"], base["log"][-1]["gradient_norm"]
    if not 0.5 < norm / usual_norm < 2:
        found.append(f"norm of the last gradient: {norm:.2g}, not {usual_norm:.2g}")
    return found


def _of_data(run: Record, base: Record) -> list[str]:
    """Compares how often the training text is read, and how much of it is dropped."""
    found: list[str] = []
    if abs(run["epochs"] / base["epochs"] - 1) > 0.2:
        found.append(f"the text is read {run['epochs']:.1f} times, not {base['epochs']:.1f}")
    dropped = 1 - run["pairs"]["kept"] / run["pairs"]["read"]
    if dropped > 0.005:
        found.append(f"{100 * dropped:.1f} % of the pairs dropped")
    return found


def _of_losses(run: Record, base: Record) -> list[str]:
    """Compares losses, in nats a subword without smoothing: training with dropout, validation and test without."""
    found: list[str] = []
    train, usual_train = run["log"][-1]["nll"], base["log"][-1]["nll"]
    valid, usual_valid = run["valid"][-1]["nll"], base["valid"][-1]["nll"]
    if abs(train - usual_train) > 0.1:
        found.append(f"training nll {number(train)}, not {number(usual_train)}")
    if abs(valid - usual_valid) > 0.05:
        found.append(f"validation nll {number(valid)}, not {number(usual_valid)}")
    above = (valid - train) - (usual_valid - usual_train)
    if abs(above) > 0.1:
        found.append(f"validation nll minus training nll: {_more(above)} than the base's")
    beyond = (run["test"]["nll"] - valid) - (base["test"]["nll"] - usual_valid)
    if abs(beyond) > 0.1:
        found.append(f"test nll minus validation nll: {_more(beyond)} than the base's")
    return found


def _more(by: float) -> str:
    return f"{number(abs(by))} {'more' if by > 0 else 'less'}"


def _of_translations(test: Record, usual: Record) -> list[str]:
    """Compares the translations themselves: lengths, and shares that are empty, cut off or copied."""
    found: list[str] = []
    if abs(test["length_ratio"] - usual["length_ratio"]) > 0.05:
        found.append(f"length ratio {number(test['length_ratio'])}, not {number(usual['length_ratio'])}")
    for key, name in (("empty", "empty"), ("at_limit", "cut off at the limit"), ("copied", "copies of the source")):
        if test[key] - usual[key] > 0.01:
            found.append(f"{100 * test[key]:.0f} % of the translations {name}")
    return found

"""What a `search(trial)` draws from: tried before anything runs, and compared with what earlier trials drew from."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, check_distribution_compatibility
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, Trial

from vaswani.errors import UserError
from vaswani.train.sweep.expressions import Point
from vaswani.train.sweep.plan import another

_TRIES = 10  # trials that `try_out` draws at most


def try_out(suggest: Callable[[Trial], Point]) -> None:
    """Calls `suggest` for nothing, so that a mistake in it is found before anything runs.

    Values that do not fit together fail only one trial: it is a mistake if all of several trials are refused.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study()
    for _ in range(_TRIES - 1):
        with suppress(UserError):
            suggest(study.ask())
            return
    suggest(study.ask())


def check_distributions(trials: list[FrozenTrial], suggest: Callable[[Trial], Point], workdir: Path) -> None:
    """Raises `UserError` if `suggest` draws a parameter in a way that Optuna would refuse, given earlier trials.

    One trial of each set of parameters is drawn again, since some parameters may depend on the values of others.
    """
    known: dict[str, BaseDistribution] = {}
    examples: dict[frozenset[str], FrozenTrial] = {}
    for trial in trials:
        known = trial.distributions | known
        if trial.params:
            examples[frozenset(trial.params)] = trial
    for example in examples.values():
        trial_now = optuna.create_study(sampler=_Again(example)).ask()
        with suppress(UserError):  # values that do not fit together
            suggest(trial_now)
        for name, now in trial_now.distributions.items():
            before = known.get(name, now)
            try:
                check_distribution_compatibility(before, now)
            except ValueError as error:
                difference = f"{name} is {_describe(before)} there and {_describe(now)} here"
                raise another(workdir, difference) from error


class _Again(RandomSampler):
    """Draws the values of an earlier trial, and others where their distributions have changed."""

    def __init__(self, example: FrozenTrial) -> None:
        super().__init__()
        self._example = example

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        if self._example.distributions.get(param_name) == param_distribution:
            return self._example.params[param_name]
        return super().sample_independent(study, trial, param_name, param_distribution)


def _describe(distribution: BaseDistribution) -> str:
    """Returns in words what a parameter is drawn from."""
    if isinstance(distribution, CategoricalDistribution):
        return f"one of {distribution.choices}"
    return f"drawn from {distribution}"

"""What a `search(trial)` draws from: tried before anything runs, and compared with what earlier trials drew from."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress

import optuna
from optuna.distributions import check_distribution_compatibility
from optuna.trial import FrozenTrial, Trial

from vaswani.errors import UserError
from vaswani.train.sweep.expressions import Point

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


def check_choices(suggest: Callable[[Trial], Point], earlier: Sequence[FrozenTrial]) -> None:
    """Raises Optuna's `ValueError` if `suggest` draws a parameter from other choices than earlier trials did.

    One trial of each set of parameters is drawn again, since some parameters may depend on the values of others.
    """
    known = {name: distribution for trial in earlier for name, distribution in trial.distributions.items()}
    examples = {frozenset(trial.params): trial.params for trial in earlier}
    study = optuna.create_study()
    for params in examples.values():
        study.enqueue_trial(params)
        trial = study.ask()
        # Values need not fit together, and Optuna warns of one that is no longer in the range.
        with suppress(UserError), warnings.catch_warnings(action="ignore"):
            suggest(trial)
        for name, now in trial.distributions.items():
            check_distribution_compatibility(known.get(name, now), now)

"""Tries a `search(trial)` out, so that a mistake in it is found before anything runs."""

from collections.abc import Callable, Sequence
from contextlib import suppress

import optuna
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, Trial

from vaswani.errors import UserError
from vaswani.train.sweep.expressions import Point

_TRIES = 10  # trials that `try_out` draws at most


def try_out(suggest: Callable[[Trial], Point], earlier: Sequence[FrozenTrial] = ()) -> None:
    """Calls `suggest` for nothing, with a trial of a study that has the `earlier` ones.

    Optuna refuses a parameter that these drew from other choices. Values that do not fit together fail only one trial:
    it is a mistake if all of several trials are refused.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=RandomSampler())
    study.add_trials(earlier)
    for _ in range(_TRIES - 1):
        with suppress(UserError):
            suggest(study.ask())
            return
    suggest(study.ask())

"""What a model can learn: a file for each task, and the table of them that every command reads.

A task says what a record is made of, which model reads it, and what that model predicts. Training, validation and
evaluation all take these from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from vaswani.errors import UserError, refuse_short_name

if TYPE_CHECKING:
    from vaswani.tasks.task import Task

refuse_short_name(__name__)

# The values of `config.task`, and the module of each: a name, since importing it loads jax, which takes a second.
MODULES = {
    "translation": "vaswani.tasks.translation",
    "prefix_lm": "vaswani.tasks.translation",
    "recurrent_translation": "vaswani.tasks.translation",
    "language_model": "vaswani.tasks.language_model",
    "masked_lm": "vaswani.tasks.masked_lm",
    "denoising": "vaswani.tasks.denoising",
    "classification": "vaswani.tasks.classification",
    "vision": "vaswani.tasks.vision",
}
TRANSLATION = ("translation", "prefix_lm", "recurrent_translation")  # tasks whose runs translate


def task_of(name: str) -> Task:
    """Returns the task that `config.task` names.

    Raises:
      UserError: there is no such task.
    """
    if name not in MODULES:
        raise UserError(f"config: task is {name!r}, which this version does not know")
    return importlib.import_module(MODULES[name]).TASK

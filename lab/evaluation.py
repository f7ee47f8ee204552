"""Where a measure of a run is added: to the newest evaluation of its test split, so that a record has both."""

from pathlib import Path

from vaswani.errors import UserError
from vaswani.infer.runs import Run
from vaswani.paper.records import newest_evaluation, read_run
from vaswani.run.parameters import params_sha256


def evaluation_file(model_run: Run) -> Path:
    """Returns the file of the newest evaluation of the test split.

    Raises:
      UserError: there is none, or it is of other parameters.
    """
    evaluation = newest_evaluation(read_run(model_run.workdir), "test")
    path = evaluation.lines.with_suffix(".json")
    if evaluation.scores["params_sha256"] != params_sha256(model_run.params):
        raise UserError(
            f"{path}: it is of other parameters than step {model_run.step}; evaluate these first, with python -m infer "
            f"--workdir={model_run.workdir} --split=test, or give its --checkpoint"
        )
    return path

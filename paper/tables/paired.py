"""Compares recorded runs by the paired test of `infer.scores.significance`, from their saved translations."""

from vaswani.data.sources import open_corpus
from vaswani.errors import UserError
from vaswani.files import read_bytes
from vaswani.infer.scores.significance import Comparison, compare
from vaswani.paper.rows import RowRuns, ScoredRun


def read_lines_of(scored: ScoredRun) -> list[str] | None:
    """Returns the translations of an evaluation; None where they were not saved.

    Raises:
      UserError: the file is not UTF-8.
    """
    if not scored.lines.is_file():
        return None
    try:
        return read_bytes(scored.lines).decode().split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise UserError(f"{scored.lines}: damaged, not UTF-8 ({error})") from error


def compare_rows(baseline: RowRuns, system: RowRuns) -> Comparison | None:
    """Compares the runs of the first seed that both have; None without one, or if its translations were not saved.

    Raises:
      UserError: the test set is not on this machine.
    """
    of_baseline, of_system = (
        {scored.run.config["seed"]: scored for scored in row.scored} for row in (baseline, system)
    )
    shared = [seed for seed in of_baseline if seed in of_system]
    if not shared:
        return None
    baseline_lines = read_lines_of(of_baseline[shared[0]])
    system_lines = read_lines_of(of_system[shared[0]])
    if baseline_lines is None or system_lines is None:
        return None
    corpus = open_corpus(of_system[shared[0]].scores["data"])
    references = [reference for _, reference in corpus.pairs()]
    return compare(baseline_lines, system_lines, references, language=corpus.target_language)

"""Whether the code that made a run can be checked out again; what stands in the way is a caveat of the run."""

import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
UNKNOWN = "the commit was not recorded"
DIRTY = "the code had uncommitted changes"
UNREACHABLE = "the commit is not in the repository"
SEVERAL = "launched by several versions of the code"


def caveats(launches: list[dict[str, Any]]) -> list[str]:
    """Returns the doubts about a run with these launches, as in `run.json`; [] if there are none."""
    commits = [launch["git"] or {"commit": "", "dirty": False} for launch in launches]
    distinct = {git["commit"] for git in commits}
    doubts = {
        UNKNOWN: not distinct or "" in distinct,
        DIRTY: any(git["dirty"] for git in commits),
        UNREACHABLE: any(commit and not _in_history(commit) for commit in distinct),
        SEVERAL: len(distinct) > 1,
    }
    return [text for text, applies in doubts.items() if applies]


def history_is_known() -> bool:
    """Returns whether the code is in a git checkout with its whole history, not in a shallow one.

    A repository around an installed copy, such as the project whose .venv it is in, is not the code's.
    """
    is_tracked = _git("ls-files", "--error-unmatch", "paper/provenance.py") is not None
    return is_tracked and _git("rev-parse", "--is-shallow-repository") == "false"


@cache
def _in_history(commit: str) -> bool:
    """Whether HEAD descends from the commit; True as well where git cannot tell."""
    if not history_is_known():
        return True
    return bool(re.fullmatch(r"[0-9a-f]{40,64}", commit)) and _git("merge-base", "--is-ancestor", commit, "HEAD") == ""


def _git(*command: str) -> str | None:
    """Returns git's output; None where it fails."""
    try:
        done = subprocess.run(["git", "-C", ROOT, *command], capture_output=True, text=True)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()

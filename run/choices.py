"""How checkpoints are named: `config.decode.checkpoint`, and --checkpoint. `run.averaging.choose` finds them."""

import re

EMA = "ema"  # the moving average that training keeps, of the latest checkpoint
CHOICES = f"latest, STEP, best, {EMA}, average:N, average:N@MINUTES, average-best:N"
SINGLE = ("latest", "best", EMA)


def averaged(choice: str) -> tuple[str, int, float] | None:
    """Returns "average" or "average-best", how many, and the least minutes between them; None of another choice."""
    match = re.fullmatch(r"(average|average-best):([1-9]\d{0,17})(?:@(\d+(?:\.\d+)?))?", choice)
    if not match or (match[1] == "average-best" and match[3]):
        return None
    return match[1], int(match[2]), float(match[3] or 0)


def is_choice(choice: str) -> bool:
    """Returns whether a choice has one of the forms of `CHOICES`."""
    return choice in SINGLE or choice.isdecimal() or averaged(choice) is not None

"""The points of a study in two stages: first every row chooses one of its options, then fresh seeds are compared.

Each design says in its docstring what is compared, and what would show or refute what.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vaswani.keys import changed_values

STAGES = ("choose", "test")
SEEDS = (1, 2, 3)  # of stage 2, unless a study has more; stage 1 has seed 0


def row_and_option(argument: str, rows: Iterable[str], options: Iterable[Any]) -> tuple[str, Any]:
    """Returns the row and the option that ROW:OPTION names; the option is None of ROW alone.

    Raises:
      ValueError: there is no such row or option.
    """
    row, colon, name = argument.partition(":")
    by_name = {str(option): option for option in options}
    if row not in rows or (colon and name not in by_name):
        raise ValueError(
            f"there is no row {argument!r}; the rows are {', '.join(rows)}, each also as "
            f"{' or '.join(f'ROW:{option}' for option in by_name)}"
        )
    return row, by_name[name] if colon else None


def points(
    stage: str,
    get_config: Callable[[str], Any],
    options: Mapping[str, Iterable[Any]],
    chosen: Mapping[str, Any],
    seeds: Sequence[int] = SEEDS,
) -> list[dict[str, Any]]:
    """Returns the points of a sweep: all rows with every option, or the fresh seeds of each row with what it chose.

    `options` are those of each row; `get_config` takes ROW:OPTION. What a point changes is counted from the config of
    the stage's name.

    Raises:
      ValueError: there is no such stage, or its rows have not chosen yet.
    """
    if stage not in STAGES:
        raise ValueError(f"there is no stage {stage!r}; the stages are {', '.join(STAGES)}")
    before = get_config(stage).to_dict()

    def point(seed: int, row: str, option: Any) -> dict[str, Any]:
        return {"seed": seed, **changed_values(before, get_config(f"{row}:{option}").to_dict())}

    if stage == "choose":
        every_option: dict[Any, None] = {}  # each once, in the order of the rows
        for of_row in options.values():
            every_option |= dict.fromkeys(of_row)
        first_stage = []
        for option in every_option:
            first_stage += [point(0, row, option) for row in options if option in options[row]]
        return first_stage
    lacking = [row for row in options if row not in chosen]
    if lacking:
        raise ValueError(f"stage 1 has not chosen for {', '.join(lacking)}: CHOSEN in the config")
    return [point(seed, row, chosen[row]) for seed in seeds for row in options]

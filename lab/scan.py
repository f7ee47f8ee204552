"""SCAN: commands such as "jump around left twice" and the actions they stand for (Lake and Baroni 2018, section 2).

The grammar has 20,910 commands. The splits:

simple        a random fifth is for the test; the draw is ours, its size the published one
length        training has commands of up to 22 actions, the test the longer ones; length-N is the same with N actions
around-right  training has no "around right"; the test has it, but not after "turn" (Loula et al. 2018)
"""

import itertools
import re
from collections.abc import Iterator

import numpy as np

SPLITS = ("simple", "length", "around-right")
CUTOFF = 22  # the most actions in training, of the published split by length
LONGEST = 48  # actions of any command
_PRIMITIVES = ("walk", "look", "run", "jump")
_SIDES = ("left", "right")


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yields every command of the grammar once, with its actions."""
    sentences = list(_sentences())
    yield from sentences
    for (first, first_actions), (second, second_actions) in itertools.product(sentences, repeat=2):
        yield f"{first} and {second}", [*first_actions, *second_actions]
        yield f"{first} after {second}", [*second_actions, *first_actions]


def _sentences() -> Iterator[tuple[str, list[str]]]:
    """Yields the commands without "and" and "after": each phrase once, twice and thrice."""
    for phrase, actions in _phrases():
        for repeated, count in (("", 1), (" twice", 2), (" thrice", 3)):
            yield phrase + repeated, actions * count


def _phrases() -> Iterator[tuple[str, list[str]]]:
    for verb in _PRIMITIVES:
        yield verb, [f"I_{verb.upper()}"]
    for verb, side in itertools.product(("turn", *_PRIMITIVES), _SIDES):
        turn = f"I_TURN_{side.upper()}"
        action = [] if verb == "turn" else [f"I_{verb.upper()}"]
        yield f"{verb} {side}", [turn, *action]
        yield f"{verb} opposite {side}", [turn, turn, *action]
        yield f"{verb} around {side}", [turn, *action] * 4


def is_split(name: str) -> bool:
    """Returns whether there is such a split: one of `SPLITS`, or length-N that leaves commands to both parts."""
    by_length = re.fullmatch(r"length-([1-9][0-9]?)", name)
    return name in SPLITS or (by_length is not None and int(by_length[1]) < LONGEST)


def pairs(split: str, part: str) -> Iterator[tuple[str, str]]:
    """Yields the commands and actions of a part, train or test, of a split (`is_split`), in an order of no meaning."""
    by_length, _, most = split.partition("-")
    cutoff = int(most) if most.isdecimal() else CUTOFF
    all_commands = list(commands())
    order = np.random.default_rng(0).permutation(len(all_commands))
    fifth = len(all_commands) // 5
    for place, number in enumerate(order.tolist()):
        command, actions = all_commands[number]
        if split == "simple":
            in_test = place < fifth
        elif by_length == "length":
            in_test = len(actions) > cutoff
        elif "turn around right" in command:  # in neither part
            continue
        else:
            in_test = "around right" in command
        if in_test == (part == "test"):
            yield command, " ".join(actions)

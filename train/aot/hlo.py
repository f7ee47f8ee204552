"""Lists the collectives of a compiled program, from its text (the optimised HLO of one device's program).

A collective that the compiler splits over several fused computations, to overlap it with other work, has the same
channel number in all of them and counts once. In a loop body it counts once per iteration if the trip count is
constant, and otherwise once.
"""

import math
import re
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "send")
_COLLECTIVE = re.compile(rf" = (.*?) ({'|'.join(KINDS)})(?:-start)?\(")
_COMPUTATION = re.compile(r"(?:ENTRY )?%([\w.-]+) \(.*\{$")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|branch_computations)=\{?((?:%[\w.-]+(?:, )?)+)")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\]")
_DEFINITION = re.compile(r"\s*(?:ROOT )?%([\w.-]+) = (.*)")


class Loop(NamedTuple):
    """A loop that counts from `start` to `end` - 1; `start` is the number of iterations peeled off before it."""

    start: int
    end: int


class Collective(NamedTuple):
    """One collective, or, in a program for several slices, one array sent across the network.

    `bytes` is the total size of the arrays on a device before an all-reduce, reduce-scatter, all-to-all or send, and
    after an all-gather. `group` is the number of participating devices, or of slices for a send.
    """

    kind: str
    bytes: int
    group: int
    times: int


def collectives(text: str, devices: int, slices: int = 1) -> list[Collective]:
    """Returns the collectives in one device's program, of `devices` devices in `slices` slices."""
    lines, entry = _computations(text)
    times = dict.fromkeys(lines, 0)
    _count(lines, entry, 1, times)
    found: dict[tuple[str, str], Collective] = {}
    for name, body in lines.items():
        for line in body:
            if times[name] and (match := _COLLECTIVE.search(line)):
                channel = re.search(r"channel_id=(\d+)", line)
                collective = _collective(match[2], match[1], line, devices, slices)
                found[match[2], channel[1] if channel else line] = collective._replace(times=times[name])
    return list(found.values())


def loops(text: str) -> list[Loop]:
    """Returns every loop of a program that counts up to a constant."""
    lines, _ = _computations(text)
    found = [_loop(lines, body, line) for body in lines.values() for line in body if " while(" in line]
    return [loop for loop in found if loop is not None]


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """Returns the lines of each computation, and the name of the entry computation."""
    lines: dict[str, list[str]] = {}
    entry = inside = ""
    for line in text.splitlines():
        if opening := _COMPUTATION.match(line):
            inside = opening[1]
            lines[inside] = []
            entry = inside if line.startswith("ENTRY") else entry
        elif inside:
            lines[inside].append(line)
    return lines, entry


def _count(lines: dict[str, list[str]], name: str, runs: int, times: dict[str, int]) -> None:
    """Adds `runs` to the run count of computation `name`, and the corresponding numbers to those it calls."""
    times[name] += runs
    for line in lines[name]:
        loop = _loop(lines, lines[name], line)
        trips = loop.end - loop.start if loop else 1
        for called in re.findall(r"%([\w.-]+)", " ".join(_CALLED.findall(line))):
            _count(lines, called, runs * trips, times)


def _loop(lines: dict[str, list[str]], computation: list[str], line: str) -> Loop | None:
    """Returns the loop on this line of a computation, if it counts up to a constant, as scans do."""
    parts = re.search(r" while\(%([\w.-]+)\).*condition=%([\w.-]+)", line)
    if not parts:
        return None
    condition = "\n".join(lines[parts[2]])
    limit = re.search(r"ROOT .* compare\(.*%([\w.-]+)\), direction=LT", condition)
    end = limit and re.search(rf"%{re.escape(limit[1])} = s32\[\]\S* constant\((\d+)\)", condition)
    return Loop(_start(computation, parts[1]), int(end[1])) if end else None


def _start(computation: list[str], carried: str) -> int:
    """Returns the constant at which a loop's counter, its first carried value, starts; 0 if it is not a constant."""
    defined = {match[1]: match[2] for line in computation if (match := _DEFINITION.match(line))}
    first = re.search(r" tuple\([^%)]*%([\w.-]+)", defined.get(carried, ""))
    counter = defined.get(first[1], "") if first else ""
    while copied := re.search(r" copy\(%([\w.-]+)\)", counter):
        counter = defined.get(copied[1], "")
    constant = re.search(r"^s32\[\]\S* constant\((\d+)\)", counter)
    return int(constant[1]) if constant else 0


def _collective(kind: str, shape: str, line: str, devices: int, slices: int) -> Collective:
    sizes = [_bytes(kind_of, dimensions) for kind_of, dimensions in _ARRAY.findall(shape)]
    if kind == "send":  # the rest is a context and a token
        return Collective(kind, sizes[0], slices, 1)
    group = _group(line, devices)
    return Collective(kind, sum(sizes) * (group if kind == "reduce-scatter" else 1), group, 1)


def _bytes(element: str, dimensions: str) -> int:
    bits = 8 if element == "pred" else int(re.findall(r"\d+", element)[0])
    return math.prod(int(size) for size in dimensions.split(",") if size) * bits // 8


def _group(line: str, devices: int) -> int:
    """Returns how many devices take part, from any of the compiler's notations for them."""
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return listed[1].count(",") + 1
    if counted := re.search(r"replica_groups=\[\d+,(\d+)\]", line):
        return int(counted[1])
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        parts = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", named[2])
        return math.prod(int(part or sizes[axis]) for axis, part in parts)
    if pairs := re.search(r"source_target_pairs=\{(.*?)\}\}", line):
        return pairs[1].count("{")
    return devices

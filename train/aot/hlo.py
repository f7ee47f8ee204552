"""Lists the collectives of a compiled program, from its text (the optimised HLO of one device's program).

A collective that the compiler splits over several fused computations, to overlap it with other work, has the same
channel number in all of them and counts once. In a loop body it counts once per iteration if the trip count is
constant, and otherwise once.
"""

import math
import re
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "send")
_COLLECTIVE = re.compile(rf" = (.*?) ({'|'.join(KINDS)})(-start)?\(")
_COMPUTATION = re.compile(r"(?:ENTRY )?%([\w.-]+) \(.*\{$")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|branch_computations)=\{?((?:%[\w.-]+(?:, )?)+)")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\]")
_LIBRARY_CALL = re.compile(r' custom-call\(.*custom_call_target="([^"]+)"')
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
    by_channel: dict[tuple[str, str], Collective] = {}
    for line, times in _executed(text):
        match = _COLLECTIVE.search(line)
        if not match:
            continue
        shape, kind, start = match.groups()
        if start:
            shape = _started(shape, kind)
        channel = re.search(r"channel_id=(\d+)", line)
        number = channel[1] if channel else line
        collective = _collective(kind, shape, line, devices, slices)
        by_channel[kind, number] = collective._replace(times=times)
    return list(by_channel.values())


def loops(text: str) -> list[Loop]:
    """Returns every loop of a program that counts up to a constant."""
    lines, _ = _computations(text)
    counting = []
    for body in lines.values():
        for line in body:
            loop = _loop(lines, body, line)
            if loop is not None:
                counting.append(loop)
    return counting


def kernels(text: str) -> dict[str, int]:
    """Returns how often one run of a program calls each library function, by the name that the compiler gives it."""
    calls: dict[str, int] = {}
    for line, times in _executed(text):
        match = _LIBRARY_CALL.search(line)
        if match:
            calls[match[1]] = calls.get(match[1], 0) + times
    return calls


def unordered_scatters(text: str) -> int:
    """Returns how many scatters a program runs whose updates may meet in one place, where a GPU adds in any order."""
    found = 0
    for line, times in _executed(text):
        if " scatter(" in line and "unique_indices=true" not in line:
            found += times
    return found


def _executed(text: str) -> list[tuple[str, int]]:
    """Returns the lines of a program that are run, and how often."""
    lines, entry = _computations(text)
    times = dict.fromkeys(lines, 0)
    _count(lines, entry, 1, times)
    return [(line, times[name]) for name, body in lines.items() for line in body if times[name]]


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """Returns the lines of each computation, and the name of the entry computation."""
    lines: dict[str, list[str]] = {}
    entry = ""
    inside = ""
    for line in text.splitlines():
        opening = _COMPUTATION.match(line)
        if opening:
            inside = opening[1]
            lines[inside] = []
            if line.startswith("ENTRY"):
                entry = inside
        elif inside:
            lines[inside].append(line)
    return lines, entry


def _count(lines: dict[str, list[str]], name: str, runs: int, times: dict[str, int]) -> None:
    """Adds `runs` to the run count of computation `name`, and the corresponding numbers to those it calls."""
    times[name] += runs
    for line in lines[name]:
        loop = _loop(lines, lines[name], line)
        trips = loop.end - loop.start if loop else 1
        called = " ".join(_CALLED.findall(line))
        for computation in re.findall(r"%([\w.-]+)", called):
            _count(lines, computation, runs * trips, times)


def _loop(lines: dict[str, list[str]], computation: list[str], line: str) -> Loop | None:
    """Returns the loop on this line of a computation, if it counts up to a constant, as scans do."""
    match = re.search(r" while\(%([\w.-]+)\).*condition=%([\w.-]+)", line)
    if not match:
        return None
    counted = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)  # GPU programs say so
    if counted:
        first = re.search(r'"known_init_step":\{"init":"(\d+)"', line)
        start = int(first[1]) if first else 0
        return Loop(start, start + int(counted[1]))
    carried, condition_name = match.groups()
    condition = "\n".join(lines[condition_name])
    limit = re.search(r"ROOT .* compare\(.*%([\w.-]+)\), direction=LT", condition)
    if not limit:
        return None
    end = re.search(rf"%{re.escape(limit[1])} = s32\[\]\S* constant\((\d+)\)", condition)
    if not end:
        return None
    return Loop(_start(computation, carried), int(end[1]))


def _start(computation: list[str], carried: str) -> int:
    """Returns the constant at which a loop's counter, its first carried value, starts; 0 if it is not a constant."""
    definitions = {}
    for line in computation:
        definition = _DEFINITION.match(line)
        if definition:
            definitions[definition[1]] = definition[2]
    first = re.search(r" tuple\([^%)]*%([\w.-]+)", definitions.get(carried, ""))
    counter = definitions.get(first[1], "") if first else ""
    while copied := re.search(r" copy\(%([\w.-]+)\)", counter):
        counter = definitions.get(copied[1], "")
    constant = re.search(r"^s32\[\]\S* constant\((\d+)\)", counter)
    return int(constant[1]) if constant else 0


def _started(shape: str, kind: str) -> str:
    """Returns the shapes of the results of an asynchronous collective, whose own shape may have the operands first."""
    if shape.startswith("(("):
        _, _, results = shape.partition(")")
        return results
    if kind in ("all-gather", "collective-permute") and shape.startswith("("):
        arrays = [found[0] for found in _ARRAY.finditer(shape)]
        return " ".join(arrays[1:2])  # the first is the operand
    return shape


def _collective(kind: str, shape: str, line: str, devices: int, slices: int) -> Collective:
    sizes = [_bytes(element, dimensions) for element, dimensions in _ARRAY.findall(shape)]
    if kind == "send":  # the rest is a context and a token
        return Collective(kind, sizes[0], slices, 1)
    group = _group(line, devices)
    size = sum(sizes)
    if kind == "reduce-scatter":  # `shape` is that of the result
        size *= group
    return Collective(kind, size, group, 1)


def _bytes(element: str, dimensions: str) -> int:
    bits = 8 if element == "pred" else int(re.findall(r"\d+", element)[0])
    elements = math.prod(int(size) for size in dimensions.split(",") if size)
    return elements * bits // 8


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

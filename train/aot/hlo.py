"""Counts collectives, library calls and memory traffic of a compiled program, from the optimised HLO of one device.

The compiler's own analysis has none of the first two, and in its traffic what a TPU keeps on the chip. What is in a
loop counts once, however often the loop runs. A collective that the compiler splits over several fused computations, to
overlap it with other work, has the same channel number in all of them and counts once.
"""

import math
import re
from collections import Counter
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "send")
_COLLECTIVE = re.compile(rf" = (.*?) ({'|'.join(KINDS)})(-start)?\(")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\]")
_LIBRARY_CALL = re.compile(r' custom-call\(.*custom_call_target="([^"]+)"')
_INSTRUCTION = re.compile(r"\s+(?:ROOT )?(%\S+) = (.*?) ([a-z][a-z-]*)\((.*?)\)(?:,|$)")
_PLACED_ARRAY = re.compile(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\](?:\{([^}]*)\})?")
_STILL = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional"}


class Collective(NamedTuple):
    """One collective, or, in a program for several slices, one array sent across the network.

    `bytes` is the total size of the arrays on a device before an all-reduce, reduce-scatter, all-to-all or send, and
    after an all-gather. `group` is the number of participating devices, or of slices for a send.
    """

    kind: str
    bytes: int
    group: int


def collectives(text: str, devices: int, slices: int = 1) -> list[Collective]:
    """Returns the collectives in one device's program, of `devices` devices in `slices` slices."""
    by_channel: dict[tuple[str, str], Collective] = {}
    computation = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            computation = line
        match = _COLLECTIVE.search(line)
        if not match:
            continue
        shape, kind, start = match.groups()
        if start:
            shape = _result_shapes(shape, kind)
        channel = re.search(r"channel_id=(\d+)", line)
        number = channel[1] if channel else line
        collective = _collective(kind, shape, line, devices, slices)
        if computation.startswith("%all-reduce-scatter"):  # a TPU's program has it as a sum and a slice of it
            collective = collective._replace(kind="reduce-scatter")
        by_channel[kind, number] = collective
    return list(by_channel.values())


def kernels(text: str) -> Counter[str]:
    """Returns how many calls of each library function a program has, by the name that the compiler gives it."""
    return Counter(_LIBRARY_CALL.findall(text))


def traffic(text: str) -> int:
    """Returns the bytes of memory that a program reads and writes: the operands and results of each instruction.

    A fusion is one instruction, and so is a call of a library. What a TPU keeps on the chip has a memory space, such as
    S(1), and does not count. An asynchronous instruction counts where it is done; a copy, at each end in memory.
    """
    inner = set(re.findall(r"\b(?:calls|to_apply)=(%[\w.-]+)", text))  # of fusions, reductions and the like
    moved = 0
    placed: dict[str, str] = {}
    is_inner = False
    for line in text.splitlines():
        if not line.startswith(" "):
            is_inner = line.partition(" ")[0] in inner
        match = _INSTRUCTION.match(line)
        if not match or is_inner:
            continue
        name, shape, kind, operands = match.groups()
        placed[name] = shape
        if kind in _STILL or kind.endswith("-start"):
            continue
        sources = [placed.get(operand, "") for operand in re.findall(r"%[\w.-]+", operands)]
        if kind in ("copy-done", "slice-done"):
            ends = [space for _, dimensions, space in _PLACED_ARRAY.findall(sources[0]) if dimensions]
            moved += size(shape) * sum("S(" not in end for end in ends)
        else:
            moved += sum(_in_memory(part) for part in (shape, *sources))
    return moved


def size(shape: str) -> int:
    """Returns the bytes of all arrays of a shape, as the program writes it."""
    return sum(_bytes(*array) for array in _ARRAY.findall(shape))


def _in_memory(shape: str) -> int:
    """Returns the bytes of those arrays of a shape that are not on the chip."""
    arrays = _PLACED_ARRAY.findall(shape)
    return sum(_bytes(element, dimensions) for element, dimensions, space in arrays if "S(" not in space)


def unordered_scatters(text: str) -> int:
    """Returns how many scatters a program has whose updates may meet in one place, where a GPU adds in any order."""
    return sum(" scatter(" in line and "unique_indices=true" not in line for line in text.splitlines())


def _result_shapes(shape: str, kind: str) -> str:
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
        return Collective(kind, sizes[0], slices)
    group = _group(line, devices)
    size = sum(sizes)
    if kind == "reduce-scatter":  # `shape` is the result's
        size *= group
    return Collective(kind, size, group)


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
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(.*?\)\))? \{([^}]*)\}", line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        parts = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", named[2])
        return math.prod(int(part or sizes[axis]) for axis, part in parts)
    if pairs := re.search(r"source_target_pairs=\{(.*?)\}\}", line):
        return pairs[1].count("{")
    return devices

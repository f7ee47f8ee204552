"""Compiles an update of base or big for an H100 and prints its kernels, their bytes, and the least time of each kind.

    python -m lab.gpu.program --model=base [--flags=--xla_gpu_dot_merger_threshold_mb=0] [--json]

It needs the extra `aot-gpu` and no GPU. The update is that of configs/base.py:en-de:gpu: bfloat16, 97 packed rows of
256. A kernel is one launch: what is in a loop counts as often as the loop runs. Its bytes are those of its operands and
results, of a gather therefore the whole table. Its floor is the longer of two times on an H200, that of its bytes at
full bandwidth and that of its products at the peak; cuDNN's operations are not counted. Without a GPU nothing is
autotuned, so that products and tiles are not the ones that a GPU would choose.
"""

import json
import math
import os
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from vaswani.command import run
from vaswani.files import write_text
from vaswani.train.aot.hlo import size
from vaswani.train.compile import prepare
from vaswani.train.table import Table, as_text

SMALL = 2_000_000  # bytes, below which a kernel is little more than its launch
NO_KERNEL = {"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "partition-id", "iota"}

_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(")
_ARRAY = re.compile(r"\b(pred|[a-z]+\d\w*)\[([\d,]*)\]")
_NAME = re.compile(r"%([\w.\-]+)")


class Instruction(NamedTuple):
    """A line of the program: `rest` is what follows the opening bracket of its operands."""

    name: str
    shape: str
    operation: str
    rest: str

    @property
    def operands(self) -> list[str]:
        """The names of the operands."""
        inside, _, _ = self.rest.partition(")")
        return _NAME.findall(inside)

    def attribute(self, name: str) -> str:
        """Returns the name that an attribute has, such as the computation of a fusion; "" without it."""
        found = re.search(rf"{name}=%?([\w.\-]+)", self.rest)
        return found[1] if found else ""


class Kernel(NamedTuple):
    """One kind of launch: bytes that it reads and writes, and operations of its products."""

    kind: str
    bytes: int
    flops: int


class Program:
    """The optimised HLO of one device."""

    def __init__(self, text: str):
        self.computations: dict[str, list[Instruction]] = {}
        self.shapes: dict[str, str] = {}
        self.entry = ""
        name = ""
        for line in text.splitlines():
            if begins := _COMPUTATION.match(line):
                name = begins[2]
                self.computations[name] = []
                if begins[1]:
                    self.entry = name
            elif found := _INSTRUCTION.match(line):
                instruction = Instruction(*found.groups())
                self.computations[name].append(instruction)
                self.shapes[instruction.name] = instruction.shape

    def kernels(self, computation: str = "") -> Iterator[Kernel]:
        """Yields every launch of a computation, by default of the whole program."""
        for instruction in self.computations[computation or self.entry]:
            operation = instruction.operation
            if operation == "while":
                found = re.search(r'"known_trip_count":\{"n":"(\d+)"', instruction.rest)
                of_body = list(self.kernels(instruction.attribute("body")))
                yield from of_body * (int(found[1]) if found else 1)
            elif operation == "call":
                yield from self.kernels(instruction.attribute("to_apply"))
            elif operation not in NO_KERNEL and not operation.endswith("-done"):
                yield self._kernel(instruction)

    def _kernel(self, instruction: Instruction) -> Kernel:
        inside = self.computations.get(instruction.attribute("calls"), [])
        products = [one for one in (instruction, *inside) if one.operation == "dot" or "matmul" in one.rest]
        touched = size(instruction.shape) + sum(size(self.shapes.get(name, "")) for name in instruction.operands)
        return Kernel(self._kind(instruction, inside, bool(products)), touched, sum(map(self._flops, products)))

    def _kind(self, instruction: Instruction, inside: list[Instruction], has_products: bool) -> str:
        if "__cudnn" in instruction.rest:
            return "attention (cuDNN)"
        if has_products:
            return "products"
        operations = {one.operation for one in inside} or {instruction.operation}
        if operations & {"gather", "scatter", "sort"}:
            return "embeddings"
        if "reduce" in operations:
            return "reductions"
        if operations <= {
            "copy",
            "transpose",
            "slice",
            "concatenate",
            "parameter",
            "bitcast",
            "dynamic-slice",
            "tuple",
        }:
            return "copies"
        return "elementwise"

    def _flops(self, product: Instruction) -> int:
        """Returns 2 x the elements of the result x the length that is summed over."""
        contracted = re.search(r'lhs_contracting_dim(?:ension)?s"?[=:][\[{]([\d,"]*)', product.rest)
        left = self.shapes.get(product.operands[0], "")
        arrays = _ARRAY.findall(left)
        if not contracted or not arrays:
            return 0
        lengths = [int(length) for length in arrays[0][1].split(",")]
        summed = math.prod(lengths[int(axis)] for axis in contracted[1].replace('"', "").split(","))
        _, result = _ARRAY.findall(product.shape)[0]
        return 2 * summed * math.prod(int(length) for length in result.split(",") if length)


def counted(kernels: list[Kernel], peak: float, bandwidth: float) -> dict[str, dict[str, float]]:
    """Counts the kernels of each kind, and all: their number, bytes, operations and floor."""
    kinds = sorted({kernel.kind for kernel in kernels})
    found = {kind: _sums([kernel for kernel in kernels if kernel.kind == kind], peak, bandwidth) for kind in kinds}
    return found | {"all": _sums(kernels, peak, bandwidth)}


def _sums(kernels: list[Kernel], peak: float, bandwidth: float) -> dict[str, float]:
    return {
        "kernels": len(kernels),
        "small": sum(kernel.bytes < SMALL for kernel in kernels),
        "gigabytes": sum(kernel.bytes for kernel in kernels) / 1e9,
        "teraflop": sum(kernel.flops for kernel in kernels) / 1e12,
        "floor": 1e3 * sum(max(kernel.bytes / bandwidth, kernel.flops / peak) for kernel in kernels),
    }


def table(name: str, rows: dict[str, dict[str, float]], notes: list[str]) -> Table:
    """Returns the table of kinds, or of programs."""
    head = (name, "kernels", f"of them below {SMALL // 10**6} MB", "GB", "TFLOP", "floor, ms")
    lines = [
        (
            of,
            f"{one['kernels']:,}",
            f"{one['small']:,}",
            *(f"{one[key]:.2f}" for key in ("gigabytes", "teraflop", "floor")),
        )
        for of, one in rows.items()
    ]
    return Table("program", "What the compiled program says", head, lines, notes)


def compiled_text(model: str) -> tuple[str, int]:
    """Returns the program of an update, and the bytes of its temporaries."""
    from vaswani.configs import base, big
    from vaswani.tasks.config import model_config
    from vaswani.train.aot import programs

    cfg = {"base": base, "big": big}[model].get_config("en-de:gpu")
    _, devices = programs.open_topology("h100:1", slices=1)
    mesh = programs.topology_mesh(cfg.mesh, devices, slices=1)
    config: Any = model_config(cfg, cfg.data.vocab_size)
    length = cfg.data.pack_length
    update = programs.train_step(cfg, config, mesh, cfg.data.tokens_per_batch // length, length)
    return update.step.as_text(), update.facts["memory"]["temporaries"]


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    prepare()
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {options.flags}".strip()
    from vaswani.train.aot.hardware import CHIPS, GIB

    text, temporaries = compiled_text(options.model)
    if options.keep:
        write_text(Path(options.keep), text)
    chip = CHIPS["h200"]
    kinds = counted(list(Program(text).kernels()), chip.peak, chip.memory_bandwidth)
    # The first lines of programs.jsonl are of the loss in two passes; today's code has one.
    about = {"model": options.model, "flags": options.flags, "jax": version("jax"), "one_pass": True}
    about["temporaries_gib"] = temporaries / GIB
    print(json.dumps(about | {"kinds": kinds}) if options.json else as_text(table("kind", kinds, [str(about)])))


if __name__ == "__main__":
    flags.DEFINE_enum("model", "base", ["base", "big"], "of the paper")
    flags.DEFINE_string("flags", "", "more for XLA_FLAGS")
    flags.DEFINE_bool("json", False, "print it as JSON, a line of lab/gpu/programs.jsonl")
    flags.DEFINE_string("keep", "", "file for the program's text")
    run(main, hint="the model is given as --model=base")

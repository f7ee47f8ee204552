"""Is attention faster than recurrence? An update of a language model in float32 with each layer, by length."""

from typing import Any

from lab.benchmarks.cost import growth
from lab.benchmarks.cost.sizes import Size
from lab.gpu.sitting import Context
from lab.gpu.step import timed

LAYERS = ("attention", "recurrent", "convolution")
LENGTHS = (64, 128, 256, 512, 1_024, 2_048)
POSITIONS = 16_384  # of an update: the longer its rows, the fewer
MODEL = Size(d_model=512, vocabulary=8_192, stacks=1)


def update(context: Context, mixer: str) -> dict[str, Any]:
    """Measures an update at each length, with this layer in the place of self-attention."""
    model = MODEL._replace(mixer=mixer)
    count = len(LENGTHS)
    positions = POSITIONS
    if context.tiny:
        model = model._replace(d_model=16, vocabulary=512)
        count = 2
        positions = 128
    runs = {}
    for length in LENGTHS[:count]:
        program = growth.update(model._replace(length=length, rows=positions // length))
        updates, windows = (1, 1) if context.tiny else (10, 3)
        seconds = timed(program.run, updates, windows)
        runs[f"n {length:,}"] = {"milliseconds": 1e3 * seconds, "memory_gib": program.memory / 2**30}
    return {"runs": runs}

"""Are residual connections and layer norms critical? Depth x norm x with or without residual connections.

Readers of the paper say that "residual connections and layer normalisation are critical for training stability", and
that the residual connection "prevents the collapse of gradients". Here both are taken out, one and together.

The design, fixed before the first run (pilots with seeds 98 and 99, of base alone, set the sizes):

- Cells: 2, 6 or 12 layers in each stack; post-norm, pre-norm or no norm; with residual connections or without: 18.
  Base is the paper's layer with 2 layers, post-norm with residual connections.
- Models: d_model 32, h 4, d_k 8, d_ff 64, no dropout. Initial values are the paper's for every cell.
- Corpus: 4,000 pairs of the built-in grammar, 1,000 subwords; 300 updates of 512 tokens; the cosine schedule with a
  peak of 0.01 and a warm-up of 40 %, the same for every cell: nothing is chosen, and no cell is tuned.
- Seeds: 0 to 4 of base, 0 to 2 of every other cell. A seed decides initial values and the order of the batches.
- Measured at the first update: the norm of the mean loss's gradient with respect to the parameters of every layer.
  Measured at the end: log perplexity on 300 pairs of validation, after the last update. A run whose loss or gradient is
  not finite has ended there, and counts as infinite perplexity.
- A seed has not trained if it ends with more than twice the mean perplexity of base (the mean of the logarithms). "Did
  not train" is the verdict of a cell of which no seed has; "trains" of one of which all have; "some seeds" else.
- Cells that train are compared with base by Dunnett's test, log perplexity, pooled variance, 5 % for all of them
  together; a cell that does not train has no place in it.

1. "Residual connections are critical" is shown if with 6 and with 12 layers there is a norm with which the cell with
   residual connections trains, and no cell without them does, not with any norm nor in any seed. Refuted if with 6 and
   with 12 layers some cell without them trains. Else neither.
2. "Layer normalisation is critical" is shown if with 6 and with 12 layers, residual connections in place, post-norm or
   pre-norm trains and the cell without norm does not, in no seed. Refuted if the cell without norm trains with both
   depths. Else neither.
3. "Residual connections prevent the collapse of gradients": the gradient's norm of the encoder's first layer, divided
   by that of the encoder's last layer, at the first update, with 12 layers. Shown if for all three norms it is below
   0.1 without residual connections and at least 0.1 with them, in every seed. Refuted if for no norm it is so. Else
   neither.

Expected: 1 shown; 2 neither, since 6 layers may train without norms at these initial values and 12 not; 3 neither:
without norms the gradient collapses, but a norm after f(x) scales it up again.

What this cannot show: that no rate and no initial values would train the cells that fail. It is one recipe.

    python -m lab.residuals --workdir=runs/residuals       # 56 runs; those that the folder has are not run again
"""

import itertools
from typing import NamedTuple

from ml_collections import ConfigDict

from vaswani.configs.common import default

DEPTHS = (2, 6, 12)
NORMS = ("post", "pre", "none")


class Cell(NamedTuple):
    """One of the 18 models."""

    layers: int
    norm: str
    residual: bool

    @property
    def name(self) -> str:
        """As in "6 layers, post-norm, no residual connections", but short."""
        return f"{self.layers}-{self.norm}" + ("" if self.residual else "-without")


BASE = Cell(2, "post", True)
CELLS = [Cell(*of) for of in itertools.product(DEPTHS, NORMS, (True, False))]
APART = 2  # times base's perplexity: a seed above has not trained
COLLAPSED = 0.1  # first layer's gradient by the last layer's


def seeds(cell: Cell) -> range:
    """Returns the seeds of a cell."""
    return range(5 if cell == BASE else 3)


def get_config(cell: Cell, seed: int) -> ConfigDict:
    """Returns the run of a cell and a seed."""
    cfg = default()
    cfg.seed = seed
    cfg.steps = 300
    cfg.data.train, cfg.data.valid = "grammar:train:4000", "grammar:valid:300"
    cfg.data.update({"vocab_size": 1_000, "tokens_per_batch": 512, "max_length": 32})
    cfg.data.update({"batching": "pack", "pack_length": 32, "buckets": (32,)})
    cfg.model.update({"N": cell.layers, "norm": cell.norm, "residual": cell.residual})
    cfg.model.update({"d_model": 32, "d_ff": 64, "h": 4, "d_k": 8, "d_v": 8, "P_drop": 0.0})
    cfg.model.scan_layers = True  # one layer is compiled in place of 12
    cfg.optim.update({"schedule": "cosine", "lr": 0.01, "warmup": 120})
    return cfg

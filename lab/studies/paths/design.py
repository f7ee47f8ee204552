"""How far do gradients reach? Language models with self-attention and what can replace it, rows of 128 tokens.

Section 4 of the paper: "The shorter these paths between any combination of positions in the input and output sequences,
the easier it is to learn long-range dependencies." A path is short so that a gradient survives it. Here is measured
what arrives: the norm of d loss(t) / d x(s), x(s) being the vector of token s that the first layer reads, by the
distance t - s, after training.

The argument is attention, restricted, recurrent or convolution.

Ours:  shown for all three layers; README.md says more.
Cost:  20 runs of about a minute on one CPU core.

The design, fixed before the first run:

- Model: four layers, pre-norm, d_model 64, d_ff 256, 4 heads, 1,000 subwords, no dropout; 300 updates of 1,024 tokens
  of the grammar's English, in rows of 128 that begin anywhere. The restricted layer sees 9 positions and the
  convolution's kernel has 9, so four of either reach back 32 positions and not one further. The recurrent layer is an
  LSTM.
- One rate for all, 0.005, and a warm-up of 50. Nothing is tuned; the perplexity of each stands beside its gradients.
- Five seeds, 1 to 5, of every layer.
- The measure: the mean norm over the first 16 rows of the test text and all t (`python -m lab.gradients`). The fall of
  a run is the logarithm to base 10 of the mean at distances 1 and 2, less that of the mean at distances 17 to 32.
- A layer's gradients are shown to fall more than attention's if its falls are larger by Dunnett's test against
  attention, two-sided, with the variance that all four layers share and 5 % for the three comparisons together; refuted
  if they are smaller by the same test; else neither.
- That four layers of the two local kinds have no gradient at all beyond 32 positions is so by construction, and not a
  claim.
- Expected: all three are shown. The LSTM's fall is the largest, two orders of magnitude or more, for its path has 17 to
  32 cells; attention's is less than one and a half.

    for layer in attention restricted recurrent convolution; do for seed in 1 2 3 4 5; do
        run=runs/paths/$layer-$seed
        python -m train --config=lab/studies/paths/design.py:$layer --workdir=$run --config.seed=$seed &&
        python -m infer --workdir=$run --split=test && python -m lab.gradients --workdir=$run &&
        python -m lab.results --workdir=$run --name=paths/$layer-seed$seed
    done; done
    python -m lab paths --plot=paths.svg
"""

from ml_collections import ConfigDict

from lab.studies.extrapolation.design import get_config as extrapolation

LAYERS = ("attention", "restricted", "recurrent", "convolution")
SEEDS = (1, 2, 3, 4, 5)
LENGTH = 128
SEEN = 9  # positions that a local layer sees: its own and eight before it


def get_config(layer: str = "attention") -> ConfigDict:
    """Returns the run of a layer; raises `ValueError` if it is none of `LAYERS`."""
    if layer not in LAYERS:
        raise ValueError(f"there is no row {layer!r}; the rows are {', '.join(LAYERS)}")
    cfg = extrapolation()  # pre-norm, 300 updates, rows that begin anywhere
    cfg.data.tokens_per_batch = 1_024
    cfg.data.pack_length = LENGTH
    cfg.model.max_positions = 1024  # of learned positions; there are none
    cfg.model.mixer = layer
    cfg.model.neighbours = cfg.model.kernel_width = SEEN
    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 4, 64, 256
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 16, 16
    return cfg

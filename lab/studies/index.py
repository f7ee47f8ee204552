"""The studies, in the order of lab/docs/tables.md, and the question of each, which --help shows."""

import importlib
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.studies.study import Study  # which loads jax

STUDIES = {  # by the name of its folder
    "layers": "what can replace self-attention",
    "extrapolation": "positions beyond the training length",
    "longer": "a translator on sentences longer than in training",
    "scan": "new combinations of known commands",
    "scan_length": "outputs longer than any in training",
    "scaling": "a law fitted to model sizes and amounts of data",
    "families": "models built from the same blocks",
    "second": "Table 3 scaled down, second design",
    "bottleneck": "how much of a long sentence one vector holds",
    "scores": "why dot products are divided by sqrt(d_k)",
    "distance": "whether distant words matter more to some layers",
    "paths": "how far gradients reach",
    "depth": "deep encoder, shallow decoder",
    "heads": "how many positions a head averages, by the number of heads",
    "forcing": "what label smoothing does under the model's own prefixes",
    "norms": "where post-norm fails to start",
    "dropout": "dropout at one place at a time",
    "mup": "whether the best learning rate stays the same as a model grows",
    "optimisers": "which optimiser is the fastest in the first 300 updates",
    "g2p": "from letters to phones in ten languages",
    "public_logs": "training curves that strangers published",
    "bleu": "what lowers BLEU, and how much text a model needs",
}


@cache
def studies() -> dict[str, "Study"]:
    """Loads every study: `STUDY` in lab/studies/NAME/study.py."""
    return {name: importlib.import_module(f"lab.studies.{name}.study").STUDY for name in STUDIES}

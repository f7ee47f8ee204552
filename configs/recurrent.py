"""The quickstart's translation by recurrent networks: with one fixed vector, additive or dot-product attention.

    python -m train --config=configs/recurrent.py:additive --workdir=runs/recurrent
    python -m infer --workdir=runs/recurrent --split=test
    python -m infer.attention_maps --workdir=runs/recurrent --source="The dog sleeps." --output=attention.png

Each has one layer of LSTMs, and as many parameters as the quickstart's model to within 1 %.

Ours:  lab/studies/bottleneck/README.md, with other learning rates.
Cost:  three to five minutes on one core of a shared machine.
"""

from ml_collections import ConfigDict

from vaswani.configs.quickstart import get_config as quickstart

WIDTHS = {"fixed": 218, "additive": 192, "dot": 218}  # d_model, which two networks share where there is attention


def get_config(kind: str = "additive") -> ConfigDict:
    """Returns the run; `kind` is what the decoder knows of the source, see model/baselines/recurrent_translator.py.

    Raises:
      ValueError: there is no such kind.
    """
    if kind not in WIDTHS:
        raise ValueError(f"there is no kind {kind!r}; the kinds are {', '.join(WIDTHS)}")
    cfg = quickstart()
    cfg.task = "recurrent_translation"
    cfg.model.recurrent = kind
    cfg.model.positions = "none"
    cfg.model.N = 1
    cfg.model.d_model = WIDTHS[kind]
    cfg.optim.clip_norm = 5.0  # Sutskever et al.'s
    return cfg

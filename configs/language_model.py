"""A small language model of the grammar's English.

python -m train --config=configs/language_model.py --workdir=runs/language_model
python -m infer.generate --workdir=runs/language_model --prompt="The dog" --samples=3
"""

from ml_collections import ConfigDict

from vaswani.configs.quickstart import get_config as quickstart


def get_config() -> ConfigDict:
    """Returns the run."""
    cfg = quickstart()
    cfg.task = "language_model"
    for split, count in (("train", 40_000), ("valid", 500), ("test", 1_000)):
        cfg.data[split] = f"lines:grammar:{split}:{count}"
    cfg.data.vocab_size = 1_000
    cfg.loss.eps_ls = 0.0
    cfg.eval.bleu_sentences = 0
    return cfg

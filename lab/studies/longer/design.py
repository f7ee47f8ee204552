"""Does a translator extrapolate? `configs/quickstart.py` with other positions, on sentences twice as long as its own.

`builtin:quickstart` was trained on sentences of up to 30 words a side. On sentences of 31 to 60 by the same rules
(`grammar:longer`) it falls from 97.4 to 10 BLEU. Section 3.5 of the paper hoped that sinusoids "may allow the model to
extrapolate to sequence lengths longer than the ones encountered during training".

The argument is one of `POSITIONS`.

The design, fixed before the first run:

- Runs: the recipe of `configs/quickstart.py`, seeds 3 to 5 of each kind of positions; nothing is chosen.
- Measured: sacreBLEU on 500 sentences of `grammar:longer`, beam 4; on short sentences, that of the last validation.
- Four claims, by seed: a kind has more BLEU on the long sentences than sinusoids. Each is shown or refuted by the sign
  of its mean difference if p of a two-sided t-test is below 5 %, by Holm for the four; else neither.
- Expected: ALiBi is shown, since its language models hardly change beyond the training length
  (lab/studies/extrapolation); RoPE is shown, with less; T5's biases and a learned table are neither. On short sentences
  all are alike, to a point of BLEU.
- Not told apart: a long sentence has more clauses, too, and deeper ones. No kind will come near what it has on short
  sentences, and the study cannot say which part positions have in that.

Ours:  the table is in lab/docs/tables.md, what it says in README.md.

    for seed in 3 4 5; do for positions in sinusoidal learned rope alibi t5; do
        run=runs/longer/$positions-$seed
        python -m train --config=lab/studies/longer/design.py:$positions --workdir=$run --config.seed=$seed &&
        python -m infer --workdir=$run --split=test &&
        python -m lab.results --workdir=$run --name=longer/$positions-seed$seed
    done; done
    python -m lab longer --plot=longer.svg
"""

from ml_collections import ConfigDict

from vaswani.configs.quickstart import get_config as quickstart

PAPER = "sinusoidal"
POSITIONS = (PAPER, "learned", "rope", "alibi", "t5")
SEEDS = (3, 4, 5)


def get_config(positions: str = PAPER) -> ConfigDict:
    """Returns the run of a kind of positions; raises `ValueError` if it is none of `POSITIONS`."""
    if positions not in POSITIONS:
        raise ValueError(f"there is no row {positions!r}; the rows are {', '.join(POSITIONS)}")
    cfg = quickstart()
    cfg.data.test = "grammar:longer:500"
    cfg.model.positions = positions
    return cfg

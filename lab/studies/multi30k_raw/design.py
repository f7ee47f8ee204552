r"""Multi30k with the published recipe, from raw text: what is the published files' own segmentation worth?

Published: nothing. The recipe, on the published files, is that of configs/multi30k_published.py.
Ours:      40.62, 40.68 and 40.64 BLEU of lower-cased tokens with seeds 0, 1 and 2; mean 40.65, with a t interval of
           0.08 on either side. Published minus raw, seed by seed, both by sacremoses' tokens: -0.33, +0.01 and +0.25;
           mean -0.02, with 0.73 on either side, p = 0.90. By the rule below: neither shown nor refuted, as expected;
           but the mean difference was expected above 0. Patience ended the runs after 5,940, 5,760 and 6,300 updates.
Cost:      143, 159 and 132 minutes on one AMD EPYC core with AVX-512, beside much other work.

The design, fixed before the first run:

- All but the text is that of configs/multi30k_published.py, the size of the vocabulary and seeds 0 to 2 among it. The
  text is the raw one of configs/multi30k.py, lower-cased, in subwords of sentencepiece: no Moses tokens, and no merges
  that were learned by subword-nmt.
- Measure: BLEU of lower-cased tokens on test_2016_flickr. The published files' references are the raw ones, tokenised
  and lower-cased, in 999 of 1,000 lines, so that both texts are scored against the same tokens.
- The published segmentation is shown to be better if the difference (published minus raw), seed by seed, has a
  two-sided p below 0.05 and is positive; refuted if it is negative with such a p; else neither. No verdict before all
  three seeds.
- Expected: neither; the difference is between 0 and 0.5. configs/multi30k.py has 39.87 from raw text, and the first
  seed of the published files 40.28, but its recipe differs, too.

    python -m data.download multi30k
    for seed in 0 1 2; do
        python -m train --config=lab/studies/multi30k_raw/design.py --workdir=runs/multi30k_raw/$seed \
            --config.seed=$seed &&
        python -m infer --workdir=runs/multi30k_raw/$seed --split=test
    done

lab/studies/multi30k_raw/design.py:FOLDER reads the raw files from another folder.
"""

from ml_collections import ConfigDict

from vaswani.configs.multi30k import get_config as raw
from vaswani.configs.multi30k_published import get_config as published

SEEDS = (0, 1, 2)


def get_config(folder: str = "") -> ConfigDict:
    """Returns the config for the raw corpus in `folder`."""
    text = raw(folder).data
    cfg = published()
    cfg.data.train, cfg.data.valid, cfg.data.test = text.train, text.valid, text.test
    cfg.data.lowercase = True
    cfg.data.units = "subwords"
    cfg.data.joiner = ""
    return cfg

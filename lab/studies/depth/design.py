"""Deep encoder, shallow decoder: ten layers and two beside six and six, at equal parameters.

A decoder runs once for each word that it writes, an encoder once for a sentence. Kasai et al. 2021, "Deep Encoder,
Shallow Decoder" (arXiv 2006.10369), moved layers from the one to the other: the translations stayed as good, and
were made faster. Here is that in small.

The argument is 6+6 or 10+2: layers of the encoder, and of the decoder.

Ours:  10+2 is 1.79 times as fast, and not as good: worse by 13 BLEU points. README.md says more.
Cost:  10 runs of 2 minutes on one core; of 2 to 31 on ours, which other work shared.

The design, fixed before the first run:

- Model and corpus are those of `configs/ablations.py:base:small`, d_model 64 and 3,000 pairs of the grammar, but for
  pre-norm on both sides, since post-norm of such depth did not start in lab/studies/norms, and the layers. A layer of
  the decoder has 8 d_model^2 + 2 d_model d_ff parameters and one of the encoder 4 d_model^2 + 2 d_model d_ff, so 10+2
  gets a d_ff of 299 in place of 256: then the two have equally many parameters, to within 0.1 %.
- 500 updates with a cosine schedule, a warm-up of 200 and a peak of 0.006, which is about that of base:small, alike for
  both. Two pilots with seed 98, judged on validation, set the sizes: 6+6 with base:small's schedule had a perplexity of
  7.1 after 200 updates, the end of its warm-up, and 10+2 with a cosine schedule, a warm-up of 100 and a peak of 0.005
  one of 11.5 after 200 and 4.4 after 400; an update of either took 0.18 seconds of the processor. Nothing else was
  chosen.
- Five seeds, 1 to 5, of each. Scored are 500 sentences of the test split, which no pilot has seen, with the paper's
  beam of 4 and alpha of 0.6.
- BLEU: the difference of the two means, by Student's t test of two groups with pooled variance. That 10+2 translates as
  well is shown if the 90 % interval lies wholly above -1 BLEU (one-sided, at 5 %); refuted if it lies wholly below;
  else neither. The 95 % interval of the difference stands beside it.
- Speed: sentences for each second of the processor in which the model translates the test split, on one core, after
  compilation. The two runs of a seed translate in turn in one process, three rounds, and the median of each counts
  (`python -m lab.studies.depth.speed`). That 10+2 is faster is shown if the 95 % t interval over the seeds of the
  ratio, taken of its logarithm, lies wholly above 1; refuted if it lies wholly below; else neither.
- Expected: both are shown. In matrix products a search with four beams needs 1.5 times as many operations with 6+6 as
  with 10+2, and a search this small spends much of its time, in each layer of the decoder, on what is not a product: so
  a ratio between 1.5 and 2.5, less than the 3 of the decoders' depths.

    for seed in 1 2 3 4 5; do
        for layers in 6+6 10+2; do
            run=runs/depth/$layers-$seed
            python -m train --config=lab/studies/depth/design.py:$layers --workdir=$run --config.seed=$seed &&
            python -m infer --workdir=$run --split=test
        done
        python -m lab.studies.depth.speed --workdir=runs/depth/6+6-$seed --workdir=runs/depth/10+2-$seed
    done
    for seed in 1 2 3 4 5; do for layers in 6+6 10+2; do
        python -m lab.results --workdir=runs/depth/$layers-$seed --name=depth/$layers-seed$seed
    done; done
    python -m lab depth --plot=depth.svg

Added after the result: one pair, seed 1, with --config.steps=1200, --config.checkpoint.every=1200 and
--config.eval.every=300, recorded as depth/longer-6+6-seed1 and depth/longer-10+2-seed1. No rule speaks of it.
"""

from ml_collections import ConfigDict

from vaswani.configs.ablations import get_config as ablation

EVEN, SHALLOW = "6+6", "10+2"
ROWS = {EVEN: (6, 6), SHALLOW: (10, 2)}  # layers of the encoder and of the decoder
D_FF = {EVEN: 256, SHALLOW: 299}
SEEDS = (1, 2, 3, 4, 5)
MARGIN = 1.0  # BLEU


def get_config(row: str = EVEN) -> ConfigDict:
    """Returns the run of a row; raises `ValueError` if it is none of `ROWS`."""
    if row not in ROWS:
        raise ValueError(f"there is no row {row!r}; the rows are {', '.join(ROWS)}")
    cfg = ablation("base:small")
    cfg.steps = 500
    cfg.data.test = "grammar:test:500:{en,de}"
    cfg.model.norm = "pre"
    cfg.model.N_encoder, cfg.model.N_decoder = ROWS[row]
    cfg.model.d_ff = D_FF[row]
    cfg.optim.schedule, cfg.optim.lr, cfg.optim.warmup = "cosine", 0.006, 200
    cfg.checkpoint.every = cfg.steps
    cfg.eval.every = cfg.steps // 5
    return cfg

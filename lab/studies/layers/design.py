"""What can replace self-attention? Earlier and later layers, at equal parameters, on the same corpus.

The argument is attention, restricted, linear, recurrent or convolution. The last two have a narrower feed-forward
network, so that all have as many parameters as the first, to within 0.1 %.

Ours:  three seeds of each, in lab/docs/tables.md; what they show is in README.md.
Cost:  1 to 6 minutes each on one core of a shared machine.

    for seed in 0 1 2; do for mixer in attention restricted linear recurrent convolution; do
        run=runs/layers/$mixer-$seed
        python -m train --config=lab/studies/layers/design.py:$mixer --workdir=$run --config.seed=$seed &&
        python -m infer --workdir=$run --split=test
    done; done
    for seed in 0 1 2; do for mixer in attention restricted linear recurrent convolution; do
        python -m lab.results --workdir=runs/layers/$mixer-$seed --name=layers/$mixer-seed$seed
    done; done
    python -m lab layers --plot=layers.svg
"""

from ml_collections import ConfigDict

from vaswani.configs.quickstart import get_config as quickstart

# d_ff of each: a recurrent layer has 8 d_model^2 parameters in the decoder and 6 in the encoder, a convolution of width
# 3 and its gate 6 in either, attention 4.
D_FF = {"attention": 512, "restricted": 512, "linear": 512, "recurrent": 319, "convolution": 384}


def get_config(mixer: str = "attention") -> ConfigDict:
    """Returns the run of a mixer; raises `ValueError` if it is none of `D_FF`."""
    if mixer not in D_FF:
        raise ValueError(f"there is no row {mixer!r}; the rows are {', '.join(D_FF)}")
    cfg = quickstart()
    cfg.steps = 300
    cfg.data.tokens_per_batch = 2_048
    cfg.model.mixer, cfg.model.d_ff = mixer, D_FF[mixer]
    cfg.model.neighbours = 5  # sentences have a dozen subwords
    cfg.optim.warmup = 50
    cfg.checkpoint.every = 300
    cfg.eval.every = 60
    cfg.eval.bleu_sentences = 0
    cfg.decode.update({"checkpoint": "latest", "beam": 1, "alpha": 0.0})
    return cfg

"""Multi30k English-German as published: the published files and recipe, scored on test2016.

Published: 41.02 BLEU of lower-cased tokens, one run (Wu et al. 2021, "Good for Misconceived Reasons", arXiv 2105.14462,
           the text-only "tiny" model; code and files: LividWo/Revisit-MMT, commit dc368d0).
Ours:      40.28, 40.72 and 40.94 with seeds 0, 1 and 2; mean 40.65, with a t interval of 0.84 on either side. The test
           sentences by themselves have one of 1.6 on either side of each score (`sacrebleu --confidence`). 41.02 is
           within both. Patience ended the runs after 5,369, 4,543 and 7,493 updates, best on validation at 4,779, 3,953
           and 6,903.
Cost:      81 minutes on two AMD EPYC cores with AVX-512, which other work kept busy at times; 111 and 186 on one of
           them, the last while much other work ran.
Predicted: before the first run: the mean of three seeds is 40.7, with the seeds 0.3 to 0.5 apart: within the interval
           of the test sentences (1.6 on either side), and more likely below 41.02 than above. configs/multi30k.py has
           39.87, and 40.17 after as many tokens, with its own subwords and a rate that decays to zero. New here, and
           each worth something: the segmentation of the references, an average taken while the rate is still high,
           batches of twice the size. But a published number is the best of what its authors tried, so it lies above
           their own mean more often than below it. Below 40.0, something of the recipe is missing. Patience does not
           end a run before update 6,000: with a dropout of 0.3 the validation loss falls slowly for long. The mean is
           as predicted. Neighbouring seeds are 0.44 and 0.22 apart, the latter less than predicted. Patience ended two
           of them earlier.

    python -m data.download multi30k_published
    for seed in 0 1 2; do
        python -m train --config=configs/multi30k_published.py --workdir=runs/multi30k_published/$seed \
            --config.seed=$seed &&
        python -m infer --workdir=runs/multi30k_published/$seed --split=test
    done

The files are {train,valid,test.2016}.{en,de} of the repository above, lower-cased, Moses-tokenised and segmented by
subword-nmt; configs/multi30k_published.py:FOLDER reads them, plain or .gz, from another folder. The score to compare is
`bleu_as_is`: output and references with their `@@ ` removed. XLA_FLAGS=--xla_cpu_multi_thread_eigen=false and
`taskset -c 0` keep a run to one core.

The recipe: 4+4 layers, post-norm, biases in attention, layer norm's epsilon 1e-5; fairseq's inverse_sqrt, from 1e-7 to
5e-3 at update 2,000; Adam (0.9, 0.98) with epsilon 1e-8, clipping at 25, smoothing 0.1, dropout 0.3 only of embeddings
and sub-layers, batches of 8,192 padded tokens of like length, at most 8,000 updates, patience of 10 epochs, the average
of the last 10, beam 5 and log p / n. What differs, as far as fairseq's defaults tell: its patience is with the smoothed
validation loss, ours with the nll; its queries, keys and values begin smaller by a factor of sqrt(2), with biases that
are not 0; its outputs may be longer than the source by more than 50 tokens; it has 62 updates an epoch.
"""

from ml_collections import ConfigDict

from vaswani.configs.common import default
from vaswani.data.corpora import corpus_folder


def get_config(folder: str = "") -> ConfigDict:
    """Returns the config for the corpus in `folder`."""
    folder = folder or corpus_folder("multi30k_published")
    cfg = default()
    cfg.steps = 8_000

    cfg.data.train = f"text:{folder}/train.{{en,de}}"
    cfg.data.valid = f"text:{folder}/valid.{{en,de}}"
    cfg.data.test = f"text:{folder}/test.2016.{{en,de}}"
    cfg.data.units = "words"
    cfg.data.joiner = "@@"
    cfg.data.vocab_size = 9_712  # every token of the training text, and the four special symbols
    cfg.data.max_length = 64  # the longest training sentence has 52 tokens: none is dropped
    cfg.data.tokens_per_batch = 8_192
    cfg.data.buckets = (8, 10, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 64)

    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 4, 128, 256
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 32, 32
    cfg.model.P_drop = 0.3
    cfg.model.biases = True
    cfg.model.norm_epsilon = 1e-5
    cfg.model.dropout_bits = "hash"

    cfg.optim.schedule = "inverse_sqrt"
    cfg.optim.lr = 5e-3
    cfg.optim.warmup = 2_000
    cfg.optim.warmup_from = 1e-7
    cfg.optim.eps = 1e-8
    cfg.optim.clip_norm = 25.0

    cfg.eval.every_epochs = cfg.checkpoint.every_epochs = 1
    cfg.eval.bleu_sentences = 0
    cfg.eval.patience = 10
    cfg.checkpoint.keep_last = 10
    cfg.decode.beam = 5
    cfg.decode.length_penalty, cfg.decode.alpha = "power", 1.0
    cfg.decode.checkpoint = "average:10"
    return cfg

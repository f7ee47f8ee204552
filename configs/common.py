"""Every config key, defined once, with its unit and the reason for its default.

A config file starts from `default()`, changes what differs and documents itself. The defaults are the paper's base
model (Table 3, row "base") and its recipe (section 5); every departure from the paper is a key that is off here.
"""

from ml_collections import ConfigDict


def default() -> ConfigDict:
    """Returns the paper's base model and recipe; a config file sets the corpora of `data.*`, which are empty here."""
    cfg = ConfigDict()
    cfg.seed = 0  # all randomness (parameters, shuffling, dropout) derives from this one integer
    # translation | language_model | masked_lm | prefix_lm | recurrent_translation | denoising | classification | vision
    cfg.task = "translation"
    cfg.steps = 100_000  # parameter updates; section 5.2 (300,000 for big)

    cfg.data = ConfigDict()
    cfg.data.train = ""  # corpus specs (data/sources.py lists them): pairs, source language first, or a text
    cfg.data.valid = ""  # for validation during training
    cfg.data.test = ""  # scored only after training
    cfg.data.cache = ".cache/data"  # folder of prepared corpora, shared by runs; keyed by content, safe to delete
    cfg.data.vocab_size = 37_000  # subwords (or symbols, with four special ones) of source and target; section 5.1
    # False: separate vocabularies, each of `vocab_size`, and separate embeddings for source and target; the
    # softmax may still be tied to the target's (model.tie_embeddings).
    cfg.data.share_vocabulary = True
    # For words and characters: minimum count in data.train to be in the vocabulary; rarer ones are unknown.
    cfg.data.min_frequency = 1

    # Units: subwords | words (between white space, for text that is already segmented) | characters; or one for the
    # source and one for the target, as "characters,words". Words and characters are taken as they are: the vocabulary
    # holds the most frequent ones of data.train, or all of them if data.vocab_size is 0.
    cfg.data.units = "subwords"
    # For text of subword-nmt "@@": after decoding, a word that ends in it is joined to the next.
    cfg.data.joiner = ""

    cfg.data.tokenizer = ""  # a tokenizer.model to reuse; "" makes one of data.train
    # For text that is cut into subwords: nfkc (sentencepiece's nmt_nfkc: full-width letters and punctuation become
    # ASCII, some invisible characters spaces) | plain_nfkc (only Unicode's NFKC, for Persian and others that write
    # U+200C) | none, for Chinese or Japanese, and wherever characters are to stay. A given data.tokenizer has its own.
    cfg.data.normalisation = "nfkc"
    cfg.data.lowercase = False  # True lower-cases both sides, as small published Multi30k systems do
    cfg.data.max_length = 256  # subwords per side, EOS included; longer training pairs are dropped and counted
    cfg.data.max_ratio = 9.0  # longer side / shorter side, in subwords; other pairs are dropped and counted
    cfg.data.mask_rate = 0.15  # share of tokens that a masked LM predicts or denoising removes; BERT's and T5's
    cfg.data.mean_span = 3.0  # mean length of the spans that denoising removes, in tokens; T5's
    cfg.data.classes = ""  # of task="classification", as "present,past"
    cfg.data.tokens_per_batch = 25_000  # positions per side in one update, over the whole cluster; section 5.1
    cfg.data.batching = "bucket"  # bucket: similar lengths (section 5.1) | pack: several per row | window: of a text
    # Row lengths, each of which is compiled.
    cfg.data.buckets = (10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 64, 96, 128, 256)
    cfg.data.pack_length = 256  # sequence length for batching="pack" and "window"

    cfg.image = ConfigDict()  # for task="vision", whose corpora are images (data/images.py lists them)
    cfg.image.height = 8  # pixels
    cfg.image.width = 8  # pixels
    cfg.image.patch_height = 2  # pixels; must divide the height
    cfg.image.patch_width = 2  # pixels; must divide the width
    cfg.image.classes = 10  # labels are 0 to classes - 1
    cfg.image.pooling = "token"  # what is classified: token (a class token) | mean (over the patches)
    cfg.image.shift = 0  # pixels by which training images are shifted at random, at most; 0 is off

    cfg.model = ConfigDict()
    cfg.model.N = 6  # layers, in the encoder and in the decoder each
    cfg.model.N_encoder = 0  # layers in a translation model's encoder, if another number than N; 0 is N
    cfg.model.N_decoder = 0  # and in its decoder: a shallow one is faster to search with
    cfg.model.d_model = 512  # width of embeddings, of every sub-layer's output and of the residual stream
    cfg.model.d_ff = 2048  # width of the feed-forward networks' hidden layer
    cfg.model.h = 8  # heads
    cfg.model.d_k = 64  # width of one head's queries and keys
    cfg.model.d_v = 64  # width of one head's values
    cfg.model.P_drop = 0.1  # sub-layer outputs and embedding sums; section 5.4
    cfg.model.P_drop_embeddings = -1.0  # embedding sums, if at another rate than P_drop; -1 is P_drop
    cfg.model.P_drop_attention = 0.0  # attention weights; not part of the published recipe
    cfg.model.P_drop_relu = 0.0  # after the ReLU; not part of the published recipe
    cfg.model.positions = "sinusoidal"  # sinusoidal | learned (row E) | rope | alibi | t5 (biases) | shaw | none
    cfg.model.max_positions = 1024  # rows of the table of learned positions; no other kind has a limit
    # "shaw": tokens; greater distances are not told apart. It takes a float32 array [b,t,s,2 max_distance + 1].
    cfg.model.max_distance = 16
    # post: LN(x + f(x)), the paper's | pre: x + f(LN(x)), and a last LN | deep: DeepNorm | none: x + f(x)
    cfg.model.norm = "post"
    cfg.model.norm_kind = "layer"  # layer | rms (no mean and no bias, as in T5)
    cfg.model.norm_epsilon = 1e-6  # added to the variance in layer norm; tensor2tensor's; the paper gives none
    cfg.model.residual = True  # False: f(x) instead of x + f(x), no residual connections
    cfg.model.norm_embeddings = False  # True: a layer norm of a translation model's embeddings, as in BART
    # relu (section 3.3) | gelu | gelu_tanh (GPT-2's) | silu; with a gate: geglu | geglu_tanh (T5 v1.1's) | swiglu.
    cfg.model.activation = "relu"
    cfg.model.biases = False  # True: biases in the projections of attention, as GPT-2 and BERT have
    cfg.model.feed_forward_biases = True  # b_1 and b_2 of section 3.3; T5 has none
    cfg.model.scores = "dot"  # of queries and keys: dot (products) | additive (Bahdanau et al.), slow and large
    cfg.model.scale_attention = True  # Q K^T / sqrt(d_k), section 3.2.1; T5 does not divide
    cfg.model.softmax_one = False  # True: 1 added to the softmax's denominator: a head may attend to nothing
    cfg.model.qk_norm = False  # True: RMS norm of the queries and keys of each head
    cfg.model.output_bias = False  # True: a bias for each subword before the softmax, as Marian has
    cfg.model.scale_embeddings = True  # times sqrt(d_model), section 3.4; GPT-2 and BERT do not
    cfg.model.scale_logits = False  # True: divided by sqrt(d_model), as T5 does with tied embeddings
    # One matrix for source, target and softmax, section 3.4; with separate vocabularies, for target and softmax.
    cfg.model.tie_embeddings = True
    cfg.model.dtype = "float32"  # compute type, "bfloat16" on accelerators; parameters and softmax stay float32
    cfg.model.remat = "none"  # recompute in the backward pass: none | full (layers) | dots (attention only)
    cfg.model.dropout_bits = "threefry"  # threefry (jax.random) | hash, which is faster
    # einsum | chunked (exact as well, faster on long rows, in less memory) | a fused kernel: splash (TPU), cudnn (GPU,
    # bfloat16) | auto: einsum for rows up to 256, and for longer ones the device's kernel or chunked, if these support
    # the other keys; it was timed on a CPU only.
    cfg.model.attention_impl = "auto"
    cfg.model.mixer = "attention"  # or in its place: restricted | strided | linear | recurrent | convolution
    # r of "restricted", section 4: positions that each attends to; "strided" adds every r-th.
    cfg.model.neighbours = 15
    cfg.model.kernel_width = 3  # positions that "convolution" covers
    cfg.model.prefix = "none"  # for task="prefix_lm": full (source tokens see the whole source) | causal
    # For task="recurrent_translation", what its decoder knows of the source: fixed (the encoder's last states) |
    # additive | dot (attention). The only other keys that it uses are N, d_model, P_drop, dtype, and the embeddings'.
    cfg.model.recurrent = "none"
    cfg.model.cell = "lstm"  # of its networks: lstm | gru
    cfg.model.scan_layers = False  # True scans over layers: compiles one, but copies the parameters every update
    # standard | mup: rates that are right at every width, for adam and untied embeddings (train/mup.py). As d_model
    # grows, d_ff and h do so in proportion, and N, d_k and d_v do not.
    cfg.model.parametrisation = "standard"
    cfg.model.mup_width = 128  # muP base width: the d_model at which "mup" has the rates of "standard"
    cfg.model.share_layers = False  # True: the layers of a stack share their parameters (Universal Transformer)

    cfg.loss = ConfigDict()
    cfg.loss.eps_ls = 0.1  # label smoothing; section 5.4
    cfg.loss.chunk = 1_024  # positions per device whose logits are in memory at a time; 0 is the whole batch

    cfg.optim = ConfigDict()
    # "adam" (section 5.3) | adamw | muon | ademamix | adafactor | schedule_free_adamw, see train/optim.py
    cfg.optim.name = "adam"
    cfg.optim.schedule = "paper"  # paper | cosine | inverse_sqrt | constant, described in train/optim.py
    cfg.optim.lr = 1.0  # factor on the paper's schedule; the peak rate of the others
    cfg.optim.warmup_from = 0.0  # warm-up initial learning rate, for "inverse_sqrt"
    cfg.optim.warmup = 4_000  # updates
    cfg.optim.b1 = 0.9  # decay of Adam's mean of gradients
    cfg.optim.b2 = 0.98  # decay of its mean of their squares
    cfg.optim.eps = 1e-9  # added to the root of the mean of squares
    # For all but adam and adafactor: decoupled; not on biases and layer norms; muon's is only on hidden matrices.
    cfg.optim.weight_decay = 0.0
    cfg.optim.clip_norm = 0.0  # global gradient norm; 0 disables clipping
    cfg.optim.ema = 0.0  # EMA decay of the parameters, as 0.999, for --checkpoint=ema; 0 keeps none
    cfg.optim.accumulate = 1  # microbatches per update, accumulating gradients to save memory

    cfg.mesh = ConfigDict()  # devices along each axis, over all hosts; -1 takes the remaining ones
    cfg.mesh.data = -1  # batch rows
    cfg.mesh.fsdp = 1  # batch rows, with parameters and optimiser state sharded along d_model
    # Heads, d_ff and, if it divides it, the vocabulary: best kept within one host.
    cfg.mesh.tensor = 1

    cfg.checkpoint = ConfigDict()
    cfg.checkpoint.every = 1_500  # updates; about ten minutes of the paper's base run (section 6.1)
    cfg.checkpoint.every_epochs = 0  # epochs between checkpoints, instead of `every`; 0 is off
    # Minutes between checkpoints, looked at every log_every updates; 0 is off. They replace `every`, until the
    # last `keep_last` of those, which decode.checkpoint averages, and which a fast device saves a minute apart.
    cfg.checkpoint.every_minutes = 0.0
    cfg.checkpoint.keep_last = 5  # newest checkpoints to keep; the paper averages 5 (base) or 20 (big)
    # Also keep this many with the best validation BLEU, or nll if BLEU is off. Only checkpoints of updates that are
    # validated can be among them: set `every`, or `every_epochs`, of `checkpoint` and `eval` to fit.
    cfg.checkpoint.keep_best = 1
    cfg.checkpoint.keep_every = 0  # also keep those whose step is a multiple of this; 0 is off

    cfg.eval = ConfigDict()
    cfg.eval.every = 1_500  # updates between validations
    cfg.eval.every_epochs = 0  # epochs between validations, instead of `every`; 0 is off
    cfg.eval.patience = 0  # stop after this many validations in a row without a lower nll; 0 is off
    cfg.eval.bleu_sentences = 500  # validation sentences to translate greedily for BLEU; 0 is off

    cfg.decode = ConfigDict()  # the paper's decoding options (section 6.1), recorded with the run
    cfg.decode.beam = 4  # hypotheses that are kept alive; 1 is greedy decoding
    cfg.decode.alpha = 0.6  # length penalty ((5 + length) / 6)^alpha, Wu et al. 2016
    cfg.decode.length_penalty = "gnmt"  # "gnmt": the one above | "power": length^alpha, fairseq's and transformers'
    # "exact": until no hypothesis could still win | "full": until `beam` are finished, as in fairseq and CTranslate2
    cfg.decode.stopping = "exact"
    cfg.decode.extra_length = 50  # output tokens allowed beyond the source's
    # The parameters to use: latest | STEP | best | ema | average:N | average:N@MINUTES | average-best:N
    cfg.decode.checkpoint = "average:5"

    # True: updates compute in bfloat16, on a CPU with AMX or, from jax 0.12 on, avx512_bf16 (train/cpu_matmuls.py)
    cfg.cpu_bfloat16 = False
    cfg.cpu_onednn = True  # in model.dtype, a CPU has oneDNN's matmuls where they are faster; False: always XLA's
    cfg.log_every = 50  # updates between metric records
    cfg.diagnose_every = 0  # updates between diagnoses (train/diagnose.py), each as costly as an update; 0 is off
    return cfg

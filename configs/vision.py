"""Vision Transformers small enough for a CPU: scikit-learn's digits, and MNIST-1D.

    pip install -e '.[vision]'
    python -m train --config=configs/vision.py:digits --workdir=runs/digits
    python -m infer --workdir=runs/digits --split=test
    python -m infer.patches --workdir=runs/digits --image=3 --output=patches.png

Published: a support vector machine has about 0.97 on digits; on MNIST-1D a linear classifier has 0.32, a convolutional
network 0.94, people 0.96 (Greydanus 2020).
Ours:  no run is on record.
Cost:  two minutes of one CPU core each.
"""

from ml_collections import ConfigDict

from vaswani.configs.common import default

SIZES = {"digits": (8, 8, 2, 2), "mnist1d": (1, 40, 1, 4)}


def get_config(images: str = "digits") -> ConfigDict:
    """Returns the run on a set of images; raises `ValueError` if it is none of `SIZES`."""
    if images not in SIZES:
        raise ValueError(f"there is no row {images!r}; the rows are {', '.join(SIZES)}")
    cfg = default()
    cfg.task = "vision"
    cfg.steps = 3_000  # the best of 1,000, 2,000 and 3,000 by nats on digits:valid
    for split in ("train", "valid", "test"):
        cfg.data[split] = f"{images}:{split}"
    cfg.image.height, cfg.image.width, cfg.image.patch_height, cfg.image.patch_width = SIZES[images]
    cfg.image.shift = 1 if images == "digits" else 0  # the generator of MNIST-1D shifts its signals itself
    patches = (cfg.image.height // cfg.image.patch_height) * (cfg.image.width // cfg.image.patch_width)
    positions = patches + 1  # and the class token
    cfg.data.tokens_per_batch = 64 * positions  # 64 images

    cfg.model.N, cfg.model.d_model, cfg.model.d_ff = 3, 64, 128
    cfg.model.h, cfg.model.d_k, cfg.model.d_v = 4, 16, 16
    cfg.model.positions = "learned"
    cfg.model.max_positions = positions
    cfg.model.norm = "pre"
    cfg.model.activation = "gelu"
    cfg.model.biases = True
    cfg.model.dropout_bits = "hash"

    cfg.optim.name = "adamw"
    cfg.optim.weight_decay = 0.05
    cfg.optim.schedule = "cosine"
    cfg.optim.lr = 2e-3
    cfg.optim.warmup = 100
    cfg.optim.clip_norm = 1.0
    cfg.checkpoint.every = 500
    cfg.eval.every = 250
    cfg.eval.bleu_sentences = 0
    cfg.decode.checkpoint = "latest"
    return cfg

"""Trains PyTorch's own layers by log A's recipe, on the batches that ours have: is an offset ours, or the text's?

    python -m lab.studies.public_logs.torch_beside --seed=0 --corpus=FOLDER --output=FILE [--epochs=1]

FOLDER is as in `train.py`. Each epoch's losses are printed, and FILE gets them as a line of JSON, a record of this
study: `cat FILE >> lab/studies/public_logs/records.jsonl`. Ten epochs are an hour and a half of one CPU core. The
study's rule does not speak of it.
"""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from absl import flags
from jaxtyping import Int
from torch import nn

from lab.studies.public_logs import text
from lab.studies.public_logs.design import LOGS, get_config
from lab.studies.public_logs.train import Corpus, read_corpus
from vaswani.command import run
from vaswani.errors import UserError
from vaswani.files import write_text
from vaswani.ids import BOS, PAD
from vaswani.run.folder import device, git

WIDTH, HIDDEN, HEADS, LAYERS, POSITIONS, DROPOUT = 256, 512, 8, 3, 100, 0.1
RATE, CLIP = 5e-4, 1.0


class Translator(nn.Module):
    """The notebook's model of PyTorch's layers: post-norm, learned positions, no norm after a stack, nothing tied."""

    def __init__(self, source_words: int, target_words: int) -> None:
        super().__init__()
        options: dict[str, Any] = {"dim_feedforward": HIDDEN, "dropout": DROPOUT, "batch_first": True}
        self.source_embed = nn.Embedding(source_words, WIDTH)
        self.target_embed = nn.Embedding(target_words, WIDTH)
        self.source_positions = nn.Embedding(POSITIONS, WIDTH)
        self.target_positions = nn.Embedding(POSITIONS, WIDTH)
        encoder = [nn.TransformerEncoderLayer(WIDTH, HEADS, **options) for _ in range(LAYERS)]
        decoder = [nn.TransformerDecoderLayer(WIDTH, HEADS, **options) for _ in range(LAYERS)]
        self.encoder = nn.ModuleList(encoder)
        self.decoder = nn.ModuleList(decoder)
        self.softmax = nn.Linear(WIDTH, target_words)
        self.dropout = nn.Dropout(DROPOUT)
        for module in self.modules():
            initialise(module)

    def forward(self, source_bs: torch.Tensor, target_bt: torch.Tensor) -> torch.Tensor:
        """Returns the logits of the next word at each position."""
        is_padding_bs = source_bs == PAD
        x_bsd = self._embed(source_bs, self.source_embed, self.source_positions)
        for layer in self.encoder:
            x_bsd = layer(x_bsd, src_key_padding_mask=is_padding_bs)
        # True hides, in PyTorch.
        future_tt = torch.ones(target_bt.shape[1], target_bt.shape[1], dtype=torch.bool).triu(1)
        y_btd = self._embed(target_bt, self.target_embed, self.target_positions)
        for layer in self.decoder:
            y_btd = layer(y_btd, x_bsd, tgt_mask=future_tt, memory_key_padding_mask=is_padding_bs)
        return self.softmax(y_btd)

    def _embed(self, ids_bt: torch.Tensor, words: nn.Embedding, positions: nn.Embedding) -> torch.Tensor:
        place_t = torch.arange(ids_bt.shape[1])
        return self.dropout(words(ids_bt) * WIDTH**0.5 + positions(place_t))


def initialise(module: nn.Module) -> None:
    """Gives a module the notebook's initial values: Xavier-uniform matrices, biases uniform in +-1/sqrt(inputs)."""
    if isinstance(module, nn.Embedding):
        nn.init.xavier_uniform_(module.weight)
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.uniform_(module.bias, -(module.in_features**-0.5), module.in_features**-0.5)
    if isinstance(module, nn.MultiheadAttention):
        # Queries, keys and values are three matrices there, and one here.
        for part in module.in_proj_weight.data.chunk(3):
            nn.init.xavier_uniform_(part)
        nn.init.uniform_(module.in_proj_bias, -(WIDTH**-0.5), WIDTH**-0.5)


def arrays(split: text.Split, members_i: Int[np.ndarray, " i"]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns a batch, one pair a row: the source, the decoder's input and the labels, padded."""
    sources = [split.records[number][0].tolist() for number in members_i]
    labels = [split.records[number][1].tolist() for number in members_i]
    inputs = [[BOS, *row[:-1]] for row in labels]
    return padded(sources), padded(inputs), padded(labels)


def padded(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Returns rows as long as the longest."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


def train(corpus: Corpus, seed: int, epochs: int) -> dict[str, list[float]]:
    """Trains, and prints and returns the mean of the batches' losses of each epoch, on training and validation."""
    torch.manual_seed(seed)
    tokenizer = corpus.tokenizer
    model = Translator(tokenizer.source_vocab_size, tokenizer.vocab_size)
    adam = torch.optim.Adam(model.parameters(), RATE)
    loss_of = nn.CrossEntropyLoss(ignore_index=PAD)
    losses: dict[str, list[float]] = {"train": [], "valid": []}

    def loss_on(split: text.Split, members_i: Int[np.ndarray, " i"]) -> torch.Tensor:
        source_bs, target_bt, labels_bt = arrays(split, members_i)
        return loss_of(model(source_bs, target_bt).flatten(0, 1), labels_bt.flatten())

    for epoch in range(epochs):
        started = time.monotonic()
        found: list[float] = []
        model.train()
        rng = np.random.default_rng([seed, epoch])  # the batches of `train.py`
        for members_i in text.order(LOGS["A"].order, corpus.train.words_nk, rng):
            adam.zero_grad()
            loss = loss_on(corpus.train, members_i)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            adam.step()
            found.append(loss.item())
        losses["train"].append(float(np.mean(found)))
        model.eval()
        with torch.no_grad():
            batches = text.cut(text.by_length(corpus.valid.words_nk))
            losses["valid"].append(float(np.mean([loss_on(corpus.valid, members_i).item() for members_i in batches])))
        minutes = (time.monotonic() - started) / 60
        train_loss, valid_loss = losses["train"][-1], losses["valid"][-1]
        print(f"epoch {epoch + 1}: train {train_loss:.3f}, valid {valid_loss:.3f}, {minutes:.1f} minutes", flush=True)
    return losses


def main(argv: list[str]) -> None:
    options = flags.FLAGS
    if not options.output:
        raise UserError("--output=FILE: the file of the losses is missing")
    torch.set_num_threads(1)
    launch = {"git": git(), "device": device(), "torch": torch.__version__}
    started = time.monotonic()
    corpus = read_corpus(get_config(f"A:{options.corpus}"))
    losses = train(corpus, options.seed, options.epochs)
    minutes = (time.monotonic() - started) / 60
    record = {"study": "torch_beside", "log": "A", "seed": options.seed, **losses, **launch, "minutes": minutes}
    write_text(Path(options.output), f"{json.dumps(record)}\n")


if __name__ == "__main__":
    flags.DEFINE_integer("seed", 0, "of parameters, order and dropout")
    flags.DEFINE_string("corpus", "", "folder of the corpus; by default multi30k_spacy beside the downloaded ones")
    flags.DEFINE_integer("epochs", 10, "to train", lower_bound=1)
    flags.DEFINE_string("output", "", "file of the losses")
    run(main, hint="the file is given as --output=FILE")

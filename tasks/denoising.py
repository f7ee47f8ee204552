"""Span denoising (Raffel et al. 2020, "T5"): the encoder reads a text with spans left out, the decoder writes them."""

from functools import partial

from vaswani.tasks import texts, translation
from vaswani.tasks.task import Evaluation

TASK = translation.TASK._replace(
    data=partial(texts.training_data, sides=1, examples=texts.without_spans),
    evaluation=Evaluation(
        batches=partial(texts.all_batches, sides=1, examples=texts.without_spans),
        signatures=partial(texts.hidden_signatures, "denoising"),
    ),
)

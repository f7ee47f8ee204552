"""Classifies a line with a text classifier."""

from collections.abc import Iterable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vaswani.data.classes import classes_of
from vaswani.ids import EOS
from vaswani.infer.runs import Run, finite
from vaswani.infer.texts.blanks import row
from vaswani.infer.translate.stream import by_line
from vaswani.model.masked_lm import MaskedLM
from vaswani.tokens import Tokens


@partial(jax.jit, static_argnums=0)
def probabilities(model: MaskedLM, params: dict, ids_bt: Int[Array, "b t"]) -> Float[Array, "b c"]:
    """Returns the probability of each class of the texts in these rows."""
    logits_btc = model.apply({"params": params}, Tokens.of(ids_bt))
    end_b = ids_bt.shape[1] - 1 - jnp.argmax(ids_bt[:, ::-1] == EOS, axis=1)  # the last: BERT's [SEP] may be spelled
    logits_bc = jnp.take_along_axis(logits_btc, end_b[:, None, None], axis=1)[:, 0]
    return jax.nn.softmax(logits_bc)


def classify(model_run: Run, params: dict, line: str) -> tuple[str, float]:
    """Returns the likeliest class of a line, and its probability.

    Raises:
      UserError: the line is longer than the learned positions.
    """
    classes = classes_of(model_run.config.data.classes)
    config = model_run.model_config
    row_t = row(config, model_run.tokenizer.encode(line))
    model = MaskedLM(config, len(classes))
    probability_c = np.asarray(probabilities(model, params, jnp.asarray(row_t[None]))[0])
    return classes[np.argmax(probability_c)], float(probability_c.max())


def classify_stream(model_run: Run, source: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the class of each line of `source`, and its probability; `UserError` if the parameters are not finite."""
    params = finite(model_run)

    def answer(line: str) -> str:
        name, probability = classify(model_run, params, line)
        return f"{name}\t{probability:.4f}"

    return by_line(source, answer)

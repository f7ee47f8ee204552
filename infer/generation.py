"""Text that a language model writes after a prompt: drawn at random, or the best that a search finds."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from base.errors import UserError
from base.ids import BOS, UNK
from infer.decoding import Decoding
from infer.runs import Run, finite
from infer.staged import find
from infer.translator import Hypothesis
from model.language_model import LanguageModel
from model.search.beam import beam_search
from model.search.sampling import sample


def generate(model_run: Run, prompt: str, decoding: Decoding) -> list[Hypothesis]:
    """Returns `decoding.nbest` texts that begin with the prompt, the best or most probable first.

    Each has at most `decoding.extra_length` tokens after the prompt, EOS counted, which are its `tokens`.

    Raises:
      UserError: a character of the prompt is not in the vocabulary, the beam is larger than that, the model has not so
        many learned positions, or its parameters are not finite.
    """
    tokenizer, model = model_run.tokenizer, LanguageModel(model_run.model_config)
    if decoding.beam > tokenizer.vocab_size:
        raise UserError(f"beam is {decoding.beam}; it must be at most {tokenizer.vocab_size}, the vocabulary")
    ids = tokenizer.encode(prompt)
    if UNK in ids:
        symbols = prompt.split() if tokenizer.units == "words" else prompt
        unknown = symbols[ids.index(UNK)]
        raise UserError(f"prompt: the vocabulary has no {unknown!r}; it is that of the training text")
    prompts_bs = jnp.asarray([[BOS, *ids]], jnp.int32)
    try:
        model.output_limits(prompts_bs, decoding.extra_length)
    except ValueError as error:
        raise UserError(f"prompt, length: {error}") from error
    params = finite(model_run)
    if decoding.sampling is None:
        options: dict[str, Any] = {"beam": decoding.beam, "alpha": decoding.alpha, "nbest": decoding.nbest}
        options["penalty"] = decoding.length_penalty
        options["extra_length"] = decoding.extra_length
        found = find(beam_search, model, options, params, inputs_bs=prompts_bs)
    else:
        drawn = decoding.sampling._asdict()
        keys_b = jax.random.split(jax.random.key(drawn.pop("seed")), 1)
        drawn |= {"samples": decoding.nbest, "extra_length": decoding.extra_length}
        found = find(sample, model, drawn, params, inputs_bs=prompts_bs, keys_b=keys_b)
    texts = []
    for ids_t, length, log_prob, score in zip(*(np.asarray(field[0]) for field in found), strict=True):
        if length > 0:
            tokens = tuple(int(token) for token in ids_t[: length - 1])
            texts.append(Hypothesis(tokenizer.decode([*ids, *tokens]), float(score), float(log_prob), tokens))
    return texts

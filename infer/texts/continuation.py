"""Text that a language model writes after a prompt: drawn at random, or the best that a search finds."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from vaswani.errors import UserError
from vaswani.ids import BOS, UNK
from vaswani.infer.runs import Run, finite
from vaswani.infer.translate.stages import find
from vaswani.infer.translate.translator import Hypothesis, hypotheses_of
from vaswani.model.language_model import LanguageModel
from vaswani.search.options import Decoding
from vaswani.search.state import Hypotheses


def generate(model_run: Run, prompt: str, decoding: Decoding) -> list[Hypothesis]:
    """Returns `decoding.nbest` texts that begin with the prompt, the best or most probable first.

    They have at most `decoding.extra_length` tokens after the prompt, EOS counted, which are its `tokens`.

    Raises:
      UserError: a character of the prompt is not in the vocabulary, the beam is larger than the vocabulary, the model
        has too few learned positions, or its parameters are not finite.
    """
    tokenizer = model_run.tokenizer
    model = LanguageModel(model_run.model_config)
    if decoding.beam > tokenizer.vocab_size:
        raise UserError(f"beam is {decoding.beam}; it must be at most {tokenizer.vocab_size}, the vocabulary")
    ids = tokenizer.encode(prompt)
    if UNK in ids and tokenizer.units == "subwords":
        raise UserError("prompt: the vocabulary lacks one of its symbols, or one is special")
    if UNK in ids:
        symbols = prompt.split() if tokenizer.units == "words" else prompt
        unknown = symbols[ids.index(UNK)]
        raise UserError(f"prompt: the vocabulary has no {unknown!r}; it comes from the training text")
    prompts_bs = jnp.asarray([[BOS, *ids]], jnp.int32)
    try:
        model.output_limits(prompts_bs, decoding.extra_length)
    except ValueError as error:
        raise UserError(f"prompt, length: {error}") from error
    outputs = _continued(model, finite(model_run), prompts_bs, decoding)
    return hypotheses_of(outputs, 0, lambda tokens: tokenizer.decode([*ids, *tokens]))


def _continued(model: LanguageModel, params: dict, prompts_bs: Int[Array, "b s"], decoding: Decoding) -> Hypotheses:
    """Returns the prompts' continuations by the search or the sampling of `decoding`."""
    arrays: dict[str, Any] = {"inputs_bs": prompts_bs}
    if decoding.sampling is not None:
        arrays["keys_b"] = jax.random.split(jax.random.key(decoding.sampling.seed), 1)
    return find(model, decoding, params, **arrays)

"""Text that a language model writes after a prompt: drawn at random, or the best that a search finds."""

import json
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int
from ml_collections import ConfigDict

from base.errors import UserError
from base.ids import BOS, UNK
from infer.runs import Run, finite, open_run
from infer.translate.options import Decoding, Sampling
from infer.translate.stages import find
from infer.translate.translator import Hypothesis, hypotheses_of, search_of
from model.language_model import LanguageModel
from model.search.state import Hypotheses


def generate(model_run: Run, prompt: str, decoding: Decoding) -> list[Hypothesis]:
    """Returns `decoding.nbest` texts that begin with the prompt, the best or most probable first.

    Each has at most `decoding.extra_length` tokens after the prompt, EOS counted, which are its `tokens`.

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
        raise UserError(f"prompt: the vocabulary has no {unknown!r}; it is that of the training text")
    prompts_bs = jnp.asarray([[BOS, *ids]], jnp.int32)
    try:
        model.output_limits(prompts_bs, decoding.extra_length)
    except ValueError as error:
        raise UserError(f"prompt, length: {error}") from error
    outputs = _continued(model, finite(model_run), prompts_bs, decoding)
    return hypotheses_of(outputs, 0, lambda tokens: tokenizer.decode([*ids, *tokens]))


def _continued(model: LanguageModel, params: dict, prompts_bs: Int[Array, "b s"], decoding: Decoding) -> Hypotheses:
    """Returns what the search or the sampling of `decoding` makes of the prompts."""
    search, options = search_of(decoding)
    arrays: dict[str, Any] = {"inputs_bs": prompts_bs}
    if decoding.sampling is not None:
        arrays["keys_b"] = jax.random.split(jax.random.key(decoding.sampling.seed), 1)
    return find(search, model, options, params, **arrays)


def decoding_of(options: Any, config: ConfigDict) -> Decoding:
    """Returns the decoding that the flags of `infer.generate` ask for.

    Raises:
      UserError: a value is outside of `infer.translate.options.LIMITS`.
    """
    searching = options.greedy or options.beam is not None
    sampling = None if searching else Sampling(options.seed, options.temperature, options.top_k, options.top_p)
    return Decoding(
        beam=options.beam or 1,
        alpha=config.decode.alpha,
        extra_length=options.length + 1,  # which counts EOS
        nbest=options.samples,
        sampling=sampling,
        length_penalty=config.decode.length_penalty,
        stopping=config.decode.stopping,
    )


def main(options: Any) -> None:
    """Prints continuations of a prompt, as `infer.generate` says."""
    model_run = open_run(options.workdir, options.checkpoint, task="language_model")
    texts = generate(model_run, options.prompt, decoding_of(options, model_run.config))
    if options.json:
        records = [{"text": text.text, "log_prob": text.log_prob} for text in texts]
        print(json.dumps(records, ensure_ascii=False, indent=2))
    else:
        print("\n---\n".join(text.text for text in texts))

"""Writes on from a prompt with a language model.

python -m infer.generate --workdir=runs/char_lm --prompt="ROMEO:" --length=300 [--temperature=0.8] [--top_k=20]
python -m infer.generate --workdir=runs/language_model --prompt="The dog" --samples=3 --top_p=0.9 --seed=1
python -m infer.generate --workdir=runs/language_model --prompt="The dog" --greedy
python -m infer.generate --workdir=runs/language_model --prompt="The dog" --beam=4 --samples=2

Text is drawn at random, or searched for with --greedy or --beam, whose best --samples are given. What is printed is the
prompt with what was written after it, as the vocabulary spells it; with several samples, a line of --- between them.
"""

import functools
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from base.errors import UserError, run
from base.ids import BOS, UNK
from infer.decoding import Decoding, Sampling
from infer.options import check, define_run_flags
from infer.runs import Run, open_run
from infer.translator import Hypothesis
from model.language_model import LanguageModel
from model.search.beam import beam_search
from model.search.sampling import sample

SAMPLING = ("temperature", "top_k", "top_p", "seed")


def generate(model_run: Run, prompt: str, decoding: Decoding) -> list[Hypothesis]:
    """Returns `decoding.nbest` texts that begin with the prompt, the best or most probable first.

    Each has at most `decoding.extra_length` tokens after the prompt, EOS counted, which are its `tokens`.

    Raises:
      UserError: a character of the prompt is not in the vocabulary, the beam is larger than that, or the model has not
        so many learned positions.
    """
    tokenizer, model = model_run.tokenizer, LanguageModel(model_run.model_config)
    if decoding.beam > tokenizer.vocab_size:
        raise UserError(f"beam is {decoding.beam}; it must be at most {tokenizer.vocab_size}, the vocabulary")
    ids = tokenizer.encode(prompt)
    if UNK in ids:
        unknown = next(character for character in prompt if UNK in tokenizer.encode(character))
        raise UserError(f"prompt: the vocabulary has no {unknown!r}; it is that of the training text")
    prompts_bs = jnp.asarray([[BOS, *ids]], jnp.int32)
    try:
        model.output_limits(prompts_bs, decoding.extra_length)
    except ValueError as error:
        raise UserError(f"prompt, length: {error}") from error
    if decoding.sampling is None:
        options: dict[str, Any] = {"beam": decoding.beam, "alpha": decoding.alpha, "nbest": decoding.nbest}
        options["penalty"] = decoding.length_penalty
        find = functools.partial(beam_search, model, extra_length=decoding.extra_length, **options)
        found = jax.jit(find)(model_run.params, prompts_bs)
    else:
        drawn = decoding.sampling._asdict()
        keys_b = jax.random.split(jax.random.key(drawn.pop("seed")), 1)
        find = functools.partial(sample, model, samples=decoding.nbest, extra_length=decoding.extra_length, **drawn)
        found = jax.jit(find)(model_run.params, prompts_bs, keys_b)
    texts = []
    for ids_t, length, log_prob, score in zip(*(np.asarray(field[0]) for field in found), strict=True):
        if length > 0:
            tokens = tuple(int(token) for token in ids_t[: length - 1])
            texts.append(Hypothesis(tokenizer.decode([*ids, *tokens]), float(score), float(log_prob), tokens))
    return texts


def decoding_of(model_run: Run) -> Decoding:
    """Returns the decoding that the flags ask for.

    Raises:
      UserError: they contradict each other, or a value is outside of `infer.decoding.LIMITS`.
    """
    options = flags.FLAGS
    searching = options.greedy or options.beam is not None
    if options.greedy and options.beam is not None:
        raise UserError("give --greedy or --beam, not both")
    given = [name for name in SAMPLING if options[name].present]
    if searching and given:
        raise UserError(f"--{given[0]} is for drawing at random; leave it out, or --greedy and --beam")
    sampling = None if searching else Sampling(options.seed, options.temperature, options.top_k, options.top_p)
    beam, extra_length = options.beam or 1, options.length + 1  # which counts EOS
    decode = model_run.config.decode
    return Decoding(beam, decode.alpha, extra_length, options.samples, sampling, decode.length_penalty)


def main(argv: list[str]) -> None:
    """Entry point; flags below."""
    options = flags.FLAGS
    if len(argv) > 1:
        raise UserError(f'unexpected argument {argv[1]!r}; put the prompt in quotes: --prompt="..."')
    model_run = open_run(options.workdir, options.checkpoint, task="language_model")
    texts = generate(model_run, options.prompt, decoding_of(model_run))
    if options.json:
        print(json.dumps([{"text": one.text, "log_prob": one.log_prob} for one in texts], ensure_ascii=False, indent=2))
    else:
        print("\n---\n".join(one.text for one in texts))


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_string("prompt", "", "what the text begins with")
    flags.DEFINE_integer("length", 200, "tokens to write at most", lower_bound=1, upper_bound=9_999)
    flags.DEFINE_integer("samples", 1, "texts to write")
    flags.DEFINE_float("temperature", 1.0, "below 1 sharper, above 1 flatter")
    flags.DEFINE_integer("top_k", 0, "from the K likeliest tokens only; 0 is all")
    flags.DEFINE_float("top_p", 1.0, "from the fewest tokens of this probability")
    flags.DEFINE_integer("seed", 0, "the same seed draws the same texts")
    flags.DEFINE_bool("greedy", False, "take the likeliest token each time instead")
    flags.DEFINE_integer("beam", None, "search with so many hypotheses instead")
    flags.DEFINE_bool("json", False, "print JSON, with log-probabilities")
    check("temperature", "top_k", "top_p", "seed", "beam")
    flags.register_validator("samples", lambda value: 1 <= value <= 1000, message="it must be from 1 to 1000")
    run(main)

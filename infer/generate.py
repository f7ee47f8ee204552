"""Continues a prompt with a language model.

python -m infer.generate --workdir=runs/char_lm --prompt="ROMEO:" --length=300 [--temperature=0.8] [--top_k=20]
python -m infer.generate --workdir=runs/language_model --prompt="The dog" --samples=3 --top_p=0.9 --seed=1
python -m infer.generate --workdir=runs/language_model --prompt="The dog" --greedy
python -m infer.generate --workdir=runs/language_model --prompt="The dog" --beam=4 --samples=2

Text is drawn at random, or searched for with --greedy or --beam; --beam prints its best --samples. The output is the
prompt and its continuation, as the vocabulary spells them; several samples are separated by a line of ---.
"""

import json
from typing import Any

from absl import flags
from ml_collections import ConfigDict

from vaswani.errors import UserError
from vaswani.infer.options import define_run_flags, start, within_limits
from vaswani.infer.runs import open_run
from vaswani.infer.texts.continuation import generate
from vaswani.search.options import Decoding, Sampling

SAMPLING = ("temperature", "top_k", "top_p", "seed")


def check(options: Any) -> None:
    """Raises a `UserError` if the flags contradict each other."""
    searching = options.greedy or options.beam is not None
    if options.greedy and options.beam is not None:
        raise UserError("give --greedy or --beam, not both")
    drawing = [name for name in SAMPLING if options[name].present]
    if searching and drawing:
        raise UserError(f"--{drawing[0]} is for drawing at random; it has no effect with --greedy or --beam")
    if searching and options.samples > (options.beam or 1):
        raise UserError(f"--samples={options.samples}: --greedy returns one text, and --beam=N at most N")


def decoding_of(options: Any, config: ConfigDict) -> Decoding:
    """Returns the decoding that the flags ask for.

    Raises:
      UserError: a value is outside of `search.options.LIMITS`.
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
    """Prints continuations of a prompt."""
    model_run = open_run(options.workdir, options.checkpoint, task="language_model")
    texts = generate(model_run, options.prompt, decoding_of(options, model_run.config))
    if options.json:
        records = [{"text": text.text, "log_prob": text.log_prob} for text in texts]
        print(json.dumps(records, ensure_ascii=False, indent=2))
    else:
        print("\n---\n".join(text.text for text in texts))


if __name__ == "__main__":
    define_run_flags()
    flags.DEFINE_string("prompt", "", "what the text begins with")
    flags.DEFINE_integer("length", 200, "maximum number of tokens to write", lower_bound=1, upper_bound=9_999)
    flags.DEFINE_integer("samples", 1, "number of texts to write")
    flags.DEFINE_float("temperature", 1.0, "below 1 makes the distribution sharper, above 1 flatter")
    flags.DEFINE_integer("top_k", 0, "draw from the K likeliest tokens only; 0: from all")
    flags.DEFINE_float("top_p", 1.0, "draw from the fewest tokens that together reach this probability")
    flags.DEFINE_integer("seed", 0, "the same seed draws the same texts")
    flags.DEFINE_bool("greedy", False, "take the likeliest token each time instead of drawing one")
    flags.DEFINE_integer("beam", None, "search with this many hypotheses instead of drawing")
    flags.DEFINE_bool("json", False, "print JSON, with log-probabilities")
    within_limits("temperature", "top_k", "top_p", "seed", "beam")
    flags.register_validator("samples", lambda value: 1 <= value <= 1000, message="it must be from 1 to 1000")
    start(main, hint='put the prompt in quotes: --prompt="..."', check=check)

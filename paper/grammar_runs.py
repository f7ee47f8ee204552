"""Runs that translate the built-in grammar: in which direction, and which token each of their subwords belongs to."""

import re
from collections.abc import Sequence

from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.infer.runs import Run


def direction(model_run: Run) -> bool:
    """Returns whether a run translates from German, by its training corpus; False if that names no languages.

    Raises:
      UserError: the run translates other languages, which the grammar does not have.
    """
    spec = model_run.config.data.train
    named = re.search(r"\{(\w+),(\w+)\}", spec)
    languages = named.groups() if named else ("en", "de")
    if set(languages) != {"en", "de"} or spec.startswith("trees:"):
        raise UserError(
            f"--workdir={model_run.workdir}: trained on {spec}; it must translate English and German, as the built-in "
            "grammar does"
        )
    return languages == ("de", "en")


def owners(tokenizer: Tokenizer, tokens: Sequence[str], text: str) -> list[int]:
    """Returns the token that each subword of `text` belongs to, as a position in `tokens`.

    A subword that spans two tokens belongs to the one in which it ends.

    Raises:
      ValueError: `tokens` are not the tokens of `text`.
    """
    byte_owners = _byte_owners(tokenizer, tokens, text)
    subword_owners = []
    end = 0
    for piece in tokenizer.pieces(tokenizer.encode(text)):
        is_byte = re.fullmatch(r"<0x[0-9A-F]{2}>", piece)
        end += 1 if is_byte else len(piece.replace("▁", " ").encode())
        last_byte = min(end, len(byte_owners)) - 1
        subword_owners.append(byte_owners[last_byte])
    # A space that is its own subword belongs to the token after it.
    return [max(owner, 0) for owner in subword_owners]


def _byte_owners(tokenizer: Tokenizer, tokens: Sequence[str], text: str) -> list[int]:
    """Returns the token that each byte of the normalised text belongs to; -1 for the space before it."""
    spelled = tokenizer.normalise(text).encode()
    byte_owners = [-1]  # the first byte is the space that sentencepiece puts before a sentence
    end = 0
    for place, token in enumerate(tokens):
        letters = tokenizer.normalise(token).encode()
        start = spelled.find(letters, end)
        if start < 0 or spelled[end:start].strip():
            raise ValueError(f"{token!r} is not token {place} of {text!r}")
        length = start + len(letters) - end
        byte_owners += [place] * length
        end += length
    return byte_owners

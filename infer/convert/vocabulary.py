"""Maps the ids of another model's vocabulary to ours, whose first four are special."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vaswani.data.imported import Marian, is_of_tokenizers
from vaswani.data.symbols import SPECIALS
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError, format_value
from vaswani.files import content_of
from vaswani.ids import BOS, EOS, PAD, UNK
from vaswani.infer.convert.check import named_pieces
from vaswani.infer.convert.settings import ID
from vaswani.infer.convert.table import AXES
from vaswani.read_json import read_json

# Added to the logit of a special symbol that has no row there and is given another's: its probability is
# then a float32's resolution of the other's.
COPY_BIAS = -30.0


def our_rows(source: object, size: int, *, pad: int, start: int, eos: int, unk: int) -> list[int]:
    """Returns for each of our ids theirs: the special ones, then all others in their order.

    One that serves twice there, as a start token that is also the end, has two rows here.

    Raises:
      UserError: a special id is not below `size`, or there is no other; the message begins with `source`.
    """
    specials = [pad, start, eos, unk]
    if not all(0 <= number < size for number in specials):
        raise UserError(
            f"{source}: a vocabulary of {size} with {specials} for pad, start, eos and unk: these must be below it"
        )
    others = [number for number in range(size) if number not in specials]
    if not others:
        raise UserError(f"{source}: a vocabulary of {size} has no subwords besides the special ones")
    return specials + others


def bias_of_copies(rows: Sequence[int]) -> np.ndarray:
    """Returns `COPY_BIAS` for special rows that are copies of another, and 0 for all others."""
    bias_v = np.zeros(len(rows), np.float32)
    for number, originals in ((PAD, (EOS,)), (BOS, (EOS, PAD)), (UNK, (EOS, PAD))):
        if rows[number] in [rows[original] for original in originals]:
            bias_v[number] = COPY_BIAS
    return bias_v


def with_our_rows(
    source: object, params: dict[str, Any], rows: Sequence[int], source_rows: Sequence[int] | None = None
) -> dict[str, Any]:
    """Returns the parameters of a model in which those with an axis of ids have our ids.

    `source_rows` are the source's, if it has a separate vocabulary.

    Raises:
      UserError: there is not an embedding for each of their ids, which are those in `rows`, or there are more.
    """
    rows_of = {"v": list(rows), "u": list(rows if source_rows is None else source_rows)}
    ours = dict(params)
    for name, table in params.items():
        axis = AXES.get(name, "")[:1]
        if axis not in rows_of:
            continue
        size = max(rows_of[axis]) + 1
        if len(table) != size:
            raise UserError(f"{source}: its weights have {len(table)} embeddings, and its vocabulary {size} subwords")
        ours[name] = table[rows_of[axis]]
    return ours


def our_pieces(rows: Sequence[int], piece_of: Mapping[int, str]) -> list[str]:
    """Returns our vocabulary, in which a piece without a name, or named like a special symbol, is called `<ID>`."""
    pieces = list(SPECIALS)
    for row in rows[len(SPECIALS) :]:
        piece = piece_of.get(row, "")
        if piece in ("", *SPECIALS):
            piece = f"<{row}>"
        pieces.append(piece)
    return pieces


def subword_tokenizer(pieces: list[str], source: bytes, target: bytes, source_eos: bool = True) -> Tokenizer:
    """Returns the tokenizer of `pieces` and the sentencepiece models of both sides.

    It is a plain sentencepiece model if both sides share one that has our ids of these pieces, as our exports do.
    """
    try:
        tokenizer = Tokenizer(source)
        if source == target and source_eos and named_pieces(tokenizer) == pieces:
            return tokenizer
    except UserError:
        pass  # a model of others has other ids of the special symbols
    return Marian.of(pieces, source, target, source_eos=source_eos)


def lines_of(path: Path) -> list[str]:
    """Returns the lines of a text; a carriage return that ends all of them belongs to none."""
    try:
        text = content_of(path).decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text") from error
    lines = text.removesuffix("\n").split("\n")
    if all(line.endswith("\r") for line in lines):
        lines = [line.removesuffix("\r") for line in lines]
    return lines


def read_tokenizer(folder: Path, kind: str, *older: str) -> Any:
    """Returns the tokenizer of a folder of transformers, as one of the package tokenizers.

    Without tokenizer.json it is what transformers' class `kind` makes of the files `older`.

    Raises:
      UserError: neither exists, or one cannot be read, or the files `older` are of another class.
    """
    import tokenizers

    modern = folder / "tokenizer.json"
    paths = [modern] if modern.is_file() else [folder / name for name in older]
    path = paths[0]
    if not path.is_file():
        raise UserError(f"{folder}: has neither tokenizer.json nor {older[0]}; also save the model's tokenizer there")
    if path != modern:
        _check_class(folder, kind)
    try:
        for path in paths:
            if not content_of(path).strip():
                raise UserError(f"{path}: this file is empty")
        if path == modern:
            return tokenizers.Tokenizer.from_file(str(path))
        import transformers

        return getattr(transformers, kind).from_pretrained(str(folder), local_files_only=True).backend_tokenizer
    except (ModuleNotFoundError, UserError):
        raise
    except BaseException as error:  # neither package raises anything more exact
        if not is_of_tokenizers(error):
            raise
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{path}: cannot be read ({reason})") from error


def _check_class(folder: Path, kind: str) -> None:
    """Raises `UserError` if the tokenizer is of another class than `kind`, which would read its files all the same."""
    for name in ("tokenizer_config.json", "config.json"):
        given = tokenizer_settings(folder, name).get("tokenizer_class") or kind
        if given not in (kind, f"{kind}Fast"):
            raise UserError(
                f"{folder / name}: tokenizer_class is {format_value(given)}; without tokenizer.json it must be {kind}"
            )


def tokenizer_settings(folder: Path, name: str = "tokenizer_config.json") -> dict[str, Any]:
    """Returns the settings of a folder's tokenizer; nothing if there is no such file."""
    path = folder / name
    return read_json(path, dict) if path.is_file() else {}


def read_vocabulary(path: Path, size: int) -> dict[str, int]:
    """Returns the ids of all pieces, of which each is below `size` and no two are the same."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; the tokenizer must be Marian's: vocab.json, source.spm and target.spm")
    tokens = read_json(path, {"<unk>": int})
    for piece, number in tokens.items():
        if not ID.fits(number) or number >= size:
            raise UserError(
                f"{path}: the id of {format_value(piece)} is {format_value(number)}; it must be below {size}"
            )
    if len(set(tokens.values())) < len(tokens):
        raise UserError(f"{path}: two of its pieces have the same id")
    return tokens

"""What each attention head does on sentences of known structure: head roles and alignment error.

Subword weights become token weights as in Clark et al. 2019 (arXiv 1906.04341, section 4.1): weights to a token's
subwords are summed, weights from them averaged. As in `infer.attention.maps`, a decoder row is the token that it
predicts. In encoder-decoder attention a relation points to the translation of the token that it names.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from base.errors import UserError
from base.files import read_json, write_json
from base.ids import BOS, EOS
from data.batching import length_batches
from data.grammar import sentences as grammar
from data.tokenizer import Tokenizer
from infer.attention.maps import require_weights
from infer.attention.page import KINDS, TITLES
from infer.attention.roles import (
    RELATIONS,
    AlignmentTally,
    AnnotatedPair,
    RoleTally,
    alignment_report,
    annotate,
    role_report,
)
from infer.runs import Run, params_sha256
from model.config import ModelConfig
from model.tokens import Tokens
from model.transformer import Transformer

BATCH = 32  # sentences of up to `WIDTH` subwords in a batch; fewer if they are longer
COUNTED_FROM = 1  # layers and heads; earlier results lack this: they counted from 0, and are computed again
WIDTH = 32  # rows are padded to a multiple of this, to limit the number of compiled shapes

_ROLE = {
    "cases": int,
    "accuracy": [[float]],
    "best": {"layer": int, "head": int, "accuracy": float},
    "fixed": {"distance": int, "accuracy": float},
    "chance": float,
}
_KEPT = {
    "roles": dict.fromkeys(KINDS, dict),
    "alignment": {
        "heads": [[float]],
        "layers": [float],
        "best_layer": {"layer": int, "error": float},
        "best_head": {"layer": int, "head": int, "error": float},
        "diagonal": float,
    },
    "chosen_on": str,
    "scored_on": str,
    "params_sha256": str,
}


class Spans(NamedTuple):
    """The token number of every query and key subword, -1 for <s> and </s>; see `token_weights`."""

    queries: list[int]
    keys: list[int]


def owners(tokenizer: Tokenizer, tokens: Sequence[str], text: str) -> list[int]:
    """Returns the token that each subword of `text` belongs to, as a position in `tokens`.

    A subword that spans two tokens belongs to the one in which it ends.

    Raises:
      ValueError: `tokens` are not the tokens of `text`.
    """
    spelled = tokenizer.normalise(text).encode()
    owner_at, at = [-1], 0  # by byte, behind the space that sentencepiece puts before a sentence
    for number, token in enumerate(tokens):
        letters = tokenizer.normalise(token).encode()
        start = spelled.find(letters, at)
        if start < 0 or spelled[at:start].strip():
            raise ValueError(f"{token!r} is not token {number} of {text!r}")
        owner_at += [number] * (start + len(letters) - at)
        at = start + len(letters)
    found, end = [], 0
    for piece in tokenizer.pieces(tokenizer.encode(text)):
        end += 1 if re.fullmatch(r"<0x[0-9A-F]{2}>", piece) else len(piece.replace("▁", " ").encode())
        found.append(owner_at[min(end, len(owner_at)) - 1])
    # A space that is its own subword belongs to the token after it.
    return [max(owner, 0) for owner in found]


def token_weights(weights_nhts: Float[np.ndarray, "n h t s"], spans: Spans) -> Float[np.ndarray, "n h q k"]:
    """Returns the weights between tokens from those between subwords; the last key stands for all non-tokens."""
    queries, keys = max(spans.queries) + 1, max(spans.keys) + 2
    rows_qt = np.array(spans.queries)[None, :] == np.arange(queries)[:, None]
    columns_sk = (np.array(spans.keys)[:, None] % keys) == np.arange(keys)[None, :]
    rows_qt = rows_qt / rows_qt.sum(-1, keepdims=True)
    return np.einsum("qt,nhts,sk->nhqk", rows_qt, weights_nhts, columns_sk.astype(np.float64), optimize=True)


def spans_of(tokenizer: Tokenizer, pair: AnnotatedPair) -> dict[str, Spans]:
    """Returns the tokens of the rows and columns for each kind of attention."""
    source = [*owners(tokenizer, pair.source_tokens, pair.source), -1]
    target = owners(tokenizer, pair.target_tokens, pair.target)
    return {
        "encoder": Spans(source, source),
        "decoder": Spans([*target, -1], [-1, *target]),
        "cross": Spans([*target, -1], source),
    }


def sentence_maps(model_run: Run, pairs: Sequence[AnnotatedPair]) -> Iterator[tuple[AnnotatedPair, dict[str, Any]]]:
    """Yields every pair and its token weights [n,h,t,s] by kind (see `token_weights`), shortest pairs first.

    The decoder runs with teacher forcing.

    Raises:
      UserError: the model's mixer has no weights.
    """
    require_weights(model_run.model_config)
    encode = model_run.tokenizer.encode
    sources = [[*encode(pair.source), EOS] for pair in pairs]
    targets = [[BOS, *encode(pair.target)] for pair in pairs]
    maps_of, params = _compiled(model_run.model_config), {"params": model_run.params}
    longest = [max(map(len, sides)) for sides in zip(sources, targets, strict=True)]
    row_lengths = range(WIDTH, max(longest, default=0) + WIDTH, WIDTH)
    for batch in length_batches(longest, row_lengths, tokens=BATCH * WIDTH):
        found = maps_of(params, batch.padded(sources), batch.padded(targets))
        maps = {kind: np.asarray(weights) for kind, weights in found.items()}
        for row, i in enumerate(batch.members):
            spans = spans_of(model_run.tokenizer, pairs[i])
            yield (
                pairs[i],
                {
                    kind: token_weights(maps[kind][:, row, :, : len(span.queries), : len(span.keys)], span)
                    for kind, span in spans.items()
                },
            )


@cache
def _compiled(config: ModelConfig) -> Any:
    model = Transformer(config)
    return jax.jit(lambda params, *ids: model.apply(params, *map(Tokens.of, ids), method="attention_maps"))


def largest(weights_nhts: Float[np.ndarray, "... t s"]) -> Int[np.ndarray, "... t"]:
    """Returns the key with the largest weight for each query; -1 if it is not a token."""
    chosen = weights_nhts.argmax(-1)
    return np.where(chosen == weights_nhts.shape[-1] - 1, -1, chosen)


def tally(model_run: Run, pairs: Sequence[AnnotatedPair]) -> tuple[RoleTally, AlignmentTally, AlignmentTally]:
    """Returns counts over `pairs`: of relations, and of alignments by head [n,h] and by layer average [n,1]."""
    n, h = model_run.model_config.N, model_run.model_config.h
    roles, heads, layers = RoleTally(n, h), AlignmentTally(n, h), AlignmentTally(n, 1)
    for pair, maps in sentence_maps(model_run, pairs):
        for kind in KINDS:
            roles.add(pair, kind, largest(maps[kind]))
        heads.add(pair, largest(maps["cross"]))
        layers.add(pair, largest(maps["cross"].mean(1, keepdims=True)))
    return roles, heads, layers


def direction(model_run: Run) -> bool:
    """Returns whether a run translates from German, by its training corpus; False if that names no languages.

    Raises:
      UserError: the run translates other languages, which the grammar does not have.
    """
    spec = model_run.config.data.train
    languages = re.search(r"\{(\w+),(\w+)\}", spec)
    found = languages.groups() if languages else ("en", "de")
    if set(found) != {"en", "de"} or spec.startswith("trees:"):
        raise UserError(
            f"--workdir={model_run.workdir}: trained on {spec}; heads are judged on the built-in grammar, which is "
            "English and German"
        )
    return found == ("de", "en")


def judge(model_run: Run, sentences: int = 500) -> dict[str, Any]:
    """Returns head roles and alignment error, as JSON values.

    Heads are chosen on `sentences` of `grammar:valid` and scored on as many of `grammar:test`. Accuracies and error
    rates are in [0, 1].

    Returns:
      roles: by kind of attention and relation (see `infer.attention.roles.role_report`).
      alignment: of encoder-decoder attention (see `infer.attention.roles.alignment_report`).
    """
    reverse = direction(model_run)
    valid, test = (
        tally(model_run, [annotate(grammar.pair(split, i), reverse) for i in range(sentences)])
        for split in ("valid", "test")
    )
    return {
        "roles": role_report(valid[0], test[0]),
        "alignment": alignment_report(valid[1:], test[1:]),
        "counted_from": COUNTED_FROM,
        "chosen_on": f"grammar:valid:{sentences}",
        "scored_on": f"grammar:test:{sentences}",
        "step": model_run.step,
        "checkpoints": list(model_run.checkpoints),
        "params_sha256": params_sha256(model_run.params),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def kept(model_run: Run, sentences: int = 500) -> dict[str, Any]:
    """Returns the result of `judge`: read from the run if it matches these parameters and sentences, else computed and
    saved.

    Raises:
      UserError: the file in the run is damaged.
    """
    path = model_run.workdir / "evaluations" / "heads.json"
    if path.is_file():
        found = read_json(path, _KEPT)
        wanted = {"params_sha256": params_sha256(model_run.params), "scored_on": f"grammar:test:{sentences}"}
        if (wanted | {"counted_from": COUNTED_FROM}).items() <= found.items():
            roles = {kind: dict.fromkeys(found["roles"][kind], _ROLE) for kind in KINDS}
            return read_json(path, {"roles": roles})
    found = judge(model_run, sentences)
    keep(path, found)
    return found


def keep(path: Path, found: dict[str, Any]) -> None:
    """Writes the result into the run; if the folder cannot be written, only prints a note on stderr."""
    try:
        path.parent.mkdir(exist_ok=True)
        write_json(path, found)
    except OSError as error:
        print(f"note: {path} cannot be written ({error.strerror})", file=sys.stderr)


def table(found: dict[str, Any]) -> str:
    """Returns the result as text: the best head of every relation, then the alignment."""
    lines = [f"best heads, chosen on {found['chosen_on']} and scored on {found['scored_on']}; accuracies in %"]
    for kind in KINDS:
        lines += ["", f"{TITLES[kind]:<38} layer  head  accuracy  fixed distance  chance   cases"]
        for relation, role in found["roles"][kind].items():
            name = RELATIONS[relation] if kind != "cross" else f"{RELATIONS[relation]}, translated"
            best, fixed = role["best"], role["fixed"]
            lines.append(
                f"  {name:<36} {best['layer']:>5}  {best['head']:>4}  {100 * best['accuracy']:>8.1f}"
                f"  {100 * fixed['accuracy']:>8.1f} ({fixed['distance']:+d})  {100 * role['chance']:>6.1f}"
                f"  {role['cases']:>6,}"
            )
    alignment = found["alignment"]
    layer, head = alignment["best_layer"], alignment["best_head"]
    place = f"layer {head['layer']} head {head['head']}"
    lines += [
        "",
        "alignment error rate, all links sure, in %",
        f"  {'average of the best layer, ' + str(layer['layer']):<38} {100 * layer['error']:>6.1f}",
        f"  {'best head, ' + place:<38} {100 * head['error']:>6.1f}",
        f"  {'the diagonal':<38} {100 * alignment['diagonal']:>6.1f}",
    ]
    return "\n".join(lines)

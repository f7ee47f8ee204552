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
from base.progress import Progress
from base.tokens import Tokens
from data.batching import length_batches
from data.tokenizer import Tokenizer
from infer.attention.kinds import KINDS, TITLES
from infer.attention.maps import require_weights
from infer.runs import Run
from model.config import ModelConfig
from model.transformer import Transformer, init_params
from paper.heads.roles import (
    RELATIONS,
    AlignmentTally,
    AnnotatedPair,
    RoleTally,
    alignment_report,
    role_report,
)
from paper.heads.sample import CASES, Sample, sample
from run.averaging import params_sha256

BATCH = 32  # sentences of up to `WIDTH` subwords in a batch; fewer if they are longer
WIDTH = 32  # rows are padded to a multiple of this, to limit the number of compiled shapes
SENTENCES = 2500

_BOUNDS = {"low": float, "high": float}
_BEST = {"layer": int, "head": int, "accuracy": float, **_BOUNDS}
_ROLE = {
    "cases": int,
    "accuracy": [[float]],
    "best": _BEST,
    "untrained": _BEST,
    "fixed": {"distance": int, "accuracy": float, **_BOUNDS},
    "chance": float,
    "luck": float,
}
_ERRORS = {
    "best_layer": {"layer": int, "error": float, **_BOUNDS},
    "best_head": {"layer": int, "head": int, "error": float, **_BOUNDS},
}
_KEPT = {
    "roles": dict.fromkeys(KINDS, dict),
    "alignment": {
        "heads": [[float]],
        "layers": [float],
        **_ERRORS,
        "untrained": _ERRORS,
        "diagonal": {"error": float, **_BOUNDS},
    },
    "chosen_on": str,
    "scored_on": str,
    "sentences": int,
    "cases": int,
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
    limit = model_run.model_config.encoding.limit
    for batch in length_batches(longest, row_lengths, tokens=BATCH * WIDTH, limit=limit):
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


def tally(model_run: Run, pairs: Sample) -> tuple[RoleTally, AlignmentTally, AlignmentTally]:
    """Returns counts over `pairs`: of relations, and of alignments by head [n,h] and by layer average [n,1].

    Alignments are those of the first sentences alone.
    """
    heads, layers = AlignmentTally(), AlignmentTally()
    roles = RoleTally(model_run.model_config.N, model_run.model_config.h)
    with Progress(f"attention after {model_run.step:,} updates", "sentences") as progress:
        for pair, maps in progress.count(sentence_maps(model_run, pairs.first)):
            for kind in KINDS:
                roles.add(pair, kind, largest(maps[kind]))
            heads.add(pair, largest(maps["cross"]))
            layers.add(pair, largest(maps["cross"].mean(1, keepdims=True)))
        for pair, maps in sentence_maps(model_run, pairs.more):
            for kind in KINDS:
                roles.add(pair, kind, largest(maps[kind]))
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


def untrained(model_run: Run) -> Run:
    """Returns the run before its first update: the same architecture, with the parameters that its seed began with."""
    key = jax.random.split(jax.random.key(model_run.config.seed))[0]  # as training takes it
    return model_run._replace(params=jax.device_get(init_params(model_run.model_config, key)), step=0, checkpoints=())


def judge(model_run: Run, sentences: int = SENTENCES, cases: int = CASES) -> dict[str, Any]:
    """Returns head roles and alignment error, as JSON values.

    Heads are chosen on the sample of `grammar:valid` and scored on that of `grammar:test`, see `paper.heads.sample`
    for `sentences` and `cases`; and once more for the run before its first update. Accuracies and error rates are in
    [0, 1].

    Returns:
      roles: by kind of attention and relation (see `paper.heads.roles.role_report`); `untrained` is as `best`.
      alignment: of encoder-decoder attention (see `paper.heads.roles.alignment_report`).
    """
    reverse = direction(model_run)
    valid, test = (sample(split, sentences, cases, reverse) for split in ("valid", "test"))
    trained, fresh = ([tally(one, pairs) for pairs in (valid, test)] for one in (model_run, untrained(model_run)))
    roles, alignment = role_report(trained[0][0], trained[1][0]), alignment_report(trained[0][1:], trained[1][1:])
    for kind, of_fresh in role_report(fresh[0][0], fresh[1][0]).items():
        for relation, role in of_fresh.items():
            roles[kind][relation]["untrained"] = role["best"]
    of_fresh = alignment_report(fresh[0][1:], fresh[1][1:])
    return {
        "roles": roles,
        "alignment": alignment | {"untrained": {name: of_fresh[name] for name in _ERRORS}},
        "chosen_on": valid.named("valid"),
        "scored_on": test.named("test"),
        "sentences": sentences,
        "cases": cases,
        "step": model_run.step,
        "checkpoints": list(model_run.checkpoints),
        "params_sha256": params_sha256(model_run.params),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def kept(model_run: Run, sentences: int = SENTENCES, cases: int = CASES) -> dict[str, Any]:
    """Returns the result of `judge`: read from the run if it is of these parameters and of no fewer sentences and
    cases, else computed and saved. Results without `cases` are older: they count layers and heads from 0.

    Raises:
      UserError: the file in the run is damaged.
    """
    path = model_run.workdir / "evaluations" / "heads.json"
    if path.is_file():
        found = read_json(path, dict)
        if found.get("params_sha256") == params_sha256(model_run.params) and "cases" in found:
            read_json(path, _KEPT)
            if found["sentences"] >= sentences and found["cases"] >= cases:
                roles = {kind: dict.fromkeys(found["roles"][kind], _ROLE) for kind in KINDS}
                return read_json(path, {"roles": roles})
    found = judge(model_run, sentences, cases)
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
    """Returns the result as text: the best head of every relation, then the alignment.

    A relation is marked where the head's interval lies above those of both other baselines and above luck.
    """
    lines = [
        f"best heads, chosen on {found['chosen_on']} and scored on {found['scored_on']}",
        "accuracies in %, with 95 % intervals; luck: what the best of as many random heads exceeds once in 20 times",
        "*: above luck, and its interval above those of the best untrained head and of the best fixed distance",
    ]
    for kind in KINDS:
        lines += [
            "",
            f"{TITLES[kind]:<38} layer  head  accuracy{'':<16}untrained{'':<11}fixed distance{'':<10}luck   cases",
        ]
        for relation, role in found["roles"][kind].items():
            name = RELATIONS[relation] if kind != "cross" else f"{RELATIONS[relation]}, translated"
            best, fixed = role["best"], role["fixed"]
            lines.append(
                f"  {name:<36} {best['layer']:>5}  {best['head']:>4}  {100 * best['accuracy']:>8.1f}"
                f" {_between(best)}{'*' if stands_out(role) else ' '}"
                f"  {100 * role['untrained']['accuracy']:>5.1f} {_between(role['untrained'])}"
                f"  {100 * fixed['accuracy']:>5.1f} {_between(fixed)} {fixed['distance']:+3d}"
                f"  {100 * role['luck']:>5.1f}  {role['cases']:>6,}"
            )
    alignment = found["alignment"]
    fresh, diagonal = alignment["untrained"], alignment["diagonal"]
    lines += ["", f"alignment error rate, all links sure, in %  {'':<22}  {'untrained':<18}"]
    for key, name in (("best_layer", "average of the best layer, {layer}"), ("best_head", "best head, {layer}.{head}")):
        of = alignment[key]
        named = name.format(**of)
        lines.append(
            f"  {named:<46} {100 * of['error']:>8.1f} {_between(of)}"
            f"   {100 * fresh[key]['error']:>5.1f} {_between(fresh[key])}"
        )
    return "\n".join([*lines, f"  {'the diagonal':<46} {100 * diagonal['error']:>8.1f} {_between(diagonal)}"])


def stands_out(role: dict[str, Any]) -> bool:
    """Returns whether a head is better than its baselines: above luck, and its interval above both of theirs."""
    bounds = (role["luck"], role["untrained"]["high"], role["fixed"]["high"])
    return bool(role["best"]["low"] > max(bounds))


def _between(of: dict[str, Any]) -> str:
    low, high = 100 * of["low"], 100 * of["high"]
    return f"{low:>5.1f} to {high:<5.1f}"

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
from base.files import check, read_json, write_json
from base.ids import BOS, EOS
from base.progress import Progress
from base.table import Table, as_text, number
from base.tokens import Tokens
from data.batching import length_batches
from data.tokenizer import Tokenizer
from infer.attention.kinds import KINDS, TITLES
from infer.attention.maps import require_weights
from infer.runs import Run
from model.config import ModelConfig
from model.transformer import Transformer, init_params
from paper.heads.roles import AlignmentTally, AnnotatedPair, RoleTally, alignment_report, label, role_report
from paper.heads.sample import CASES, Sample, sample
from run.averaging import params_sha256

BATCH = 32  # sentences of up to `WIDTH` subwords in a batch; fewer if they are longer
WIDTH = 32  # rows are padded to a multiple of this, to limit the number of compiled shapes
SENTENCES = 2500

HEAD = (
    "relation",
    "best: head",
    "best: %",
    "best: 95 %",
    "untrained: %",
    "untrained: 95 %",
    "distance: keys",
    "distance: %",
    "distance: 95 %",
    "luck",
    "cases",
    "stands out",
)

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
    owner_at = [-1]  # by byte, behind the space that sentencepiece puts before a sentence
    at = 0
    for place, token in enumerate(tokens):
        letters = tokenizer.normalise(token).encode()
        start = spelled.find(letters, at)
        if start < 0 or spelled[at:start].strip():
            raise ValueError(f"{token!r} is not token {place} of {text!r}")
        owner_at += [place] * (start + len(letters) - at)
        at = start + len(letters)
    owner_of: list[int] = []
    end = 0
    for piece in tokenizer.pieces(tokenizer.encode(text)):
        end += 1 if re.fullmatch(r"<0x[0-9A-F]{2}>", piece) else len(piece.replace("▁", " ").encode())
        owner = owner_at[min(end, len(owner_at)) - 1]
        owner_of.append(max(owner, 0))  # a space that is its own subword belongs to the token after it
    return owner_of


def token_weights(weights_nhts: Float[np.ndarray, "n h t s"], spans: Spans) -> Float[np.ndarray, "n h q k"]:
    """Returns the weights between tokens from those between subwords; the last key stands for all non-tokens."""
    queries = max(spans.queries) + 1
    keys = max(spans.keys) + 2
    of_query_qt = np.array(spans.queries)[None, :] == np.arange(queries)[:, None]
    of_key_sk = (np.array(spans.keys)[:, None] % keys) == np.arange(keys)[None, :]
    mean_qt = of_query_qt / of_query_qt.sum(-1, keepdims=True)
    return np.einsum("qt,nhts,sk->nhqk", mean_qt, weights_nhts, of_key_sk.astype(np.float64), optimize=True)


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
    maps_of = _compiled(model_run.model_config)
    params = {"params": model_run.params}
    longest = [max(map(len, sides)) for sides in zip(sources, targets, strict=True)]
    row_lengths = range(WIDTH, max(longest, default=0) + WIDTH, WIDTH)
    limit = model_run.model_config.encoding.limit
    for batch in length_batches(longest, row_lengths, tokens=BATCH * WIDTH, limit=limit):
        maps = maps_of(params, batch.padded(sources), batch.padded(targets))
        maps = {kind: np.asarray(weights) for kind, weights in maps.items()}
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
    heads = AlignmentTally()
    layers = AlignmentTally()
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
    sides = languages.groups() if languages else ("en", "de")
    if set(sides) != {"en", "de"} or spec.startswith("trees:"):
        raise UserError(
            f"--workdir={model_run.workdir}: trained on {spec}; heads are judged on the built-in grammar, which is "
            "English and German"
        )
    return sides == ("de", "en")


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
    valid = sample("valid", sentences, cases, reverse)
    test = sample("test", sentences, cases, reverse)
    roles, alignment = _reports(model_run, valid, test)
    fresh_roles, fresh_alignment = _reports(untrained(model_run), valid, test)
    for kind, of_kind in fresh_roles.items():
        for relation, role in of_kind.items():
            roles[kind][relation]["untrained"] = role["best"]
    return {
        "roles": roles,
        "alignment": alignment | {"untrained": {name: fresh_alignment[name] for name in _ERRORS}},
        "chosen_on": valid.named("valid"),
        "scored_on": test.named("test"),
        "sentences": sentences,
        "cases": cases,
        "step": model_run.step,
        "checkpoints": list(model_run.checkpoints),
        "params_sha256": params_sha256(model_run.params),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _reports(model_run: Run, valid: Sample, test: Sample) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Returns roles and alignments of a run, chosen on one sample and scored on the other."""
    valid_roles, *valid_alignments = tally(model_run, valid)
    test_roles, *test_alignments = tally(model_run, test)
    return role_report(valid_roles, test_roles), alignment_report(valid_alignments, test_alignments)


def kept(model_run: Run, sentences: int = SENTENCES, cases: int = CASES) -> dict[str, Any]:
    """Returns the result of `judge`: read from the run if it is of these parameters and of no fewer sentences and
    cases, else computed and saved. Results without `cases` are older: they count layers and heads from 0.

    Raises:
      UserError: the file in the run is damaged.
    """
    path = model_run.workdir / "evaluations" / "heads.json"
    if path.is_file():
        saved = read_json(path, dict)
        if saved.get("params_sha256") == params_sha256(model_run.params) and "cases" in saved:
            check(path, "", saved, _KEPT)
            roles = {kind: dict.fromkeys(saved["roles"][kind], _ROLE) for kind in KINDS}
            check(path, "", saved, {"roles": roles})
            if saved["sentences"] >= sentences and saved["cases"] >= cases:
                return saved
    judged = judge(model_run, sentences, cases)
    keep(path, judged)
    return judged


def keep(path: Path, judged: dict[str, Any]) -> None:
    """Writes the result into the run; if the folder cannot be written, only prints a note on stderr."""
    try:
        path.parent.mkdir(exist_ok=True)
        write_json(path, judged)
    except OSError as error:
        print(f"note: {path} cannot be written ({error.strerror})", file=sys.stderr)


def table(judged: dict[str, Any]) -> str:
    """Returns the result as text: the best head of every relation, then the alignment."""
    return "\n\n".join(map(as_text, tables(judged)))


def tables(judged: dict[str, Any]) -> list[Table]:
    """Returns a table of the best heads for each kind of attention, and one of the alignment."""
    made = [Table(f"heads-{kind}", TITLES[kind], HEAD, _role_rows(judged["roles"][kind], kind), []) for kind in KINDS]
    made[-1].notes.extend(
        [
            f"best heads, chosen on {judged['chosen_on']} and scored on {judged['scored_on']}",
            "head: layer.head, from 1; %: accuracy; 95 %: its interval",
            "untrained: the best head before training; distance: the best fixed one; luck: what the best of as many "
            "random heads exceeds once in 20 times",
            "stands out: above luck, and its interval above those of the best untrained head and of the best fixed "
            "distance",
        ]
    )
    return [*made, _alignment_table(judged["alignment"])]


def _role_rows(roles: dict[str, Any], kind: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for relation, role in roles.items():
        best = role["best"]
        fixed = role["fixed"]
        rows.append(
            (
                label(relation, kind),
                f"{best['layer']}.{best['head']}",
                *_in_percent(best, "accuracy"),
                *_in_percent(role["untrained"], "accuracy"),
                number(float(fixed["distance"]), 0, sign=True),
                *_in_percent(fixed, "accuracy"),
                number(100 * role["luck"], 1),
                f"{role['cases']:,}",
                "yes" if stands_out(role) else "",
            )
        )
    return rows


def _alignment_table(alignment: dict[str, Any]) -> Table:
    layer = alignment["best_layer"]
    head = alignment["best_head"]
    untrained = alignment["untrained"]
    rows: list[tuple[str, ...]] = [
        (
            f"average of the best layer, {layer['layer']}",
            *_in_percent(layer, "error"),
            *_in_percent(untrained["best_layer"], "error"),
        ),
        (
            f"best head, {head['layer']}.{head['head']}",
            *_in_percent(head, "error"),
            *_in_percent(untrained["best_head"], "error"),
        ),
        ("the diagonal", *_in_percent(alignment["diagonal"], "error"), "", ""),
    ]
    columns = ("links of", "trained: %", "trained: 95 %", "untrained: %", "untrained: 95 %")
    return Table("heads-alignment", "alignment error rate, all links sure", columns, rows, [])


def _in_percent(measured: dict[str, Any], key: str) -> tuple[str, str]:
    """Returns a share and its interval."""
    return number(100 * measured[key], 1), f"{100 * measured['low']:.1f} to {100 * measured['high']:.1f}"


def stands_out(role: dict[str, Any]) -> bool:
    """Returns whether a head is better than its baselines: above luck, and its interval above both of theirs."""
    bounds = (role["luck"], role["untrained"]["high"], role["fixed"]["high"])
    return bool(role["best"]["low"] > max(bounds))

"""What each attention head does on sentences of known structure: head roles and alignment error.

Subword weights become token weights as in Clark et al. 2019 (arXiv 1906.04341, section 4.1): weights to a token's
subwords are summed, weights from them averaged. As in `infer.attention.maps`, a decoder row is the token that it
predicts. In encoder-decoder attention a relation points to the translation of the token that it names.
"""

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from lab.heads.roles import (
    AlignmentTally,
    AnnotatedPair,
    RoleTally,
    alignment_report,
    role_report,
)
from lab.heads.sample import CASES, Sample, sample
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.files import write_json
from vaswani.ids import BOS, EOS
from vaswani.infer.attention.kinds import KINDS
from vaswani.infer.attention.maps import compiled_maps, require_weights
from vaswani.infer.runs import Run
from vaswani.infer.scores.forced import forced_batches
from vaswani.model.parameters import init_params
from vaswani.model.transformer import Transformer
from vaswani.paper.grammar_runs import direction, owners
from vaswani.progress import Progress
from vaswani.read_json import read_json
from vaswani.run.builtin import is_builtin
from vaswani.run.parameters import params_sha256

WIDTH = 32  # rows are padded to a multiple of this, to limit the number of compiled shapes
BATCH = 32  # sentences of up to `WIDTH` subwords in a batch; fewer if they are longer
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
_RESULT = {
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


def token_weights(weights_nhts: Float[np.ndarray, "n h t s"], spans: Spans) -> Float[np.ndarray, "n h q k"]:
    """Returns the weights between tokens from those between subwords; the last key stands for all non-tokens."""
    queries = max(spans.queries) + 1
    keys = max(spans.keys) + 2
    rows_qt = np.array(spans.queries)[None, :] == np.arange(queries)[:, None]
    columns_sk = (np.array(spans.keys)[:, None] % keys) == np.arange(keys)[None, :]
    rows_qt = rows_qt / rows_qt.sum(-1, keepdims=True)
    return np.einsum("qt,nhts,sk->nhqk", rows_qt, weights_nhts, columns_sk.astype(np.float64), optimize=True)


def spans_of(tokenizer: Tokenizer, pair: AnnotatedPair) -> dict[str, Spans]:
    """Returns the tokens of the rows and columns for each kind of attention."""
    source = [*owners(tokenizer, pair.source_tokens, pair.source), -1]
    target = owners(tokenizer.target, pair.target_tokens, pair.target)
    return {
        "encoder": Spans(source, source),
        "decoder": Spans([*target, -1], [-1, *target]),
        "cross": Spans([*target, -1], source),
    }


def sentence_maps(model_run: Run, pairs: Sequence[AnnotatedPair]) -> Iterator[tuple[AnnotatedPair, dict[str, Any]]]:
    """Yields every pair and its token weights [n,h,t,s] by kind (see `token_weights`), shortest pairs first.

    The decoder runs with teacher forcing.

    Raises:
      UserError: the model's mixer has no weights, or a sentence is longer than its learned positions.
    """
    config = model_run.model_config
    require_weights(config)
    encode = model_run.tokenizer.encode
    sources = [[*encode(pair.source), EOS] for pair in pairs]
    targets = [[BOS, *encode(pair.target)] for pair in pairs]
    params = jax.device_put(model_run.params)  # once, not with each batch
    attention_maps = partial(compiled_maps(Transformer(config)), params)
    limit = config.limit
    batches = forced_batches(attention_maps, sources, targets, width=WIDTH, tokens=BATCH * WIDTH, limit=limit)
    for members, batch_maps in batches:
        maps = {kind: np.asarray(weights_nbhts) for kind, weights_nbhts in batch_maps.items()}
        for row, member in enumerate(members):
            pair = pairs[member]
            pair_maps = {}
            for kind, spans in spans_of(model_run.tokenizer, pair).items():
                weights_nhts = maps[kind][:, row, :, : len(spans.queries), : len(spans.keys)]
                pair_maps[kind] = token_weights(weights_nhts, spans)
            yield pair, pair_maps


def largest(weights_nhts: Float[np.ndarray, "... t s"]) -> Int[np.ndarray, "... t"]:
    """Returns the key with the largest weight for each query; -1 if it is not a token."""
    chosen = weights_nhts.argmax(-1)
    return np.where(chosen == weights_nhts.shape[-1] - 1, -1, chosen)


def tally(model_run: Run, pairs: Sample) -> tuple[RoleTally, AlignmentTally, AlignmentTally]:
    """Returns counts over `pairs`: of relations, and of alignments by head [n,h] and by layer average [n,1].

    Alignments are counted only on the first sentences.
    """
    heads = AlignmentTally()
    layers = AlignmentTally()
    N, decoder_depth = model_run.model_config.depths
    if decoder_depth != N:
        raise UserError(f"{model_run.workdir}: heads are counted of an encoder and a decoder of one depth")
    roles = RoleTally(N, model_run.model_config.h)
    sentences = len(pairs.first) + len(pairs.more)
    with Progress(f"attention after {model_run.step:,} updates", "sentences", total=sentences) as progress:
        for pair, maps in progress.count(sentence_maps(model_run, pairs.first)):
            for kind in KINDS:
                roles.add(pair, kind, largest(maps[kind]))
            heads.add(pair, largest(maps["cross"]))
            layers.add(pair, largest(maps["cross"].mean(1, keepdims=True)))
        for pair, maps in progress.count(sentence_maps(model_run, pairs.more)):
            for kind in KINDS:
                roles.add(pair, kind, largest(maps[kind]))
    return roles, heads, layers


def untrained(model_run: Run) -> Run:
    """Returns the run before its first update: the same architecture, with the parameters that its seed began with."""
    key = jax.random.split(jax.random.key(model_run.config.seed))[0]  # as training takes it
    return model_run._replace(
        params=jax.device_get(init_params(Transformer(model_run.model_config), key)), step=0, checkpoints=()
    )


def measure_heads(model_run: Run, sentences: int = SENTENCES, cases: int = CASES) -> dict[str, Any]:
    """Returns head roles and alignment error, as JSON values.

    Heads are chosen on the sample of `grammar:valid` and scored on `grammar:test`'s, see `lab.heads.sample`
    for `sentences` and `cases`; and again for the run before its first step. Accuracies and error rates are in
    [0, 1].

    Returns:
      roles: by kind of attention and relation (see `lab.heads.roles.role_report`); `untrained` is as `best`.
      alignment: of encoder-decoder attention (see `lab.heads.roles.alignment_report`).

    Raises:
      UserError: the run's units are not subwords, or as `direction` and `sentence_maps`.
    """
    units = model_run.tokenizer.units
    if units != "subwords":
        raise UserError(f"--workdir={model_run.workdir}: this run's units are {units}; heads are measured by subwords")
    reverse = direction(model_run)
    valid = sample("valid", sentences, cases, reverse)
    test = sample("test", sentences, cases, reverse)
    roles, alignment = _chosen_and_scored(model_run, valid, test)
    untrained_roles, untrained_alignment = _chosen_and_scored(untrained(model_run), valid, test)
    for kind, relations in untrained_roles.items():
        for relation, role in relations.items():
            roles[kind][relation]["untrained"] = role["best"]
    alignment["untrained"] = {name: untrained_alignment[name] for name in _ERRORS}
    return {
        "roles": roles,
        "alignment": alignment,
        "chosen_on": valid.named("valid"),
        "scored_on": test.named("test"),
        "sentences": sentences,
        "cases": cases,
        "step": model_run.step,
        "checkpoints": list(model_run.checkpoints),
        "params_sha256": params_sha256(model_run.params),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _chosen_and_scored(model_run: Run, valid: Sample, test: Sample) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the roles and the alignments of heads chosen on `valid` and scored on `test`."""
    valid_roles, *valid_alignments = tally(model_run, valid)
    test_roles, *test_alignments = tally(model_run, test)
    return role_report(valid_roles, test_roles), alignment_report(valid_alignments, test_alignments)


def load_or_measure(model_run: Run, sentences: int = SENTENCES, cases: int = CASES) -> dict[str, Any]:
    """Returns the result of `measure_heads`, read from the run or else computed and saved.

    A saved one is used if it is of these parameters and of no fewer sentences and cases. Results without `cases` are
    older: they count layers and heads from 0.

    Raises:
      UserError: the file in the run is damaged.
    """
    path = model_run.workdir / "evaluations" / "heads.json"
    if path.is_file():
        saved = read_json(path, dict)
        if saved.get("params_sha256") == params_sha256(model_run.params) and "cases" in saved:
            read_json(path, _RESULT)
            if saved["sentences"] >= sentences and saved["cases"] >= cases:
                roles = {kind: dict.fromkeys(saved["roles"][kind], _ROLE) for kind in KINDS}
                return read_json(path, {"roles": roles})
    result = measure_heads(model_run, sentences, cases)
    save(path, result)
    return result


def save(path: Path, result: dict[str, Any]) -> None:
    """Writes the result into the run; if the folder cannot be written, only prints a note on stderr."""
    if is_builtin(path.parent.parent):
        print("note: a bundled model is read-only, so the result is not saved", file=sys.stderr)
        return
    try:
        path.parent.mkdir(exist_ok=True)
        write_json(path, result)
    except OSError as error:
        print(f"note: {path} cannot be written ({error.strerror})", file=sys.stderr)

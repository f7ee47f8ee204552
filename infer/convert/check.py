"""What every export checks: that the format can hold the model, and that the written model computes the same."""

import dataclasses
import sys
from collections.abc import Container, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import jax
import numpy as np

from vaswani.data.pair import Pair
from vaswani.data.sources import open_corpus
from vaswani.data.symbols import SPECIALS
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.ids import EOS, PAD
from vaswani.infer.runs import Run
from vaswani.model.config import RATES, ModelConfig
from vaswani.model.transformer import Transformer
from vaswani.search.scoring import forced_log_probs

# Fields of `ModelConfig` that are sizes, or that change how a model is trained and run but not what it computes.
_SIZES = (
    "vocab_size",
    "source_vocab_size",
    "N",
    "N_encoder",
    "N_decoder",
    "d_model",
    "d_ff",
    "h",
    "max_positions",
    "max_distance",
    "neighbours",
    "kernel_width",
)
_DROPOUT = (*RATES, "dropout_bits")
_EXECUTION = ("dtype", "remat", "attention_impl", "scan_layers")
_TRAINING = ("parametrisation", "mup_width")  # which change initial values and rates
FREE = (*_SIZES, *_DROPOUT, *_EXECUTION, *_TRAINING)
SENTENCES = 4
PAIRS = (
    ("The dog sleeps.", "Der Hund schläft."),
    ("We read a new book in the garden.", "Wir lesen im Garten ein neues Buch."),
    ("Two men are playing football on a field.", "Zwei Männer spielen auf einem Feld Fußball."),
    ("Thank you!", "Danke!"),
)
LONGEST = 100  # subwords of a checked sentence

KNOWN_NORMS = ("post", "pre")  # what formats know of `model.norm`


class ScoredPairs(NamedTuple):
    """Ids of sources as the model reads them, of targets with EOS, and our log-probability of each of the latter."""

    sources: list[list[int]]
    targets: list[list[int]]
    log_probs: list[np.ndarray]


def check_holds(
    engine: str, config: ModelConfig, held: Mapping[str, Container], instead: str = "take another format"
) -> None:
    """Raises `UserError` if a field that matters has a value that `engine` cannot hold.

    `held` has the values of each field that it can hold; of fields without an entry it holds the default.
    """
    for field in dataclasses.fields(config):
        if field.name in FREE:
            continue
        value = getattr(config, field.name)
        can_be = held.get(field.name, (field.default,))
        if value not in can_be:
            raise UserError(f"model.{field.name} is {value!r}, which {engine} cannot hold; {instead}")


def widths_and_switches(config: ModelConfig) -> dict[str, Container]:
    """Returns, for `check_holds`, what an engine holds that computes the model's own equations from its parameters."""
    either = (False, True)
    return {
        "norm_epsilon": (config.norm_epsilon,),
        "d_k": (config.d_k,),
        "d_v": (config.d_v,),
        "biases": either,
        "feed_forward_biases": either,
        "output_bias": either,
        "tie_embeddings": either,
        "scale_attention": either,
        "scale_embeddings": either,
        "scale_logits": either,
    }


def lengths(config: ModelConfig) -> dict[str, object]:
    """Returns values for a README: the allowed length of rows, and the limit of its greedy search example."""
    limit = config.limit
    allowed = f"of at most {limit} subwords" if limit else "of any length"
    return {"lengths": allowed, "longest": min(limit or 50, 50)}


def check_tokenizer(
    engine: str, model_run: Run, *, may_be_two: bool = False, kinds: Sequence[type[Tokenizer]] = (Tokenizer,)
) -> None:
    """Raises `UserError` unless the run's tokenizer is a sentencepiece model, or another of these `kinds`.

    It may be two of them, the source's and the target's, of a format that holds a vocabulary for each.
    """
    tokenizer = model_run.tokenizer
    if isinstance(tokenizer, Pair) and not may_be_two:
        raise UserError(
            f"{model_run.workdir}: data.share_vocabulary is False, and {engine} exports hold one vocabulary; take"
            " ctranslate2 or safetensors"
        )
    sides = (tokenizer.source, tokenizer.target) if isinstance(tokenizer, Pair) else (tokenizer,)
    if any(type(side) not in kinds for side in sides):
        raise UserError(f"{model_run.workdir}: its tokenizer is not a sentencepiece model, which {engine} exports need")


def named_pieces(tokenizer: Tokenizer) -> list[str]:
    """Returns the vocabulary; special symbols have our names, whatever a sentencepiece model of others calls them."""
    return [*SPECIALS, *tokenizer.pieces(range(len(SPECIALS), tokenizer.vocab_size))]


def scored_pairs(model_run: Run) -> ScoredPairs:
    """Returns some sentences of the run's validation corpus or, if that is missing, of `PAIRS`, scored by our model."""
    config = dataclasses.replace(model_run.model_config, dtype="float32", attention_impl="einsum")
    longest = min(LONGEST, config.limit or LONGEST)
    try:
        corpus = open_corpus(model_run.config.data.valid)
        pairs = list(islice(corpus.pairs(), SENTENCES))
    except UserError:
        pairs = list(PAIRS)

    tokenizer = model_run.tokenizer
    sources = []
    targets = []
    for source, target in pairs:
        source_ids = tokenizer.encode(source)[: longest - 1]
        target_ids = tokenizer.target.encode(target)[: longest - 1]
        sources.append([*source_ids, *tokenizer.source_end])
        targets.append([*target_ids, EOS])

    width = max(map(len, sources + targets))
    source_bs = _padded(sources, width)
    target_bt = _padded(targets, width)
    token_log_probs = jax.jit(partial(forced_log_probs, Transformer(config)))
    log_probs_bt = np.asarray(token_log_probs(model_run.params, source_bs, target_bt))
    log_probs = []
    for log_probs_t, ids in zip(log_probs_bt, targets, strict=True):
        log_probs.append(log_probs_t[: len(ids)])
    return ScoredPairs(sources, targets, log_probs)


def _padded(sentences: list[list[int]], width: int) -> np.ndarray:
    """Returns the ids in rows of one width, with PAD behind them."""
    return np.array([ids + [PAD] * (width - len(ids)) for ids in sentences], np.int32)


def penalty_note(engine: str, kind: str) -> str:
    """Compares, in a sentence, the length penalty of `engine` with a run's, `config.decode.length_penalty`."""
    ranking = f"{engine} ranks hypotheses by log p / n^alpha (n subwords, the end counted)"
    if kind == "power":
        return f"{ranking}, as the run does."
    return f"{ranking}, the run by log p / ((5 + n) / 6)^alpha."


def stopping_note(engine: str, stopping: str) -> str:
    """Compares, in a sentence, the stopping rule of `engine` with a run's, `config.decode.stopping`."""
    end = f"{engine} ends a search once as many hypotheses are finished as the beam holds"
    if stopping == "full":
        return f"{end}, as the run does."
    return f"{end}, the run once no hypothesis could still win (`--stopping=full` makes it do the same)."


def compare(
    engine: str, sentences: ScoredPairs, log_probs: Sequence[Sequence[float]], tolerance: float, advice: str = ""
) -> float:
    """Reports the largest difference between our log-probabilities of subwords and an engine's `log_probs`.

    Also returns it. An error ends with the `advice`.

    Raises:
      UserError: it exceeds the tolerance, or is not a number.
    """
    pairs = zip(sentences.log_probs, log_probs, strict=True)
    differences = [np.abs(our_t - np.asarray(their_t)) for our_t, their_t in pairs]
    largest = float(np.max(np.concatenate(differences)))
    count = sum(map(len, sentences.targets))
    result = f"{engine}: log-probabilities of {count} subwords differ by at most {largest:.1e}"
    if not largest <= tolerance:
        cause = f"more than the {tolerance:g} that its arithmetic explains"
        raise UserError(f"{result}, {cause}: nothing is written{advice}")
    print(f"{result} ({tolerance:g} is allowed)", file=sys.stderr)
    return largest

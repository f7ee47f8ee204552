"""The explorer's data: a run's config, its tokenizer, and its parameters, rounded to 16 or to eight bits."""

import base64
import re
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict
from sentencepiece import sentencepiece_model_pb2

from vaswani.data.pair import Pair
from vaswani.data.sources import open_corpus
from vaswani.data.symbols import SPECIALS, Symbols
from vaswani.data.tokenizer import Tokenizer
from vaswani.errors import UserError
from vaswani.infer.attention.choices import translation_choices
from vaswani.infer.attention.kinds import TITLES
from vaswani.infer.convert.check import KNOWN_NORMS, check_holds, widths_and_switches
from vaswani.infer.explorer.about import about
from vaswani.infer.html import inline_scripts, read_template, script_json, script_policy
from vaswani.infer.runs import Run, check_finite
from vaswani.infer.translate.options import make_decoding
from vaswani.infer.translate.translator import Translator
from vaswani.model.config import ModelConfig
from vaswani.read_json import read_json
from vaswani.run.averaging import list_checkpoints, load_choice
from vaswani.run.parameters import count_parameters, params_sha256

TEMPLATE = Path(__file__).with_name("page.html")
LARGEST = 10_000_000  # parameters: a browser needs a second for a sentence, and the file has 13 MB
SMALL = 6_000_000  # bytes of parameters in base64, up to which a number of a matrix has 16 bits
SENTENCES = 4_000  # of the corpus, from which the page knows words: more have no other
_WORD = re.compile(r"[\w'-]+")
# The fields that engine.js reads.
FIELDS = (
    "vocab_size",
    "N",
    "d_model",
    "d_ff",
    "h",
    "d_k",
    "d_v",
    "norm",
    "norm_epsilon",
    "positions",
    "scale_attention",
    "scale_embeddings",
    "scale_logits",
    "tables",
)
POSITIONS = ("sinusoidal", "learned")
ROLES = "roles.json"  # of a run whose heads were measured
_ROLE = {"kind": str, "layer": int, "head": int, "relation": str, "accuracy": float, "low": float, "high": float}
_KINDS = {1: "normal", 6: "byte"}  # of sentencepiece's pieces; the others are special tokens


def check(model_run: Run) -> None:
    """Raises a `UserError` unless engine.js computes this run."""
    where = f"--workdir={model_run.workdir}"
    instead = "python -m infer.demo shows this run"
    if not isinstance(model_run.model_config, ModelConfig):
        raise UserError(f"{where}: the explorer is for Transformers, not for recurrent networks; {instead}")
    config = model_run.model_config
    held = {"norm": KNOWN_NORMS, "positions": POSITIONS, **widths_and_switches(config)}
    check_holds("the explorer", config, held, instead)
    if config.depths != (config.N, config.N):
        raise UserError(f"{where}: the explorer is for stacks of one depth; {instead}")
    count = count_parameters(model_run.params)
    if count > LARGEST:
        raise UserError(f"{where}: {count:,} parameters; the explorer is for up to {LARGEST:,}; {instead}")
    check_finite(model_run)


def tokenizer_data(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns what tokenizer.js reads: the target's vocabulary, the source's if it is another, and what ends a source.

    Raises:
      UserError: as `vocabulary_data`.
    """
    end = list(tokenizer.source_end)
    if not isinstance(tokenizer, Pair):
        return {"target": vocabulary_data(tokenizer), "source": None, "source_end": end}
    source = vocabulary_data(tokenizer.source)
    return {"target": vocabulary_data(tokenizer.target), "source": source, "source_end": end}


def vocabulary_data(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the pieces of a vocabulary, their scores and kinds, and the normalisation as sentencepiece has it.

    Words between blanks are pieces that begin with sentencepiece's mark of a space.

    Raises:
      UserError: it is neither of words nor of subwords that can be spelled in bytes, as those that training learns.
    """
    wrong = UserError(
        "the explorer is for words, or subwords that training here has learned; python -m infer.demo shows this run"
    )
    if isinstance(tokenizer, Symbols) and tokenizer.units == "words" and not tokenizer.joiner:
        words = tokenizer.pieces(range(len(SPECIALS), tokenizer.vocab_size))
        pieces = [*SPECIALS, *(f"▁{word}" for word in words)]
        names = ["special"] * len(SPECIALS) + ["word"] * len(words)
        return {"pieces": pieces, "scores": [], "kinds": names, "charsmap": ""}
    if type(tokenizer) is not Tokenizer or tokenizer.units != "subwords":
        raise wrong
    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.content)  # type: ignore[attr-defined]
    rules = model.normalizer_spec
    as_learned = model.trainer_spec.byte_fallback and rules.add_dummy_prefix and rules.remove_extra_whitespaces
    kinds = [piece.type for piece in model.pieces]
    has_whole_words = any(kind not in (1, 2, 3, 6) for kind in kinds)
    if not as_learned or has_whole_words or model.trainer_spec.model_type != model.trainer_spec.BPE:
        raise wrong
    return {
        "pieces": [piece.piece for piece in model.pieces],
        "scores": [piece.score for piece in model.pieces],
        "kinds": [_KINDS.get(kind, "special") for kind in kinds],
        "charsmap": _base64(rules.precompiled_charsmap),
    }


def stored_bits(model_run: Run, checkpoints: int = 0) -> int:
    """Returns the bits that the page stores for a number of a matrix: 16 if it stays small, else 8."""
    numbers = count_parameters(model_run.params) * (1 + checkpoints)
    return 16 if 2 * numbers * 4 / 3 < SMALL else 8  # base64 takes four bytes for three


def quantised(leaf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns a matrix as whole numbers from -127 to 127, and a factor for each row of its last axis, in float32."""
    rows = leaf.reshape(-1, leaf.shape[-1])
    factors = np.abs(rows).max(axis=1).astype(np.float32) / np.float32(127)
    whole = np.rint(rows / np.where(factors == 0, 1, factors)[:, None])
    return whole.astype(np.int8), factors


def rounded(params: Any, bits: int) -> Any:
    """Returns the parameters with which the explorer computes, in float32: a number of a matrix has so many bits."""
    return jax.tree.map(lambda leaf: _rounded(leaf, bits), params)


def _rounded(leaf: np.ndarray, bits: int) -> np.ndarray:
    if leaf.ndim == 1:
        return leaf
    if bits == 16:
        return leaf.astype(np.float16).astype(np.float32)
    whole, factors = quantised(leaf)
    return (whole.astype(np.float32) * factors[:, None]).reshape(leaf.shape)


def largest_difference(model_run: Run, params: Any, sources: Sequence[str]) -> float:
    """Returns the largest difference that other parameters make to the log-probability of a subword.

    It is measured on the run's own greedy translations of `sources`; 0 where no parameter differs.
    """
    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(model_run.params), strict=True)
    if all(np.array_equal(ours, theirs) for ours, theirs in pairs):
        return 0.0
    greedy = make_decoding(model_run.config.decode, beam=1)
    translator = Translator(model_run.model_config, model_run.tokenizer, greedy)
    largest = 0.0
    for source, translation in zip(sources, translator.translate(model_run.params, sources), strict=True):
        target = translation.hypotheses[0].tokens
        before, after = (
            translation_choices(model_run.model_config, one, model_run.tokenizer, source, target)[0]
            for one in (model_run.params, params)
        )
        differences = [abs(np.log(x.probability / y.probability)) for x, y in zip(before, after, strict=True)]
        largest = max(largest, *differences)
    return float(largest)


def _tensors(params: Any, bits: int) -> dict[str, dict[str, Any]]:
    """Returns the arrays as engine.js reads them: vectors in float32, matrices in float16 or as of `quantised`."""
    stored = {}
    for name, leaf in flatten_dict(params, sep="/").items():
        array = np.asarray(leaf, "<f4")
        if array.ndim == 1:
            stored[name] = {"shape": array.shape, "float32": _base64(array.tobytes())}
            continue
        if bits == 16:
            stored[name] = {"shape": array.shape, "float16": _base64(array.astype("<f2").tobytes())}
            continue
        whole, factors = quantised(array)
        stored[name] = {
            "shape": array.shape,
            "int8": _base64(whole.tobytes()),
            "factors": _base64(factors.astype("<f4").tobytes()),
        }
    return stored


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def spaced(model_run: Run, count: int) -> list[int]:
    """Returns the steps of `count` checkpoints of a run, evenly spaced, the first and the last among them.

    Raises:
      UserError: the run has fewer.
    """
    steps = [checkpoint.step for checkpoint in list_checkpoints(model_run.workdir)]
    if count > len(steps):
        raise UserError(
            f"--checkpoints={count}: the run has {len(steps)}; keep more with --config.checkpoint.keep_last"
        )
    places = np.linspace(len(steps) - 1, 0, count).round().astype(int)
    return [steps[place] for place in reversed(places.tolist())]


def corpus_words(corpus: str) -> list[str]:
    """Returns the words of 4,000 sources of the built-in grammar, the most frequent first; of another corpus none.

    A word that is also written with a small letter is not capitalised: it only began a sentence.
    """
    if not re.fullmatch(r"grammar:train(:\d+)?(:\{\w+,\w+\})?", corpus):
        return []
    sentences = islice(open_corpus(corpus).pairs(), SENTENCES)
    counts = Counter(word for pair in sentences for word in _WORD.findall(pair[0]))
    lowered = {word: word[0].lower() + word[1:] for word in counts}
    words = dict.fromkeys(lowered[word] if lowered[word] in counts else word for word, _ in counts.most_common())
    return list(words)


def measured_roles(model_run: Run) -> dict[str, Any] | None:
    """Returns what the lab has measured of the heads of a run, if it was with these parameters.

    Raises:
      UserError: the file is damaged.
    """
    path = model_run.workdir / ROLES
    if not path.is_file():
        return None
    measured = read_json(path, {"params_sha256": str, "scored_on": str, "roles": [_ROLE]})
    if measured["params_sha256"] != params_sha256(model_run.params):
        print(f"note: {path} is about other parameters, so the page has no roles of heads", file=sys.stderr)
        return None
    return measured


def as_json(
    model_run: Run, checkpoints: Sequence[int] = (), source: str = "", examples: Path | None = None
) -> dict[str, Any]:
    """Returns the page's data; `examples` is a file for `about`. Raises as `check`, `tokenizer_data` and `about`."""
    check(model_run)
    config: ModelConfig = model_run.model_config
    decode = model_run.config.decode
    bits = stored_bits(model_run, len(checkpoints))
    others = []
    for step in checkpoints:
        _, params = load_choice(model_run.workdir, str(step))
        others.append({"step": step, "tensors": _tensors(params, bits)})
    told = about(model_run, examples)
    sources = [example["source"] for example in told["examples"]]
    words = corpus_words(model_run.config.data.train)
    return {
        "source": source or next(iter(sources), ""),
        "about": told
        | {
            "parameters": count_parameters(model_run.params),
            "words": len(words),
            "bits": bits,
            "difference": largest_difference(model_run, rounded(model_run.params, bits), sources),
        },
        "words": words,
        "titles": TITLES,
        "step": model_run.step,
        "measured": measured_roles(model_run),
        "config": {field: getattr(config, field) for field in FIELDS},
        "decoding": {
            "beam": decode.beam,
            "alpha": decode.alpha,
            "extra_length": decode.extra_length,
            "stopping": decode.stopping,
            "length_penalty": decode.length_penalty,
        },
        "tokenizer": tokenizer_data(model_run.tokenizer),
        "tensors": _tensors(model_run.params, bits),
        "checkpoints": others,
    }


def page(data: dict[str, Any]) -> str:
    """Returns the page of what `as_json` returns, as text."""
    template = read_template(TEMPLATE)
    before, after = template.replace("__SCRIPT__", script_policy(inline_scripts(template))).split("__DATA__")
    return f"{before}{script_json(data)}{after}"

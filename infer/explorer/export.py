"""The explorer's data: a run's config, its tokenizer, and its parameters, rounded to 16 bits."""

import base64
import re
import sys
import zlib
from collections.abc import Iterable, Sequence
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
from vaswani.infer.convert.check import KNOWN_NORMS, check_holds, widths_and_switches
from vaswani.infer.explorer.about import about, score
from vaswani.infer.html import inline_scripts, read_template, script_json, script_policy
from vaswani.infer.runs import Run, check_finite
from vaswani.infer.translate.options import make_decoding
from vaswani.infer.translate.translator import Translator
from vaswani.model.config import ModelConfig
from vaswani.read_json import read_json
from vaswani.run.parameters import count_parameters, params_sha256

TEMPLATE = Path(__file__).with_name("page.html")
LARGEST = 5_000_000  # parameters: a browser needs half a second for a sentence, and the file has 12 MB
SENTENCES = 4_000  # of the corpus, from which the page knows words: more have no other
_WORD = re.compile(r"[\w'-]+")
# The fields that engine.js reads.
FIELDS = (
    "N",
    "d_model",
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
    """Returns the pieces of a vocabulary, their scores, and the normalisation as sentencepiece has it.

    Words between blanks are pieces that begin with sentencepiece's mark of a space, and have no scores.

    Raises:
      UserError: it is neither of words nor of subwords that can be spelled in bytes, as those that training learns.
    """
    wrong = UserError(
        "the explorer is for words, or subwords that training here has learned; python -m infer.demo shows this run"
    )
    if isinstance(tokenizer, Symbols) and tokenizer.units == "words" and not tokenizer.joiner:
        words = tokenizer.pieces(range(len(SPECIALS), tokenizer.vocab_size))
        return {"pieces": [*SPECIALS, *(f"▁{word}" for word in words)], "scores": [], "charsmap": ""}
    if type(tokenizer) is not Tokenizer or tokenizer.units != "subwords":
        raise wrong
    model = sentencepiece_model_pb2.ModelProto.FromString(tokenizer.content)  # type: ignore[attr-defined]
    rules = model.normalizer_spec
    as_learned = model.trainer_spec.byte_fallback and rules.add_dummy_prefix and rules.remove_extra_whitespaces
    has_whole_words = any(piece.type not in (1, 2, 3, 6) for piece in model.pieces)
    if not as_learned or has_whole_words or model.trainer_spec.model_type != model.trainer_spec.BPE:
        raise wrong
    return {
        "pieces": [piece.piece for piece in model.pieces],
        "scores": [piece.score for piece in model.pieces],
        "charsmap": _deflated(rules.precompiled_charsmap) if rules.precompiled_charsmap else "",
    }


def rounded(params: Any) -> Any:
    """Returns the parameters with which the explorer computes: each has 16 bits."""
    return jax.tree.map(lambda leaf: leaf.astype(np.float16).astype(np.float32), params)


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


def _numbers(arrays: Iterable[np.ndarray]) -> str:
    """Returns the numbers of all arrays, of 16 bits each: first the low bytes of all, then the high ones.

    Apart they deflate better, since the high ones, of sign and exponent, are of few kinds.
    """
    halves_n2 = np.concatenate([array.astype("<f2").ravel() for array in arrays]).view(np.uint8).reshape(-1, 2)
    return _deflated(halves_n2.T.tobytes())


def _deflated(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()


def corpus_words(corpus: str) -> list[str]:
    """Returns the words of 4,000 sources of the built-in grammar, in small letters; of another corpus none."""
    if not re.fullmatch(r"grammar:train(:\d+)?(:\{\w+,\w+\})?", corpus):
        return []
    sentences = islice(open_corpus(corpus).pairs(), SENTENCES)
    return sorted({word for pair in sentences for word in _WORD.findall(pair[0].lower())})


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


def as_json(model_run: Run, source: str = "", examples: Path | None = None) -> dict[str, Any]:
    """Returns the page's data; `examples` is a file for `about`. Raises as `check`, `tokenizer_data` and `about`."""
    check(model_run)
    config: ModelConfig = model_run.model_config
    decode = model_run.config.decode
    told = about(model_run, examples)
    tensors = flatten_dict(model_run.params, sep="/")
    sources = [example["source"] for example in told["examples"]]
    return {
        "source": source or next(iter(sources), ""),
        "about": told | {"numbers": about_numbers(model_run, sources)},
        "words": corpus_words(model_run.config.data.train),
        "measured": measured_roles(model_run),
        "config": {field: getattr(config, field) for field in FIELDS},
        "decoding": {name: decode[name] for name in ("beam", "alpha", "extra_length", "stopping", "length_penalty")},
        "tokenizer": tokenizer_data(model_run.tokenizer),
        "tensors": {name: leaf.size for name, leaf in tensors.items()},
        "numbers": _numbers(tensors.values()),
    }


def about_numbers(model_run: Run, sources: Sequence[str]) -> str:
    """Returns what the page says of its numbers, and how much rounding changes them in translations of `sources`."""
    difference = largest_difference(model_run, rounded(model_run.params), sources)
    told = "rounded to 16 bits" if difference or not sources else "exactly the run’s"
    if difference:
        told += f", by which no log-probability in the examples differs by more than {difference:.2g}"
    text = f"Everything on this page is computed in it, with the parameters of step {model_run.step}, {told}."
    smoothing = model_run.config.loss.eps_ls
    if smoothing and model_run.config.data.train:
        text += f" Even a sure word has some {1 - smoothing:.0%}: label smoothing of {smoothing:g} taught the model to "
        text += "keep the rest back."
    found = score(model_run)
    return f"{text} sacreBLEU: {found['signature']}." if found else text


def page(data: dict[str, Any]) -> str:
    """Returns the page of what `as_json` returns, as text."""
    template = read_template(TEMPLATE)
    before, after = template.replace("__SCRIPT__", script_policy(inline_scripts(template))).split("__DATA__")
    return f"{before}{script_json(data)}{after}"

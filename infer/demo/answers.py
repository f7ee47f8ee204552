"""What the page shows for a sentence: each run's translations, the attention of the best, and how it was searched."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from vaswani.data.lines import is_blank
from vaswani.errors import UserError
from vaswani.infer.attention.choices import choices_of_kinds, translation_choices
from vaswani.infer.attention.maps import attention_maps, output_ids, titled
from vaswani.infer.attention.page import as_json
from vaswani.infer.demo.training import EXAMPLES, examples, languages, marked, training_words
from vaswani.infer.runs import Run, finite
from vaswani.infer.translate.explain import beam_tree
from vaswani.infer.translate.options import make_decoding
from vaswani.infer.translate.translator import Hypothesis, Translator, source_sentences
from vaswani.keys import short_names
from vaswani.run.averaging import named_steps
from vaswani.run.sharding import data_mesh, place_params
from vaswani.search.beam import length_penalty
from vaswani.search.options import Decoding

NBEST = 5
LONGEST = 1_000  # characters of a sentence
LONGEST_MAP = 100  # subwords of a side, beyond which the page would be slow
WARM_WIDTH = 8  # source subwords: of one sentence of each multiple the programs are compiled in advance


class _Shown(NamedTuple):
    """A run with its parameters on the device, its name on the page, its search, and the words it was trained on."""

    name: str
    run: Run
    decoding: Decoding
    translator: Translator
    words: Future[frozenset[str]]


def check_sentence(text: str) -> None:
    """Raises `UserError` if the text is empty, too long, or more than a line."""
    count = 0 if is_blank(text) else len(text.strip())
    if not count or len(text) > LONGEST or "\n" in text:
        raise UserError(f"give one line of 1 to {LONGEST:,} characters a sentence; here are {count:,}")


class Demo:
    """Answers for several runs, one sentence at a time. Each run searches with a beam that holds the n-best list.

    Raises:
      UserError: an option is outside `search.options.LIMITS`, or the parameters of a run are not finite.
    """

    def __init__(self, runs: Sequence[Run], names: Sequence[str], options: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        self._runs = []
        self._warmed: set[int] = set()
        reader = ThreadPoolExecutor(1)  # words are read while the first programs are compiled
        paths = [str(Path(name)) for name in names]  # without a slash at the end
        for run, name in zip(runs, short_names(paths, separator="/"), strict=True):
            beam = max(NBEST, options["beam"] or run.config.decode.beam)
            search = options | {"beam": beam}
            decoding = make_decoding(run.config.decode, **search, nbest=NBEST)
            translator = Translator(run.model_config, run.tokenizer, decoding)
            on_device = run._replace(params=place_params(data_mesh(), finite(run)))
            words = reader.submit(training_words, run.config)
            self._runs.append(_Shown(name, on_device, decoding, translator, words))

    def about(self) -> dict[str, Any]:
        """Returns what the page says before anything is translated: a line on each run, and sentences to try."""
        lines: list[str] = []
        sentences: dict[str, None] = {}
        for shown in self._runs:
            config = shown.run.config
            trained_on = f"trained on {config.data.train}" if config.data.train else ""
            parts = (languages(config), trained_on, f"parameters of {named_steps(shown.run.checkpoints)}")
            lines.append(f"{shown.name}: {', '.join(filter(None, parts))}")
            sentences.update(dict.fromkeys(examples(config)))
        return {"runs": lines, "examples": list(sentences)[:EXAMPLES]}

    def answer(self, text: str, target: str = "") -> dict[str, Any]:
        """Returns as "runs" JSON values for each run: name, hypotheses (text, score), what a score is, and the maps.

        "source" is the text in parts, with true for a word that its training text does not have; "unknown" says why
        that cannot be told.

        The maps are those of the best hypothesis, or of `target`, if there is one, which then has a score as "forced";
        instead of them there may be a note that says why they are missing.

        Raises:
          UserError: the text is empty; the text or the target is too long, or more than a line.
        """
        check_sentence(text)
        if target:
            check_sentence(target)
        with self._lock:
            return {"runs": [_answer_of(shown, text, target) for shown in self._runs]}

    def sentences(self, text: str, target: str = "") -> dict[str, Any]:
        """Returns as "sentences" those of a text of one or more lines, as `infer.translate --split_sentences` does."""
        return {"sentences": source_sentences(self._runs[0].run.tokenizer, text)}

    def warm(self, text: str, target: str = "") -> dict[str, Any]:
        """Compiles what the answer to a text of this length needs, unless it has been or another answer is on its way.

        Raises:
          UserError: the text is empty, too long, or more than a line.
        """
        check_sentence(text)
        width = len(self._runs[0].run.tokenizer.encode(text)) // WARM_WIDTH
        if width not in self._warmed and self._lock.acquire(blocking=False):
            try:
                for shown in self._runs:
                    _answer_of(shown, text, target)
                self._warmed.add(width)
            finally:
                self._lock.release()
        return {}

    def beam(self, text: str, target: str = "") -> dict[str, Any]:
        """Returns as "runs", for each run, its name and its search as `infer.translate.explain` draws it, or a note.

        A search has no use for a target; it is there since the server gives one to every answer.

        Raises:
          UserError: the text is empty, too long, or more than a line.
        """
        check_sentence(text)
        answers: list[dict[str, Any]] = []
        with self._lock:
            for shown in self._runs:
                run = shown.run
                try:
                    tree = beam_tree(run.model_config, run.params, run.tokenizer, shown.decoding, text)
                    answers.append({"name": shown.name, "tree": tree.as_json()})
                except (UserError, ValueError) as error:
                    answers.append({"name": shown.name, "note": str(error)})
        return {"runs": answers}


def _answer_of(shown: _Shown, text: str, target: str) -> dict[str, Any]:
    run = shown.run
    hypotheses = shown.translator.translate(run.params, [text])[0].hypotheses
    best = hypotheses[0]
    answer: dict[str, Any] = {
        "name": shown.name,
        "hypotheses": [_hypothesis_as_json(hypothesis) for hypothesis in hypotheses],
        "score": _meaning_of_score(shown.decoding),
        "maps": {},
    }
    try:
        answer["source"] = marked(text, shown.words.result())
    except UserError as error:
        answer["unknown"] = str(error)
    tokenizer = run.tokenizer
    output = output_ids(tokenizer, target or best.tokens)
    is_long = max(len(tokenizer.encode(text)), len(output)) > LONGEST_MAP
    without_maps = {"note": f"no attention is shown for more than {LONGEST_MAP} subwords"}
    if is_long and not target:
        return answer | without_maps
    try:
        choices, log_prob = translation_choices(run.model_config, run.params, tokenizer, text, output)
        if target:
            decoding = shown.decoding
            penalty = length_penalty(jnp.array(len(choices)), decoding.alpha, decoding.length_penalty)
            forced = Hypothesis(target, log_prob / float(penalty), log_prob, ())
            answer["forced"] = _hypothesis_as_json(forced)
        if is_long:
            return answer | without_maps
        maps = attention_maps(run.model_config, run.params, tokenizer, text, output)
    except (UserError, ValueError) as error:
        return answer | {"note": str(error)}
    answer["maps"] = as_json(titled(maps), choices_of_kinds(maps, choices))
    return answer


def _meaning_of_score(decoding: Decoding) -> str:
    """Returns in one line what a score is."""
    power = f"n^{decoding.alpha:g}" if decoding.length_penalty == "power" else f"((5 + n)/6)^{decoding.alpha:g}"
    return f"score = log p / {power}: natural logarithm, n subwords with the end of the sentence; nearer to 0 is better"


def _hypothesis_as_json(hypothesis: Hypothesis) -> dict[str, Any]:
    finite_score = max(hypothesis.score, -1e9)  # JSON has no infinity
    return {"text": hypothesis.text, "score": round(finite_score, 4)}

"""What the page shows for a sentence: each run's translations, and the attention of the best."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from base.errors import UserError
from infer.attention.kinds import KINDS, TITLES
from infer.attention.maps import AttentionMap, attention_maps
from infer.attention.page import labels
from infer.runs import Run
from infer.translate.options import chosen
from infer.translate.translator import Hypothesis, Translator

NBEST = 5
LONGEST = 1_000  # characters of a sentence
LONGEST_MAP = 100  # subwords of a side, beyond which the page would be slow


def check_sentence(text: str) -> None:
    """Raises `UserError` if the text is empty, too long, or more than a line."""
    if not text.strip() or len(text) > LONGEST or "\n" in text:
        raise UserError(f"give one line of 1 to {LONGEST:,} characters")


class Demo:
    """Answers for several runs, one sentence at a time. Each run searches with a beam that holds the n-best list.

    Raises:
      UserError: an option is outside `infer.translate.options.LIMITS`.
    """

    def __init__(self, runs: Sequence[Run], names: Sequence[str], options: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        self._runs = []
        for run, name in zip(runs, names, strict=True):
            beam = max(NBEST, options["beam"] or run.config.decode.beam)
            decoding = chosen(run.config.decode, **{**options, "beam": beam}, nbest=NBEST)
            translator = Translator(run.model_config, run.tokenizer, decoding)
            on_device = run._replace(params=jax.device_put(run.params))
            shown_name = Path(name).name or name
            self._runs.append((shown_name, on_device, translator))

    def answer(self, text: str) -> list[dict[str, Any]]:
        """Returns JSON values for each run: name, hypotheses (text, score), and maps by kind, or a note without them.

        Raises:
          UserError: the text is empty, too long, or more than a line.
        """
        check_sentence(text)
        with self._lock:
            return [self._answer_of(name, run, translator, text) for name, run, translator in self._runs]

    def _answer_of(self, name: str, run: Run, translator: Translator, text: str) -> dict[str, Any]:
        hypotheses = translator.translate(run.params, [text])[0].hypotheses
        best = hypotheses[0]
        answer: dict[str, Any] = {
            "name": name,
            "hypotheses": [_hypothesis_as_json(hypothesis) for hypothesis in hypotheses],
            "maps": {},
        }
        tokenizer = run.tokenizer
        target = tokenizer.marked(best.tokens) if tokenizer.joiner else best.text
        longest = max(len(tokenizer.encode(text)), len(tokenizer.target.encode(target)))
        if longest > LONGEST_MAP:
            return answer | {"note": f"no attention is shown for more than {LONGEST_MAP} subwords"}
        try:
            maps = attention_maps(run.model_config, run.params, tokenizer, text, target)
        except (UserError, ValueError) as error:
            return answer | {"note": str(error)}
        answer["maps"] = {kind: _map_as_json(kind, maps[kind]) for kind in KINDS}
        return answer


def _hypothesis_as_json(hypothesis: Hypothesis) -> dict[str, Any]:
    finite_score = max(hypothesis.score, -1e9)  # JSON has no infinity
    return {"text": hypothesis.text, "score": round(finite_score, 4)}


def _map_as_json(kind: str, attention: AttentionMap) -> dict[str, Any]:
    """Returns a map with its weights in thousandths."""
    thousandths = np.rint(1000 * np.nan_to_num(attention.weights_nhts)).astype(int)
    return {
        "title": TITLES[kind],
        "queries": labels(attention.queries),
        "keys": labels(attention.keys),
        "weights": thousandths.tolist(),
    }

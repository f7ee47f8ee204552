"""The key, flag or file that a mistyped one may have meant."""

import pytest

from vaswani.configs.common import default
from vaswani.keys import ELSEWHERE, flat, nearest, suggestion

KEYS = [*flat(default().to_dict())]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("optim.learning_rate", "optim.lr"),  # of which difflib finds optim.name nearest
        ("learning_rate", "optim.lr"),
        ("data.batch_size", "data.tokens_per_batch"),
        ("steps", "steps"),
        ("optim.steps", "steps"),
        ("evals.every", "eval.every"),
        ("checkpiont.every", "checkpoint.every"),  # which ends as eval.every does
        ("modle.N", "model.N"),
        ("stesp", "steps"),
        ("xyzzy", None),
    ],
)
def test_the_key_that_is_meant(key: str, meant: str | None) -> None:
    assert nearest(key, KEYS) == meant
    assert suggestion(key, KEYS) == (f"; did you mean {meant}?" if meant else "; configs/common.py lists them all")


def test_names_of_other_programs_lead_to_keys_and_are_none_of_ours() -> None:
    assert set(ELSEWHERE.values()) <= set(KEYS)
    assert not ELSEWHERE.keys() & {key.rpartition(".")[2] for key in KEYS}
    assert nearest("batch_size", ["beam", "batch_tokens"]) == "batch_tokens", "where that key is none"

"""What docs/configs.md says of normalising is so, also of a sentencepiece model of one's own."""

import io
import re
from pathlib import Path

import pytest
import sentencepiece

from vaswani.data.tokenizer import Tokenizer

LINES = ["你好，世界！"] * 5
PAGE = (Path(__file__).parents[2] / "docs" / "configs.md").read_text()


@pytest.mark.parametrize(
    ("normalisation", "row", "becomes"),
    [
        ("nfkc", "| `nfkc` (default) | sentencepiece's `nmt_nfkc`: Unicode's NFKC, but", "你好,世界! می شود a bb～"),
        ("plain_nfkc", "| `plain_nfkc` | only Unicode's NFKC |", "你好,世界! می\u200cشود a\u200fb\vb~"),
        ("none", "| `none` | nothing: all characters stay |", "你好，世界！ می\u200cشود a\u200fb\vb～"),
    ],
)
def test_the_page_says_what_normalising_does(tmp_path: Path, normalisation: str, row: str, becomes: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith(row)]
    assert len(rows) == 1
    tokenizer = Tokenizer.train(LINES, 270, tmp_path / "x.model", normalisation=normalisation)
    assert tokenizer.normalisation == normalisation
    text = " 你好，世界！  می\u200cشود a\u200fb\vb～ "
    assert tokenizer.decode(tokenizer.encode(text)) == becomes
    for code in re.findall(r"U\+(\w{4})", rows[0]):
        assert tokenizer.normalise(f"a{chr(int(code, 16))}b") == "a b"


def test_a_model_that_was_trained_with_the_flags_of_the_page_can_be_read() -> None:
    flags = re.findall(r"--(\w+)=(\w+)", PAGE.partition("Your own sentencepiece model")[2].partition("`.")[0])
    assert len(flags) == 4
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type="bpe",
        vocab_size=270,
        normalization_rule_name="identity",
        byte_fallback=True,
        minloglevel=2,
        **dict(flags),
    )
    theirs = Tokenizer(model.getvalue())
    assert (theirs.units, theirs.decode(theirs.encode(LINES[0]))) == ("subwords", LINES[0])

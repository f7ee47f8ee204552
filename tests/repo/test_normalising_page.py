"""What docs/configs.md says of normalising is so, also of a sentencepiece model of one's own."""

import io
import re
from pathlib import Path

import pytest
import sentencepiece

from data.tokenizer import Tokenizer

LINES = ["你好，世界！"] * 5
PAGE = (Path(__file__).parents[2] / "docs" / "configs.md").read_text()


@pytest.mark.parametrize(("normalisation", "becomes"), [("nfkc", "你好,世界!"), ("none", LINES[0])])
def test_the_page_says_what_normalising_does_to_chinese(tmp_path: Path, normalisation: str, becomes: str) -> None:
    assert "Unicode's NFKC" in PAGE and "`data.normalisation=none` characters stay as they are" in PAGE
    tokenizer = Tokenizer.train(LINES, 270, tmp_path / "x.model", normalisation=normalisation)
    assert tokenizer.decode(tokenizer.encode(LINES[0])) == becomes


def test_a_model_that_was_trained_with_the_flags_of_the_page_can_be_read() -> None:
    flags = re.findall(r"--(\w+)=(\w+)", PAGE.partition("sentencepiece model of your own")[2].partition("`.")[0])
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

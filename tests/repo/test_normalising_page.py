"""What docs/configs.md says of normalising is so, and the way around it that it names works."""

import io
import re
from pathlib import Path

import sentencepiece

from data.tokenizer import Tokenizer

LINES = ["你好，世界！"] * 5


def test_the_page_says_what_normalising_does_to_chinese(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "configs.md").read_text()
    assert "Unicode's NFKC" in page
    assert Tokenizer.train(LINES, 270, tmp_path / "x.model").normalise(LINES[0]) == "你好,世界!"
    flags = re.findall(r"--(\w+)=(\w+)", page.partition("sentencepiece model of your own")[2].partition("`.")[0])
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES),
        model_writer=model,
        model_type="bpe",
        vocab_size=270,
        byte_fallback=True,
        minloglevel=2,
        **dict(flags),
    )
    theirs = Tokenizer(model.getvalue())
    assert (theirs.units, theirs.decode(theirs.encode(LINES[0]))) == ("subwords", LINES[0])

"""Where a line is cut, and how the translations of its pieces are joined: each as its script is written."""

import itertools
import re

# Where to cut a line, the best first. In scripts without spaces closing quotes and brackets stay with their sentence.
_BREAKS = (
    r"(?<=[.!?])\s+|[。！？]+[」』”’）]*\s*",
    r"(?<=[,;:])\s+|[、，；：]\s*",
    r"\s+",
    r"(?=.)",
)
# A sentence ends with its marks and the quotes and brackets behind them, before a space and no small letter; but not
# behind an initial, a day of the month or a title. In scripts without spaces it ends at once.
_SENTENCE_END = re.compile(
    r"(?<=[.!?…؟।])(?<!\b[^\W\d_]\.)(?<!\b\d\.)(?<!\b\d\d\.)(?<!\b(?:Mr|Ms|Dr|St|Hr|Fr|Nr|ca)\.)"
    r"(?<!\b(?:Mrs|bzw|vgl)\.)(?<!\bProf\.)[\"'”’“»«)\]]*\s+|[。！？]+[」』”’）]*\s*"
)
# After these, Chinese and Japanese have no space.
_WITHOUT_SPACE = re.compile(r"([。！？][」』”’）]*|[、，；：」』）])$")
# Nor between two of their characters, with any punctuation between them: NFKC makes some of it ASCII.
_CHARACTER = r"[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff]"
_ENDS_IN_ONE = re.compile(rf"{_CHARACTER}[^\w\s]*$")
_BEGINS_WITH_ONE = re.compile(rf"[^\w\s]*{_CHARACTER}")


def sentences_of(line: str) -> list[str]:
    """Returns the sentences of a line, without the spaces around them; [] of a blank one.

    The rules know no language: after an abbreviation that they do not know a sentence ends too early.
    """
    sentences = []
    start = 0
    for match in _SENTENCE_END.finditer(line):
        end = match.end()
        if not line[end : end + 1].islower():
            sentences.append(line[start:end].strip())
            start = end
    sentences.append(line[start:].strip())
    return [sentence for sentence in sentences if sentence]


def break_of(text: str) -> int:
    """Returns the place to cut a text: in its middle third, at the best kind of break, nearest to the middle."""
    middle = len(text) // 2
    third = max(1, len(text) // 3)  # so that something is left on both sides
    for pattern in _BREAKS:
        ends = [match.end() for match in re.finditer(pattern, text)]
        places = [end for end in ends if third <= end <= len(text) - third]
        if places:
            return min(places, key=lambda place: abs(place - middle))
    return middle


def joined_by_script(texts: list[str]) -> str:
    """Returns the texts with spaces between them, but where Chinese and Japanese have none."""
    joined = "".join(texts[:1])
    for before, text in itertools.pairwise(texts):
        is_within = _ENDS_IN_ONE.search(before) and begins_in_chinese_or_japanese(text)
        joined += text if is_within or _WITHOUT_SPACE.search(before) else f" {text}"
    return joined


def begins_in_chinese_or_japanese(text: str) -> bool:
    """Returns whether a text begins with a Chinese or Japanese character, which may have punctuation before it."""
    return _BEGINS_WITH_ONE.match(text) is not None

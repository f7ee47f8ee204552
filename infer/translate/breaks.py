"""Where a long line is cut, and how the translations of its pieces are joined: each as its script is written."""

import itertools
import re

# Where to cut a line, the best first. In scripts without spaces closing quotes and brackets stay with their sentence.
_BREAKS = (
    r"(?<=[.!?])\s+|[。！？]+[」』”’）]*\s*",
    r"(?<=[,;:])\s+|[、，；：]\s*",
    r"\s+",
    r"(?=.)",
)
# After these, Chinese and Japanese have no space.
_WITHOUT_SPACE = re.compile(r"([。！？][」』”’）]*|[、，；：」』）])$")
# Nor between two of their characters, with any punctuation between them: NFKC makes some of it ASCII.
_CHARACTER = r"[\u3005-\u3007\u3040-\u30ff\u3400-\u9fff]"
_ENDS_IN_ONE = re.compile(rf"{_CHARACTER}[^\w\s]*$")
_BEGINS_WITH_ONE = re.compile(rf"[^\w\s]*{_CHARACTER}")


def break_of(text: str) -> int:
    """Returns where to cut a text: in its middle third, at the best kind of break there is, nearest to the middle."""
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
